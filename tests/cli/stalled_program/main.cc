// A trainer's double that hangs: `stalled deadlock|kernel|volume FILE`. Its functions have names that a test
// finds in their stacks. A script has written what a trainer writes.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <string_view>
#include <thread>

namespace {

std::mutex first;
std::mutex second;
std::atomic<std::uint64_t> turns{0};

// Not inlined, so that they are frames; not static, so that they have symbols.
[[gnu::noinline]] void lock_in_other_order(std::mutex& mine, std::mutex& other, std::atomic<int>& ready) {
  const std::lock_guard holds(mine);
  ++ready;
  while (ready < 2) std::this_thread::yield();
  const std::lock_guard waits(other);
  ++turns;
}

[[gnu::noinline]] void endless_kernel() {
  for (;;) turns.fetch_add(1, std::memory_order_relaxed);
}

[[gnu::noinline]] void ask_the_volume(const char* file) {
  struct stat status {};
  stat(file, &status);
  ++turns;
}

}  // namespace

int main(int count, char** words) {
  // As a trainer whose training thread hangs: the signal alone does not end it.
  std::signal(SIGTERM, SIG_IGN);
  const std::string_view kind = count > 1 ? words[1] : "";
  if (kind == "deadlock") {
    std::atomic<int> ready{0};
    std::thread other([&] { lock_in_other_order(second, first, ready); });
    lock_in_other_order(first, second, ready);
    other.join();
  } else if (kind == "kernel") {
    std::thread(endless_kernel).join();
  } else if (kind == "volume" && count > 2) {
    ask_the_volume(words[2]);
  }
  return 70;
}
