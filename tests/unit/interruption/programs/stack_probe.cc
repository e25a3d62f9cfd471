// Looks at the stacks on which signal handlers run, in a program that links holdfast_early_signals.
//   stack_probe main|threads|released|heap     exit code 0: as promised
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

bool has_alternate_stack() {
  stack_t current{};
  return sigaltstack(nullptr, &current) == 0 && (current.ss_flags & SS_DISABLE) == 0 &&
         current.ss_size >= 65536;
}

const bool had_one_in_a_constructor = has_alternate_stack();

std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

void* begin_plainly(void* result) {
  *static_cast<bool*>(result) = has_alternate_stack();
  pthread_exit(nullptr);
}

int threads() {
  bool plain = false;
  pthread_t thread{};
  pthread_attr_t small{};
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, std::size_t{64} * 1024);
  if (pthread_create(&thread, &small, begin_plainly, &plain) != 0 || pthread_join(thread, nullptr) != 0)
    return 1;
  std::atomic<int> with{0};
  std::vector<std::thread> many;
  for (int i = 0; i < 8; ++i) many.emplace_back([&with] { with += has_alternate_stack() ? 1 : 0; });
  for (std::thread& each : many) each.join();
  return plain && with == 8 ? 0 : 2;
}

int released() {
  std::thread([] {}).join();
  const std::size_t before = mappings();
  for (int i = 0; i < 200; ++i) std::thread([] {}).join();
  return mappings() <= before + 20 ? 0 : 1;
}

#ifdef __x86_64__
std::atomic<bool> standing{false};
std::atomic<bool> leave{false};

// As oneDNN's generated code does: the stack pointer in the middle of a buffer, for a while.
void* stand_in_the_heap(void* buffer) {
  asm volatile(
      "movq %%rsp, %%rbx\n\t"
      "movq %0, %%rsp\n\t"
      "movb $1, (%1)\n"
      "1:\n\t"
      "pause\n\t"
      "cmpb $0, (%2)\n\t"
      "je 1b\n\t"
      "movq %%rbx, %%rsp\n\t"
      :
      : "r"(buffer), "r"(&standing), "r"(&leave)
      : "rbx", "memory", "cc");
  return nullptr;
}

int heap() {
  constexpr std::size_t kSize = std::size_t{256} * 1024;
  std::vector<unsigned char> buffer(kSize, 0x5A);
  pthread_t thread{};
  if (pthread_create(&thread, nullptr, stand_in_the_heap, buffer.data() + kSize / 2) != 0) return 1;
  while (!standing) usleep(100);
  for (int i = 0; i < 100; ++i) {
    pthread_kill(thread, SIGUSR1);
    usleep(100);
  }
  leave = true;
  pthread_join(thread, nullptr);
  for (const unsigned char byte : buffer) {
    if (byte != 0x5A) return 2;
  }
  return 0;
}
#else
int heap() { return 0; }
#endif

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  if (what == "main") return had_one_in_a_constructor && has_alternate_stack() ? 0 : 1;
  if (what == "threads") return threads();
  if (what == "released") return released();
  return what == "heap" ? heap() : 64;
}
