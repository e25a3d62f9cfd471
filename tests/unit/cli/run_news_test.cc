// Whether somebody trains in a run directory, by the signs that lie there.
#include "holdfast/cli/run/run_news.h"

#include <gtest/gtest.h>

#include "cli/supervised.h"
#include "holdfast/cli/supervise/run_account.h"
#include "holdfast/store/run_progress.h"

namespace holdfast::test { namespace {

// Of another machine: only its signs of life count.
class SignsOfLife : public Supervise {
 protected:
  SignsOfLife() {
    say({.attempt = 1, .phase = RunPhase::running, .time = "2001-01-01T00:00:00Z"});
    write_ledger(R"({"event":"progress","t":978307200000,"up_ms":1,"step":7})"
                 "\n");
  }
  bool alive() const {
    const RunNews news = read_run_news(directory());
    return may_be_alive(news.attempts.front(), news);
  }
};

TEST_F(SignsOfLife, AnOldLedgerAndStateAreNone) { EXPECT_FALSE(alive()); }

// The write of a large checkpoint takes longer than the silence of a dead trainer.
TEST_F(SignsOfLife, AFreshProgressFileIsOneWhileTheLedgerIsSilent) {
  ProgressFile(FileSystem::real(), directory(), 1).write({.attempt = 1, .beat = 1, .unix_ms = now_ms()});
  EXPECT_TRUE(alive());
}

TEST_F(SignsOfLife, OneOfAnotherAttemptIsNone) {
  ProgressFile(FileSystem::real(), directory(), 1).write({.attempt = 2, .beat = 1, .unix_ms = now_ms()});
  EXPECT_FALSE(alive());
}

}}  // namespace holdfast::test
