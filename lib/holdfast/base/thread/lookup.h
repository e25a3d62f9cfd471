// Reads a volume on a thread of its own. A hard mount without its server blocks the reader for ever, and the
// program must react to signals meanwhile.
//
//   Lookup<RunNews> looking([directory] { return read_run_news(directory); });
//   while (!looking.ready()) hear_signals();
//   const RunNews news = looking.take();
//
// The thread is detached, so a Lookup may be dropped while its read hangs. `read` must not throw, and must
// own all that it uses. Errors: std::system_error without a thread. Threads: one uses it; block signals
// before the first Lookup.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace holdfast { inline namespace v0_2 {

template <class Result>
class Lookup {
 public:
  explicit Lookup(std::function<Result()> read) : shared_(std::make_shared<Shared>()) {
    // No lambda for std::thread: g++ 12 shows its type for a lambda of a template outside our libraries.
    const std::function<void()> work = [shared = shared_, read = std::move(read)] {
      shared->result.emplace(read());
      shared->ready.store(true, std::memory_order_release);
    };
    std::thread(work).detach();
  }

  bool ready() const { return shared_->ready.load(std::memory_order_acquire); }
  // Requires ready().
  Result take() { return std::move(*shared_->result); }

 private:
  struct Shared {
    std::optional<Result> result;
    std::atomic<bool> ready{false};
  };
  std::shared_ptr<Shared> shared_;
};

}}  // namespace holdfast::v0_2
