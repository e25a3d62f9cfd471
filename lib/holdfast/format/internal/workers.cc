#include "holdfast/format/internal/workers.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

#include "holdfast/base/mutex.h"
#include "holdfast/base/thread/block_signals.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

void run_beside(int background, const std::function<void(const Stopped&)>& background_work,
                const std::function<void(const Stopped&)>& own_work) {
  Stopped stopped{false};
  Mutex mutex;
  std::exception_ptr first;
  const auto guarded = [&](const std::function<void(const Stopped&)>& work) {
    try {
      work(stopped);
    } catch (...) {
      const MutexLock lock(mutex);
      if (!first) first = std::current_exception();
      // The other threads stop at their next piece; waiting for the whole work would be pointless.
      stopped = true;
    }
  };

  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(background > 0 ? background : 0));
  for (int i = 0; i < background; ++i) {
    try {
      const BlockSignals block;  // on a FUSE mount a handler would end a read or write with EINTR
      threads.emplace_back(guarded, std::cref(background_work));
    } catch (const std::exception&) {  // no thread, or no memory for one
      break;
    }
  }
  // This thread works too, so the result is complete even without any other thread.
  guarded(own_work);
  // If no thread could be made, this one does the background work too.
  if (threads.empty()) guarded(background_work);
  // Joined before anything is thrown: the threads use objects of this frame.
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

void run_workers(int threads, const std::function<void(const Stopped&)>& work) {
  run_beside(threads - 1, work, work);
}

int threads_for(int wanted, std::size_t shares) {
  // More threads than this never help, and the cast to int stays safe.
  constexpr std::size_t kMost = 1024;
  return std::max(1, std::min(wanted, static_cast<int>(std::min(shares, kMost))));
}

}}}  // namespace holdfast::v0_2::internal
