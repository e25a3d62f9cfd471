// Rule 10: what a run says about itself, and whom a reader believes.
#include "holdfast/store/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "support/fault_file_system.h"
#include "support/ledger_lines.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Rule10State : public testing::Test {
 public:
  std::optional<RunState> read() { return read_run_state(*disk.open_directory(kRun, true)); }
  MemoryFileSystem disk;
};

RunState full_state() {
  return {.attempt = 3,
          .phase = RunPhase::interrupted,
          .step = 1234,
          .durable_step = 1200,
          .checkpoint = "step-000000001200-a0003.h5",
          .reason = "SIGTERM, \"quoted\" \xf0\x9f\x98\x80",
          .exit_code = 75,
          .host = "node-1",
          .boot_id = "b",
          .time = "2025-06-01T12:00:05Z"};
}

TEST_F(Rule10State, JsonRoundTrip) {
  for (const RunPhase phase : {RunPhase::starting, RunPhase::running, RunPhase::complete,
                               RunPhase::interrupted, RunPhase::failed, RunPhase::superseded}) {
    RunState state = full_state();
    state.phase = phase;
    const auto back = run_state_from_json(to_json(state));
    ASSERT_TRUE(back);
    EXPECT_EQ(to_json(*back), to_json(state));
    EXPECT_EQ(back->phase, phase);
  }
  const auto back = run_state_from_json(to_json(full_state()));
  EXPECT_EQ(back->reason, full_state().reason);
  EXPECT_EQ(back->exit_code, 75);
  EXPECT_EQ(back->durable_step, 1200);
}

TEST_F(Rule10State, BytesThatAreNoTextAreWrittenAllTheSame) {
  RunState state = full_state();
  state.reason = "cannot open /data/\xff\xfe";
  EXPECT_TRUE(run_state_from_json(to_json(state)));
}

// An exception's text may hold a compiler's output. Each state must have readers, whatever it says.
TEST_F(Rule10State, ATextOfAnyLengthIsWrittenAndRead) {
  Life life(disk);
  life.start();
  for (const char* const part : {"x", "\x1b", "\xff", "\xe2\x82\xac"}) {
    std::string text;
    while (text.size() < 200000) text += part;
    RunState state = full_state();
    state.reason = "nvrtc: " + text + "; " + kHandedOver;
    state.checkpoint = state.host = state.boot_id = state.time = text;
    life.store.write_run_state(state);
    const auto back = read();
    ASSERT_TRUE(back) << part;
    EXPECT_EQ(back->phase, RunPhase::interrupted);
    EXPECT_THAT(back->reason, testing::StartsWith("nvrtc: "));
    EXPECT_THAT(back->reason, testing::EndsWith(kHandedOver));
    EXPECT_LE(back->reason.size(), 3 * 8192u) << "a byte that is no text becomes three";
    EXPECT_EQ(to_json(*back).size(), to_json(*run_state_from_json(to_json(*back))).size());
  }
}

// A file server without its reply cache answers a repeated RENAME with ENOENT.
TEST_F(Rule10State, ARenameThatHappenedAndSaysNoSuchFileIsNoSuccessor) {
  for (const int nth : {1, 2}) {  // the attempt's own file, and the copy
    MemoryFileSystem volume;
    FaultFileSystem files(volume);
    Life life(files);
    life.start();
    files.fail(Op::rename_over, nth, ENOENT, {.after = true});
    life.store.write_run_state({.phase = RunPhase::running, .step = 7, .durable_step = 7});
    EXPECT_EQ(files.faults_fired(), 1);
    EXPECT_EQ(read_run_state(*volume.open_directory(kRun, false))->step, 7);
    life.round(8);
  }
}

TEST_F(Rule10State, AStateFileThatVanishesIsAnErrorOfTheVolumeAndNoSuccessor) {
  for (const int nth : {1, 2}) {
    MemoryFileSystem volume;
    FaultFileSystem files(volume);
    Life life(files);
    life.start();
    files.fail(Op::rename_over, nth, ENOENT);
    EXPECT_THROW(life.store.write_run_state({.step = 7}), IoError);
    life.round(8);
    EXPECT_EQ(read_run_state(*volume.open_directory(kRun, false))->step, 8);
  }
}

TEST_F(Rule10State, EveryTornPrefixIsNothing) {
  const std::string text = to_json(full_state());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_FALSE(run_state_from_json(text.substr(0, length))) << length;
  }
}

TEST_F(Rule10State, ForeignContentIsNothing) {
  for (const char* text :
       {"[]", "null", "3", "{}", "{\"attempt\":1}", "{\"phase\":\"running\"}",
        "{\"attempt\":0,\"phase\":\"running\"}", "{\"attempt\":-1,\"phase\":\"running\"}",
        "{\"attempt\":1.5,\"phase\":\"running\"}", "{\"attempt\":\"1\",\"phase\":\"running\"}",
        "{\"attempt\":1,\"phase\":\"flying\"}", "{\"attempt\":1,\"phase\":7}",
        "{\"attempt\":1,\"phase\":\"running\",\"step\":1e3}",
        "{\"attempt\":1,\"phase\":\"running\",\"step\":99999999999999999999}",
        "{\"attempt\":1,\"phase\":\"running\",\"exit_code\":4294967296}",
        "{\"attempt\":1,\"phase\":\"running\",\"host\":[]}", "{\"attempt\":1,\"phase\":\"running\"} x"}) {
    EXPECT_FALSE(run_state_from_json(text)) << text;
  }
  EXPECT_FALSE(run_state_from_json(std::string(60000, '[')));
  EXPECT_FALSE(run_state_from_json(to_json(full_state()) + std::string(100000, ' ')));
  EXPECT_TRUE(run_state_from_json("{\"attempt\":1,\"phase\":\"running\",\"later\":{\"a\":[1]}}"));
}

TEST_F(Rule10State, IsWrittenTwiceAndNamesItsAttempt) {
  Life life(disk);
  life.start();
  life.store.write_run_state({.attempt = 77, .phase = RunPhase::running, .step = 5});
  EXPECT_EQ(disk.get_text(in_run("attempts/1.state.json")), disk.get_text(in_run("RUN_STATE.json")));
  EXPECT_EQ(read()->attempt, 1u);
  EXPECT_FALSE(read()->host.empty());
  EXPECT_THAT(disk.names(kRun), ElementsAre("RUN_STATE.json", "attempts"));
  EXPECT_THAT(disk.names(in_run("attempts")), ElementsAre("1", "1.state.json"));
}

TEST_F(Rule10State, IsDurableWhenTheCallReturns) {
  Life life(disk);
  life.start();
  life.store.write_run_state({.phase = RunPhase::running, .step = 5});
  const MemoryFileSystem after = disk.crash();
  EXPECT_EQ(after.get_text(in_run("attempts/1.state.json")), disk.get_text(in_run("attempts/1.state.json")));
}

TEST_F(Rule10State, AnEndIsToldOnAFullVolume) {
  FaultFileSystem files(disk);
  Life life(files);
  life.start();
  life.store.write_run_state({.phase = RunPhase::running, .step = 5, .durable_step = 5});
  int cuts = 0;
  for (const Op full : {Op::create, Op::write}) {
    files.fail(full, 1, ENOSPC, {.for_ever = full == Op::create});
    if (full == Op::create) {
      // Nobody waits for it.
      EXPECT_THROW(life.store.write_run_state({.phase = RunPhase::running, .step = 6}), IoError);
      EXPECT_EQ(read()->step, 5);
    }
    files.set_hook([&](const Operation& operation) {
      if (!operation.mutating) return;
      for (const bool least : {true, false}) {
        MemoryFileSystem after = least ? disk.crash() : disk.copy();
        const auto state = read_run_state(*after.open_directory(kRun, false));
        ASSERT_TRUE(state) << operation.text();
        EXPECT_EQ(state->durable_step, 5) << operation.text();
        ++cuts;
      }
    });
    life.store.write_run_state({.phase = RunPhase::interrupted,
                                .step = 7,
                                .durable_step = 5,
                                .reason = "full" + std::string(5000, '\x1b') + kHandedOver,
                                .exit_code = 75});
    files.set_hook({});
    files.clear_faults();
    const MemoryFileSystem after = disk.crash();
    EXPECT_EQ(after.get_text(in_run("attempts/1.state.json")),
              disk.get_text(in_run("attempts/1.state.json")));
    EXPECT_EQ(read()->phase, RunPhase::interrupted);
    EXPECT_TRUE(read()->reason.starts_with("full"));
    EXPECT_TRUE(read()->reason.ends_with(kHandedOver)) << "supervise waits for no restart then";
    EXPECT_TRUE(told_end(*disk.open_directory(kRun, false), 1));
    life.store.write_run_state({.phase = RunPhase::running, .step = 5, .durable_step = 5});
  }
  EXPECT_GT(cuts, 8);
}

TEST_F(Rule10State, ASupersededAttemptOverwritesNoEnd) {
  FaultFileSystem files(disk);
  Life life(files);
  life.start();
  life.store.write_run_state({.phase = RunPhase::running, .step = 5});
  const std::string before = disk.get_text(in_run("RUN_STATE.json"));
  files.fail(Op::create, 1, ENOSPC);
  files.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::create) disk.put(in_run("attempts/2"), "");
  });
  EXPECT_THROW(life.store.write_run_state({.phase = RunPhase::failed, .step = 5}), SupersededError);
  EXPECT_EQ(disk.get_text(in_run("attempts/1.state.json")), before);
}

TEST_F(Rule10State, TheHighestAttemptAloneIsBelieved) {
  EXPECT_FALSE(read());
  Life first(disk);
  first.start();
  EXPECT_FALSE(read()) << "it has said nothing yet";
  first.store.write_run_state({.phase = RunPhase::complete});
  EXPECT_EQ(read()->phase, RunPhase::complete);
  Life second(disk);
  second.start();
  EXPECT_FALSE(read()) << "attempt 1 says complete, but attempt 2 has begun";
  second.store.write_run_state({.phase = RunPhase::running});
  EXPECT_EQ(read()->attempt, 2u);
  // A zombie's last word arrives late.
  disk.put(in_run("RUN_STATE.json"), to_json({.attempt = 1, .phase = RunPhase::complete}));
  EXPECT_EQ(read()->attempt, 2u);
  EXPECT_EQ(read()->phase, RunPhase::running);
}

TEST_F(Rule10State, ATornOneFallsBackToTheCopyOfTheSameAttempt) {
  Life life(disk);
  life.start();
  life.store.write_run_state({.phase = RunPhase::running, .step = 5});
  disk.put(in_run("attempts/1.state.json"), "{\"attem");
  EXPECT_EQ(read()->step, 5);
  disk.put(in_run("RUN_STATE.json"), "");
  EXPECT_FALSE(read());
}

TEST_F(Rule10State, AStateOfAnotherAttemptUnderThisNameIsNotBelieved) {
  disk.put(in_run("attempts/2"), "");
  disk.put(in_run("attempts/2.state.json"), to_json({.attempt = 1, .phase = RunPhase::complete}));
  EXPECT_FALSE(read());
}

TEST_F(Rule10State, AFailedWriteLeavesTheOldOne) {
  FaultFileSystem files(disk);
  Life life(files);
  life.start();
  life.store.write_run_state({.phase = RunPhase::running, .step = 5});
  for (int nth = 1;; ++nth) {
    files.fail_mutation(nth, ENOSPC);
    const int fired = files.faults_fired();
    try {
      life.store.write_run_state({.phase = RunPhase::running, .step = 6});
    } catch (const IoError&) {
    }
    const auto state = read();
    ASSERT_TRUE(state);
    EXPECT_TRUE(state->step == 5 || state->step == 6);
    files.clear_faults();
    if (files.faults_fired() == fired) break;
    life.store.write_run_state({.phase = RunPhase::running, .step = 5});
    EXPECT_EQ(read()->step, 5);
  }
}

TEST_F(Rule10State, LedgersBelongToTheirAttempt) {
  Life first(disk);
  first.start();
  first.store.append_ledger(R"({"a":1})");
  first.store.append_ledger(R"({"a":2})");
  Life second(disk);
  second.start();
  second.store.append_ledger(R"({"b":1})");
  EXPECT_THAT(ledger_lines(disk, kRun, 1), ElementsAre(R"({"a":1})", R"({"a":2})"));
  EXPECT_THAT(ledger_lines(disk, kRun, 2), ElementsAre(R"({"b":1})"));
  EXPECT_THAT(disk.names(kRun), ElementsAre("attempts", "ledger-a0001.jsonl", "ledger-a0002.jsonl"));
}

TEST_F(Rule10State, ATornLastLineIsSkipped) {
  Life life(disk);
  life.start();
  disk.put(in_run("ledger-a0001.jsonl"), "{\"a\":1}\n{\"a\":2}\n{\"a\":");
  EXPECT_THAT(ledger_lines(disk, kRun, 1), ElementsAre(R"({"a":1})", R"({"a":2})"));
  life.store.append_ledger(R"({"a":3})");
  EXPECT_THAT(ledger_lines(disk, kRun, 1), ElementsAre(R"({"a":1})", R"({"a":2})", R"({"a":)", R"({"a":3})"));
}

TEST_F(Rule10State, ALedgerThatFailsNeverThrows) {
  FaultFileSystem files(disk);
  Life life(files);
  life.start();
  for (const Op op : {Op::open_append, Op::write, Op::status}) {
    files.fail(op, 1, EIO, {.for_ever = true});
    life.store.append_ledger("{}");
    files.clear_faults();
  }
  life.store.append_ledger("{}");
  EXPECT_EQ(ledger_lines(disk, kRun, 1).back(), "{}");
}

TEST_F(Rule10State, ASupersededAttemptAddsNothing) {
  Life first(disk);
  first.start();
  first.store.append_ledger("{}");
  Life(disk).store.claim();
  EXPECT_THROW(first.store.check_claim(), SupersededError);
  first.store.append_ledger("{}");
  EXPECT_EQ(ledger_lines(disk, kRun, 1).size(), 1u);
}

}}  // namespace holdfast::test
