// The calls by which a program uses threads, locks, waits and clocks. A program's own functions of these
// names take precedence over those of the C library for all callers, the standard library included. Within a
// simulation they use fibers.h, elsewhere the C library's.
#include <bits/atomic_futex.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "fibers.h"

namespace {

using holdfast::Duration;
using holdfast::SteadyTime;
using holdfast::simulation::Fiber;
using holdfast::simulation::Fibers;

constexpr Duration kWall = std::chrono::seconds(1'750'000'000);  // the wall clock at steady time 0

Fibers* fibers() { return Fibers::current(); }

// The C library's function of that name. No lock, no static object: it is called before main().
template <class Function>
Function real(Function& found, const char* name) {
  if (found == nullptr) found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  return found;
}
#define HOLDFAST_REAL(name)                                 \
  (real(                                                    \
      []() -> decltype(&::name)& {                          \
        static constinit decltype(&::name) found = nullptr; \
        return found;                                       \
      }(),                                                  \
      #name))

SteadyTime steady(const timespec& time) {
  return SteadyTime(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
}
Duration span(const timespec& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}
timespec to_timespec(Duration time) {
  return {static_cast<time_t>(time.count() / 1'000'000'000), static_cast<long>(time.count() % 1'000'000'000)};
}
bool is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

// A fiber holds a recursive lock of another library without a pause: two fibers are one thread to it.
bool is_plain(const pthread_mutex_t* mutex) { return (mutex->__data.__kind & 3) == 0; }

void lock_in(Fibers& all, pthread_mutex_t* mutex) {
  while (HOLDFAST_REAL(pthread_mutex_trylock)(mutex) == EBUSY) all.wait(Fibers::Wait::lock, mutex);
  all.locked(1);
}
void unlock_in(Fibers& all, pthread_mutex_t* mutex) {
  HOLDFAST_REAL(pthread_mutex_unlock)(mutex);
  all.wake(mutex);
  all.locked(-1);
}

int wait_in(Fibers& all, pthread_cond_t* condition, pthread_mutex_t* mutex, SteadyTime end) {
  all.point('w');
  if (all.spurious()) {
    unlock_in(all, mutex);
    all.point('W');
    lock_in(all, mutex);
    return 0;
  }
  // No other fiber runs between these two lines: a wake cannot be lost. The lock counts as held until then.
  HOLDFAST_REAL(pthread_mutex_unlock)(mutex);
  all.wake(mutex);
  all.locked(-1);
  const bool woken = all.wait(Fibers::Wait::condition, condition, end);
  lock_in(all, mutex);
  return woken ? 0 : ETIMEDOUT;
}

const char kPolling = 0;  // what every poll() waits for

}  // namespace

#define HOLDFAST_CALL extern "C" [[gnu::visibility("default")]]

HOLDFAST_CALL int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr || !is_plain(mutex)) return HOLDFAST_REAL(pthread_mutex_lock)(mutex);
  all->point('l');
  lock_in(*all, mutex);
  return 0;
}
HOLDFAST_CALL int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr || !is_plain(mutex)) return HOLDFAST_REAL(pthread_mutex_trylock)(mutex);
  all->point('T');
  const int busy = HOLDFAST_REAL(pthread_mutex_trylock)(mutex);
  if (busy == 0) all->locked(1);
  return busy;
}
HOLDFAST_CALL int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr || !is_plain(mutex)) return HOLDFAST_REAL(pthread_mutex_unlock)(mutex);
  unlock_in(*all, mutex);
  all->point('u');
  return 0;
}

HOLDFAST_CALL int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_cond_wait)(condition, mutex);
  return wait_in(*all, condition, mutex, Fibers::kNever);
}
HOLDFAST_CALL int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                         const timespec* end) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_cond_clockwait)(condition, mutex, clock, end);
  return wait_in(*all, condition, mutex, steady(*end) - (is_wall(clock) ? kWall : Duration::zero()));
}
HOLDFAST_CALL int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                         const timespec* end) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_cond_timedwait)(condition, mutex, end);
  return wait_in(*all, condition, mutex, steady(*end) - kWall);
}
HOLDFAST_CALL int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_cond_signal)(condition);
  all->wake_one(condition);
  all->point('s');
  return 0;
}
HOLDFAST_CALL int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_cond_broadcast)(condition);
  all->wake(condition);
  all->point('b');
  return 0;
}
HOLDFAST_CALL int pthread_cond_destroy(pthread_cond_t* condition) noexcept {
  return fibers() == nullptr ? HOLDFAST_REAL(pthread_cond_destroy)(condition) : 0;
}

HOLDFAST_CALL int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_rwlock_rdlock)(lock);
  all->point('r');
  while (HOLDFAST_REAL(pthread_rwlock_tryrdlock)(lock) != 0) all->wait(Fibers::Wait::lock, lock);
  all->locked(1);
  return 0;
}
HOLDFAST_CALL int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_rwlock_wrlock)(lock);
  all->point('R');
  while (HOLDFAST_REAL(pthread_rwlock_trywrlock)(lock) != 0) all->wait(Fibers::Wait::lock, lock);
  all->locked(1);
  return 0;
}
HOLDFAST_CALL int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_rwlock_unlock)(lock);
  HOLDFAST_REAL(pthread_rwlock_unlock)(lock);
  all->wake(lock);
  all->locked(-1);
  all->point('U');
  return 0;
}

HOLDFAST_CALL int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*routine)(void*),
                                 void* argument) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_create)(thread, attributes, routine, argument);
  // Known before the new fiber runs.
  Fibers::AtOnce first;
  *thread = reinterpret_cast<pthread_t>(all->start_thread(routine, argument));
  return 0;
}
HOLDFAST_CALL int pthread_join(pthread_t thread, void** result) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_join)(thread, result);
  all->point('j');
  all->join(reinterpret_cast<Fiber*>(thread));
  if (result != nullptr) *result = nullptr;
  return 0;
}
HOLDFAST_CALL int pthread_detach(pthread_t thread) noexcept {
  return fibers() == nullptr ? HOLDFAST_REAL(pthread_detach)(thread) : 0;
}
HOLDFAST_CALL pthread_t pthread_self() noexcept {
  Fibers* const all = fibers();
  return all == nullptr ? HOLDFAST_REAL(pthread_self)() : reinterpret_cast<pthread_t>(all->self());
}
// As the C library counts: 0 new, 1 begun, 2 done.
HOLDFAST_CALL int pthread_once(pthread_once_t* once, void (*routine)()) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(pthread_once)(once, routine);
  while (*once == 1) all->wait(Fibers::Wait::value, once);
  if (*once == 2) return 0;
  *once = 1;
  try {
    routine();
  } catch (...) {
    *once = 0;
    all->wake(once);
    throw;
  }
  *once = 2;
  all->wake(once);
  return 0;
}

// A function's static object. Its first byte says that it exists, the second that its constructor runs.
HOLDFAST_CALL int __cxa_guard_acquire(std::int64_t* guard) {
  Fibers* const all = fibers();
  if (all == nullptr) {
    static decltype(&::__cxa_guard_acquire) found = nullptr;
    return real(found, "__cxa_guard_acquire")(guard);
  }
  auto* const bytes = reinterpret_cast<char*>(guard);
  while (bytes[1] != 0) all->wait(Fibers::Wait::value, guard);
  if (bytes[0] != 0) return 0;
  bytes[1] = 1;
  return 1;
}
HOLDFAST_CALL void __cxa_guard_release(std::int64_t* guard) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) {
    static decltype(&::__cxa_guard_release) found = nullptr;
    return real(found, "__cxa_guard_release")(guard);
  }
  auto* const bytes = reinterpret_cast<char*>(guard);
  bytes[0] = 1;
  bytes[1] = 0;
  all->wake(guard);
}
HOLDFAST_CALL void __cxa_guard_abort(std::int64_t* guard) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) {
    static decltype(&::__cxa_guard_abort) found = nullptr;
    return real(found, "__cxa_guard_abort")(guard);
  }
  reinterpret_cast<char*>(guard)[1] = 0;
  all->wake(guard);
}

HOLDFAST_CALL int clock_gettime(clockid_t clock, timespec* time) noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(clock_gettime)(clock, time);
  all->point('c');
  *time = to_timespec(all->now().time_since_epoch() + (is_wall(clock) ? kWall : Duration::zero()));
  return 0;
}
HOLDFAST_CALL int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* rest) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(clock_nanosleep)(clock, flags, time, rest);
  if (flags == 0) {
    all->sleep(span(*time));
  } else {
    all->sleep_until(steady(*time) - (is_wall(clock) ? kWall : Duration::zero()));
  }
  return 0;
}
HOLDFAST_CALL int nanosleep(const timespec* time, timespec* rest) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(nanosleep)(time, rest);
  all->sleep(span(*time));
  return 0;
}
HOLDFAST_CALL int sched_yield() noexcept {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(sched_yield)();
  all->sleep(std::chrono::microseconds(1));
  return 0;
}

// The descriptors are real; what wakes a poll() in a simulation is eventfd_write().
HOLDFAST_CALL int poll(pollfd* descriptors, nfds_t count, int timeout) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(poll)(descriptors, count, timeout);
  const SteadyTime end =
      timeout < 0 ? Fibers::kNever : all->now() + Duration(std::chrono::milliseconds(timeout));
  while (true) {
    const int found = HOLDFAST_REAL(poll)(descriptors, count, 0);
    if (found != 0 || timeout == 0) return found;
    if (!all->wait(Fibers::Wait::poll, &kPolling, end)) return 0;
  }
}
HOLDFAST_CALL int eventfd_write(int descriptor, eventfd_t value) {
  const int result = HOLDFAST_REAL(eventfd_write)(descriptor, value);
  if (Fibers* const all = fibers()) {
    all->wake(&kPolling);
    all->point('e');
  }
  return result;
}

HOLDFAST_CALL ssize_t getrandom(void* bytes, std::size_t count, unsigned flags) {
  Fibers* const all = fibers();
  if (all == nullptr) return HOLDFAST_REAL(getrandom)(bytes, count, flags);
  for (std::size_t i = 0; i < count; ++i)
    static_cast<unsigned char*>(bytes)[i] = static_cast<unsigned char>(all->draw(256));
  return static_cast<ssize_t>(count);
}

// std::future waits with these.
bool std::__atomic_futex_unsigned_base::_M_futex_wait_until(unsigned* value, unsigned before, bool limited,
                                                            chrono::seconds seconds,
                                                            chrono::nanoseconds rest) {
  Fibers* const all = fibers();
  if (all == nullptr) abort();  // no test waits for a future outside of a simulation
  const SteadyTime end = limited ? SteadyTime(seconds + rest - kWall) : Fibers::kNever;
  if (*value != before) return true;
  return all->wait(Fibers::Wait::value, value, end);
}
bool std::__atomic_futex_unsigned_base::_M_futex_wait_until_steady(unsigned* value, unsigned before,
                                                                   bool limited, chrono::seconds seconds,
                                                                   chrono::nanoseconds rest) {
  Fibers* const all = fibers();
  if (all == nullptr) abort();
  if (*value != before) return true;
  return all->wait(Fibers::Wait::value, value, limited ? SteadyTime(seconds + rest) : Fibers::kNever);
}
void std::__atomic_futex_unsigned_base::_M_futex_notify_all(unsigned* value) {
  if (Fibers* const all = fibers()) {
    all->wake(value);
    all->point('n');
  }
}
