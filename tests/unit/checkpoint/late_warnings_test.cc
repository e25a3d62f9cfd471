// People are told once for each notice what cannot be done before an announced end.
#include "holdfast/checkpoint/internal/late_warnings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/captured_log.h"
#include "support/fake_clock.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using internal::LateWarnings;
using internal::Reached;
using testing::HasSubstr;
using testing::Not;

class LateWarningsTest : public testing::Test {
 protected:
  void announce(Duration left) {
    monitor.post({.source = "ec2", .kind = NoticeKind::deadline, .deadline = clock.now() + left});
  }
  // The log since the last call.
  std::string said() {
    std::string text = log->text();
    log.emplace();
    return text;
  }

  FakeClock clock;
  std::optional<CapturedLog> log{std::in_place};
  Monitor monitor{clock};
  internal::Announced announced{monitor};
  CostModel costs;
  LateWarnings warnings{announced, costs, clock};
};

TEST_F(LateWarningsTest, NameTheStepThatStandsAndWhatASaveWouldTake) {
  costs.committed(60s);
  announce(30s);
  warnings.too_late({.step = 12, .durable = 10, .standing = {}});
  EXPECT_THAT(said(),
              HasSubstr("no time for a save of step 12, which takes about 1m 00s: 30s left; step 10 is "
                        "the newest that is durable"));
}

TEST_F(LateWarningsTest, LeaveOutWhatNobodyKnows) {
  warnings.too_late({.step = 3, .standing = {}});
  EXPECT_THAT(said(), HasSubstr("no time for a save of step 3; nothing of this run is durable"));
  warnings.not_home({.step = 3, .home = -1, .standing = {}});
  EXPECT_THAT(said(), HasSubstr("step 3 will not be home in time; nothing of this run is home"));
}

TEST_F(LateWarningsTest, TellWhatIsHome) {
  costs.home_takes(90s);
  announce(30s);
  warnings.not_home({.step = 12, .durable = 12, .home = 8, .standing = {}});
  EXPECT_THAT(said(),
              HasSubstr("step 12 will not be home in time: the way takes about 1m 30s, 30s left; step 8 "
                        "is the newest that is home"));
}

TEST_F(LateWarningsTest, AreGivenOnceForEachNoticeAndEachForItself) {
  const Reached at{.step = 12, .durable = 10, .home = 8, .standing = {}};
  warnings.too_late(at);
  EXPECT_THAT(said(), HasSubstr("no time"));
  warnings.too_late(at);
  warnings.not_home(at);
  const std::string second = said();
  EXPECT_THAT(second, Not(HasSubstr("no time")));
  EXPECT_THAT(second, HasSubstr("will not be home")) << "the other warning is another one";
  warnings.not_home(at);
  EXPECT_EQ(said(), "");
  warnings.again();
  warnings.too_late(at);
  warnings.not_home(at);
  const std::string again = said();
  EXPECT_THAT(again, HasSubstr("no time"));
  EXPECT_THAT(again, HasSubstr("will not be home"));
}

TEST_F(LateWarningsTest, WithoutAMirrorNothingIsSaidOfHomeAndTheWarningIsNotUsedUp) {
  warnings.not_home({.step = 12, .standing = {}});
  EXPECT_EQ(said(), "");
  warnings.not_home({.step = 12, .home = 8, .standing = {}});
  EXPECT_THAT(said(), HasSubstr("will not be home"));
}

}}  // namespace holdfast::test
