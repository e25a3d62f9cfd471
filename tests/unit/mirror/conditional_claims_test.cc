// Claims in an S3 store, where a machine writes its number first, only where nothing lies. A script stands in
// rclone's place, with and without a store that honours the condition.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "holdfast/mirror/rclone_home.h"
#include "holdfast/mirror/rclone_program.h"
#include "holdfast/mirror/rclone_s3.h"
#include "store_machine.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

TEST(RcloneVersion, SendsConditionsFrom172On) {
  for (const char* const version : {"rclone v1.72.0\n- os/version: debian\n", "rclone v1.72.0-beta.9",
                                    "rclone v1.75.2", "rclone v2.0.0", "rclone v1.100.0"}) {
    EXPECT_TRUE(rclone_sends_conditions(version)) << version;
  }
  for (const char* const version :
       {"", "rclone v", "rclone v1", "rclone v1.", "rclone v1.71.2", "rclone v1.60.1-DEV", "rclone v0.99.0",
        "rclone 1.75", "v1.75.2", "rclone vx.75"}) {
    EXPECT_FALSE(rclone_sends_conditions(version)) << version;
  }
}

TEST(RcloneRemotes, TellWhichIsS3) {
  const char* const remotes = "a: s3 my bucket\nbb:        s3\nsafe:      crypt\nmy s3:     s3 \nlast: s3";
  for (const char* const root : {"a:bucket/run", "bb:bucket/run", "my s3:bucket/run", "last:b/r",
                                 "a,env_auth=true:b/r", ":s3:bucket/run", ":s3,env_auth:bucket/run"}) {
    EXPECT_TRUE(is_s3_remote(root, remotes)) << root;
  }
  for (const char* const root :
       {"safe:run", "s3:bucket/run", "b:bucket/run", ":local:/run", ":s3x:/run", "unknown:x/y"}) {
    EXPECT_FALSE(is_s3_remote(root, remotes)) << root;
  }
  EXPECT_FALSE(is_s3_remote("a:b/c", ""));
  EXPECT_FALSE(is_s3_remote("a:b/c", "a:"));
  EXPECT_FALSE(is_s3_remote("a:b/c", "a: "));
}

// The script as an rclone that knows an S3 remote `fake`, writes down its calls, and honours the condition.
class ConditionalClaims : public Rclone {
 protected:
  ConditionalClaims() { install("1.72.0", kHonoured); }

  static constexpr char kHonoured[] = "[ -e \"$there\" ] && { echo 'StatusCode: 412' >&2; exit 1; }";
  static constexpr char kIgnored[] = "";

  // `condition`: what the store does with a conditional write of the file $there.
  void install(const std::string& version, const std::string& condition) const {
    const std::string answers = R"sh(
echo "$*" >>"${0%/*}/calls"
for last; do :; done; there="${0%/*}/store/${last#fake:}"
case $1 in
  version) echo "rclone v)sh" + version +
                                R"sh("; exit;;
  listremotes) echo "fake:  s3 "; exit;;
esac
case "$*" in *"If-None-Match: *"*) )sh" +
                                condition + R"sh(
  :;;
esac
)sh";
    write_text(tools_ / "rclone", std::string(kRcloneScript).insert(sizeof "#!/bin/sh", answers));
  }
  std::unique_ptr<Home> open() {
    return open_home({.place = "rclone:fake:bucket/run"}, FileSystem::real(), verifier_, pace_);
  }
  void lies(const std::string& name, const std::string& text) const {
    fs::create_directories(store() / "attempts");
    write_text(store() / "attempts" / name, text);
  }
  bool is_there(const std::string& name) const { return fs::exists(store() / "attempts" / name); }
  // What was written to the store, in order.
  std::vector<std::string> written() const {
    std::vector<std::string> names;
    std::istringstream calls(read_text(tools_ / "calls"));
    for (std::string line; std::getline(calls, line);) {
      if (!line.starts_with("rcat ")) continue;
      const std::string name = line.substr(line.rfind('/') + 1);
      const bool conditional = line.find("--header-upload=If-None-Match: *") != std::string::npos;
      names.push_back((conditional ? "if none: " : "") + name.substr(0, name.find('.')));
    }
    return names;
  }

  FakeClock clock_;
  ToyVerifier verifier_;
  Pace pace_{clock_, 0};
};

// On a busy machine a program may have refused before its input is written.
TEST_F(ConditionalClaims, AProgramThatEndsBeforeItReadsIsJudgedByItsExitCode) {
  const RcloneProgram rclone(pace_);
  const std::string more_than_a_pipe_holds(2u << 20, 'x');
  write_text(tools_ / "rclone", "#!/bin/sh\necho 'StatusCode: 412' >&2; exit 1\n");
  const RcloneEnd refused = rclone.run({"rcat", "fake:claim"}, more_than_a_pipe_holds);
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.said, "StatusCode: 412");
  write_text(tools_ / "rclone", "#!/bin/sh\n");
  EXPECT_THROW(rclone.run({"rcat", "fake:claim"}, more_than_a_pipe_holds), HomeError);
}

TEST_F(ConditionalClaims, TheNumberIsWrittenFirstAndNamesItsClaim) {
  const auto home = open();
  EXPECT_EQ(home->claim(5), 5U);
  EXPECT_THAT(written(), ElementsAre("if none: 5", "5"));
  const std::string claim = read_text(store() / "attempts/5");
  EXPECT_EQ(parse_store_claim(claim), 5U) << claim;
  EXPECT_TRUE(is_there(claim));
  EXPECT_NO_THROW(home->check_not_superseded());
  EXPECT_EQ(home->highest(), 5U);
  EXPECT_EQ(home->claim(1), 6U);
}

TEST_F(ConditionalClaims, AnOlderRcloneOrAnotherStoreClaimsByTheListAlone) {
  install("1.71.2", kHonoured);
  EXPECT_EQ(open()->claim(1), 1U);
  EXPECT_THAT(written(), ElementsAre("1"));
  fs::remove(tools_ / "calls");
  write_text(tools_ / "rclone",
             std::string(kRcloneScript).insert(sizeof "#!/bin/sh", "echo \"$*\" >>\"${0%/*}/calls\"\n"));
  EXPECT_EQ(open()->claim(1), 2U);
  EXPECT_THAT(written(), ElementsAre("2"));
}

// The rival's number lies there, its claim does not yet: this one loses before it has written a claim.
TEST_F(ConditionalClaims, WhoComesSecondLosesBeforeItClaims) {
  lies("1", "1.00000000000000aa");
  const auto home = open();
  EXPECT_EQ(home->claim(1), 2U);
  EXPECT_THAT(written(), ElementsAre("if none: 1", "if none: 2", "2"));
  // A number is no claim: it supersedes nobody.
  lies("3", "3.00000000000000aa");
  EXPECT_NO_THROW(home->check_not_superseded());
  EXPECT_EQ(home->highest(), 2U);
  lies("3.00000000000000aa", "");
  EXPECT_THROW(home->check_not_superseded(), SupersededError);
}

// Every write succeeds. The rival's claim of the same number is found by the list.
TEST_F(ConditionalClaims, WhereTheStoreIgnoresTheConditionTheListDecides) {
  install("1.75.2",
          "mkdir -p \"${there%/*}\"; [ $last != fake:bucket/run/attempts/1 ] || touch "
          "\"$there.00000000000000aa\"");
  EXPECT_EQ(open()->claim(1), 2U);
  EXPECT_THAT(written(), ElementsAre("if none: 1", "1", "if none: 2", "2"));
}

// Such as 501, of a store that does not know the header.
TEST_F(ConditionalClaims, WhereTheStoreRefusesTheConditionTheListDecides) {
  install("1.75.2", "echo 'StatusCode: 501' >&2; exit 1");
  const auto home = open();
  EXPECT_EQ(home->claim(1), 1U);
  EXPECT_FALSE(is_there("1"));
  EXPECT_NO_THROW(home->check_not_superseded());
}

// The write arrived, its answer did not, and rclone sent it again: 412 because of the own object.
TEST_F(ConditionalClaims, AnOwnNumberIsNotLostWhenItsAnswerWas) {
  install("1.75.2", "mkdir -p \"${there%/*}\"; cat >\"$there\"; echo 'StatusCode: 412' >&2; exit 1");
  EXPECT_EQ(open()->claim(1), 1U);
  EXPECT_THAT(written(), ElementsAre("if none: 1", "1"));
}

TEST_F(ConditionalClaims, OldNumbersAreForgottenWithTheirClaims) {
  lies("1", "1.00000000000000aa");
  lies("1.00000000000000aa", "");
  lies("2", "2.00000000000000aa");
  EXPECT_EQ(open()->claim(101), 101U);
  EXPECT_FALSE(is_there("1"));
  EXPECT_FALSE(is_there("1.00000000000000aa"));
  EXPECT_TRUE(is_there("2"));
  EXPECT_TRUE(is_there("101"));
}

// A claim of a standby. The rival's number lies there: its claim may be on the way. Once that is long ago, the
// rival has died in between, and the number is passed.
TEST_F(ConditionalClaims, AStandbyPassesANumberWhoseClaimNeverCame) {
  lies("1.00000000000000aa", "");
  lies("2", "2.00000000000000aa");
  const auto home = open();
  EXPECT_EQ(home->claim_after(1), 0U);
  EXPECT_EQ(home->claim_after(1), 0U);
  EXPECT_FALSE(is_there("3"));
  clock_.advance(std::chrono::minutes(1));
  EXPECT_EQ(home->claim_after(1), 3U);
  EXPECT_NO_THROW(home->check_not_superseded());
  // The rival stood still, and comes back: it loses against the list.
  lies("2.00000000000000aa", "");
  EXPECT_NO_THROW(home->check_not_superseded());
}

TEST_F(ConditionalClaims, AStandbyNeverClaimsBehindAnotherOne) {
  lies("1.00000000000000aa", "");
  lies("2", "2.00000000000000aa");
  const auto home = open();
  EXPECT_EQ(home->claim_after(1), 0U);
  lies("2.00000000000000aa", "");
  clock_.advance(std::chrono::minutes(1));
  EXPECT_EQ(home->claim_after(1), 0U);
  EXPECT_EQ(open()->claim_after(1), 0U) << "one that has just come";
  EXPECT_FALSE(is_there("3"));
  EXPECT_EQ(open()->claim_after(2), 3U);
}

// Every write succeeds. The rival's claim of the same number is found by the list, and nothing of the own one
// stays: it would look like a machine that holds the run.
TEST_F(ConditionalClaims, AStandbyThatLosesLeavesNoClaim) {
  install("1.75.2",
          "mkdir -p \"${there%/*}\"; [ $last != fake:bucket/run/attempts/2 ] || touch "
          "\"$there.00000000000000aa\"");
  lies("1.00000000000000aa", "");
  EXPECT_EQ(open()->claim_after(1), 0U);
  int left = 0;
  for (const auto& entry : fs::directory_iterator(store() / "attempts")) {
    left += parse_store_claim(entry.path().filename().native()) == 2U ? 1 : 0;
  }
  EXPECT_EQ(left, 1) << "the rival's";
}

// The claim of a standby fails at each call, with and without having arrived: called again, it wins.
TEST_F(ConditionalClaims, AStandbysClaimThatSeemedToFailIsStillOwn) {
  lies("1.00000000000000aa", "");
  AttemptNumber after = 1;
  for (int nth = 1; nth <= 6; ++nth) {
    for (const char* const when : {"before", "after"}) {
      const auto home = open();
      AttemptNumber own = 0;
      fault(nth, 5, when);
      for (int tries = 0; own == 0 && tries < 3; ++tries) {
        try {
          own = home->claim_after(after);
        } catch (const HomeError&) {
          no_faults();
        }
      }
      no_faults();
      EXPECT_GT(own, after) << "call " << nth << ", " << when;
      after = own;
      EXPECT_NO_THROW(home->check_not_superseded());
    }
  }
}

// The conditional write fails at each call, with and without having arrived.
TEST_F(ConditionalClaims, AClaimThatSeemedToFailIsStillOwn) {
  const auto home = open();
  AttemptNumber own = home->claim(1);
  for (int nth = 1; nth <= 5; ++nth) {
    for (const char* const when : {"before", "after"}) {
      fault(nth, 5, when);
      AttemptNumber next = 0;
      for (int tries = 0; next == 0 && tries < 2; ++tries) {
        try {
          next = home->claim(own + 1);
        } catch (const HomeError&) {
          no_faults();
        }
      }
      no_faults();
      EXPECT_GT(next, own) << "call " << nth << ", " << when;
      own = next;
      EXPECT_NO_THROW(home->check_not_superseded());
    }
  }
}

}}  // namespace holdfast::test
