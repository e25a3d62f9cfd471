#include "holdfast/metrics/background.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <stdexcept>
#include <thread>

#include "support/captured_log.h"
#include "support/gate.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What a sink got, by any thread.
struct Got {
  void add(const std::string& word) {
    const std::lock_guard lock(mutex);
    words.push_back(word);
  }
  std::vector<std::string> now() {
    const std::lock_guard lock(mutex);
    return words;
  }
  std::mutex mutex;
  std::vector<std::string> words;
};

class Recorder : public MetricSink {
 public:
  explicit Recorder(Got& got) : got_(got) {}
  void begin(const BeginEvent& event) override { got_.add("begin " + std::to_string(event.step)); }
  void step(const StepEvent& event) override {
    EXPECT_NE(event.at, WallTime{});
    got_.add("step " + std::to_string(event.step));
  }
  void evaluation(const EvaluationEvent& event) override {
    got_.add("evaluation " + std::to_string(event.step));
  }
  void histogram(const HistogramEvent& event) override { got_.add("histogram " + event.name); }
  void system(const SystemEvent& event) override {
    EXPECT_GT(event.resident_bytes, 0U);
    got_.add("system");
  }
  void status(const StatusEvent& event) override { got_.add("status " + std::to_string(event.commits)); }
  void end(const EndEvent& event) override { got_.add("end " + std::to_string(event.exit_code)); }

 private:
  Got& got_;
};

std::vector<std::unique_ptr<MetricSink>> one(std::unique_ptr<MetricSink> sink) {
  std::vector<std::unique_ptr<MetricSink>> sinks;
  sinks.push_back(std::move(sink));
  return sinks;
}

TEST(BackgroundSinks, PassEverythingInOrderAndEndWithStatusAndEnd) {
  Got got;
  BackgroundSinks sinks(one(std::make_unique<Recorder>(got)),
                        {.status = [] { return StatusEvent{.commits = 7}; }});
  sinks.begin({.step = 3});
  sinks.step({.step = 4});
  sinks.histogram({.step = 4, .name = "weights/a"});
  sinks.evaluation({.step = 4});
  sinks.finish();
  sinks.end({.exit_code = 75});
  EXPECT_THAT(got.now(), ElementsAre("begin 3", "step 4", "histogram weights/a", "evaluation 4", "system",
                                     "status 7", "end 75"));
  sinks.step({.step = 5});
  EXPECT_EQ(got.now().size(), 7U);
}

TEST(BackgroundSinks, TellFiguresByTimeAlsoWithoutSteps) {
  Got got;
  BackgroundSinks sinks(one(std::make_unique<Recorder>(got)),
                        {.system_every = 1ms, .look_every = 1ms, .status = [] { return StatusEvent{}; }});
  ASSERT_TRUE(soon([&] { return got.now().size() > 2; }));
  for (const std::string& word : got.now()) EXPECT_EQ(word, "system") << "no status before the resume";
  sinks.begin({});
  EXPECT_TRUE(soon([&] { return ::testing::Value(got.now(), ::testing::Contains("status 0")); }));
}

TEST(BackgroundSinks, TheStartAndACommitDoNotWaitForTheNextLook) {
  Got got;
  BackgroundSinks sinks(one(std::make_unique<Recorder>(got)), {.look_every = std::chrono::hours(1)});
  sinks.begin({.step = 3});
  EXPECT_TRUE(soon([&] { return got.now().size() == 1; }));
  sinks.step({.step = 4});
  sinks.step({.step = 5, .saved = SavedEvent{.step = 4}});
  EXPECT_TRUE(soon([&] { return got.now().size() == 3; }));
}

// The training thread never waits for a sink.
class Held final : public MetricSink {
 public:
  explicit Held(Gate& gate) : gate_(gate) {}
  void step(const StepEvent& /*event*/) override { gate_.pass(); }

 private:
  Gate& gate_;
};

TEST(BackgroundSinks, ASinkThatHangsHoldsNobodyAndLosesEventsAloud) {
  Gate gate;
  CapturedLog log;
  {
    BackgroundSinks sinks(one(std::make_unique<Held>(gate)), {.look_every = 1ms, .patience = 20s});
    sinks.step({.step = 1});
    gate.await_arrival();
    for (std::size_t i = 0; i < BackgroundSinks::kMostWaiting + 10; ++i) sinks.step({.step = 2});
    gate.open();
    sinks.end({});
  }
  EXPECT_THAT(log.text(),
              HasSubstr("metrics are written too slowly: 10 events are dropped so far (training goes on)"));
}

TEST(BackgroundSinks, TheEndDoesNotWaitForASinkThatHangs) {
  static Gate gate;  // the thread that is left behind uses it
  CapturedLog log;
  {
    BackgroundSinks sinks(one(std::make_unique<Held>(gate)), {.look_every = 1ms, .patience = 10ms});
    sinks.step({.step = 1});
    gate.await_arrival();
    sinks.end({});
  }
  EXPECT_THAT(log.text(),
              HasSubstr("metrics could not be written within 10 ms; the run ends without the last ones"));
  gate.open();
}

TEST(BackgroundSinks, ASinkThatThrowsIsSaidOnceAndTheOthersGoOn) {
  class Throwing final : public MetricSink {
    void step(const StepEvent& /*event*/) override { throw std::runtime_error("broken pipe"); }
  };
  Got got;
  std::vector<std::unique_ptr<MetricSink>> both = one(std::make_unique<Throwing>());
  both.push_back(std::make_unique<Recorder>(got));
  CapturedLog log;
  BackgroundSinks sinks(std::move(both));
  for (int i = 1; i <= 3; ++i) sinks.step({.step = i});
  sinks.end({});
  const std::string said = log.text();
  EXPECT_THAT(said,
              HasSubstr("no more metrics are written to a metrics sink (training goes on): broken pipe"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
  EXPECT_THAT(got.now(), ElementsAre("step 1", "step 2", "step 3", "system", "end 0"));
}

TEST(BackgroundSinks, AForkedChildLeavesThemAlone) {
  Got got;
  auto sinks = std::make_unique<BackgroundSinks>(one(std::make_unique<Recorder>(got)));
  sinks->step({.step = 1});
  const pid_t child = fork();
  if (child == 0) {
    sinks.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  sinks->end({});
  EXPECT_THAT(got.now(), ElementsAre("step 1", "system", "end 0"));
}

}}  // namespace holdfast::test
