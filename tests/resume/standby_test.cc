// The real example on two machines with one run directory: A trains, B stands by, A is told to stop or is
// killed, and B goes on. Then C stands by, and so on. The end is that of a run that nothing disturbs.
#include <random>
#include <utility>

#include "holdfast/base/text.h"
#include "holdfast/store/standby_sign.h"
#include "resume/example_run.h"

namespace holdfast::test { namespace {

using ::testing::HasSubstr;

constexpr std::chrono::minutes kPatience{4};

// `holdfast supervise` around the example.
struct ExampleMachine {
  std::filesystem::path metrics;
  std::unique_ptr<Subprocess> process;

  // Each line of the metrics is a step.
  std::int64_t first_step() const {
    const std::string text = read_text(metrics);
    return text.find('\n') == std::string::npos ? -1 : std::stoll(value_of(text, "\"step\":"));
  }
  bool reaches(const std::function<bool()>& there) const { return process->wait_until(there, kPatience); }
};

class ExampleStandby : public testing::Test {
 protected:
  ExampleMachine start(const std::vector<std::string>& options) {
    ExampleMachine machine{.metrics = folder_.path() / ("metrics-" + std::to_string(++machines_) + ".jsonl"),
                           .process = nullptr};
    std::vector<std::string> command = {program("holdfast"), "supervise", "--directory", run()};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", program("resnet50_cifar10"), "--checkpoint-dir", run(), "--metrics",
                                   machine.metrics, "--steps", "1000000", "--every", "20steps"});
    command.insert(command.end(), plain_.begin(), plain_.end());
    machine.process = std::make_unique<Subprocess>(
        std::move(command), std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}});
    return machine;
  }
  ExampleMachine stand_by() {
    ExampleMachine machine = start({"--standby"});
    EXPECT_TRUE(machine.reaches([&] {
      const auto sign = standby_sign_from_json(read_text(run() / "standby.json"));
      return sign && sign->step >= 0;
    })) << machine.process->err();
    return machine;
  }
  // A machine for each end, at a random moment. Returns the step at which the last one was told to stop.
  std::int64_t hand_on(int times, const std::function<void(ExampleMachine&)>& end) {
    std::mt19937 random(20261128);
    ExampleMachine holder = start({});
    for (int turn = 0; turn < times && !HasFailure(); ++turn) {
      EXPECT_TRUE(holder.reaches([&] { return holder.first_step() >= 0; })) << holder.process->err();
      ExampleMachine standby = stand_by();
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1000));
      EXPECT_EQ(standby.first_step(), -1) << "it stands by";
      end(holder);
      EXPECT_TRUE(standby.reaches([&] { return standby.first_step() >= 0; })) << standby.process->err();
      EXPECT_EQ(standby.first_step(), handed_over_ + 1) << "no step twice, and none left out";
      holder = std::move(standby);
    }
    return stop(holder);
  }
  static std::int64_t stop(const ExampleMachine& machine) {
    machine.process->send(SIGTERM);
    const Ended ended = machine.process->wait(kPatience);
    EXPECT_EQ(ended.exit_code, 75) << ended.err;
    return parse_int(value_of(ended.last_line(), "step=")).value_or(-1);
  }
  // `from`: where the last machine has stopped.
  void ends_as_the_undisturbed_run(std::int64_t from) {
    const std::vector<std::string> last = {"--steps", std::to_string(from + 3), "--no-eval"};
    std::vector<std::string> command = {program("resnet50_cifar10"), "--checkpoint-dir", run()};
    command.insert(command.end(), plain_.begin(), plain_.end());
    command.insert(command.end(), last.begin(), last.end());
    const Ended ended = Subprocess(command, {{"OMP_NUM_THREADS", "1"}}).wait(kPatience);
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const Ended straight = ExampleRun(plain_).start(last)->wait(kPatience);
    ASSERT_EQ(straight.exit_code, 0) << straight.err;
    EXPECT_EQ(value_of(ended.last_line(), "state="), value_of(straight.last_line(), "state="));
    EXPECT_NE(value_of(ended.last_line(), "state="), "");
  }
  std::filesystem::path run() const { return folder_.path() / "run"; }
  static int times() { return nightly() ? 10 : 1; }

  std::int64_t handed_over_ = -1;  // newest durable step of the machine that has ended
  const std::vector<std::string> plain_ = small({"--schedule-steps", "48"});

 private:
  TemporaryFolder folder_;
  int machines_ = 0;
};

TEST_F(ExampleStandby, GoesOnWhenTheHolderIsToldToStop) {
  const std::int64_t last = hand_on(times(), [&](ExampleMachine& holder) { handed_over_ = stop(holder); });
  EXPECT_GT(last, 0);
  ends_as_the_undisturbed_run(last);
}

TEST_F(ExampleStandby, GoesOnAfterAKillAndATakeover) {
  const std::int64_t last = hand_on(times(), [&](ExampleMachine& holder) {
    const std::string first_line = lines_of(holder.process->err()).front();
    const auto trainer = parse_int(value_of(first_line, "supervising process "));
    ASSERT_TRUE(trainer) << holder.process->err();
    holder.process->send(SIGKILL);
    ::kill(static_cast<pid_t>(*trainer), SIGKILL);
    holder.process->wait();
    const Ended told = Subprocess({program("holdfast"), "takeover", run()}).wait();
    EXPECT_EQ(told.exit_code, 0) << told.err;
    EXPECT_THAT(told.out, HasSubstr("is fenced off by attempt"));
    for (const auto& entry : std::filesystem::directory_iterator(run())) {
      const std::string name = entry.path().filename();  // "step-000000000132-a0001.h5"
      if (!name.starts_with("step-") || !name.ends_with(".h5")) continue;
      handed_over_ = std::max<std::int64_t>(handed_over_, parse_int(name.substr(5, 12)).value_or(-1));
    }
  });
  EXPECT_GT(last, 0);
  ends_as_the_undisturbed_run(last);
}

}}  // namespace holdfast::test
