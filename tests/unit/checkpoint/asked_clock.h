// A clock that counts who asks for the time: a thread that asks on and on waits in a loop.
#pragma once

#include <map>
#include <mutex>
#include <thread>

#include "noticed.h"
#include "support/fake_clock.h"
#include "support/soon.h"

namespace holdfast::test {

class AskedClock final : public Clock {
 public:
  explicit AskedClock(FakeClock& clock) : clock_(clock) {}
  SteadyTime now() const override {
    {
      const std::lock_guard lock(mutex_);
      ++asked_[std::this_thread::get_id()];
    }
    return clock_.now();
  }
  WallTime wall_now() const override { return clock_.wall_now(); }
  Duration asleep() const override { return clock_.asleep(); }
  void sleep_for(Duration duration) override { clock_.sleep_for(duration); }

  int asked(std::thread::id by) const {
    const std::lock_guard lock(mutex_);
    const auto found = asked_.find(by);
    return found != asked_.end() ? found->second : 0;
  }
  int asked_by_others(std::thread::id than) const {
    const std::lock_guard lock(mutex_);
    int sum = 0;
    for (const auto& [who, times] : asked_) {
      if (who != than) sum += times;
    }
    return sum;
  }
  // That thread waits, or `or_else` holds. More often than a call without a wait asks.
  template <class Condition>
  bool waits(std::thread::id who, const Condition& or_else) const {
    const int before = asked(who);
    return soon([&] { return asked(who) >= before + 60 || or_else(); });
  }
  bool waits(std::thread::id who) const {
    return waits(who, [] { return false; });
  }

 private:
  FakeClock& clock_;
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, int> asked_;
};

// A run that hears of its end, and a test that knows when the training thread waits.
class AskedNoticed : public Noticed {
 protected:
  AskedNoticed() { options.start.seams.clock = &clock; }
  ~AskedNoticed() override { end_with_all_threads(); }
  AskedClock clock{volume.clock};
  const std::thread::id training = std::this_thread::get_id();
};

}  // namespace holdfast::test
