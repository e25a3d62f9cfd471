// What happens when a collective fails on the device, with a backend that only says so.
#include "holdfast/distributed/internal/nccl_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "holdfast/distributed/internal/nccl_backend.h"
#include "holdfast/distributed/process_group.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

constexpr NcclWatchOptions kQuick{.look_every = 1ms, .patience = 1ms};
constexpr NcclWatchOptions kPatient{.look_every = 1ms, .patience = 10min};

std::string no_fault() { return {}; }

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

TEST(NcclWatch, EndsTheProcessWhenNobodyTakesTheFailure) {
  std::promise<std::string> ended;
  std::atomic<bool> broken = false;
  NcclWatch watch([&] { return broken ? std::string("it broke") : std::string(); },
                  [&](const std::string& failure) { ended.set_value(failure); }, kQuick);
  EXPECT_EQ(watch.failure(), "");
  broken = true;
  EXPECT_EQ(ended.get_future().get(), "it broke");
  EXPECT_EQ(watch.failure(), "it broke");
}

TEST(NcclWatch, WaitsForAProgramThatUnwinds) {
  bool ended = false;
  {
    NcclWatch watch([] { return std::string("it broke"); }, [&](const std::string&) { ended = true; },
                    kPatient);
    while (watch.failure().empty()) std::this_thread::yield();
  }
  EXPECT_FALSE(ended);
}

TEST(NcclWatch, TheFirstFailureCounts) {
  std::promise<std::string> ended;
  NcclWatch watch(no_fault, [&](const std::string& failure) { ended.set_value(failure); },
                  {.look_every = 10min, .patience = 1ms});
  watch.tell("a partner is lost");
  watch.tell("so are all others");
  EXPECT_EQ(ended.get_future().get(), "a partner is lost");
}

TEST(NcclWatch, ABackendThatCannotBeAskedHasFailed) {
  std::promise<std::string> ended;
  const NcclWatch watch([]() -> std::string { throw std::runtime_error("no answer"); },
                        [&](const std::string& failure) { ended.set_value(failure); }, kQuick);
  EXPECT_EQ(ended.get_future().get(), "no answer");
}

TEST(NcclWatchDeathTest, TheExitCodeSaysInterrupted) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const NcclWatch watch([] { return std::string("it broke"); },
                              [](const std::string&) { end_interrupted(); }, kQuick);
        std::this_thread::sleep_for(10min);  // as one that waits for the device
      },
      testing::ExitedWithCode(75),
      "it broke: if this rank still waits for its GPU in 1 ms, it ends with exit code 75");
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
