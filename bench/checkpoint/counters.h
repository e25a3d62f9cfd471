// Instructions and cycles of the threads of this process, in user mode and in the kernel, by perf_event_open. Many
// virtual machines have no such counters, and many systems forbid them: then why_not() says so, and nothing is
// counted.
//
// Errors: none. Threads: one thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <set>
#include <string>
#include <vector>

namespace holdfast::bench {

struct Counts {
  double user_instructions = 0;
  double kernel_instructions = 0;
  double user_cycles = 0;
  double kernel_cycles = 0;
  Counts operator-(const Counts& other) const {
    return {user_instructions - other.user_instructions, kernel_instructions - other.kernel_instructions,
            user_cycles - other.user_cycles, kernel_cycles - other.kernel_cycles};
  }
};

class Counters {
 public:
  // Counts every thread that exists now but `left_out` (thread ids), and all that these start later.
  explicit Counters(const std::set<pid_t>& left_out = {});
  ~Counters();
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;

  const std::string& why_not() const { return why_not_; }  // empty: they count
  Counts read() const;

 private:
  static constexpr std::size_t kEvents = 4;  // in the order of Counts
  std::array<std::vector<int>, kEvents> files_;
  std::string why_not_;
};

}  // namespace holdfast::bench
