// A source of a program's own that tells what a test wants, when it wants it.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "rig.h"

namespace holdfast::test {

class Announcer {
 public:
  void give_to(CheckpointerOptions& options) {
    options.notices.sources.emplace_back([state = state_](Clock&) { return std::make_unique<Told>(state); });
  }
  // A Checkpointer is there. One that leaves a thread in the disk lives until that thread ends.
  bool is_heard() const { return state_.use_count() > 2; }
  // Returns when the Checkpointer has latched it.
  void tell(Notice notice) {
    std::unique_lock lock(state_->mutex);
    notice.source = "test";
    state_->news.push_back(std::move(notice));
    state_->heard = false;
    eventfd_write(state_->event, 1);
    state_->changed.wait(lock, [&] { return state_->heard; });
  }
  void deadline(SteadyTime when, bool hibernates = false) {
    tell({.kind = NoticeKind::deadline,
          .deadline = when,
          .text = "the end is near",
          .hibernates = hibernates});
  }
  void withdraw() { tell({.kind = NoticeKind::withdrawn, .text = "never mind"}); }
  void risk() { tell({.kind = NoticeKind::at_risk, .text = "rebalance"}); }
  void stop(SteadyTime when) { tell({.kind = NoticeKind::stop, .deadline = when, .text = "SIGTERM"}); }

 private:
  struct State {
    ~State() { close(event); }
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Notice> news;
    bool handed_out = false;
    bool heard = true;
    int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  };
  class Told final : public Source {
   public:
    explicit Told(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::string_view name() const override { return "test"; }
    Duration interval() const override { return std::chrono::hours(1); }
    int wake_descriptor() const override { return state_->event; }
    std::vector<Notice> poll() override {
      const std::lock_guard lock(state_->mutex);
      eventfd_t ignored = 0;
      eventfd_read(state_->event, &ignored);
      if (std::exchange(state_->handed_out, false) && state_->news.empty()) {
        state_->heard = true;
        state_->changed.notify_all();
      }
      if (state_->news.empty()) return {};
      state_->handed_out = true;
      eventfd_write(state_->event, 1);  // once more, when these have been latched
      return std::exchange(state_->news, {});
    }

   private:
    std::shared_ptr<State> state_;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace holdfast::test
