#include "holdfast/ranks/store_line.h"

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "holdfast/interruption/signal_source.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// Limit for an answer that needs no waiting. A busy machine is slow, and a frozen one is silent for half a
// minute.
constexpr Duration kAnswer = 45s;
// For a roll call: the run has failed, and a dead store must not hold its end up.
constexpr Duration kShortAnswer = 5s;
constexpr Duration kAlarmLook = 100ms;  // between two checks of the alarm

}  // namespace

StoppedWaiting::StoppedWaiting()
    : Error(
          "told to stop (a signal) while the ranks were meeting; nothing was begun, what was committed "
          "stands",
          ExitCode::interrupted) {}

void within(Duration limit, std::function<void()> work, Heeds heeds) {
  std::packaged_task<void()> task(std::move(work));
  std::future<void> done = task.get_future();
  // In a thread, because a call to a dead store may never return.
  std::thread thread(std::move(task));
  const SteadyTime end = Clock::real().now() + limit;
  for (SteadyTime now = end - limit;
       done.wait_until(std::min(end, now + kAlarmLook)) != std::future_status::ready;) {
    now = Clock::real().now();
    const bool stopped = heeds.stop && stop_signal_came();
    if (now < end && !stopped && (heeds.hopeless == nullptr || !*heeds.hopeless)) continue;
    // Left behind: the thread holds what it needs by shared pointers.
    thread.detach();
    if (stopped) throw StoppedWaiting();
    throw SilentStore("no answer");
  }
  // It has finished, so this does not wait.
  thread.join();
  try {
    done.get();
  } catch (...) {
    // The work may hear of the stop earlier than this loop, and fail for that reason alone.
    if (heeds.stop && stop_signal_came()) throw StoppedWaiting();
    throw;
  }
}

StoreLine::StoreLine(std::shared_ptr<RankStore> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)), answer_(kAnswer) {}

void StoreLine::shorten_limit() { answer_ = kShortAnswer; }

void StoreLine::throw_if_told_to_stop() const {
  if (heeds_stop_ && stop_signal_came()) throw StoppedWaiting();
}

// `work` gets the store, and must own everything else: the thread may outlive the caller's frame.
template <class Work>
auto StoreLine::call(Duration limit, Work work) {
  using Answer = decltype(work(*store_));
  // Here, because a loop of short calls may never be inside one when the signal comes.
  throw_if_told_to_stop();
  // After one silence each further call would wait as long for nothing.
  if (dead_) throw SilentStore("no answer");
  const auto answer = std::make_shared<std::optional<Answer>>();
  try {
    within(limit, [store = store_, work = std::move(work), answer]() mutable { *answer = work(*store); },
           {.hopeless = alarm_ ? &alarm_->store : nullptr, .stop = heeds_stop_});
  } catch (const SilentStore&) {
    dead_ = true;
    throw;
  } catch (const StoreClosed&) {
    dead_ = true;
    throw SilentStore("the connection is closed");
  }
  return std::move(**answer);
}

std::function<bool()> StoreLine::give_up(bool loss_is_known) const {
  return [alarm = loss_is_known ? nullptr : alarm_] { return alarm && alarm->rank; };
}

void StoreLine::set(const std::string& key, const std::string& text) {
  call(answer_, [key = prefix_ + key, text](RankStore& store) {
    store.set(key, text);
    return true;
  });
}

std::optional<std::string> StoreLine::peek(const std::string& key) {
  return call(answer_, [key = prefix_ + key](RankStore& store) { return store.peek(key); });
}

std::optional<std::string> StoreLine::wait(const std::string& key, Duration limit, bool loss_is_known) {
  return call(limit + answer_, [key = prefix_ + key, limit, over = give_up(loss_is_known)](RankStore& store) {
    return store.wait(key, limit, over);
  });
}

std::string StoreLine::get(const std::string& key, Duration limit) {
  auto text = wait(key, limit);
  if (!text) throw SilentStore("no answer");
  return std::move(*text);
}

std::int64_t StoreLine::add(const std::string& key, std::int64_t value) {
  return call(answer_, [key = prefix_ + key, value](RankStore& store) { return store.add(key, value); });
}

void StoreLine::erase(const std::string& key) {
  call(answer_, [key = prefix_ + key](RankStore& store) {
    store.erase(key);
    return true;
  });
}

void StoreLine::bring(const std::string& name, int rank, int world_size, const std::string& text) {
  call(answer_, [name = prefix_ + name, rank, world_size, text](RankStore& store) {
    return holdfast::bring(store, name, rank, world_size, text);
  });
}

RankTexts StoreLine::came(const std::string& name) {
  return call(answer_, [name = prefix_ + name](RankStore& store) { return holdfast::came(store, name); });
}

std::vector<int> StoreLine::absent(const std::string& name, int world_size, Duration limit,
                                   bool loss_is_known) {
  if (wait(gathered(name), limit, loss_is_known)) return {};
  const RankTexts texts = came(name);
  std::vector<int> absent;
  for (int rank = 0; rank < world_size; ++rank) {
    if (!texts.contains(rank)) absent.push_back(rank);
  }
  return absent;
}

std::vector<int> StoreLine::absent(const std::string& name, const std::vector<int>& ranks, Duration limit,
                                   bool loss_is_known) {
  return call(limit + answer_, [name = prefix_ + name, left = ranks, limit,
                                over = give_up(loss_is_known)](RankStore& store) mutable {
    // More ranks bring longer texts, so the pause grows with them.
    const Duration longest = longest_pause(left.size());
    const SteadyTime end = Clock::real().now() + limit;
    for (Duration pause = 1ms;; pause = std::min<Duration>(2 * pause, longest)) {
      const RankTexts texts = holdfast::came(store, name);
      std::erase_if(left, [&](int rank) { return texts.contains(rank); });
      if (left.empty() || Clock::real().now() >= end || over()) return left;
      std::this_thread::sleep_for(std::min<Duration>(pause, end - Clock::real().now()));
    }
  });
}

void StoreLine::forget(const std::string& name) {
  call(answer_, [name = prefix_ + name](RankStore& store) {
    holdfast::forget(store, name);
    return true;
  });
}

}}  // namespace holdfast::v0_2
