// What a holder and a standby tell each other in HOME.
#include "holdfast/mirror/home_notes.h"

#include <gtest/gtest.h>

#include <string>

#include "holdfast/base/log.h"
#include "holdfast/store/run_state.h"
#include "holdfast/store/standby_sign.h"
#include "machine.h"
#include "store_machine.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class HomeNotesTest : public testing::Test {
 protected:
  HomeNotesTest() { set_log_level(LogLevel::off); }
  // What HOME says about the newest attempt there.
  std::string word() {
    const auto told = home_word(*reader_.home).holder;
    return told ? word_of(told->phase) : "nothing";
  }
  void say(RunPhase phase) { holder_.trainer->write_run_state({.phase = phase}); }
  void exchange(AttemptNumber awaits, bool all_home) {
    const HolderNotes::News news{
        .covers = holder_.mirror.record().claims.back(), .awaits = awaits, .all_home = all_home};
    notes_.exchange(*holder_.files.open_directory(kDir, true), news, holder_.clock);
  }

  MemoryFileSystem quick_;
  MemoryFileSystem other_;
  MemoryFileSystem safe_;
  Machine holder_{quick_, safe_};
  Machine reader_{other_, safe_};
  HolderNotes notes_{*holder_.home};
};

TEST_F(HomeNotesTest, AnEndIsToldOnceAllIsHome) {
  const AttemptNumber attempt = holder_.prepare().attempt;
  holder_.start_trainer();
  EXPECT_EQ(word(), "nothing");
  say(RunPhase::running);
  exchange(attempt, false);
  EXPECT_EQ(word(), "running");
  say(RunPhase::interrupted);
  exchange(attempt, false);
  EXPECT_EQ(word(), "running");
  exchange(attempt, true);
  EXPECT_EQ(word(), "interrupted");
}

// The next start of the same machine has claimed HOME, and its trainer is on its way.
TEST_F(HomeNotesTest, AnEndOfAnEarlierLifeIsNotTold) {
  holder_.prepare();
  holder_.start_trainer();
  say(RunPhase::interrupted);
  const AttemptNumber next = holder_.prepare().attempt;
  exchange(next, true);
  EXPECT_EQ(word(), "starting");
  holder_.start_trainer();
  exchange(next, true);
  EXPECT_EQ(word(), "starting") << "it has written no state yet";
  say(RunPhase::interrupted);
  exchange(next, true);
  EXPECT_EQ(word(), "interrupted");
}

TEST_F(HomeNotesTest, OneThatWasSupersededSpeaksForItselfAlone) {
  const AttemptNumber attempt = holder_.prepare().attempt;
  holder_.start_trainer();
  reader_.prepare();
  say(RunPhase::interrupted);
  exchange(attempt, true);
  EXPECT_EQ(word(), "nothing");
}

TEST_F(HomeNotesTest, PassesTheSignOfAStandbyOn) {
  const AttemptNumber attempt = holder_.prepare().attempt;
  holder_.start_trainer();
  const auto sign_here = [&] { return read_standby_sign(*holder_.files.open_directory(kDir, true)); };
  exchange(attempt, true);
  EXPECT_FALSE(sign_here());
  reader_.home->put_note(kStandbyName, to_json(StandbySign{.host = "b", .step = 7, .unix_ms = 1}));
  holder_.clock.advance(10s);
  exchange(attempt, true);
  ASSERT_TRUE(sign_here());
  EXPECT_EQ(sign_here()->step, 7);
  reader_.home->remove_note(kStandbyName);
  holder_.clock.advance(10s);
  exchange(attempt, true);
  EXPECT_FALSE(sign_here());
}

TEST_F(HomeNotesTest, ALostClaimIsNoErrorAndLeavesTheWinnerAlone) {
  const AttemptNumber held = holder_.prepare().attempt;
  MemoryFileSystem third;
  Machine rival(third, safe_);
  EXPECT_EQ(reader_.home->claim_after(held), held + 1);
  EXPECT_EQ(rival.home->claim_after(held), 0U);
  EXPECT_EQ(rival.home->highest(), held + 1);
  EXPECT_NO_THROW(reader_.home->check_not_superseded());
  EXPECT_EQ(rival.home->claim_after(held + 1), held + 2) << "the winner may end as well";
}

// Its own disk may be at a higher number: it has fetched ahead there.
TEST_F(HomeNotesTest, TheTrainerClaimsANumberThatWasWonInHome) {
  const AttemptNumber held = holder_.prepare().attempt;
  CheckpointStore here(reader_.files, reader_.clock, {.directory = kDir, .allow_fresh = true},
                       reader_.verifier);
  here.claim("mirror", 0, 20);
  const AttemptNumber claimed = reader_.home->claim_after(held);
  EXPECT_EQ(claimed, held + 1);
  const PreparedStart start = reader_.prepare(claimed);
  EXPECT_GT(start.attempt, 20U);
  EXPECT_EQ(reader_.start_trainer(), start.attempt);
  EXPECT_NO_THROW(reader_.home->check_not_superseded());
}

// Requests cost money there, and each one starts a program.
class NotesInStore : public Rclone {
 protected:
  // How many a mirror sends in that time, which asks as often as it may.
  int sent_in(Duration time, bool urgent) {
    const int before = calls();
    for (const SteadyTime end = machine_.clock.now() + time; machine_.clock.now() < end;
         machine_.clock.advance(1s)) {
      const HolderNotes::News news{.covers = 1, .awaits = 1, .all_home = true, .urgent = urgent};
      const auto run = FileSystem::real().open_directory(folder_.path() / "run", false);
      if (notes_.due(news, machine_.clock.now())) notes_.exchange(*run, news, machine_.clock);
    }
    return calls() - before;
  }
  void sign(std::int64_t time) {
    fs::create_directories(store() / "attempts");
    write_text(store() / "attempts/standby.json",
               to_json(StandbySign{.host = "b", .step = 7, .unix_ms = time}));
  }
  std::int64_t sign_here() const {
    const auto run = FileSystem::real().open_directory(folder_.path() / "run", false);
    const auto found = read_standby_sign(*run);
    return found ? found->unix_ms : 0;
  }

  StoreMachine machine_{folder_.path() / "run"};
  HolderNotes notes_{*machine_.home};
};

TEST_F(NotesInStore, AreSeldom) {
  machine_.prepare();
  EXPECT_LE(sent_in(5min, false), 11) << "one look in 30 s, and one word";
  EXPECT_LE(sent_in(1min, true), 12) << "an end is announced";
  sign(1);
  sent_in(30s, false);
  sign(2);
  sent_in(5s, false);
  EXPECT_EQ(sign_here(), 2) << "a standby that waits is looked at often";
  EXPECT_LE(sent_in(50s, false), 10 + 5) << "its sign, and the word of the holder";
  EXPECT_LE(sent_in(5min, false), 2 + 1 + 11) << "it has gone";
  HolderWatch watch(*machine_.home);
  const int before = calls();
  for (int i = 0; i < 60; ++i, machine_.clock.advance(1s)) watch.look(machine_.clock.now());
  EXPECT_LE(calls() - before, 30 + 4 + 4) << "a minute of the standby";
}

// HOME takes checkpoints, and no notes.
class NotesRefused : public Rclone {};

TEST_F(NotesRefused, ARunThatIsHomeEndsAllTheSame) {
  write_text(tools_ / "rclone",
             std::string(kRcloneScript)
                 .insert(sizeof "#!/bin/sh",
                         "case \"$*\" in *holder.json*) echo 'AccessDenied' >&2; exit 1;; esac\n"));
  StoreMachine machine(folder_.path() / "run");
  Mirror mirror(FileSystem::real(), machine.verifier, *machine.home, {.directory = folder_.path() / "run"},
                machine.pace);
  mirror.add_claims(machine.prepare().claims);
  const FileId saved = machine.save(1);
  machine.trainer->write_run_state({.phase = RunPhase::complete, .step = 1});
  mirror.finish();
  mirror.run();
  EXPECT_EQ(mirror.record().newest, saved);
  EXPECT_TRUE(fs::exists(at_home(saved)));
}

}}  // namespace holdfast::test
