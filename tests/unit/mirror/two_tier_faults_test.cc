// Every mutating operation of a mirror, of a fetch and of both claims fails once, before or after it happened,
// or is the last one before the machine dies. Nothing that was home is ever lost, nothing unverified counts,
// and the next machine goes on. Then seeded lives of three machines with one HOME, with zombies.
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <map>
#include <random>

#include "holdfast/base/log.h"
#include "machine.h"
#include "support/fault_file_system.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

// Those of the store's lane, and what a network file system adds. By day each operation gets one of them.
constexpr std::array kErrors{EIO, ENOSPC, EROFS, EDQUOT, EINTR, EMFILE, ESTALE, ENOMEM, EACCES, ETIMEDOUT};

// HOME holds one history; an empty disk comes, fetches, trains and mirrors. Returns the newest that was home.
FileId whole_life(FileSystem& quick, FileSystem& safe, FileId home = {}) {
  std::optional<Machine> machine;
  machine.emplace(quick, safe);
  const auto again = [](const auto& work) {
    for (int tries = 0;; ++tries) {
      try {
        work();
        return;
      } catch (const Error& error) {
        if (error.exit_code() != ExitCode::io_failed || tries == 3) throw;
      }
    }
  };
  try {
    again([&] { machine->prepare(); });
    machine->start_trainer();
    for (const std::int64_t more : {10, 20}) {
      const FileId saved = machine->save(machine->step + more);
      again([&] { machine->bring_home(); });
      if (machine->mirror.record().newest == saved) home = saved;
    }
  } catch (const Error&) {  // a trainer whose own save failed, or a mirror that was superseded
  } catch (const Killed&) {
    if (machine->mirror.record().newest) home = std::max(home, *machine->mirror.record().newest);
  }
  return home;
}

MemoryFileSystem home_with_a_past(FileId& newest) {
  MemoryFileSystem safe;
  MemoryFileSystem gone;
  newest = whole_life(gone, safe);
  EXPECT_EQ(newest, (FileId{.attempt = 1, .step = 30}));
  return safe;
}

void expect_nothing_lost(MemoryFileSystem& safe, FileId home, const std::string& what) {
  MemoryFileSystem fresh;
  Machine machine(fresh, safe);
  const PreparedStart start = machine.prepare();
  ASSERT_TRUE(start.newest) << what;
  EXPECT_GE(*start.newest, home) << what;
  EXPECT_EQ(machine.start_trainer(), start.attempt) << what;
  EXPECT_EQ(machine.step, start.newest->step) << what;
  const FileId saved = machine.save(machine.step + 7);
  machine.bring_home();
  EXPECT_EQ(machine.mirror.record().newest, saved) << what;
}

class TwoTierFaults : public testing::Test {
 protected:
  TwoTierFaults() { set_log_level(LogLevel::off); }
};

// `which`: 0: the quick tier fails, 1: HOME.
int operations(int which) {
  FileId home;
  MemoryFileSystem safe = home_with_a_past(home);
  MemoryFileSystem quick;
  FaultFileSystem counted(which == 0 ? static_cast<FileSystem&>(quick) : safe);
  whole_life(which == 0 ? counted : static_cast<FileSystem&>(quick),
             which == 1 ? counted : static_cast<FileSystem&>(safe), home);
  return counted.mutation_count();
}

TEST_F(TwoTierFaults, AnyOperationMayFail) {
  int planned = 0;
  for (const int which : {0, 1}) {
    const int all = operations(which);
    ASSERT_GT(all, 20);
    for (int nth = 1; nth <= all; ++nth) {
      for (std::size_t one = 0; one < 2 * kErrors.size(); ++one) {
        const bool after = one >= kErrors.size();
        const int code = kErrors[one % kErrors.size()];
        const std::size_t turn = static_cast<std::size_t>(nth + (after ? 3 : 0)) % kErrors.size();
        if (!nightly() && one % kErrors.size() != turn) continue;
        ++planned;
        FileId home;
        MemoryFileSystem safe = home_with_a_past(home);
        MemoryFileSystem quick;
        FaultFileSystem faulty(which == 0 ? static_cast<FileSystem&>(quick) : safe);
        faulty.fail_mutation(nth, code, {.after = after});
        home = whole_life(which == 0 ? faulty : static_cast<FileSystem&>(quick),
                          which == 1 ? faulty : static_cast<FileSystem&>(safe), home);
        const std::string what = (which == 0 ? "quick" : "home") + std::string(" operation ") +
                                 std::to_string(nth) + " fails with " + std::to_string(code) +
                                 (after ? " after it happened" : "");
        expect_nothing_lost(safe, home, what);
        if (HasFailure()) return;
      }
    }
  }
  std::printf("two tiers: %d faults planned, nothing lost\n", planned);
}

TEST_F(TwoTierFaults, TheMachineMayDieAtAnyOperation) {
  for (const int which : {0, 1}) {
    const int all = operations(which);
    for (int nth = 1; nth <= all; ++nth) {
      FileId home;
      MemoryFileSystem safe = home_with_a_past(home);
      MemoryFileSystem quick;
      FaultFileSystem watched(which == 0 ? static_cast<FileSystem&>(quick) : safe);
      int seen = 0;
      bool dead = false;
      watched.set_hook([&](const Operation& operation) {
        if (dead || (operation.mutating && ++seen == nth)) {
          dead = true;
          throw Killed();
        }
      });
      home = whole_life(which == 0 ? watched : static_cast<FileSystem&>(quick),
                        which == 1 ? watched : static_cast<FileSystem&>(safe), home);
      const std::string what =
          (which == 0 ? "quick" : "home") + std::string(" operation ") + std::to_string(nth);
      MemoryFileSystem after_a_power_cut = safe.crash();
      expect_nothing_lost(after_a_power_cut, home, what + ", with a power cut of HOME");
      expect_nothing_lost(safe, home, what);
      if (HasFailure()) return;
    }
  }
}

// Three machines, of which any may be preempted at any operation in HOME by a whole life of another; a machine
// that was pre-empted goes on later, as a zombie. Disks are wiped between the lives. What counts as home is in
// the history of every later start, equal byte for byte to what was saved, and of one number only one machine
// counts.
TEST_F(TwoTierFaults, SeededLivesOfThreeMachines) {
  const int lives = (nightly() ? 10'000 : 300) / kSlower;
  std::int64_t zombies = 0;
  std::int64_t homes = 0;
  std::int64_t starts = 0;
  for (int seed = 0; seed < lives; ++seed) {
    std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
    MemoryFileSystem safe;
    std::optional<FileId> home;            // the newest that counted
    std::map<AttemptNumber, int> owners;   // who trains under that number
    std::map<AttemptNumber, int> writers;  // who had a copy counted under that number
    int machines = 0;
    const auto begin = [&](Machine& machine) {
      const std::optional<FileId> before = home;
      const PreparedStart start = machine.prepare();
      ++starts;
      EXPECT_EQ(machine.start_trainer(), start.attempt);
      if (!before) return start.attempt;
      if (!start.newest) {
        ADD_FAILURE() << "seed " << seed << ": begins anew beside a home";
        return start.attempt;
      }
      EXPECT_TRUE(in_history(*before, *start.newest, machine.ancestry))
          << "seed " << seed << ": " << checkpoint_name(*before) << " was home, and attempt " << start.attempt
          << " begins with " << checkpoint_name(*start.newest);
      return start.attempt;
    };
    std::function<void(int)> live = [&](int depth) {
      const int self = ++machines;
      MemoryFileSystem quick;
      FaultFileSystem watched(safe);
      int until = draw(60);
      bool dead = false;
      watched.set_hook([&](const Operation& operation) {
        if (dead) throw Killed();
        if (!operation.mutating || until-- != 0) return;
        if (depth < 2 && draw(3) > 0) {
          ++zombies;
          live(depth + 1);  // this machine stands still meanwhile
          until = draw(60);
        } else if (draw(2) == 0) {
          dead = true;
          throw Killed();
        }
      });
      std::optional<Machine> machine;
      machine.emplace(quick, watched);
      try {
        const AttemptNumber attempt = begin(*machine);
        EXPECT_TRUE(owners.emplace(attempt, self).second) << "two machines are attempt " << attempt;
        const int saves = draw(4);
        for (int i = 0; i <= saves; ++i) {
          FileId saved{};
          if (i > 0) saved = machine->save(machine->step + 1 + draw(5));
          machine->bring_home();
          const auto counts = machine->mirror.record().newest;
          if (!counts || (i > 0 && *counts != saved)) continue;
          EXPECT_EQ(safe.get(home_file(counts->attempt, counts->step)),
                    quick.get(dir_file(counts->attempt, counts->step)))
              << "seed " << seed;
          EXPECT_EQ(writers.emplace(attempt, self).first->second, self) << "seed " << seed;
          home = counts;
          ++homes;
        }
      } catch (const Error&) {
      } catch (const Killed&) {
      }
    };
    for (int i = 0; i < 3; ++i) live(0);
    MemoryFileSystem fresh;
    Machine last(fresh, safe);
    begin(last);
    if (HasFailure()) return;
  }
  std::printf("two tiers: %d lives of three machines, %lld starts, %lld zombies, %lld copies counted\n",
              lives, static_cast<long long>(starts), static_cast<long long>(zombies),
              static_cast<long long>(homes));
  EXPECT_GT(zombies, lives / 4);
  EXPECT_GT(homes, lives);
}

}}  // namespace holdfast::test
