// Makes the kernel refuse some calls, to test limits and old kernels.
#pragma once

namespace holdfast::test {

enum class RefusedCall {
  threads,              // EAGAIN, as at `ulimit -u` or pids.max
  processes,            // the same
  process_descriptors,  // pidfd_open: ENOSYS, as before Linux 5.3
};

// From now on, for this process and all that it starts. Async-signal-safe. False if no filter can be set
// here.
bool refuse(RefusedCall call);

}  // namespace holdfast::test
