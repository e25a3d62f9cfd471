// Runs one function on several threads at once, including the calling thread, and waits for all.
//
// The function takes work from a shared counter until none is left; `stopped` becomes true if another thread
// failed. If the system refuses a thread, the others do its work.
// Errors: rethrows the first exception of any thread after all have ended. Threads: the function runs on all
// at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>

namespace holdfast { inline namespace v0_2 { namespace internal {

using Stopped = std::atomic<bool>;

// `background` threads run `background_work`; the calling thread runs `own_work`.
void run_beside(int background, const std::function<void(const Stopped&)>& background_work,
                const std::function<void(const Stopped&)>& own_work);

// Runs `work` on `threads` threads in total.
void run_workers(int threads, const std::function<void(const Stopped&)>& work);

// `wanted`, but at most one thread per share of the work, and at least one.
int threads_for(int wanted, std::size_t shares);

}}}  // namespace holdfast::v0_2::internal
