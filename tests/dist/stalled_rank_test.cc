// A rank waits in a collective for another one that lives and does not come: `holdfast supervise` ends both,
// and its evidence tells where each stands.
#include <gmock/gmock.h>

#include <cstdlib>

#include "cli/supervised.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

TEST_F(Supervise, TheEvidenceOfAStallHasAllRanks) {
  // The ledger comes after the wait has begun; supervise looks at it every five seconds.
  const std::string text = "n=$(wc -l <lives); [ $n -lt 2 ] || exit 64; " + attempt("running", "5") + "( " +
                           until("[ -e away ]") + "; sleep 2; " + standstill_in("run/ledger-a0001.jsonl") +
                           ") & "
                           "exec " HOLDFAST_BIN_DIR "/holdfast launch --nproc 2 -- " HOLDFAST_RANK_PROGRAM
                           " waits .";
  const Ended ended = Subprocess(command(in_directory({"--stall-timeout", "20s"}), script(text)),
                                 {{"HOLDFAST_TERM_GRACE", "1s"}})
                          .wait();
  EXPECT_EQ(ended.exit_code, 64) << ended.err;
  EXPECT_EQ(lives(), 2U);
  const std::string evidence = read_text(directory() / "attempts/1.stall.txt");
  const std::string section =
      "== process [0-9]+: [^\n]*dist_rank waits \\.\nthread [0-9]+ dist_rank: state S";
  EXPECT_THAT(evidence, ContainsRegex(section + "(.|\n)*" + section)) << "both ranks";
  // LibTorch 2.10 does not name Gloo's thread.
  EXPECT_THAT(evidence, AllOf(HasSubstr("in clock_nanosleep"),
                              ContainsRegex("pt_gloo_runloop: state S|in epoll_wait")));
  // gdb needs more than the limit for LibTorch's libraries on most machines.
  if (system("command -v eu-stack >/dev/null") == 0) {
    EXPECT_THAT(evidence, AllOf(HasSubstr("stay_away"), ContainsRegex("c10d::|gloo::")));
  }
}

}}  // namespace holdfast::test
