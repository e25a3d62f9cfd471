// What happens when a collective fails on the device, with a backend that only says so.
#include "holdfast/distributed/internal/nccl_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "holdfast/distributed/internal/nccl_backend.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr NcclWatchOptions kQuick{.look_every = 1ms, .to_return = 1ms, .to_unwind = 1ms, .patience = 10min};

// What a watch is told, and what it did. Everything is waiting unless a test says otherwise.
struct Course {
  NcclWatchQuestions questions() {
    return {.fault = [this] { return std::string(broken ? "it broke" : ""); },
            .who =
                [this] {
                  ++asked_who;
                  return std::string("rank 1 died");
                },
            .waits =
                [this] {
                  ++asked_whether_it_waits;
                  return waits.load();
                },
            .saving = [this] { return saving.load(); },
            .told_to_stop = [this] { return stopped.load(); },
            .keep_evidence =
                [this](const std::string& why) {
                  ++kept;
                  EXPECT_EQ(why, "rank 1 died: " + std::string(broken ? "it broke" : "a partner is lost"));
                  EXPECT_FALSE(has_ended()) << "before the end";
                },
            .end = [this](const std::string& who,
                          const std::string& failure) { ended.set_value(who + ": " + failure); }};
  }
  // After so many more looks the watch has decided on what it was told.
  void await_looks() const {
    const int before = asked_whether_it_waits;
    while (asked_whether_it_waits < before + 20) std::this_thread::yield();
  }
  bool has_ended() { return end.wait_for(0s) == std::future_status::ready; }

  std::atomic<bool> broken{false}, waits{true}, saving{false}, stopped{false};
  std::atomic<int> asked_who{0}, asked_whether_it_waits{0}, kept{0};
  std::promise<std::string> ended;
  std::future<std::string> end = ended.get_future();
};

// A backend without collectives.
std::atomic<c10d::ErrorType> fake_error{c10d::ErrorType::SUCCESS};
std::atomic<int> fake_aborts{0};
std::atomic<int> fake_shutdowns{0};
struct FakeNccl final : c10d::Backend {
  using c10d::Backend::Backend;
  const std::string getBackendName() const override { return "nccl"; }
  c10d::ErrorType getError() override { return fake_error; }
  void abort() override { ++fake_aborts; }
  void shutdown() override { ++fake_shutdowns; }
};

class ProcessGroupOnDevice : public testing::Test {
 protected:
  void SetUp() override {
    fake_error = c10d::ErrorType::SUCCESS;
    fake_aborts = 0;
    fake_shutdowns = 0;
    make_nccl_by([](int rank, int world_size) -> c10::intrusive_ptr<c10d::Backend> {
      return c10::make_intrusive<FakeNccl>(rank, world_size);
    });
  }
  void TearDown() override { make_nccl_by(nullptr); }
  static GroupOptions options() {
    return {.place = {}, .device = c10::Device(c10::kCUDA, 0), .even_alone = true};
  }
};

TEST(NcclWatch, EndsTheProcessWhenTheTrainingThreadWaitsForTheDevice) {
  Course course;
  const NcclWatch watch(course.questions(), kQuick);
  EXPECT_EQ(watch.failure(), "");
  course.broken = true;
  EXPECT_EQ(course.end.get(), "rank 1 died: it broke");
  EXPECT_EQ(watch.failure(), "it broke");
  EXPECT_EQ(course.asked_who, 1);
  EXPECT_EQ(course.kept, 1);
}

TEST(NcclWatch, ASaveInFlightMaySettle) {
  Course course;
  course.saving = true;
  course.broken = true;
  const NcclWatch watch(course.questions(), kQuick);
  course.await_looks();
  EXPECT_FALSE(course.has_ended());
  course.saving = false;
  EXPECT_EQ(course.end.get(), "rank 1 died: it broke");
}

TEST(NcclWatch, ASaveThatNeverSettlesHasTheGraceAndNoMore) {
  Course course;
  course.saving = true;
  course.broken = true;
  NcclWatchOptions options = kQuick;
  options.patience = 20ms;
  const NcclWatch watch(course.questions(), options);
  EXPECT_EQ(course.end.get(), "rank 1 died: it broke");
}

TEST(NcclWatch, ASignalThatAsksToStopShortensThat) {
  Course course;
  course.saving = true;
  course.broken = true;
  NcclWatchOptions options = kQuick;
  options.grace = 20ms;
  const NcclWatch watch(course.questions(), options);
  course.await_looks();
  EXPECT_FALSE(course.has_ended());
  course.stopped = true;
  EXPECT_EQ(course.end.get(), "rank 1 died: it broke");
  EXPECT_EQ(course.kept, 0) << "the signal leaves no time";
}

TEST(NcclWatch, TheGraceCountsFromASignalBeforeTheLoss) {
  Course course;
  course.saving = true;
  course.stopped = true;
  NcclWatchOptions options = kQuick;
  options.grace = 1ms;
  std::atomic<int> looks = 0;
  NcclWatchQuestions questions = course.questions();
  questions.fault = [&] { return std::string(++looks < 20 ? "" : "it broke"); };
  const NcclWatch watch(std::move(questions), options);
  EXPECT_EQ(course.end.get(), "rank 1 died: it broke");
}

// It evaluates, or reads: the next collective tells it.
TEST(NcclWatch, ATrainingThreadThatIsBusyElsewhereIsLeftInPeace) {
  Course course;
  course.waits = false;
  course.broken = true;
  const NcclWatch watch(course.questions(), kQuick);
  course.await_looks();
  EXPECT_FALSE(course.has_ended());
  course.waits = true;
  EXPECT_EQ(course.end.get(), "rank 1 died: it broke");
}

TEST(NcclWatch, WaitsForAProgramThatUnwinds) {
  Course course;
  course.broken = true;
  {
    NcclWatchOptions options = kQuick;
    options.to_return = options.to_unwind = 10min;
    NcclWatch watch(course.questions(), options);
    while (watch.failure().empty()) std::this_thread::yield();
    watch.unwinding("a guard threw");
    course.await_looks();
  }
  EXPECT_FALSE(course.has_ended());
  EXPECT_EQ(course.kept, 0);
}

TEST(NcclWatch, ADestructorThatWaitsForTheDeviceHasAShortTime) {
  Course course;
  NcclWatchOptions options = kQuick;
  options.look_every = 5ms;
  NcclWatch watch(course.questions(), options);
  watch.unwinding("a partner is lost");
  watch.unwinding("so are all others");
  EXPECT_EQ(course.end.get(), "rank 1 died: a partner is lost");
  EXPECT_EQ(course.kept, 1);
}

TEST(NcclWatch, ABackendThatCannotBeAskedHasFailed) {
  Course course;
  NcclWatchQuestions questions = course.questions();
  questions.keep_evidence = [](const std::string&) {};
  questions.fault = []() -> std::string { throw std::runtime_error("no answer"); };
  const NcclWatch watch(std::move(questions), kQuick);
  EXPECT_EQ(course.end.get(), "rank 1 died: no answer");
}

TEST(NcclWatchDeathTest, TheExitCodeSaysInterrupted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        Course course;
        course.broken = true;
        NcclWatchQuestions questions = course.questions();
        questions.end = [](const std::string&, const std::string&) { end_interrupted(); };
        const NcclWatch watch(std::move(questions), kQuick);
        std::this_thread::sleep_for(10min);  // as one that waits for the device
      },
      testing::ExitedWithCode(75), "rank 1 died \\(it broke\\): this rank ends with exit code 75");
}

TEST(NcclBackend, FaultsInWords) {
  FakeNccl nccl(0, 1);
  const auto fault = [&](c10d::ErrorType error) {
    fake_error = error;
    return fault_of(nccl, 5min);
  };
  EXPECT_EQ(fault(c10d::ErrorType::SUCCESS), "");
  EXPECT_EQ(fault(c10d::ErrorType::TIMEOUT), "a collective of NCCL did not end within 5m 00s");
  EXPECT_THAT(fault(c10d::ErrorType::COMM_ERROR), HasSubstr("NCCL_DEBUG=WARN"));
  EXPECT_THAT(fault(c10d::ErrorType::REMOTE_ERROR), HasSubstr("on another rank"));
}

TEST_F(ProcessGroupOnDevice, PartsInOrder) {
  {
    ProcessGroup group(options());
    EXPECT_EQ(group.guard("a test", [] { return 7; }), 7);
    group.leave();
    EXPECT_TRUE(group.alone());
  }
  EXPECT_EQ(fake_shutdowns, 1);
  EXPECT_EQ(fake_aborts, 0);
}

// Aborted kernels leave any numbers behind: nobody may abort while a saver lives, whom the group outlasts.
TEST_F(ProcessGroupOnDevice, AFailureIsThrownByTheNextGuardAndNothingAbortedBeforeTheEnd) {
  {
    ProcessGroup group(options());
    fake_error = c10d::ErrorType::TIMEOUT;
    std::string message;
    bool reached = false;
    while (message.empty()) {
      try {
        group.guard("gradients", [&] { reached = group.alone(); });
      } catch (const GroupError& error) {
        message = error.what();
        EXPECT_EQ(error.exit_code(), ExitCode::interrupted);
      }
    }
    EXPECT_THAT(message, AllOf(HasSubstr("gradients: a collective of NCCL did not end within 5m 00s"),
                               HasSubstr("the newest checkpoint stands: start all ranks again")));
    EXPECT_FALSE(reached);
    EXPECT_TRUE(group.alone());
    EXPECT_EQ(fake_aborts, 0);
  }
  EXPECT_EQ(fake_aborts, 1);
  EXPECT_EQ(fake_shutdowns, 0);
}

// Without a list of its collectives a backend counts as one that holds the training thread.
TEST(NcclBackend, CollectivesThatHaveNotEnded) {
  struct Listed final : c10d::Backend, PendingCollectives {
    Listed() : c10d::Backend(0, 1) {}
    bool pending() override { return begun; }
    bool begun = false;
  } listed;
  EXPECT_FALSE(collectives_pending(listed));
  listed.begun = true;
  EXPECT_TRUE(collectives_pending(listed));
  FakeNccl unlisted(0, 1);
  EXPECT_TRUE(collectives_pending(unlisted));
}

TEST_F(ProcessGroupOnDevice, AnErrorOfTheProgramsOwnAbortsAtTheEnd) {
  try {
    ProcessGroup group(options());
    throw std::runtime_error("the program's own");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(fake_aborts, 1);
  EXPECT_EQ(fake_shutdowns, 0);
}

}}  // namespace holdfast
