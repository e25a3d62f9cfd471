// Waits in real time for another thread.
#pragma once

#include <chrono>
#include <thread>

namespace holdfast::test {

// Waits until the condition holds, at most 20 s, because a test that hangs reports nothing.
template <class Condition>
bool soon(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace holdfast::test
