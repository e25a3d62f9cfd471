// The threads of a program as fibers of one thread, in virtual time: one runs at a time, and the seed decides
// who goes on at every lock, wait, wake, start, end, sleep and look at a clock. Time passes only when no
// fiber can run, and then jumps to the next timeout. So equal seeds run equally, and a dead-lock is a result.
//
//   Fibers fibers({.seed = 7});
//   EXPECT_EQ(fibers.run([] { std::thread other(…); other.join(); }), "");
//
// thread_calls.cc hands over the calls of std::thread, std::mutex, std::condition_variable, std::future, the
// clocks and poll(). Between such calls a fiber runs undisturbed: a race of plain loads and stores does not
// show. A run that is broken, or killed some fibers, leaves memory behind: make it in a child process.
//
// Errors: run() tells them. Threads: one, with one object at a time.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast::simulation {

struct FiberOptions {
  std::uint64_t seed = 1;
  // A fiber that could go on lets another one run at one of so many points. 0: it runs until it waits.
  unsigned one_in = 0;
  // The ready fiber with the highest priority runs. The points above lower the priority of the running one.
  bool by_priority = false;
  // At one of so many points a fiber stands still for at most `longest_stall`. 0: never.
  unsigned stalls_one_in = 0;
  Duration longest_stall = std::chrono::seconds(1);
  bool spurious = false;                  // a wait without a predicate may return for no reason
  std::uint64_t most_points = 5'000'000;  // more of them count as a run that does not end
  bool backtraces = false;                // the report of a dead-lock names the functions
};

class Fiber;

class Fibers {
 public:
  using Group = int;  // a process: its fibers end together
  static constexpr SteadyTime kNever = SteadyTime::max();

  explicit Fibers(const FiberOptions& options);
  ~Fibers();
  Fibers(const Fibers&) = delete;
  Fibers& operator=(const Fibers&) = delete;

  // Runs `main` as the first fiber until it returns. "", or why it could not.
  std::string run(std::function<void()> main);

  // The running simulation; null outside of a fiber.
  static Fibers* current() noexcept { return running_; }

  // For what the fibers themselves do.
  SteadyTime now() const { return now_; }
  void sleep_until(SteadyTime end);
  void sleep(Duration duration) { sleep_until(now_ + duration); }
  Fiber* start(Group group, std::function<void()> work);
  void join(Fiber* fiber);
  Group group() const;
  // None of its fibers runs any more, but to release the locks that they hold. Not of the caller's group.
  void kill(Group group);
  int count(Group group) const;  // of its fibers that have not ended
  // Ends run() with that text.
  [[noreturn]] void fail(const std::string& text);
  // Of all decisions up to now.
  std::uint64_t hash() const { return hash_; }
  std::uint64_t points() const { return points_; }
  std::string report() const;  // who waits for what
  std::uint64_t draw(std::uint64_t below);

  // While it lives, its fiber goes on until it waits: what it does happens at once.
  class AtOnce {
   public:
    AtOnce();
    ~AtOnce();
    AtOnce(const AtOnce&) = delete;
    AtOnce& operator=(const AtOnce&) = delete;

   private:
    Fiber* fiber_;
  };

  // For thread_calls.cc.
  enum class Wait { none, lock, condition, join, sleep, poll, value };
  void point(char kind);  // another fiber may go on here
  // Until wake(what) or `end`. False: the time is over.
  bool wait(Wait kind, const void* what, SteadyTime end = kNever);
  void wake(const void* what);
  void wake_one(const void* what);
  void locked(int by);  // the running fiber holds that many more locks
  Fiber* self() const { return self_; }
  Fiber* start_thread(void* (*routine)(void*), void* argument);
  bool spurious() { return options_.spurious && draw(16) == 0; }

 private:
  friend class Fiber;
  Fiber* make(Group group);
  void switch_to(Fiber* next);
  Fiber* next_ready();
  void pause_for_others();
  static void enter(unsigned high, unsigned low);

  const FiberOptions options_;
  static Fibers* running_;
  SteadyTime now_;
  std::uint64_t chance_;
  std::uint64_t hash_ = 0, points_ = 0;
  std::int64_t lowest_ = 0;
  int made_ = 0;
  std::unique_ptr<Fiber> root_;  // the caller of run()
  Fiber* self_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;  // all that were made
  std::vector<Fiber*> alive_;                   // in the order of their starts
  std::vector<void*> free_stacks_;
  std::string broken_;
};

}  // namespace holdfast::simulation
