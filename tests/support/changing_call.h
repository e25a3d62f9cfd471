// Which system calls could change a file, and which file a given call is about: what SyscallTracer looks for.
//
// Complete for what a program can do to files through calls: opens that create, cut or may write, all kinds
// of writes, syncs, lengths, names, modes, and the close of a file opened for writing. Ways to write that
// show in no call of their own (io_uring, writable shared mappings, opening by handle, calls of another
// architecture) come back as `hidden`: whoever counts points must see that there were none.
//
// Linux, x86-64 and 64-bit Arm. Threads: free functions; the thread looked at must stand still.
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
  std::string path;  // in full; of a rename or link the old name
  std::string to;    // its new name
  pid_t thread = 0;
  bool hidden = false;       // opens a way to change the file that later shows in no call
  std::string text() const;  // "renameat2 /run/a -> /run/b"
};

// A seccomp program: SECCOMP_RET_TRACE for every call that may concern us, the others run undisturbed.
std::vector<sock_filter> changing_calls_filter();

// What `thread`, stopped at the entry of call `number`, is about to change beneath `folder` (canonical, the
// folder itself included); nullopt: nothing. `foreign`: the call is of another architecture than ours.
std::optional<ChangingCall> changing_call(pid_t thread, bool foreign, std::uint64_t number,
                                          const std::array<std::uint64_t, 6>& arguments,
                                          const std::filesystem::path& folder);

}  // namespace holdfast::test
