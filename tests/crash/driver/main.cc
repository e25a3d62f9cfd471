// A training program without LibTorch, to be killed: the real Checkpointer on a real directory around a
// pseudo-training that is deterministic to the bit.
//
//   checkpointer_driver DIRECTORY STEPS [every=N] [keep=N] [homed=SECONDS] [wait | beside] [announced] [elements=N]
//                       [pace-us=N] [clock-years=N] [kill-before=N] [buffered] [lazy] [states] [leashed]
//                       [waits] [from=STEP]
//                       [cut-…=N, see power_cut.h]
//
// Prints `started step=… checkpoint=…` after the resume and `acknowledged step=…` for each save it waited
// for: at once (`wait`), or having trained beside it up to the step before the next one (`beside`).
// announced: it calls before_update(), and the state is copied while it paces, which stands for forward and
// backward. At the end `complete step=… state=…` or `interrupted step=… state=… checkpoint=…`. clock-years:
// its wall clock goes wrong by so many. With kill-before it sends itself SIGKILL just before the N-th
// operation that could change the disk. buffered: without O_DIRECT. lazy: and without write-back before the
// fsync. states: `started` ends with ` state=…`, and every step prints `stepped step=… state=…`. leashed:
// dies with the test that started it. waits: after a notice it trains no more.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/io/posix_file_system.h"
#include "power_cut.h"
#include "support/fault_file_system.h"
#include "support/memory_source.h"

namespace {

using namespace holdfast;

std::map<std::string, std::int64_t> options_of(int count, char** arguments) {
  std::map<std::string, std::int64_t> options;
  for (int i = 3; i < count; ++i) {
    const std::string text = arguments[i];
    const auto equals = text.find('=');
    const auto value =
        equals == std::string::npos ? std::optional<std::int64_t>(1) : parse_int(text.substr(equals + 1));
    if (!value) throw UsageError("what is " + text + "?");
    options[text.substr(0, equals)] = *value;
  }
  return options;
}

class WrongClock final : public Clock {
 public:
  explicit WrongClock(std::int64_t years) : wrong_by_(std::chrono::hours(years * 24 * 365)) {}
  SteadyTime now() const override { return real().now(); }
  WallTime wall_now() const override { return real().wall_now() + wrong_by_; }
  void sleep_for(Duration duration) override { real().sleep_for(duration); }

 private:
  std::chrono::hours wrong_by_;
};

void say_acknowledged(const SaveHandle& save, std::int64_t step) {
  if (save.wait() != SaveStatus::durable) return;
  std::printf("acknowledged step=%lld\n", static_cast<long long>(step));
  std::fflush(stdout);
}

std::string state_of(Checkpointer& checkpointer) { return " state=" + to_hex(checkpointer.state_digest()); }

int train(const std::string& directory, std::int64_t steps, std::map<std::string, std::int64_t> given) {
  if (given.contains("leashed")) prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool lazy = given.contains("lazy");
  PosixFileSystem buffered({.direct = false, .write_behind = !lazy});
  FileSystem& real = lazy || given.contains("buffered") ? buffered : FileSystem::real();
  test::FaultFileSystem disk(real);
  test::PlannedCut cut(std::filesystem::path(directory).parent_path(), given);
  const bool cuts = test::PlannedCut::wanted(given);
  if (cuts) disk.set_hook([&cut](const test::Operation& operation) { cut.at(operation); });
  if (const std::int64_t kill_before = given["kill-before"]; kill_before > 0) {
    disk.set_hook([&disk, kill_before](const test::Operation& operation) {
      if (operation.mutating && disk.mutation_count() + 1 >= kill_before) std::raise(SIGKILL);
    });
  }
  test::MemorySource source(
      {.elements = given.contains("elements") ? static_cast<std::size_t>(given["elements"]) : 1000});
  CheckpointerOptions options;
  options.directory = directory;
  if (given.contains("every")) {
    options.every = {SaveEvery::steps(given["every"])};
  } else {
    options.every = {};
  }
  if (given.contains("keep")) options.keep = KeepLast{static_cast<int>(given["keep"])};
  if (given.contains("from")) options.start.resume_from = std::to_string(given["from"]);
  if (given.contains("homed")) {
    options.start.home = std::filesystem::path(directory).parent_path() / "home";
    options.start.home_wait = std::chrono::seconds(given["homed"]);
  }
  if (given.contains("waits")) options.notices.on_notice = OnNotice::wait;
  WrongClock clock(given["clock-years"]);
  if (given["clock-years"] != 0) options.start.seams.clock = &clock;
  // Without a plan nothing is logged: a long life must not grow.
  options.start.seams.file_system = cuts || given["kill-before"] > 0 ? &disk : &real;
  Checkpointer checkpointer(source, options);
  const Resumed resumed = checkpointer.resume();
  const bool states = given.contains("states");
  std::printf("started step=%lld checkpoint=%s%s\n", static_cast<long long>(source.step()),
              resumed.checkpoint.c_str(), states ? state_of(checkpointer).c_str() : "");
  std::fflush(stdout);
  const bool announced = given.contains("announced");
  std::optional<std::pair<SaveHandle, std::int64_t>> beside;
  const auto follow = [&](std::int64_t step) {
    if (given.contains("wait")) say_acknowledged(checkpointer.save(), step);
    if (given.contains("beside")) beside.emplace(checkpointer.save(), step);
  };
  const auto pace = [&] {
    if (given["pace-us"] > 0) std::this_thread::sleep_for(std::chrono::microseconds(given["pace-us"]));
  };
  bool open = false;
  while (source.step() < steps && !checkpointer.tick()) {
    if (announced) {
      pace();
      checkpointer.before_update();
      if (std::exchange(open, false)) follow(source.step());
    }
    const StepReport report = source.train();
    if (!announced) pace();
    if (beside && source.step() + 1 == beside->second + given["every"]) {
      say_acknowledged(beside->first, beside->second);
      beside.reset();
    }
    const Decision decision = checkpointer.after_step(report);
    if (states) {
      std::printf("stepped step=%lld%s\n", static_cast<long long>(source.step()),
                  state_of(checkpointer).c_str());
    }
    open = decision.saved && announced && !decision.stop;  // until the next update
    if (decision.saved && !open) follow(source.step());
    if (decision.stop) break;
  }
  const int code = checkpointer.finish();
  std::printf("%s step=%lld state=%s checkpoint=%s\n", code == 0 ? "complete" : "interrupted",
              static_cast<long long>(source.step()), to_hex(checkpointer.state_digest()).c_str(),
              checkpointer.last_durable().checkpoint.c_str());
  return code;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (count < 3) throw UsageError("checkpointer_driver DIRECTORY STEPS [name=value]...");
    return train(arguments[1], std::atoll(arguments[2]), options_of(count, arguments));
  } catch (const Error& error) {
    std::fprintf(stderr, "checkpointer_driver: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
