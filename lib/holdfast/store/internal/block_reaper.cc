#include "holdfast/store/internal/block_reaper.h"

#include <deque>
#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Each waiting file still occupies its space on the volume, so only a few may wait.
constexpr std::size_t kMostWaiting = 8;

}  // namespace

struct BlockReaper::State {
  Mutex mutex;
  CondVar idle;
  std::deque<std::unique_ptr<HeldBlocks>> waiting HOLDFAST_GUARDED_BY(mutex);
  bool running HOLDFAST_GUARDED_BY(mutex) = false;

  void run() noexcept HOLDFAST_EXCLUDES(mutex) {
    MutexLock lock(mutex);
    while (!waiting.empty()) {
      std::unique_ptr<HeldBlocks> blocks = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      // The last close frees the blocks and may take seconds; nobody must wait for the lock meanwhile.
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
    const MutexLock lock(state_->mutex);
    if (state_->waiting.size() >= kMostWaiting) return;  // the destructor of `blocks` frees them here
    // Starts the thread before the queue owns the blocks: if that fails, the destructor frees them here too.
    if (!state_->running) {
      // Detached, because the destructor must not wait for the volume. The thread shares the state.
      // A thread for each burst, not a permanent one: deletions are rare.
      std::thread([state = state_] { state->run(); }).detach();
      state_->running = true;
    }
    state_->waiting.push_back(std::move(blocks));
  } catch (const std::exception&) {  // no thread, or no memory for one
  }
}

bool BlockReaper::busy() const {
  const MutexLock lock(state_->mutex);
  return state_->running;
}

void BlockReaper::drain() {
  const MutexLock lock(state_->mutex);
  state_->idle.wait(state_->mutex, [&]() HOLDFAST_REQUIRES(state_->mutex) { return !state_->running; });
}

}}}  // namespace holdfast::v0_2::internal
