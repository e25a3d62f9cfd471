#include "series.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <thread>

#include "failing_memory.h"
#include "holdfast/base/error.h"
#include "life.h"
#include "support/fault_file_system.h"

namespace holdfast::test::memory {
namespace {

using namespace std::chrono_literals;

constexpr auto kHang = 30s;

class LifeSeries : public Series {
 public:
  LifeSeries(std::filesystem::path folder, const std::vector<Digest>& straight, bool for_ever)
      : folder_(std::move(folder)), straight_(straight), for_ever_(for_ever) {}

  void begin() override {
    static int lives = 0;
    const std::string name = "run-" + std::to_string(getpid()) + "-" + std::to_string(lives++);
    life = std::make_unique<Life>(folder_ / name, straight_);
    prepare();
  }

 protected:
  virtual void prepare() {
    life->start();
    life->train(1);
    Point point;
    life->save(point);
    life->end();
  }
  Plan plan(std::uint64_t nth) const { return {.nth = nth, .for_ever = for_ever_}; }

  static void note(const Asked& asked, Point& point) {
    point.requests = asked.requests;
    point.fired = asked.refused > 0;
    point.elsewhere = asked.refused_elsewhere > 0;
  }
  // The only failure of a start, or of an end, that a program can turn into a message and a code.
  static void told(const Error& error, Point& point) {
    const std::string text = error.what();
    // An image that does not fit may be refused: the next start would need as much.
    const bool refused =
        error.exit_code() == ExitCode::refused && text.find("no memory for an image") != std::string::npos;
    if ((error.exit_code() != ExitCode::io_failed && !refused) || text.empty()) {
      point.complain("told as " + std::to_string(static_cast<int>(error.exit_code())) + ": " + error.what());
    }
  }
  static void untold(const std::exception& error, Point& point, const char* who) {
    point.complain(std::string(who) + " throws " + error.what());
  }

  std::unique_ptr<Life> life;

 private:
  std::filesystem::path folder_;
  const std::vector<Digest>& straight_;
  bool for_ever_;
};

// A run goes on and on; one save of it finds no memory, in any thread, or its housekeeping, or the next
// write.
class Saves final : public LifeSeries {
 public:
  using LifeSeries::LifeSeries;

  void prepare() override {
    LifeSeries::prepare();
    life->start();
    life->train(1);
  }

  void run(std::uint64_t nth, Point& point) override {
    Checkpointer& checkpointer = *life->checkpointer;
    MemorySource& source = *life->source;
    StepReport report = source.train();
    Asked asked;
    bool failed = false;
    try {
      arm(plan(nth));
      checkpointer.after_step(report);
      failed = !settled(checkpointer.save(), point);
      // From here on only the writer is short of memory: its housekeeping, and another write.
      const Exempt exempt;
      checkpointer.after_step(source.train());
      failed = !settled(checkpointer.save(), point) || failed;
      asked = disarm();
    } catch (const std::exception& error) {
      asked = disarm();
      untold(error, point, "the training loop");
    }
    note(asked, point);
    const bool failing = life->acknowledged < source.step();
    const Decision decision = checkpointer.after_step(source.train());
    if (decision.stop) point.complain("the loop is told to stop");
    if (decision.failure.has_value() != failing) point.complain("Decision.failure is wrong");
    if (decision.failure && decision.failure->empty()) point.complain("Decision.failure says nothing");
    if (failed && asked.refused == 0) point.complain("a save fails although there is memory");
    life->judge(point);
    if (failed) life->save(point);
  }

 private:
  bool settled(const SaveHandle& handle, Point& point) {
    const auto status = handle.wait_for(kHang);
    const Exempt exempt;  // asking for names takes memory, too
    if (!status) {
      point.complain("a save never ends");
      return false;
    }
    if (*status != SaveStatus::durable) return false;
    if (handle.checkpoint().empty()) point.complain("a durable save without a name");
    if (life->checkpointer->last_durable().step != handle.step())
      point.complain("last_durable() does not know");
    life->acknowledge(handle.step());
    return true;
  }
};

// The policy's saves: what the training thread itself asks for.
class Steps final : public LifeSeries {
 public:
  using LifeSeries::LifeSeries;

  void prepare() override {
    LifeSeries::prepare();
    life->every = {SaveEvery::steps(1)};
    life->start();
    life->train(1);
  }

  void run(std::uint64_t nth, Point& point) override {
    Checkpointer& checkpointer = *life->checkpointer;
    life->save(point);  // nothing is in flight
    const StepReport report = life->source->train();
    Decision decision;
    Plan only_here = plan(nth);
    only_here.this_thread_only = true;
    try {
      arm(only_here);
      decision = checkpointer.after_step(report);
      note(disarm(), point);
    } catch (const std::exception& error) {
      note(disarm(), point);
      untold(error, point, "after_step");
    }
    if (decision.stop) point.complain("the loop is told to stop");
    if (!decision.saved && !decision.failure) point.complain("no save, and no word of it");
    life->save(point);
    life->judge(point);
  }
};

// The last commit, and what is written about the end.
class Ends final : public LifeSeries {
 public:
  using LifeSeries::LifeSeries;

  void run(std::uint64_t nth, Point& point) override {
    life->start();
    life->train(2);
    const std::int64_t step = life->source->step();
    int code = -1;
    try {
      arm(plan(nth));
      code = life->checkpointer->finish();
      life->end();
      note(disarm(), point);
    } catch (const std::exception& error) {
      note(disarm(), point);
      untold(error, point, "finish()");
    }
    if (code == 0) life->acknowledge(step);
    if (code != 0 && code != 74) point.complain("finish() returns " + std::to_string(code));
    if (code == 74 && !point.fired) point.complain("finish() fails although there is memory");
    life->judge(point);
  }
};

// A run that is left in the middle, one write in flight and one waiting.
class Leaves final : public LifeSeries {
 public:
  using LifeSeries::LifeSeries;

  void prepare() override {
    // The write in flight stands still until memory runs out.
    files_.set_hook([this](const Operation& operation) {
      if (operation.kind != Op::create || operation.path.find("-step-") == std::string::npos) return;
      while (holding_ && !is_armed()) std::this_thread::yield();
    });
    life->file_system = &files_;
    life->second_image = true;
    LifeSeries::prepare();
  }

  void run(std::uint64_t nth, Point& point) override {
    files_.clear_log();
    life->start();
    life->train(2);
    holding_ = true;
    std::vector<SaveHandle> handles;
    handles.reserve(2);
    handles.push_back(life->checkpointer->save());
    life->train(1);
    handles.push_back(life->checkpointer->save());
    try {
      arm(plan(nth));
      life->end();
      note(disarm(), point);
    } catch (const std::exception& error) {
      note(disarm(), point);
      untold(error, point, "the destructor");
    }
    holding_ = false;
    for (const SaveHandle& handle : handles) {
      const auto status = handle.wait_for(0s);
      if (!status) point.complain("a save never ends");
      if (status == SaveStatus::durable) life->acknowledge(handle.step());
    }
    life->judge(point);
  }

 private:
  FaultFileSystem files_{FileSystem::real()};
  std::atomic<bool> holding_{false};
};

// Construction, recovery, claim, load.
class Starts final : public LifeSeries {
 public:
  using LifeSeries::LifeSeries;

  void run(std::uint64_t nth, Point& point) override {
    if (life->acknowledged < 0) prepare();
    MemorySource source;
    CheckpointerOptions options = life->options();
    std::int64_t resumed = -1;
    try {
      arm(plan(nth));
      {
        Checkpointer checkpointer(source, std::move(options));
        resumed = checkpointer.resume().step;
      }
      note(disarm(), point);
    } catch (const Error& error) {
      note(disarm(), point);
      told(error, point);
      if (!point.fired)
        point.complain(std::string("a start fails although there is memory: ") + error.what());
    } catch (const std::exception& error) {
      note(disarm(), point);
      untold(error, point, "the start");
    }
    if (resumed >= 0 && resumed < life->acknowledged)
      point.complain("resumed before what is acknowledged", true);
    life->judge(point);
    life->start();
    if (life->source->step() < life->acknowledged) point.complain("the next start finds less", true);
    life->end();
  }
};

// Less and less room for the whole address space while it lives.
class Limit {
 public:
  explicit Limit(std::uint64_t point) {
    touch_stack();
    std::ifstream file("/proc/self/statm");
    std::uint64_t pages = 0;
    file >> pages;
    file.close();
    const std::uint64_t room = (kLimits - point) * kMost / (kLimits - 1);
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    before_ = limit.rlim_cur;
    limit.rlim_cur = pages * static_cast<std::uint64_t>(getpagesize()) + room;
    setrlimit(RLIMIT_AS, &limit);
  }
  ~Limit() {
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = before_;
    setrlimit(RLIMIT_AS, &limit);
  }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

 private:
  static constexpr std::uint64_t kMost = 12 << 20;
  // A stack that cannot grow ends a process, whatever the program does.
  static void touch_stack() {
    volatile char depth[1 << 20];
    for (std::size_t i = 0; i < sizeof depth; i += 4096) depth[i] = 0;
  }
  rlim_t before_ = RLIM_INFINITY;
};

class LimitedSaves final : public LifeSeries {
 public:
  using LifeSeries::LifeSeries;

  void run(std::uint64_t nth, Point& point) override {
    life->start();
    life->train(1);
    int code = -1;
    {
      const Limit limit(nth);
      try {
        for (int i = 0; i < 3; ++i) {
          life->train(1);
          const auto status = life->checkpointer->save().wait_for(kHang);
          if (!status) point.complain("a save never ends");
          point.elsewhere = point.elsewhere || status == SaveStatus::failed;
          if (status == SaveStatus::durable) life->acknowledge(life->source->step());
        }
        code = life->checkpointer->finish();
      } catch (const std::exception& error) {
        untold(error, point, "the training loop");
      }
      if (code == 0) life->acknowledge(life->source->step());
      life->end();
    }
    point.fired = true;
    if (code != 0 && code != 74) point.complain("finish() returns " + std::to_string(code));
    life->judge(point);
  }
};

class LimitedStarts final : public LifeSeries {
 public:
  using LifeSeries::LifeSeries;

  void run(std::uint64_t nth, Point& point) override {
    try {
      const Limit limit(nth);
      MemorySource source;
      Checkpointer checkpointer(source, life->options());
      checkpointer.resume();
    } catch (const Error& error) {
      point.elsewhere = true;
      told(error, point);
    } catch (const std::exception& error) {
      untold(error, point, "the start");
    }
    point.fired = true;
    life->judge(point);
  }
};

template <class SeriesType>
std::unique_ptr<Series> make(const std::filesystem::path& folder, const std::vector<Digest>& straight,
                             bool for_ever) {
  return std::make_unique<SeriesType>(folder, straight, for_ever);
}

}  // namespace

const std::vector<Kind> kKinds = {{"saves", make<Saves>},
                                  {"steps", make<Steps>},
                                  {"ends", make<Ends>},
                                  {"leaves", make<Leaves>},
                                  {"starts", make<Starts>}};

const std::vector<Kind> kLimitedKinds = {{"saves under a limit", make<LimitedSaves>},
                                         {"starts under a limit", make<LimitedStarts>}};

std::uint64_t requests_of(const std::function<std::unique_ptr<Series>()>& make) {
  const auto series = make();
  series->begin();
  std::uint64_t fewest = UINT64_MAX;
  for (int i = 0; i < 4; ++i) {
    Point point;
    series->run(0, point);
    if (point.problem[0] != '\0') throw Error(std::string("without any refusal: ") + point.problem);
    fewest = std::min(fewest, point.requests);
  }
  return fewest;
}

}  // namespace holdfast::test::memory
