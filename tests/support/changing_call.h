// The system calls that could change a file, and the file of a given call: what SyscallTracer looks for.
//
// Complete for changes through calls: opens that create, truncate or may write, all writes, syncs, lengths,
// names, modes, and the close of a file opened for writing. Ways to write without a call of their own
// (io_uring, writable shared mappings, opening by handle, calls of another architecture) are reported as
// `hidden`; a test that counts calls must see none.
//
// Linux, x86-64 and 64-bit Arm. Threads: free functions; the inspected thread must be stopped.
#pragma once

#include <linux/filter.h>
#include <sys/types.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace holdfast::test {

struct ChangingCall {
  std::string name;  // "renameat2"
  std::string path;  // in full; for a rename or link the old name
  std::string to;    // the new name
  pid_t thread = 0;
  bool hidden = false;       // opens a way to change the file without a further call
  std::string text() const;  // "renameat2 /run/a -> /run/b"
};

// A seccomp program: SECCOMP_RET_TRACE for every call that may matter; others run undisturbed.
std::vector<sock_filter> changing_calls_filter();

// The change beneath `folder` (canonical, itself included) that `thread`, stopped at the entry of call
// `number`, is about to make; nullopt: none. `foreign`: the call belongs to another architecture.
std::optional<ChangingCall> changing_call(pid_t thread, bool foreign, std::uint64_t number,
                                          const std::array<std::uint64_t, 6>& arguments,
                                          const std::filesystem::path& folder);

}  // namespace holdfast::test
