// Runs one function on several threads at once, the calling thread among them, and waits for all.
//
// The function takes work from a shared counter until there is none; `stopped` tells it that another thread
// failed. Errors: the first exception of any thread is thrown again here, after all have ended. When the
// system refuses a thread, the others do its share.
// Threads: the function is called from all of them at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace holdfast::inline v1::internal {

using Stopped = std::atomic<bool>;

// `background` threads run `background_work`; the calling thread runs `own_work`.
void run_beside(int background, const std::function<void(const Stopped&)>& background_work,
                const std::function<void(const Stopped&)>& own_work);

// `threads` in all, every one running `work`.
void run_workers(int threads, const std::function<void(const Stopped&)>& work);

// No more of them than there are shares of the work, and at least one.
int threads_for(int wanted, std::size_t shares);

}  // namespace holdfast::inline v1::internal
