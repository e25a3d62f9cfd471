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
  done.get();
}

StoreLine::StoreLine(std::shared_ptr<RankStore> store, std::string prefix)
    : store_(std::move(store)), prefix_(std::move(prefix)), answer_(kAnswer) {}

void StoreLine::shorten_limit() { answer_ = kShortAnswer; }

void StoreLine::throw_if_told_to_stop() const {
  if (heeds_stop_ && stop_signal_came()) throw StoppedWaiting();
}

void StoreLine::call(Duration limit, std::function<void()> work) {
  // After one silence each further call would wait as long for nothing.
  if (dead_) throw SilentStore("no answer");
  try {
    within(limit, std::move(work), {.hopeless = alarm_ ? &alarm_->store : nullptr, .stop = heeds_stop_});
  } catch (const SilentStore&) {
    dead_ = true;
    throw;
  } catch (const StoreClosed&) {
    dead_ = true;
    throw SilentStore("the connection is closed");
  }
}

void StoreLine::set(const std::string& key, const std::string& text) {
  // Copies only: the thread may outlive the caller's frame.
  call(answer_, [store = store_, key = prefix_ + key, text] { store->set(key, text); });
}

std::string StoreLine::get(const std::string& key, Duration limit) {
  if (!missing({key}, limit).empty()) throw SilentStore("no answer");
  const auto text = std::make_shared<std::string>();
  call(answer_, [store = store_, key = prefix_ + key, text] { *text = store->get({key}).at(0); });
  return *text;
}

std::int64_t StoreLine::add(const std::string& key, std::int64_t value) {
  const auto sum = std::make_shared<std::int64_t>(0);
  call(answer_, [store = store_, key = prefix_ + key, value, sum] { *sum = store->add(key, value); });
  return *sum;
}

void StoreLine::erase(const std::string& key) {
  call(answer_, [store = store_, key = prefix_ + key] { store->erase(key); });
}

void StoreLine::make_will(const std::string& key) {
  call(answer_, [store = store_, key = prefix_ + key] { store->make_will(key, ""); });
}

std::vector<std::string> StoreLine::full(const std::vector<std::string>& keys) const {
  std::vector<std::string> all;
  all.reserve(keys.size());
  for (const std::string& key : keys) all.push_back(prefix_ + key);
  return all;
}

std::vector<std::string> StoreLine::get_all(const std::vector<std::string>& keys) {
  const auto texts = std::make_shared<std::vector<std::string>>();
  call(answer_, [store = store_, keys = full(keys), texts] { *texts = store->get(keys); });
  return std::move(*texts);
}

std::vector<std::string> StoreLine::missing(const std::vector<std::string>& keys, Duration limit,
                                            bool loss_is_known) {
  const auto missed = std::make_shared<std::vector<std::string>>();
  const auto alarm = loss_is_known ? nullptr : alarm_;
  call(limit + answer_, [store = store_, alarm, keys = full(keys), limit, missed] {
    *missed = store->missing(keys, limit, [&alarm] { return alarm && alarm->rank; });
  });
  for (std::string& key : *missed) key.erase(0, prefix_.size());
  return std::move(*missed);
}

}}  // namespace holdfast::v0_2
