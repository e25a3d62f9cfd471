#include "support/refused_call.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace holdfast::test {
namespace {

constexpr sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}
constexpr sock_filter jump_if(unsigned short test, unsigned value, unsigned char then,
                              unsigned char otherwise) {
  return BPF_JUMP(static_cast<unsigned short>(BPF_JMP | test | BPF_K), value, then, otherwise);
}
constexpr sock_filter refuse_with(int error) {
  return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error));
}
constexpr sock_filter kAllow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

template <std::size_t kCount>
bool set(std::array<sock_filter, kCount> filter) {
  const sock_fprog program{.len = kCount, .filter = filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// A caller that gets ENOSYS for clone3 uses clone, whose flags a filter can read.
bool refuse_clone(bool threads) {
  return set(
      std::array{load(offsetof(seccomp_data, nr)), jump_if(BPF_JEQ, SYS_clone3, 3, 0),
                 jump_if(BPF_JEQ, SYS_clone, 0, 4), load(offsetof(seccomp_data, args)),
                 threads ? jump_if(BPF_JSET, CLONE_THREAD, 1, 2) : jump_if(BPF_JSET, CLONE_THREAD, 2, 1),
                 refuse_with(ENOSYS), refuse_with(EAGAIN), kAllow});
}

}  // namespace

bool refuse(RefusedCall call) {
  if (call != RefusedCall::process_descriptors) return refuse_clone(call == RefusedCall::threads);
  return set(std::array{load(offsetof(seccomp_data, nr)), jump_if(BPF_JEQ, SYS_pidfd_open, 0, 1),
                        refuse_with(ENOSYS), kAllow});
}

}  // namespace holdfast::test
