// HOME behind rclone: a script in rclone's place fails with each of its exit codes at each of its calls, before
// or after it has done its work; and the real program on a folder, if it is installed.
#include "holdfast/mirror/rclone_home.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "holdfast/base/log.h"
#include "holdfast/mirror/mirror.h"
#include "holdfast/mirror/start.h"
#include "machine.h"
#include "support/fake_clock.h"
#include "support/fault_file_system.h"
#include "support/nightly.h"
#include "support/subprocess.h"
#include "toy_format.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The calls of rclone that a mirror makes, on a folder. It counts its calls, and plays a fault: "N CODE WHEN";
// where a machine dies, it tells so, and waits to be killed.
constexpr char kScript[] = R"sh(#!/bin/sh
here=${0%/*}
n=0; [ -f "$here/count" ] && read n <"$here/count"; n=$((n+1)); echo $n >"$here/count"
when=never
if [ -f "$here/fault" ]; then read at code when <"$here/fault"; [ "$n" = "$at" ] || when=never; fi
die() { touch "$here/dead"; exec sleep 100; }
work() {
  while [ "${1#--}" != "$1" ]; do [ "$1" = --bwlimit ] && shift; shift; done
  verb=$1; shift
  while [ "${1#--}" != "$1" ]; do shift; done
  root="$here/store/"
  case $verb in
    lsjson) cd "$root${1#fake:}" 2>/dev/null || return 3
      printf '[{"Path":"x","Name":"x","Size":-1,"IsDir":true}\n'
      find . -maxdepth 2 -type f -printf ',{"Path":"%P","Name":"%f","Size":%s,"IsDir":false}\n'
      printf ']';;
    rcat) f="$root${1#fake:}"; mkdir -p "${f%/*}"; cat >"$f";;
    copyto) f="$root${2#fake:}"; mkdir -p "${f%/*}"; cp "$1" "$f";;
    cat) f="$root${1#fake:}"; [ -f "$f" ] || return 4; cat "$f";;
    deletefile) f="$root${1#fake:}"; [ -f "$f" ] || return 4; rm "$f";;
    *) return 1;;
  esac
}
[ "$when" = before ] && { echo "planned failure" >&2; exit $code; }
[ "$when" = dies-before ] && die
work "$@"; rc=$?
echo $n >"$here/ended"
[ "$when" = dies-after ] && die
[ "$when" = after ] && { echo "planned failure" >&2; exit $code; }
exit $rc
)sh";

class Rclone : public testing::Test {
 protected:
  Rclone() {
    set_log_level(LogLevel::off);
    tools_ = folder_.path() / "tools";
    fs::create_directories(tools_);
    write_text(tools_ / "rclone", kScript);
    chmod((tools_ / "rclone").c_str(), 0755);
    before_ = getenv("PATH");
    setenv("PATH", (tools_.native() + ":" + before_).c_str(), 1);
  }
  ~Rclone() override { setenv("PATH", before_.c_str(), 1); }

  fs::path store() const { return tools_ / "store/bucket/run"; }
  fs::path at_home(FileId id) const { return store() / checkpoint_name(id); }
  void fault(int nth, int code, const std::string& when) const {
    fs::remove(tools_ / "count");
    write_text(tools_ / "fault", std::to_string(nth) + " " + std::to_string(code) + " " + when + "\n");
  }
  int calls() const { return std::stoi("0" + read_text(tools_ / "count")); }
  // For a Pace: the machine dies where the script says so.
  std::function<void()> dying() const {
    return [dead = tools_ / "dead"] {
      if (fs::exists(dead)) throw Killed();
    };
  }
  void no_faults() const {
    fs::remove(tools_ / "dead");
    fs::remove(tools_ / "fault");
    fs::remove(tools_ / "count");
  }

  TemporaryFolder folder_;
  fs::path tools_;
  std::string before_;
};

class StoreMachine : public History {
 public:
  StoreMachine(const fs::path& directory, const std::string& place = "rclone:fake:bucket/run", int keep = 3,
               std::function<void()> poll = {})
      : pace(clock, 0, std::move(poll)),
        directory_(directory),
        home(open_home({.place = place, .keep = keep}, FileSystem::real(), verifier, pace)),
        mirror(FileSystem::real(), verifier, *home, {.directory = directory, .once = true}, pace) {}
  PreparedStart prepare() {
    PreparedStart start = prepare_start(FileSystem::real(), verifier, directory_, *home, pace);
    mirror.add_claims(start.claims);
    trainer.emplace(FileSystem::real(), clock, StoreOptions{.directory = directory_}, verifier);
    trainer->preflight();
    trainer->claim();
    go_on_from(trainer->recover());
    return start;
  }
  FileId save(std::int64_t at) {
    trainer->commit(toy_request({.step = at, .attempt = trainer->attempt(), .ancestry = ancestry}));
    step = at;
    return {.attempt = trainer->attempt(), .step = at};
  }

  FakeClock clock;
  Pace pace;
  const fs::path directory_;
  ToyVerifier verifier;
  std::unique_ptr<Home> home;
  Mirror mirror;
  std::optional<CheckpointStore> trainer;
};

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
  std::string script = kScript;
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
  std::string script = kScript;
  const std::string copy = "cp \"$1\" \"$f\"";
  script.replace(script.find(copy), copy.size(), "head -c 5000 \"$1\" >\"$f\"");
  write_text(tools_ / "rclone", script);
  StoreMachine machine(folder_.path() / "one");
  machine.prepare();
  const FileId saved = machine.save(10);
  EXPECT_THROW(machine.mirror.run(), CopyDiffers);
  EXPECT_FALSE(machine.mirror.record().newest);
  write_text(tools_ / "rclone", kScript);  // half there: it is replaced
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
  machine.mirror.run();
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
  write_text(tools_ / "rclone",
             std::string(kScript).insert(sizeof "#!/bin/sh", "echo \"$*\" >>\"$(dirname $0)/calls\"\n"));
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
  write_text(tools_ / "rclone", std::string(kScript).insert(sizeof "#!/bin/sh", "rm -f '" + file + "'\n"));
  machine.mirror.run();
  EXPECT_EQ(machine.mirror.record().newest, saved);
  EXPECT_TRUE(read_text(at_home(saved)) == bytes);
}

TEST_F(Rclone, ATakeOverDuringTheCopyMeansItDoesNotCount) {
  StoreMachine machine(folder_.path() / "one");
  machine.prepare();
  machine.save(10);
  std::string script = kScript;
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

// Every call of a life fails once, before or after it did its work, with each of rclone's exit codes, or the
// machine dies there. The life tries again; what was home stays, and the next machine finds it. By day every
// fifth call with one of the codes.
class RcloneFaults : public Rclone {
 protected:
  FileId life(const std::string& name) {
    FileId home;
    StoreMachine machine(folder_.path() / name, "rclone:fake:bucket/run", 3, dying());
    const auto again = [](const auto& work) {
      for (int tries = 0;; ++tries) {
        try {
          return work();
        } catch (const HomeError&) {
          if (tries == 3) throw;
        }
      }
    };
    try {
      again([&] { machine.prepare(); });
      if (name != "past") {
        EXPECT_GE(machine.step, 30) << "it has begun anew, beside a home with checkpoints";
      }
      for (const std::int64_t more : {10, 20}) {
        const FileId saved = machine.save(machine.step + more);
        again([&] { machine.mirror.run(); });
        if (machine.mirror.record().newest == saved) home = saved;
      }
    } catch (const SupersededError&) {  // a listing that told of no claims: it ends, and loses nothing
    } catch (const RefusedError&) {
    } catch (const Killed&) {
    }
    return home;
  }
  void plays(int nth, int code, const std::string& when) {
    fault(nth, code, when);
    const std::string what =
        "call " + std::to_string(nth) + ", " + when + (code == 0 ? "" : ", code " + std::to_string(code));
    const std::string name = "life" + std::to_string(++lives_);
    const FileId home = std::max(life(name), past_);
    no_faults();
    StoreMachine next(folder_.path() / (name + "next"));
    const PreparedStart start = next.prepare();
    ASSERT_TRUE(start.newest) << what;
    ASSERT_GE(*start.newest, home) << what;
    fs::remove_all(folder_.path() / name);
    fs::remove_all(folder_.path() / (name + "next"));
    // The next one begins with the same store.
    fs::remove_all(tools_ / "store");
    fs::copy(folder_.path() / "store of the past", tools_ / "store", fs::copy_options::recursive);
  }
  // The number of calls in a life.
  int prepare_past() {
    past_ = life("past");
    EXPECT_EQ(past_.step, 30);
    fs::copy(tools_ / "store", folder_.path() / "store of the past", fs::copy_options::recursive);
    const int before = calls();
    life("count");
    return calls() - before;
  }

  FileId past_;
  int lives_ = 0;
};

TEST_F(RcloneFaults, AnyCallMayFailWithAnyCode) {
  constexpr int kCodes = 9;  // rclone's exit codes are 1 to 9
  const int all = prepare_past();
  ASSERT_GT(all, 10);
  for (int nth = 1; nth <= all; nth += nightly() ? 1 : 5 * kSlower) {
    for (const char* const when : {"before", "after"}) {
      for (int code = 1; code <= kCodes; ++code) {
        if (!nightly() && code != 1 + (nth + (*when == 'a' ? 4 : 0)) % kCodes) continue;
        plays(nth, code, when);
        if (HasFatalFailure()) return;
      }
    }
  }
  std::printf("rclone: %d lives, each with one failed call of %d\n", lives_, all);
}

TEST_F(RcloneFaults, TheMachineMayDieAtAnyCall) {
  const int all = prepare_past();
  for (int nth = 1; nth <= all; nth += nightly() ? 1 : 4) {
    for (const char* const when : {"dies-before", "dies-after"}) {
      plays(nth, 0, when);
      if (HasFatalFailure()) return;
    }
  }
  std::printf("rclone: %d lives, each with a death at one call of %d\n", lives_, all);
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

// The supervisor restarts its trainer while the mirror asks who owns HOME: the list that rclone has just made is older
// than the new claim.
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

}}  // namespace holdfast::test
