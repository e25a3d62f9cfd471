// A step in which nothing is to be saved costs the training next to nothing: no allocation, no system call.
// (bench/step_overhead counts the instructions.)
#include "holdfast/base/log.h"
#include "rig.h"
#include "support/quiet_call.h"

HOLDFAST_COUNT_ALLOCATIONS

namespace holdfast::test { namespace {

constexpr int kSteps = 1000;

// On the machine's own clock: the one that tests move takes a lock.
struct Quiet {
  Volume volume;
  std::unique_ptr<Attempt> run;

  explicit Quiet(std::size_t elements) {
    CheckpointerOptions options = volume.options({SaveEvery(std::chrono::hours(1))});
    options.start.seams.clock = nullptr;
    MemorySource::Options state;
    state.elements = elements;
    run = std::make_unique<Attempt>(options, state);
    for (int i = 0; i < 3; ++i) run->step();
  }
  ~Quiet() { show_log_times(false); }  // other tests compare whole lines
  // One step of each loop; `call` is made around what is looked at.
  template <class Call>
  void steps(const Call& call) {
    for (int i = 0; i < kSteps; ++i) {
      const StepReport report = run->source.train();
      call([&] {
        run->checkpointer.before_update();
        run->checkpointer.after_step(report);
        run->checkpointer.tick();
      });
    }
  }
};

TEST(QuietStep, AllocatesNothing) {
  for (const std::size_t elements : {10, 10000}) {
    Quiet quiet(elements);
    std::int64_t allocations = 0;
    quiet.steps([&](const auto& work) {
      const std::int64_t before = allocations_here;
      work();
      allocations += allocations_here - before;
    });
    EXPECT_EQ(allocations, 0) << "in " << kSteps << " steps";
  }
}

TEST(QuietStep, AllocationsAreSeen) {
  const std::int64_t before = allocations_here;
  const auto one = std::make_unique<std::string>(100, 'x');
  EXPECT_EQ(allocations_here - before, 2);
}

TEST(QuietStep, NeverEntersTheKernel) {
  if (!KernelEntries::prepare()) GTEST_SKIP() << "system calls cannot be caught on this machine";
  Quiet quiet(10);
  const std::int64_t before = KernelEntries::count();
  quiet.steps([](const auto& work) {
    KernelEntries::watch();
    work();
    KernelEntries::leave();
  });
  EXPECT_EQ(KernelEntries::count() - before, 0)
      << "in " << kSteps << " steps; the last was number " << KernelEntries::last();
}

TEST(QuietStep, SystemCallsAreSeen) {
  if (!KernelEntries::prepare()) GTEST_SKIP() << "system calls cannot be caught on this machine";
  const std::int64_t before = KernelEntries::count();
  KernelEntries::watch();
  const long parent = syscall(SYS_getppid);
  KernelEntries::leave();
  EXPECT_EQ(KernelEntries::count() - before, 1);
  EXPECT_EQ(KernelEntries::last(), SYS_getppid);
  EXPECT_EQ(parent, getppid()) << "and they are made";
}

}}  // namespace holdfast::test
