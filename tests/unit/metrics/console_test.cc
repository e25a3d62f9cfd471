#include "holdfast/metrics/console.h"

#include <gtest/gtest.h>

#include "holdfast/base/log.h"
#include "support/fake_clock.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using test::FakeClock;

StepEvent event_at(std::int64_t step) {
  return {.step = step,
          .epoch = 1,
          .loss = 1.23456,
          .learning_rate = 0.095,
          .images_per_s = 1830.4,
          .last_step = 7810,
          .epochs = 10,
          .time_left = Duration(725s),
          .durable_step = 1200,
          .durable_age = Duration(35s)};
}

constexpr const char* kLine =
    "step 1,234/7,810  epoch 2/10  loss 1.2346  lr 0.095  1,830 images/s  12m 05s left  saved step 1,200 "
    "(35s ago)";

TEST(ProgressLine, SaysWhatPeopleAsk) {
  EXPECT_EQ(progress_line(event_at(1234)), kLine);
  EXPECT_EQ(progress_line({.step = 1, .loss = 2.5, .learning_rate = 1e-4}),
            "step 1  epoch 1  loss 2.5000  lr 0.0001  0 images/s  nothing saved yet");
  EXPECT_NE(progress_line({.step = 1}).find("loss nan"), std::string::npos);
}

TEST(EvaluationLine, SaysWhatPeopleAsk) {
  EXPECT_EQ(evaluation_line({.step = 781,
                             .epoch = 0,
                             .accuracy = 0.9512,
                             .loss = 0.25,
                             .samples = 10000,
                             .time = Duration(4200ms)}),
            "epoch 1 evaluated: accuracy 95.12 %, loss 0.2500 on 10,000 pictures in 4.2 s");
}

TEST(ConsoleProgress, PrintsALineEveryTenSeconds) {
  FakeClock clock;
  testing::internal::CaptureStderr();
  {
    ConsoleProgress console(clock, {.terminal = false});
    for (int step = 1; step <= 25; ++step) {
      console.step({.step = step, .loss = 1});
      clock.advance(1s);
    }
  }
  const std::string text = testing::internal::GetCapturedStderr();
  std::string steps;
  for (std::size_t at = text.find("step "); at != std::string::npos; at = text.find("step ", at + 1)) {
    steps += text.substr(at + 5, text.find(' ', at + 5) - at - 5) + ' ';
  }
  EXPECT_EQ(steps, "1 11 21 25 ") << "the first, every tenth second, and the last";
}

TEST(SavedLine, SaysWhatPeopleAsk) {
  EXPECT_EQ(
      saved_line({.step = 1200,
                  .bytes = 188'000'000,
                  .blocked = Duration(21ms),
                  .write = Duration(180ms),
                  .commit = Duration(20ms),
                  .risk_time = Duration(61s)}),
      "saved step 1,200: 188 MB in 200 ms (940 MB/s), training waited 21 ms, 1m 01s of work was at risk");
}

TEST(ConsoleProgress, TellsOfASaveEveryTenSecondsAtMost) {
  FakeClock clock;
  testing::internal::CaptureStderr();
  {
    ConsoleProgress console(clock, {.terminal = false});
    for (int step = 1; step <= 25; ++step) {
      StepEvent event{.step = step, .loss = 1};
      if (step > 3) event.saved = SavedEvent{.step = step - 1};
      console.step(event);
      clock.advance(1s);
    }
  }
  const std::string text = testing::internal::GetCapturedStderr();
  std::string steps;
  constexpr std::string_view kWords = "saved step ";
  for (std::size_t at = text.find(kWords); at != std::string::npos; at = text.find(kWords, at + 1)) {
    steps += text.substr(at + kWords.size(), text.find(':', at) - at - kWords.size()) + ' ';
  }
  EXPECT_EQ(steps, "3 13 23 ");
}

TEST(ConsoleProgress, RedrawsInPlaceOnATerminal) {
  FakeClock clock;
  testing::internal::CaptureStderr();
  {
    ConsoleProgress console(clock, {.terminal = true});
    console.step(event_at(1));
    clock.advance(100ms);
    console.step(event_at(2));
    clock.advance(200ms);
    console.step(event_at(3));
    log_info("saved");
    console.evaluation({.epoch = 0, .accuracy = 1, .loss = 0, .samples = 10, .time = Duration(1s)});
  }
  const std::string text = testing::internal::GetCapturedStderr();
  const std::string wipe = "\r\x1b[K";
  const auto cut = [](const std::string& line) {
    return line.substr(0, 79);
  };  // as wide as no terminal at all
  const std::string one = cut(progress_line(event_at(1)));
  const std::string three = cut(progress_line(event_at(3)));
  EXPECT_EQ(text, wipe + one + wipe + three + wipe + "holdfast: saved\n" + three + wipe +
                      "epoch 1 evaluated: accuracy 100.00 %, loss 0.0000 on 10 pictures in 1.0 s\n" + three +
                      wipe + progress_line(event_at(3)) + "\n");
}

}}  // namespace holdfast
