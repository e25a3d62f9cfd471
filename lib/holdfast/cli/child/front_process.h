// Separates the children of a wrapper (`supervise`, `rehearse`) from those of others. The wrapper inherits
// and ends what its command leaves behind. It must not end processes that others started:
//
//   * Process 1 of a container inherits every orphan there, including those of `docker exec`.
//   * A shell passes on its own children: `exec holdfast supervise … > >(tee log)`.
//
// In these cases the wrapper works in a child process, and so inherits only what its command started. The
// front process forwards signals, reaps, and ends with that child's code (128 + N after signal N). If it
// dies, the child dies too.
//
// Errors: IoError if no process can be made; exceptions of `work` pass through. Threads: call before others
// start.
#pragma once

#include <sys/types.h>

#include <functional>

namespace holdfast { inline namespace v0_2 {

// Returns the result of `work`, in the child or in this process. `reaped`: called in the front process for
// each other child of it that has ended. While it returns false it has something left to do, and is called
// again every second, with 0.
int run_apart(const std::function<int()>& work, const std::function<bool(pid_t)>& reaped = {});

}}  // namespace holdfast::v0_2
