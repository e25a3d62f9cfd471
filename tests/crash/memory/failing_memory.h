// Memory that runs out on purpose: this program's own operator new, in all its forms, and anonymous mmap
// count what is asked for while they are armed, over all threads, and refuse the N-th request, or every one
// from the N-th on. What C code takes with malloc (libhdf5) is not counted.
//
// Threads: any.
#pragma once

#include <cstdint>

namespace holdfast::test::memory {

struct Plan {
  std::uint64_t nth = 0;  // from 1; 0: counts only
  bool for_ever = false;
  bool this_thread_only = false;
};

void arm(Plan plan);
bool is_armed();
struct Asked {
  std::uint64_t requests = 0;
  std::uint64_t refused = 0;
  std::uint64_t refused_elsewhere = 0;  // on other threads than the one that armed
};
Asked disarm();

// What this thread asks for while it lives is not counted.
class Exempt {
 public:
  Exempt();
  ~Exempt();
  Exempt(const Exempt&) = delete;
  Exempt& operator=(const Exempt&) = delete;
};

}  // namespace holdfast::test::memory
