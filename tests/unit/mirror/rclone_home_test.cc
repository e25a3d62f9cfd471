// HOME behind rclone: what its calls are, and what counts; a script stands in rclone's place, and the real program on a
// folder, if it is installed.
#include "holdfast/mirror/rclone_home.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "store_machine.h"
#include "support/fault_file_system.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST_F(Rclone, ARunGoesHomeAndComesBack) {
  FileId saved;
  {
    StoreMachine machine(folder_.path() / "one");
    EXPECT_EQ(machine.prepare().attempt, 1U);
    machine.save(10);
    saved = machine.save(20);
    machine.mirror.run();
    EXPECT_EQ(read_text(at_home(saved)), read_text(folder_.path() / "one" / checkpoint_name(saved)));
  }
  StoreMachine other(folder_.path() / "two");
  const PreparedStart start = other.prepare();
  EXPECT_EQ(start.newest, saved);
  EXPECT_EQ(start.attempt, 2U);
  EXPECT_EQ(other.trainer->attempt(), 2U);
  EXPECT_EQ(other.step, 20);
}

TEST_F(Rclone, ClaimsHaveUniqueNamesAndAWinnerIsAloneAtItsNumber) {
  StoreMachine machine(folder_.path() / "one");
  EXPECT_EQ(machine.home->claim(5), 5U);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(store() / "attempts"))
    names.push_back(entry.path().filename());
  ASSERT_EQ(names.size(), 1U);
  EXPECT_EQ(parse_store_claim(names.front()), 5U);
  for (const char* const name : {"5", "5.", "5.0123456789abcdeg", "05.0123456789abcdef", "x.0123456789abcdef",
                                 "5.0123456789abcdef0"}) {
    EXPECT_FALSE(parse_store_claim(name)) << name;
  }
}

// A rival's claim of the same number lands between the write and the listing.
TEST_F(Rclone, ALostClaimIsTriedAgainWithTheNextNumber) {
  std::string script = kRcloneScript;
  const std::string rcat = "cat >\"$f\";;";
  script.replace(script.find(rcat), rcat.size(),
                 "cat >\"$f\"; [ -f \"$here/rival\" ] || { touch \"$here/rival\"; touch \"$(dirname "
                 "$f)/1.00000000000000aa\"; };;");
  write_text(tools_ / "rclone", script);
  StoreMachine machine(folder_.path() / "one");
  EXPECT_EQ(machine.home->claim(1), 2U);
  machine.home->check_not_superseded();
  write_text(store() / "attempts/3.00000000000000bb", "");
  EXPECT_THROW(machine.home->check_not_superseded(), SupersededError);
}

TEST_F(Rclone, ALateClaimOfTheSameNumberIsTheLosers) {
  StoreMachine machine(folder_.path() / "one");
  EXPECT_EQ(machine.home->claim(1), 1U);
  write_text(store() / "attempts/1.00000000000000aa", "");
  machine.home->check_not_superseded();
}

TEST_F(Rclone, ACopyThatDiffersDoesNotCount) {
  std::string script = kRcloneScript;
  const std::string copy = "cp \"$1\" \"$f\"";
  script.replace(script.find(copy), copy.size(), "head -c 5000 \"$1\" >\"$f\"");
  write_text(tools_ / "rclone", script);
  StoreMachine machine(folder_.path() / "one");
  machine.prepare();
  const FileId saved = machine.save(10);
  EXPECT_THROW(machine.mirror.run(), CopyDiffers);
  EXPECT_FALSE(machine.mirror.record().newest);
  write_text(tools_ / "rclone", kRcloneScript);  // half there: it is replaced
  machine.mirror.run();
  EXPECT_EQ(machine.mirror.record().newest, saved);
  EXPECT_EQ(read_text(at_home(saved)), read_text(folder_.path() / "one" / checkpoint_name(saved)));
}

TEST_F(Rclone, ADamagedCheckpointDoesNotGoHome) {
  StoreMachine machine(folder_.path() / "one");
  machine.prepare();
  const FileId good = machine.save(10);
  const FileId bad = machine.save(20);
  const fs::path file = folder_.path() / "one" / checkpoint_name(bad);
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(kToyBlock + 9));
    bytes.put('!');
  }
  EXPECT_FALSE(machine.mirror.run());
  EXPECT_EQ(machine.mirror.record().newest, good);
}

// rclone reads the source for its upload; what comes back is compared with the digests in the source's head.
TEST_F(Rclone, ACopyIsReadBackOnceAndOfTheSourceOnlyTheHead) {
  StoreMachine machine(folder_.path() / "one");
  machine.prepare();
  machine.trainer->commit(
      toy_request({.step = 10, .attempt = machine.trainer->attempt(), .body_blocks = 64}));
  FaultFileSystem counted(FileSystem::real());
  Mirror mirror(counted, machine.verifier, *machine.home, {.directory = folder_.path() / "one", .once = true},
                machine.pace);
  mirror.add_claims({1});
  write_text(
      tools_ / "rclone",
      std::string(kRcloneScript).insert(sizeof "#!/bin/sh", "echo \"$*\" >>\"$(dirname $0)/calls\"\n"));
  mirror.run();
  EXPECT_EQ(mirror.record().newest, (FileId{.attempt = 1, .step = 10}));
  std::uint64_t read = 0;
  for (const Operation& operation : counted.log()) {
    if (operation.kind == Op::read && operation.path.find("step-") != std::string::npos)
      read += operation.length;
  }
  EXPECT_GE(read, kToyBlock);
  EXPECT_LE(read, 4 * kToyBlock) << "of " << 65 * kToyBlock;
  std::istringstream calls(read_text(tools_ / "calls"));
  std::map<std::string, int> verbs;
  for (std::string verb, rest; calls >> verb && std::getline(calls, rest);) ++verbs[verb];
  EXPECT_EQ(verbs["copyto"], 1);
  EXPECT_EQ(verbs["cat"], 1);
  EXPECT_EQ(verbs["lsjson"], 2) << "before the copy and after it; each call starts a program";
}

// A store that answers slowly, beside a trainer that saves often: the checkpoint of the copy is deleted while the
// mirror still lists.
TEST_F(Rclone, ACheckpointThatIsDeletedMeanwhileGoesHomeYet) {
  StoreMachine machine(folder_.path() / "one");
  machine.prepare();
  machine.mirror.run();  // looks around, which it does once a minute
  const FileId saved = machine.save(10);
  const std::string file = (folder_.path() / "one" / checkpoint_name(saved)).native();
  const std::string bytes = read_text(file);
  write_text(tools_ / "rclone",
             std::string(kRcloneScript).insert(sizeof "#!/bin/sh", "rm -f '" + file + "'\n"));
  machine.mirror.run();
  EXPECT_EQ(machine.mirror.record().newest, saved);
  EXPECT_TRUE(read_text(at_home(saved)) == bytes);
}

TEST_F(Rclone, ATakeOverDuringTheCopyMeansItDoesNotCount) {
  StoreMachine machine(folder_.path() / "one");
  machine.prepare();
  machine.save(10);
  std::string script = kRcloneScript;
  const std::string copy = "cp \"$1\" \"$f\"";
  script.replace(script.find(copy), copy.size(),
                 copy + "; touch \"$(dirname $f)/attempts/7.00000000000000aa\"");
  write_text(tools_ / "rclone", script);
  EXPECT_THROW(machine.mirror.run(), SupersededError);
  EXPECT_FALSE(machine.mirror.record().newest);
}

TEST_F(Rclone, KeepsTheNewestAndNeverFewerThanTwo) {
  StoreMachine machine(folder_.path() / "one", "rclone:fake:bucket/run", 2);
  machine.prepare();
  for (std::int64_t step = 10; step <= 50; step += 10) {
    machine.save(step);
    machine.mirror.run();
  }
  for (std::int64_t step = 10; step <= 50; step += 10) {
    EXPECT_EQ(fs::exists(at_home({.attempt = 1, .step = step})), step >= 40) << step;
  }
}

TEST_F(Rclone, AListThatIsNoneIsAnErrorAndNoEmptyStore) {
  write_text(tools_ / "rclone", "#!/bin/sh\necho '[{\"Name\":'\n");
  StoreMachine machine(folder_.path() / "one");
  EXPECT_THROW(machine.home->list(), HomeError);
  write_text(tools_ / "rclone", "#!/bin/sh\necho '[]'; exit 1\n");
  EXPECT_THROW(machine.home->highest(), HomeError);
  fs::remove(tools_ / "rclone");
  setenv("PATH", "/nowhere", 1);
  try {
    machine.home->list();
    ADD_FAILURE() << "listed without rclone";
  } catch (const HomeError& error) {
    EXPECT_THAT(error.what(), HasSubstr("not installed"));
  }
}

// A store that takes requests and never answers.
TEST_F(Rclone, ACallThatHangsEndsTheWaitForHome) {
  FakeClock* clock = nullptr;  // set: time passes quickly
  StoreMachine machine(folder_.path() / "one", "rclone:fake:bucket/run", 3, [&] {
    if (clock != nullptr) clock->sleep_for(std::chrono::minutes(1));
  });
  machine.prepare();
  const FileId saved = machine.save(10);
  write_text(tools_ / "rclone", "#!/bin/sh\nexec sleep 100\n");
  clock = &machine.clock;
  const SteadyTime began = machine.clock.now();
  const PreparedStart start =
      prepare_start_or_go_alone(FileSystem::real(), machine.verifier, machine.directory_, *machine.home,
                                machine.pace, std::chrono::minutes(10));
  EXPECT_TRUE(start.alone);
  EXPECT_EQ(start.newest, saved);
  EXPECT_LT(machine.clock.now() - began, std::chrono::minutes(15));
}

TEST_F(Rclone, PlacesAreRemoteAndPath) {
  for (const char* const place : {"rclone:", "rclone:s3", "rclone:s3:", "rclone::local"}) {
    FakeClock clock;
    Pace pace(clock);
    ToyVerifier verifier;
    EXPECT_THROW(open_home({.place = place}, FileSystem::real(), verifier, pace), UsageError) << place;
  }
}

// An upload that was sent cannot be called back. What arrives after a newer machine has begun, and did not begin
// with it, does not hide what that machine began with, which counts as home.
TEST_F(Rclone, WhatArrivesLateStandsBackBehindAStart) {
  const auto upload = [&](const char* machine, FileId id) {
    fs::copy_file(folder_.path() / machine / checkpoint_name(id), at_home(id));
  };
  const FileId home{.attempt = 1, .step = 10};
  const FileId late{.attempt = 1, .step = 20};
  const FileId later{.attempt = 2, .step = 15};
  StoreMachine one(folder_.path() / "one");
  one.prepare();
  one.save(home.step);
  one.mirror.run();
  one.save(late.step);
  const auto begins_with = [&](const std::string& name) {
    StoreMachine machine(folder_.path() / name);
    const PreparedStart start = machine.prepare();
    machine.mirror.run();
    EXPECT_EQ(machine.mirror.record().newest, start.newest) << "it counts as home";
    if (name == "two") machine.save(later.step);
    return *start.newest;
  };
  EXPECT_EQ(begins_with("two"), home);
  upload("one", late);
  EXPECT_EQ(begins_with("three"), home);
  upload("two", later);
  EXPECT_EQ(begins_with("four"), home);
  fs::remove(at_home(home));  // and if nothing else is there
  EXPECT_EQ(begins_with("five"), later);
}

TEST(StoreMark, NamesAClaimAndACheckpoint) {
  const std::string name = "7.0123456789abcdef.from." + checkpoint_name({.attempt = 3, .step = 40});
  const auto mark = parse_store_mark(name);
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->first, 7U);
  EXPECT_EQ(mark->second, (FileId{.attempt = 3, .step = 40}));
  EXPECT_FALSE(parse_store_claim(name));
  for (const std::string other : {"7.0123456789abcdef", "7.0123456789abcdef.from.", "7.from.x",
                                  "7.0123456789abcdef.from.step-40-a3.h5", ".from."}) {
    EXPECT_FALSE(parse_store_mark(other)) << other;
  }
}

// The object is there, but rclone says that it failed, or the listing behind it fails. The next try must not take that
// claim for another machine's.
TEST_F(Rclone, AClaimThatSeemedToFailIsStillOwn) {
  FakeClock clock;
  ToyVerifier verifier;
  Pace pace(clock, 0);
  const auto home =
      open_home({.place = "rclone:fake:bucket/run", .keep = 3}, FileSystem::real(), verifier, pace);
  AttemptNumber own = home->claim(1);
  int failed = 0;
  for (int nth = 1; nth <= 8; ++nth) {
    fault(nth, 5, "after");
    AttemptNumber next = 0;
    try {
      next = home->claim(own + 1);
    } catch (const HomeError&) {
      ++failed;
      no_faults();
      ASSERT_NO_THROW(next = home->claim(own + 1)) << "call " << nth;
    }
    no_faults();
    EXPECT_GT(next, own);
    own = next;
    EXPECT_NO_THROW(home->check_not_superseded());
  }
  EXPECT_GT(failed, 2);
}

// The same for a mirror that begins: it goes on, and does not end the trainer.
TEST_F(Rclone, AMirrorWhoseClaimSeemedToFailGoesOn) {
  StoreMachine machine(folder_.path() / "run");
  machine.prepare();
  machine.save(10);
  int failed = 0;
  for (int nth = 1; nth <= 6; ++nth) {
    for (const char* const when : {"before", "after"}) {
      StoreMachine next(folder_.path() / "run");
      fault(nth, 5, when);
      try {
        next.mirror.run();
      } catch (const HomeError&) {
        ++failed;
        no_faults();
        EXPECT_NO_THROW(next.mirror.run()) << "call " << nth << ", " << when;
      }
      no_faults();
    }
  }
  EXPECT_GT(failed, 6);
}

// Another machine starts while a run that has begun alone claims its number: one of the two goes on.
TEST_F(Rclone, OfARunAloneAndAnotherMachineOneGoesOn) {
  int lost = 0;
  for (int nth = 1; nth <= 8; ++nth) {
    const std::filesystem::path folder = folder_.path() / std::to_string(nth);
    {
      StoreMachine first(folder / "run");
      first.prepare();
      first.save(10);
      first.mirror.run();
    }
    std::optional<StoreMachine> second;
    no_faults();
    StoreMachine alone(folder / "run", "rclone:fake:bucket/run", 3, [&] {
      if (second || read_text(tools_ / "ended") != std::to_string(nth) + "\n") return;
      second.emplace(folder / "other");
      second->prepare();
    });
    alone.trainer.emplace(FileSystem::real(), alone.clock, StoreOptions{.directory = folder / "run"},
                          alone.verifier);
    alone.trainer->preflight();
    alone.mirror.go_alone(alone.trainer->claim());
    alone.go_on_from(alone.trainer->recover());
    alone.save(20);
    std::filesystem::remove(tools_ / "ended");
    bool goes_on = true;
    try {
      alone.mirror.run();
      alone.home->check_not_superseded();
    } catch (const SupersededError&) {
      goes_on = false;
    }
    ASSERT_TRUE(second) << "call " << nth;
    lost += goes_on ? 0 : 1;
    if (!goes_on) {
      EXPECT_NO_THROW(second->home->check_not_superseded()) << "call " << nth;
    }
    std::filesystem::remove_all(tools_ / "store");
  }
  EXPECT_GT(lost, 1);
}

// The supervisor restarts its trainer while the mirror asks who owns HOME: the list that rclone has just made is older
// than the new claim.
TEST_F(Rclone, AClaimMadeWhileClaimsAreListedIsNotMissed) {
  FakeClock clock;
  ToyVerifier verifier;
  std::unique_ptr<Home> home;
  int claims_at = 0;  // number of the call of rclone during which a new attempt is claimed; 0: none
  Pace pace(clock, 0, [&] {
    if (claims_at == 0 || read_text(tools_ / "ended") != std::to_string(claims_at) + "\n") return;
    claims_at = 0;
    EXPECT_EQ(home->claim(1), 2U);
  });
  home = open_home({.place = "rclone:fake:bucket/run", .keep = 3}, FileSystem::real(), verifier, pace);
  EXPECT_EQ(home->claim(1), 1U);
  claims_at = calls() + 1;
  EXPECT_NO_THROW(home->check_not_superseded());
  EXPECT_EQ(claims_at, 0);
}

TEST(RealRclone, ARunGoesHomeAndComesBackOnAFolder) {
  set_log_level(LogLevel::error);
  if (system("rclone version >/dev/null 2>&1") != 0) GTEST_SKIP() << "rclone is not installed";
  const TemporaryFolder folder;
  const std::string place = "rclone::local:" + folder.path().native() + "/store/run";
  FileId saved;
  {
    StoreMachine machine(folder.path() / "one", place, 2);
    machine.prepare();
    for (const std::int64_t step : {10, 20, 30}) {
      saved = machine.save(step);
      machine.mirror.run();
    }
    EXPECT_FALSE(fs::exists(folder.path() / "store/run" / checkpoint_name({.attempt = 1, .step = 10})));
  }
  StoreMachine other(folder.path() / "two", place);
  const PreparedStart start = other.prepare();
  EXPECT_EQ(start.newest, saved);
  EXPECT_EQ(other.trainer->attempt(), start.attempt);
  EXPECT_EQ(start.attempt, 2U);
}

}}  // namespace holdfast::test
