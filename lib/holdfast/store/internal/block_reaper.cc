#include "holdfast/store/internal/block_reaper.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace holdfast::inline v1::internal {
namespace {

constexpr std::size_t kMostWaiting = 8;

}  // namespace

struct BlockReaper::State {
  std::mutex mutex;
  std::condition_variable idle;
  std::deque<std::unique_ptr<HeldBlocks>> waiting;
  bool running = false;

  void run() noexcept {
    std::unique_lock lock(mutex);
    while (!waiting.empty()) {
      std::unique_ptr<HeldBlocks> blocks = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      blocks.reset();
      lock.lock();
    }
    running = false;
    idle.notify_all();
  }
};

BlockReaper::BlockReaper() : state_(std::make_shared<State>()) {}

BlockReaper::~BlockReaper() = default;

bool BlockReaper::unlink(Directory& directory, const std::string& name) {
  std::unique_ptr<HeldBlocks> blocks;
  const bool existed = directory.unlink_lazily(name, blocks);
  if (blocks) take(std::move(blocks));
  return existed;
}

void BlockReaper::take(std::unique_ptr<HeldBlocks> blocks) noexcept {
  try {
    const std::lock_guard lock(state_->mutex);
    if (state_->waiting.size() >= kMostWaiting) return;  // freed here
    // Before the queue has it: what a failure below leaves behind is then freed here as well.
    if (!state_->running) {
      std::thread([state = state_] { state->run(); }).detach();
      state_->running = true;
    }
    state_->waiting.push_back(std::move(blocks));
  } catch (const std::exception&) {  // no thread, or no memory for one
  }
}

bool BlockReaper::busy() const {
  const std::lock_guard lock(state_->mutex);
  return state_->running;
}

void BlockReaper::drain() {
  std::unique_lock lock(state_->mutex);
  state_->idle.wait(lock, [&] { return !state_->running; });
}

}  // namespace holdfast::inline v1::internal
