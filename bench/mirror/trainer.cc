#include "trainer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "../shared/seconds.h"
#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/mirror/home_record.h"
#include "paced_file_system.h"
#include "support/memory_source.h"

namespace holdfast::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The age of the newest state in a place, over the time of the run.
class Age {
 public:
  void look(double now, double saved_at) {
    if (saved_at < 0) return;
    sum_ += now - saved_at;
    worst_ = std::max(worst_, now - saved_at);
    ++count_;
  }
  nlohmann::ordered_json json() const {
    if (count_ == 0) return nullptr;
    return {{"mean_seconds", sum_ / count_}, {"worst_seconds", worst_}};
  }

 private:
  double sum_ = 0;
  double worst_ = 0;
  double count_ = 0;
};

struct Saved {
  std::int64_t step = -1;
  double at = -1;
};

double time_of(const std::vector<Saved>& saves, std::int64_t step) {
  for (const Saved& save : saves) {
    if (save.step == step) return save.at;
  }
  return -1;
}

}  // namespace

int train(const TrainerOptions& options) {
  std::atomic<bool> stop{false};
  std::atomic<float> sink{0};
  std::vector<std::thread> others;
  std::atomic<std::int64_t> other_steps{0};
  for (int i = 1; i < options.threads; ++i) {
    others.emplace_back([&] {
      for (; !stop; ++other_steps) sink = fixed_arithmetic();
    });
  }
  test::MemorySource source({.elements = std::max<std::size_t>(options.state / sizeof(float), 16)});
  PacedFileSystem slow(options.limit);
  std::optional<Checkpointer> checkpointer;
  if (!options.directory.empty()) {
    CheckpointerOptions ours;
    ours.directory = options.directory;
    ours.every = {std::chrono::nanoseconds(static_cast<std::int64_t>(options.every * 1e9))};
    ours.keep = KeepLast{2};
    ours.notices.cloud = false;
    if (options.limit > 0) ours.start.seams.file_system = &slow;
    checkpointer.emplace(source, ours);
    checkpointer->resume();
  }
  std::int64_t steps = 0;
  std::vector<Saved> saves;
  std::vector<double> blocked;
  Age here;
  Age home;
  double next_look = 0;
  std::int64_t home_step = -1;
  const auto begin = Clock::now();
  const auto run =
      options.directory.empty() ? nullptr : FileSystem::real().open_directory(options.directory, false);
  while (seconds_since(begin) < options.seconds) {
    sink = fixed_arithmetic();
    ++steps;
    if (!checkpointer) continue;
    const auto boundary = Clock::now();
    const Decision decision = checkpointer->after_step({.applied = Cursor{0, steps}, .loss = 1});
    if (decision.saved) {
      blocked.push_back(seconds_since(boundary));
      saves.push_back({source.step(), std::chrono::duration<double>(boundary - begin).count()});
    }
    if (decision.stop) break;
    const double now = seconds_since(begin);
    if (now < next_look) continue;
    next_look = now + 0.05;
    here.look(now, time_of(saves, checkpointer->last_durable().step));
    if (const auto record = read_home_record(*run); record && record->newest)
      home_step = record->newest->step;
    home.look(now, time_of(saves, home_step));
  }
  const double seconds = seconds_since(begin);
  stop = true;
  for (std::thread& other : others) other.join();
  nlohmann::ordered_json all = {
      {"steps", steps + other_steps}, {"seconds", seconds}, {"saves", saves.size()}};
  all["blocked_seconds"] = blocked;
  all["at_risk_here"] = here.json();
  all["at_risk_home"] = home.json();
  if (checkpointer) checkpointer->finish();
  std::printf("%s\n", all.dump().c_str());
  return 0;
}

}  // namespace holdfast::bench
