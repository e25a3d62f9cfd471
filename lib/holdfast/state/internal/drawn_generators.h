// Which random generators LibTorch's operators draw from while this object lives. It hears every operator of
// every thread, so it costs each of them about a microsecond; it lives for the first updates of a process
// alone. It does not hear engines of <random>, because no operator draws from them.
//
// Threads: any. Errors: none; a generator may go unheard where memory is exhausted.
#pragma once

#include <ATen/core/Generator.h>

#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 { namespace internal {

struct DrawnGenerator {
  at::Generator generator;
  std::string by;         // "aten::normal_"
  bool outlived = false;  // the program no longer holds it
};

class DrawnGenerators {
 public:
  DrawnGenerators();
  ~DrawnGenerators();
  DrawnGenerators(const DrawnGenerators&) = delete;
  DrawnGenerators& operator=(const DrawnGenerators&) = delete;
  // Those that were given to operators by name, in the order of their first draw. Not the default ones.
  std::vector<DrawnGenerator> heard() const;
};

}}}  // namespace holdfast::v0_2::internal
