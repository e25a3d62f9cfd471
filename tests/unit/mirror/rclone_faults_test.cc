// A script in rclone's place fails with each of its exit codes at each of its calls, before or after it has done its work.
#include <gtest/gtest.h>

#include <cstdio>

#include "store_machine.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;

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
    } catch (const SupersededError& error) {
      ADD_FAILURE() << "no other machine is there: " << error.what();
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

}}  // namespace holdfast::test
