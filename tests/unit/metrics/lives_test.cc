// Every curve has each step once, in every sink that keeps them, over random lives of a run: kills, resumes
// at older steps, evaluations that come again, branches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "holdfast/io/line_file.h"
#include "holdfast/metrics/csv.h"
#include "holdfast/metrics/event_file.h"
#include "holdfast/metrics/exporters.h"
#include "holdfast/metrics/jsonl.h"
#include "support/captured_log.h"
#include "support/fake_clock.h"
#include "support/memory_file_system.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

using Points = std::map<std::string, std::vector<std::int64_t>>;  // by tag, in the order of the files

std::uint64_t varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; !text.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// Calls `visit` with number, integer and bytes of each field.
template <class Visit>
void each_field(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::uint64_t key = varint(text);
    const auto type = key & 7;
    const std::uint64_t value = type == 0 || type == 2 ? varint(text) : type == 1 ? 8 : 4;
    const std::string_view bytes = type == 0 ? std::string_view() : text.substr(0, value);
    if (type != 0) text.remove_prefix(bytes.size());
    visit(static_cast<int>(key >> 3), value, bytes);
  }
}

// As TensorBoard reads a folder: a start drops what came before it at its step and later ones.
Points shown(MemoryFileSystem& disk) {
  Points points;
  std::set<std::string> names;
  for (const std::string& name : disk.names("/tb")) names.insert(name);
  for (const std::string& name : names) {
    const std::string file = disk.get_text("/tb/" + name);
    for (std::string_view rest = file; rest.size() > 16;) {
      std::uint64_t length = 0;
      std::memcpy(&length, rest.data(), sizeof length);
      if (rest.size() < length + 16) break;
      std::int64_t step = 0;
      bool starts = false;
      std::vector<std::string> tags;
      each_field(rest.substr(12, length), [&](int number, std::uint64_t value, std::string_view bytes) {
        if (number == 2) step = static_cast<std::int64_t>(value);
        if (number == 7) starts = true;
        if (number != 5) return;
        each_field(bytes, [&](int, std::uint64_t, std::string_view one) {
          each_field(one, [&](int part, std::uint64_t, std::string_view tag) {
            if (part == 1) tags.emplace_back(tag);
          });
        });
      });
      if (starts) {
        for (auto& [tag, steps] : points) std::erase_if(steps, [&](std::int64_t at) { return at >= step; });
      }
      for (const std::string& tag : tags) points[tag].push_back(step);
      rest.remove_prefix(length + 16);
    }
  }
  return points;
}

// What a killed process had told the sinks, and they had written.
struct Told {
  std::set<std::pair<std::string, std::int64_t>> points;  // of the history that the next life goes on with
  void forget_after(std::int64_t step) {
    std::erase_if(points, [&](const auto& point) { return point.second > step; });
  }
};

class Lives {
 public:
  explicit Lives(unsigned seed) : random_(seed) { disk_.open_directory("/run", true); }

  // Ends with a life that is not killed.
  void run() {
    for (int life = 0; life < 12; ++life) {
      live(life == 11);
      if (::testing::Test::HasFailure()) return;
      check(life == 11);
    }
  }

 private:
  struct Checkpoint {
    std::int64_t step;
    bool evaluation_due;
  };

  bool chance(int one_in) { return random_() % static_cast<unsigned>(one_in) == 0; }
  std::int64_t below(std::size_t count) { return static_cast<std::int64_t>(random_() % count); }

  void point(const std::string& tag, std::int64_t step) { unwritten_.emplace(tag, step); }
  void written() { told_.points.merge(std::exchange(unwritten_, {})); }

  void live(bool last) {
    // The newest checkpoint, or one that a user chose.
    const bool chosen = saved_.size() > 1 && chance(4);
    if (chosen) saved_.resize(saved_.size() - static_cast<std::size_t>(below(saved_.size() - 1)));
    const Checkpoint from = saved_.empty() ? Checkpoint{0, false} : saved_.back();
    unwritten_.clear();
    told_.forget_after(from.step);
    clock_.advance(1min);
    const auto tensorboard = tensorboard_sink(disk_, "/tb", {}, clock_);
    CsvSink csv(disk_, "/run/training.csv", {}, clock_);
    LineFile lines(disk_, "/run/metrics.jsonl");
    JsonlSink json("metrics.jsonl", [&](std::string_view line) { lines.append(line); });
    const std::vector<MetricSink*> sinks{tensorboard.get(), &csv, &json};
    const bool known = from.step > 0;
    const BeginEvent begun{.step = from.step,
                           .attempt = ++attempt_,
                           .loss = known ? 1.0 : std::numeric_limits<double>::quiet_NaN(),
                           .learning_rate = 0.5,
                           .evaluation_due = from.evaluation_due,
                           .branch = chosen};
    for (MetricSink* const sink : sinks) sink->begin(begun);
    if (known) {
      point("train/loss", from.step);
      point("train/lr", from.step);
    }
    written();
    std::optional<SavedEvent> saved;
    if (from.evaluation_due) {
      if (!last && chance(3)) return;  // killed in that evaluation
      evaluate(sinks, from.step, saved);
    }
    const std::int64_t end = from.step + (last ? 30 : 1 + below(25));
    for (std::int64_t step = from.step + 1; step <= end; ++step) {
      StepEvent event{.step = step, .loss = 1.0, .learning_rate = 0.5, .accuracy = 0.25, .images_per_s = 7};
      event.saved = std::exchange(saved, {});
      for (MetricSink* const sink : sinks) sink->step(event);
      for (const char* const tag : {"loss", "lr", "accuracy", "epoch", "images_per_second"})
        point(std::string("train/") + tag, step);
      if (event.saved) point("checkpoint/bytes", event.saved->step);
      if (event.saved) written();
      if (chance(3)) {
        tensorboard->system({.cpu_cores = 1});
        point("system/cpu_cores", step);
        written();
      }
      if (chance(4)) {
        tensorboard->histogram({.step = step, .name = "weights/fc", .limits = {1}, .counts = {1}});
        point("weights/fc", step);
      }
      const bool evaluates = step % 5 == 0;
      if (chance(4)) save(step, evaluates, saved);
      if (evaluates) {
        if (!last && chance(4)) return;  // killed in the evaluation
        evaluate(sinks, step, saved);
      }
    }
    if (!last) return;
    for (MetricSink* const sink : sinks) sink->end({.step = end});
    tensorboard->flush();
    written();
    last_ = end;
  }

  void save(std::int64_t step, bool evaluation_due, std::optional<SavedEvent>& saved) {
    saved_.push_back({step, evaluation_due});
    saved = SavedEvent{.step = step, .bytes = 188};
  }

  void evaluate(const std::vector<MetricSink*>& sinks, std::int64_t step, std::optional<SavedEvent>& saved) {
    for (MetricSink* const sink : sinks) sink->evaluation({.step = step, .accuracy = 0.5, .loss = 1.5});
    point("val/accuracy", step);
    point("val/loss", step);
    written();
    // The best so far: its boundary is saved, also if an earlier attempt has saved it.
    if (chance(2)) save(step, false, saved);
    if (!saved || !chance(2)) return;
    sinks.front()->status({.newest = saved});
    point("checkpoint/bytes", saved->step);
    written();  // an evaluation follows at once in these lives, or the next step
    sinks.front()->flush();
  }

  void check(bool last) {
    const Points points = shown(disk_);
    for (const auto& [tag, steps] : points) {
      for (std::size_t i = 1; i < steps.size(); ++i) {
        ASSERT_LT(steps[i - 1], steps[i]) << tag << " in attempt " << attempt_;
      }
    }
    // Nothing that was written of this history is gone.
    for (const auto& [tag, step] : told_.points) {
      const auto found = points.find(tag);
      ASSERT_TRUE(found != points.end() &&
                  std::binary_search(found->second.begin(), found->second.end(), step))
          << tag << " lacks step " << step << " in attempt " << attempt_;
    }
    if (last) check_tables();
  }

  void check_tables() {
    std::vector<std::int64_t> rows;
    std::istringstream csv(disk_.get_text("/run/training.csv"));
    std::string line;
    std::getline(csv, line);
    while (std::getline(csv, line)) rows.push_back(std::stoll(line.substr(line.find(',') + 1)));
    std::vector<std::int64_t> all;
    for (std::int64_t step = 1; step <= last_; ++step) all.push_back(step);
    EXPECT_EQ(rows, all) << "training.csv";
    // A log: a step that was computed again is there again, and its last line counts.
    std::set<std::int64_t> logged;
    std::istringstream json(disk_.get_text("/run/metrics.jsonl"));
    while (std::getline(json, line)) {
      const std::int64_t step = std::stoll(line.substr(line.find(':') + 1));
      logged.erase(logged.upper_bound(step), logged.end());
      logged.insert(step);
    }
    EXPECT_EQ(std::vector<std::int64_t>(logged.begin(), logged.end()), all) << "metrics.jsonl";
  }

  std::mt19937 random_;
  MemoryFileSystem disk_;
  FakeClock clock_;
  std::vector<Checkpoint> saved_;  // of the history that the next life goes on with
  std::set<std::pair<std::string, std::int64_t>> unwritten_;
  Told told_;
  std::uint64_t attempt_ = 0;
  std::int64_t last_ = 0;
};

TEST(SinksOverLives, EveryCurveHasEachStepOnce) {
  CapturedLog log;
  const unsigned count = nightly() ? 3000 : 300;
  for (unsigned seed = 0; seed < count && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Lives(seed).run();
  }
}

}}  // namespace holdfast::test
