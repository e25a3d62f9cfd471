#include "fibers.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <utility>

namespace holdfast::simulation {
namespace {

constexpr std::size_t kStack = 512UL * 1024;
constexpr SteadyTime kStart{std::chrono::hours(1000)};
constexpr Duration kPointTakes = std::chrono::microseconds(1);

// The program's thread_local variables. Each fiber has its own copy of their bytes.
struct ThreadLocals {
  std::byte* now = nullptr;
  const std::byte* initial = nullptr;
  std::size_t filled = 0, size = 0;
};
const ThreadLocals& thread_locals() {
  static const ThreadLocals found = [] {
    ThreadLocals locals;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
          auto& locals = *static_cast<ThreadLocals*>(to);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& part = info->dlpi_phdr[i];
            if (part.p_type != PT_TLS) continue;
            locals = {static_cast<std::byte*>(info->dlpi_tls_data),
                      reinterpret_cast<const std::byte*>(info->dlpi_addr + part.p_vaddr), part.p_filesz,
                      part.p_memsz};
          }
          return 1;  // the program is the first of the list
        },
        &locals);
    return locals;
  }();
  return found;
}

// What the C++ runtime knows of a thread's exceptions (Itanium ABI: two words).
using Exceptions = std::array<std::uintptr_t, 2>;
Exceptions& exceptions() { return *reinterpret_cast<Exceptions*>(abi::__cxa_get_globals()); }

const char* name_of(Fibers::Wait wait) {
  static constexpr std::array kNames{"runs",    "a lock", "a condition", "the end of a thread",
                                     "a sleep", "poll()", "a future"};
  return kNames[static_cast<std::size_t>(wait)];
}

// The names of the program's functions that these addresses belong to; without addr2line nothing.
std::string functions_of(std::span<void* const> frames) {
  if (frames.empty()) return {};
  Dl_info here{};
  dladdr(reinterpret_cast<void*>(&functions_of), &here);
  std::string command = "addr2line -Cfe /proc/" + std::to_string(getpid()) + "/exe";
  for (void* frame : frames) {
    Dl_info info{};
    if (dladdr(frame, &info) == 0 || info.dli_fbase != here.dli_fbase) continue;
    char text[32];
    std::snprintf(
        text, sizeof text, " %zx",
        static_cast<std::size_t>(static_cast<char*>(frame) - static_cast<char*>(here.dli_fbase)) - 1);
    command += text;
  }
  std::string names;
  FILE* const output = popen((command + " 2>/dev/null").c_str(), "r");
  char line[2000];
  for (bool name = true; output != nullptr && std::fgets(line, sizeof line, output) != nullptr;
       name = !name) {
    if (name) names += std::string("    ") + line;
  }
  if (output != nullptr) pclose(output);
  return names;
}

}  // namespace

class Fiber {
 public:
  ucontext_t context{};
  void* stack = nullptr;
  int number = 0;
  Fibers::Group group = 0;
  std::function<void()> work;
  void* (*routine)(void*) = nullptr;
  void* argument = nullptr;

  bool ended = false, dead = false, doomed = false, woken = false;
  Fibers::Wait waits = Fibers::Wait::none;
  const void* what = nullptr;
  SteadyTime until = Fibers::kNever;
  std::int64_t priority = 0;
  int locks = 0, at_once = 0;

  std::vector<std::byte> locals;
  Exceptions exceptions{};
  int error = 0;
  std::array<void*, 24> frames{};
  int frame_count = 0;

  bool ready() const { return waits == Fibers::Wait::none; }
  void save() {
    const ThreadLocals& all = thread_locals();
    locals.assign(all.now, all.now + all.size);
    exceptions = simulation::exceptions();
    error = errno;
  }
  void restore() const {
    std::copy(locals.begin(), locals.end(), thread_locals().now);
    simulation::exceptions() = exceptions;
    errno = error;
  }
};

Fibers* Fibers::running_ = nullptr;

Fibers::Fibers(const FiberOptions& options)
    : options_(options), now_(kStart), chance_(options.seed * 0x9e3779b97f4a7c15), root_(new Fiber) {}

Fibers::~Fibers() {
  for (void* stack : free_stacks_) munmap(stack, kStack);
}

std::uint64_t Fibers::draw(std::uint64_t below) {
  std::uint64_t z = (chance_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return (z ^ (z >> 31)) % below;
}

std::string Fibers::run(std::function<void()> main) {
  running_ = this;
  self_ = root_.get();
  Fiber* const first = start(0, std::move(main));
  switch_to(first);
  running_ = nullptr;
  return broken_;
}

Fiber* Fibers::make(Group group) {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber* const fiber = fibers_.back().get();
  fiber->number = ++made_;
  fiber->group = group;
  fiber->priority = 1'000 + static_cast<std::int64_t>(draw(1'000'000));
  const ThreadLocals& all = thread_locals();
  fiber->locals.assign(all.initial, all.initial + all.filled);
  fiber->locals.resize(all.size);
  if (free_stacks_.empty()) {
    // Its lowest page stays out of reach, so that an overflow does not go unseen.
    fiber->stack =
        mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fiber->stack == MAP_FAILED) throw std::bad_alloc();
    mprotect(fiber->stack, 4096, PROT_NONE);
  } else {
    fiber->stack = free_stacks_.back();
    free_stacks_.pop_back();
  }
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = kStack;
  fiber->context.uc_link = nullptr;
  const auto address = reinterpret_cast<std::uintptr_t>(fiber);
  makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Fibers::enter), 2,
              static_cast<unsigned>(address >> 32), static_cast<unsigned>(address));
  alive_.push_back(fiber);
  return fiber;
}

void Fibers::enter(unsigned high, unsigned low) {
  auto* const fiber = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
  Fibers& all = *running_;
  if (fiber->routine != nullptr) {
    fiber->routine(fiber->argument);
  } else {
    std::exchange(fiber->work, nullptr)();
  }
  fiber->ended = true;
  all.alive_.erase(std::find(all.alive_.begin(), all.alive_.end(), fiber));
  all.wake(fiber);
  if (fiber == all.fibers_.front().get()) {  // main
    all.switch_to(all.root_.get());
  }
  all.free_stacks_.push_back(fiber->stack);  // used again only after the next line
  all.switch_to(all.next_ready());
}

Fiber* Fibers::start(Group group, std::function<void()> work) {
  Fiber* const fiber = make(group);
  fiber->work = std::move(work);
  return fiber;
}

Fiber* Fibers::start_thread(void* (*routine)(void*), void* argument) {
  Fiber* const fiber = make(self_->group);
  fiber->routine = routine;
  fiber->argument = argument;
  point('t');
  return fiber;
}

void Fibers::join(Fiber* fiber) {
  while (!fiber->ended) wait(Wait::join, fiber);
}

Fibers::Group Fibers::group() const { return self_->group; }

int Fibers::count(Group group) const {
  return static_cast<int>(
      std::count_if(alive_.begin(), alive_.end(), [&](const Fiber* fiber) { return fiber->group == group; }));
}

void Fibers::kill(Group group) {
  for (Fiber* fiber : alive_) {
    if (fiber->group != group) continue;
    fiber->doomed = true;
    fiber->dead = fiber->locks == 0;
  }
  std::erase_if(alive_, [](const Fiber* fiber) { return fiber->dead; });
}

void Fibers::locked(int by) {
  self_->locks += by;
  if (self_->doomed && self_->locks <= 0) {
    self_->dead = true;
    alive_.erase(std::find(alive_.begin(), alive_.end(), self_));
    switch_to(next_ready());
  }
}

void Fibers::switch_to(Fiber* next) {
  if (next == self_) return;
  Fiber* const before = std::exchange(self_, next);
  before->save();
  if (next->waits == Wait::none) next->frame_count = 0;
  next->restore();
  swapcontext(&before->context, &next->context);
}

// Lets time pass until a fiber can run.
Fiber* Fibers::next_ready() {
  if (++points_ > options_.most_points) fail("the run does not end");
  while (true) {
    std::vector<Fiber*> ready;
    SteadyTime next = kNever;
    for (Fiber* fiber : alive_) {
      if (!fiber->ready() && fiber->until <= now_) fiber->waits = Wait::none;  // and is not woken
      if (fiber->ready()) ready.push_back(fiber);
      next = std::min(next, fiber->until);
    }
    if (!ready.empty()) {
      Fiber* chosen = ready[draw(ready.size())];
      if (options_.by_priority) {
        chosen = *std::max_element(ready.begin(), ready.end(),
                                   [](const Fiber* a, const Fiber* b) { return a->priority < b->priority; });
      }
      hash_ = (hash_ ^ static_cast<std::uint64_t>(chosen->number) ^
               static_cast<std::uint64_t>(now_.time_since_epoch().count())) *
              0x100000001b3;
      return chosen;
    }
    if (next == kNever) fail("a dead-lock\n" + report());
    now_ = next;
  }
}

void Fibers::point(char kind) {
  now_ += kPointTakes;
  hash_ = (hash_ ^ static_cast<std::uint64_t>(kind)) * 0x100000001b3;
  if (self_->at_once > 0 || self_->doomed) return;
  if (options_.stalls_one_in != 0 && draw(options_.stalls_one_in) == 0) {
    sleep(Duration(
        static_cast<std::int64_t>(draw(static_cast<std::uint64_t>(options_.longest_stall.count())))));
  } else if (options_.one_in != 0 && draw(options_.one_in) == 0) {
    if (options_.by_priority) self_->priority = --lowest_;
    switch_to(next_ready());
  } else if (++points_ > options_.most_points) {
    fail("the run does not end");
  }
}

bool Fibers::wait(Wait kind, const void* what, SteadyTime end) {
  Fiber& self = *self_;
  self.waits = kind;
  self.what = what;
  self.until = end;
  self.woken = false;
  if (options_.backtraces)
    self.frame_count = backtrace(self.frames.data(), static_cast<int>(self.frames.size()));
  switch_to(next_ready());
  self.what = nullptr;
  self.until = kNever;
  return self.woken;
}

void Fibers::wake(const void* what) {
  for (Fiber* fiber : alive_) {
    if (fiber->ready() || fiber->what != what) continue;
    fiber->waits = Wait::none;
    fiber->woken = true;
    fiber->until = kNever;
  }
}

void Fibers::wake_one(const void* what) {
  std::vector<Fiber*> waiting;
  for (Fiber* fiber : alive_) {
    if (!fiber->ready() && fiber->what == what) waiting.push_back(fiber);
  }
  if (waiting.empty()) return;
  Fiber* const chosen = waiting[draw(waiting.size())];
  chosen->waits = Wait::none;
  chosen->woken = true;
  chosen->until = kNever;
}

void Fibers::sleep_until(SteadyTime end) {
  static const char kSleep = 0;
  if (end > now_) wait(Wait::sleep, &kSleep + self_->number, end);
}

void Fibers::fail(const std::string& text) {
  broken_ = text;
  switch_to(root_.get());
  std::abort();  // nobody comes back
}

std::string Fibers::report() const {
  std::string text;
  for (const Fiber* fiber : alive_) {
    text += "thread " + std::to_string(fiber->number) + " of process " + std::to_string(fiber->group) + ": ";
    text += fiber->ready() ? "could run" : std::string("waits for ") + name_of(fiber->waits);
    if (!fiber->ready() && fiber->until != kNever) {
      text +=
          " for " + std::to_string(std::chrono::duration<double>(fiber->until - now_).count()) + " s more";
    }
    text += "\n";
    text += functions_of(std::span(fiber->frames).first(static_cast<std::size_t>(fiber->frame_count)));
  }
  return text;
}

Fibers::AtOnce::AtOnce() : fiber_(running_ != nullptr ? running_->self_ : nullptr) {
  if (fiber_ != nullptr) ++fiber_->at_once;
}
Fibers::AtOnce::~AtOnce() {
  if (fiber_ != nullptr) --fiber_->at_once;
}

}  // namespace holdfast::simulation
