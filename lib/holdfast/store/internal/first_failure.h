// Runs works that do not depend on each other: an IoError of one does not keep the next from running.
//
//   FirstFailure failure;
//   for (const std::string& name : names) failure.run([&] { directory.unlink(name); });
//   failure.rethrow();   // the first IoError, if there was one
//
// Errors: all other exceptions pass at once. Threads: one.
#pragma once

#include <exception>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

class FirstFailure {
 public:
  template <class Work>
  void run(const Work& work) {
    try {
      work();
    } catch (const IoError&) {
      if (!first_) first_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
};

}}}  // namespace holdfast::v0_2::internal
