// Remembers which process made an object. fork() copies memory, but not threads. In the child a destructor
// must not join a thread that only the parent has. It must not write to a shared eventfd, shut down a shared
// connection, or unlink the parent's file.
//
//   ~Owner() { if (!process_.is_this_one()) { abandon(thread_); abandon(changed_); return; } … }
//
// Errors: none. Threads: any; async-signal-safe.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <vector>

namespace holdfast { inline namespace v0_2 {

class OwnerProcess {
 public:
  bool is_this_one() const noexcept { return getpid() == id_; }

 private:
  pid_t id_ = getpid();
};

// For a forked child: resets a thread or a condition variable without running its destructor. ~thread() would
// end the process; ~condition_variable() would wait for a thread that the child does not have.
template <class T>
void abandon(T& object) noexcept {
  std::construct_at(std::addressof(object));
}

// For a forked child: gives up the object without ever destroying it.
template <class T>
void leave_to_parent(std::unique_ptr<T>& object) noexcept {
  T* const pointer = object.release();
  try {
    // The list keeps the object reachable, so that no leak checker reports it in the child.
    static std::vector<T*>& left = *new std::vector<T*>;
    left.push_back(pointer);
  } catch (const std::bad_alloc&) {  // the object then stays unreachable, which harms nothing
  }
}

}}  // namespace holdfast::v0_2
