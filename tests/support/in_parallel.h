// A loop on two threads, for tests that start many processes.
//
// Threads: two threads call `work` at once. An exception of `work` ends the test program.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>

namespace holdfast::test {

// work(0) … work(count - 1).
inline void in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t at = next++; at < count; at = next++) work(at);
  };
  std::thread other(run);
  run();
  other.join();
}

}  // namespace holdfast::test
