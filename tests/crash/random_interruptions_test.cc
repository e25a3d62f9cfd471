// One run through more than a hundred lives, one after the other, as a spot fleet would give them: killed,
// told to stop, or told that the machine goes away, during start-up and recovery, in the middle of steps and
// saves. Each life ends when it has come to a certain point, never after a certain time. Nothing acknowledged
// is lost, nobody is stuck, every exit code is the right one, and the end is that of the uninterrupted run.
//
// With --nightly, a hundred times as many of those that SIGTERM ends.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>

#include "crash/driver_run.h"
#include "support/catches_signals.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kForEver = 1'000'000'000;
constexpr char kElements[] = "elements=5000";

// A machine's end that is nearer than any reserve: commit and wait. One that is far: commit and train on.
constexpr char kSoon[] = R"({"action":"terminate","in_seconds":4})";
constexpr char kLater[] = R"({"action":"terminate","in_seconds":3600})";

enum class End {
  killed_early,     // as soon as it runs: loading, claiming, recovering
  killed,           // in the middle of steps and saves
  told_early,       // SIGTERM as soon as it listens
  told,             // SIGTERM in the middle
  paused,           // a notice: it commits and waits, and then the machine is gone
  paused_at_start,  // the notice was there before it
  told_in_pause,    // SIGTERM while it waits
  warned            // a notice that is far off: it commits at once, trains on, and is killed
};
constexpr int kEnds = 8;

int acknowledged_lines(const std::string& out) {
  const auto lines = lines_of(out);
  return static_cast<int>(std::count_if(
      lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("acknowledged "); }));
}

class Lives : public testing::Test {
 protected:
  std::filesystem::path run() const { return folder_.path() / "run"; }
  std::filesystem::path notice() const { return folder_.path() / "notice.json"; }
  int any(int from, int to) { return std::uniform_int_distribution<int>(from, to)(random_); }

  static bool is_noticed(End end) { return end >= End::paused; }

  // Appears at once and whole, as whoever writes such a file should have it.
  void write_notice(const std::string& text) const {
    write_text(notice().string() + ".new", text);
    std::filesystem::rename(notice().string() + ".new", notice());
  }

  void live(End end) {
    ++planned_;
    SCOPED_TRACE("life " + std::to_string(planned_) + ", end " + std::to_string(static_cast<int>(end)));
    std::filesystem::remove(notice());
    if (end == End::paused_at_start) write_notice(kSoon);
    std::vector<std::string> habits = {"every=2", "keep=2", "wait", "leashed", kElements};
    if (any(0, 1) == 0) habits.emplace_back("announced");
    Subprocess life(driver(run(), kForEver, habits), {{"HOLDFAST_LOG", "info"},
                                                      {"HOLDFAST_SOURCES", "signal,file"},
                                                      {"HOLDFAST_NOTICE_FILE", notice().string()}});
    const bool reached = come_to_the_point(life, end);
    EXPECT_TRUE(reached) << "stuck, or over: " << life.out() << life.err();
    if (!reached) ++stuck_;
    // Not always at the same place behind what was waited for.
    std::this_thread::sleep_for(std::chrono::microseconds(any(0, 3000)));
    const bool asked = end == End::told || end == End::told_early || end == End::told_in_pause;
    if (reached && life.running()) ++ended_[static_cast<std::size_t>(end)];
    life.send(asked ? SIGTERM : SIGKILL);
    judge(life.wait(60s), end, asked);
  }

  bool come_to_the_point(Subprocess& life, End end) {
    const int saves = any(0, 3);
    const auto saved = [&life, saves] { return acknowledged_lines(life.out()) >= saves; };
    const auto says = [&life](const std::string& text) { return life.err().find(text) != std::string::npos; };
    // On a machine that stood still until the end was too near, there is no pause: it says so and trains on.
    const auto pauses = [&] { return says("pausing at step") || says("no time for a save of step"); };
    switch (end) {
      case End::killed_early:
        std::this_thread::sleep_for(std::chrono::microseconds(any(0, 30'000)));
        return true;
      case End::told_early:
        return life.wait_until([&] { return catches_sigterm(life.pid()); });
      case End::killed:
      case End::told:
        return life.wait_until([&] { return last_step(life.out(), "started") >= 0 && saved(); });
      case End::paused_at_start:
        return life.wait_until(pauses);
      case End::paused:
      case End::told_in_pause:
        if (!life.wait_until(saved)) return false;
        write_notice(kSoon);
        return life.wait_until(pauses);
      case End::warned: {
        if (!life.wait_until(saved)) return false;
        write_notice(kLater);
        if (!life.wait_until([&] { return says("notice (file)"); })) return false;
        const int before = acknowledged_lines(life.out());
        return life.wait_until([&] { return acknowledged_lines(life.out()) > before + 1; });
      }
    }
    return false;
  }

  void judge(const Ended& ended, End end, bool asked) {
    const std::int64_t started = last_step(ended.out, "started");
    if (started >= 0 && started < safe_) {
      ++lost_;
      ADD_FAILURE() << "step " << safe_ << " was safe, and it began at " << started << ": " << ended.err;
    }
    const bool right = asked ? ended.exit_code == 75 : ended.signal == SIGKILL;
    if (!right) {
      ++wrong_codes_;
      ADD_FAILURE() << "exit " << ended.exit_code << ", signal " << ended.signal << ": " << ended.err;
    }
    safe_ = std::max({safe_, last_step(ended.out, "acknowledged"), last_step(ended.out, "interrupted")});
    if (end == End::paused || end == End::paused_at_start || end == End::told_in_pause) {
      const std::int64_t durable = number_behind(ended.err, "the newest durable step is ");
      if (durable >= 0 && durable == number_behind(ended.err, "pausing at step ")) ++saved_pauses_;
      safe_ = std::max(safe_, durable);
    }
  }

  // The number behind the last `words` in `log`; -1 without them.
  static std::int64_t number_behind(const std::string& log, const std::string& words) {
    const auto at = log.rfind(words);
    if (at == std::string::npos) return -1;
    return std::stoll(log.substr(at + words.size(), 20));
  }

  // Ends in the state of the run that nothing ever disturbed.
  std::int64_t finish() {
    std::filesystem::remove(notice());
    const std::int64_t last = std::max<std::int64_t>(safe_, 0) + 10;
    const Ended ended = drive(run(), last, {"every=2", "keep=2", "wait", kElements});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_GE(last_step(ended.out, "started"), safe_);
    EXPECT_EQ(state_in(ended.last_line()), straight_state(last, {kElements}));
    return last;
  }

  int ended() const {
    int sum = 0;
    for (const int count : ended_) sum += count;
    return sum;
  }
  int ended(std::initializer_list<End> which) const {
    int sum = 0;
    for (const End end : which) sum += ended_[static_cast<std::size_t>(end)];
    return sum;
  }
  void expect_all_well() const {
    EXPECT_EQ(ended(), planned_) << "some ended by themselves";
    EXPECT_EQ(lost_, 0);
    EXPECT_EQ(stuck_, 0);
    EXPECT_EQ(wrong_codes_, 0);
  }

  static constexpr unsigned kSeed = 20260606;
  TemporaryFolder folder_;
  std::mt19937 random_{kSeed};
  std::int64_t safe_ = -1;
  int planned_ = 0;
  std::array<int, kEnds> ended_{};
  int saved_pauses_ = 0;  // that waited for the end with everything committed
  int lost_ = 0;
  int stuck_ = 0;
  int wrong_codes_ = 0;
};

TEST_F(Lives, AHundredAndTwentyEndAsOne) {
  constexpr int kLives = 120;
  // A fifth of them with a notice: the file is looked at once a second.
  const std::array<End, 10> mix = {End::killed,     End::told,  End::killed_early, End::killed,
                                   End::told_early, End::told,  End::killed_early, End::killed,
                                   End::paused,     End::warned};
  while (planned_ < kLives && !HasFailure()) {
    End end = mix[static_cast<std::size_t>(planned_) % mix.size()];
    if (end == End::paused)
      end = std::array{End::paused, End::paused_at_start,
                       End::told_in_pause}[static_cast<std::size_t>(any(0, 2))];
    live(end);
  }
  const std::int64_t steps = finish();
  using enum End;
  std::printf(
      "random interruptions: %d planned, %d ended as planned (%d killed, %d SIGTERM, %d noticed, of which %d "
      "waited with "
      "all "
      "committed), %d lost, %d stuck, %d "
      "wrong "
      "exit codes, %lld steps end in the uninterrupted state, seed %u\n",
      planned_, ended(), ended({killed_early, killed}), ended({told_early, told}),
      ended({paused, paused_at_start, told_in_pause, warned}), saved_pauses_, lost_, stuck_, wrong_codes_,
      static_cast<long long>(steps), kSeed);
  EXPECT_EQ(planned_, kLives);
  EXPECT_GT(saved_pauses_, 0);
  expect_all_well();
}

TEST_F(Lives, AHundredSigtermsAtRandomMoments) {
  const int lives = nightly() ? 10'000 : 100;
  while (planned_ < lives && !HasFailure()) {
    ++planned_;
    std::vector<std::string> habits = {"every=2", "keep=2", "wait", "leashed", kElements};
    if (any(0, 1) == 0) habits.emplace_back("announced");
    Subprocess life(driver(run(), kForEver, habits), quiet());
    const bool listens = life.wait_until([&] { return catches_sigterm(life.pid()); });
    EXPECT_TRUE(listens) << life.err();
    std::this_thread::sleep_for(std::chrono::microseconds(any(0, 100'000)));
    if (listens && life.running()) ++ended_[static_cast<std::size_t>(End::told)];
    life.send(SIGTERM);
    const Ended ended = life.wait(60s);
    if (ended.signal == SIGKILL) ++stuck_;
    judge(ended, End::told, true);
  }
  const std::int64_t steps = finish();
  std::printf(
      "random interruptions: %d SIGTERMs planned at random moments, %d sent, %d lost, %d stuck, %d wrong "
      "exit codes, %lld "
      "steps end in the uninterrupted state, seed %u\n",
      planned_, ended(), lost_, stuck_, wrong_codes_, static_cast<long long>(steps), kSeed);
  EXPECT_EQ(planned_, lives);
  expect_all_well();
}

}}  // namespace holdfast::test
