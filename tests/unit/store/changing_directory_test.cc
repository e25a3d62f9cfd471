// A run directory that changes while it is read: files that come, go and grow behind a reader, names that are
// not files. Also calls in the wrong order. Rules 5, 8 and 10 where they meet the neighbours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/prune.h"
#include "holdfast/store/retention_text.h"
#include "support/fault_file_system.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class ChangingDirectory : public testing::Test {
 public:
  void train(std::initializer_list<std::int64_t> steps, StoreOptions options = {.keep = KeepLast{100}}) {
    Life life(disk, std::move(options));
    life.start();
    for (const std::int64_t step : steps) life.round(step);
  }
  // Before the first operation of that kind on that name.
  void before(Op kind, const std::string& name, std::function<void()> act) {
    files.set_hook([this, kind, name, act = std::move(act)](const Operation& operation) {
      if (operation.kind != kind || !operation.path.ends_with("/" + name)) return;
      files.set_hook(nullptr);
      act();
    });
  }
  void remove(const std::string& name) { disk.open_directory(kRun, false)->unlink(name); }
  std::string refusal(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  MemoryFileSystem disk;
  FaultFileSystem files{disk};
};

TEST_F(ChangingDirectory, CallsOutOfTheirOrderAreErrorsNotActions) {
  Life life(files);
  EXPECT_FALSE(life.store.holds(10));
  EXPECT_THAT(life.store.list(), IsEmpty());
  EXPECT_EQ(life.store.open({.name = "step-000000000010-a0001.h5"}), nullptr);
  life.store.apply_retention();
  EXPECT_THROW(life.store.plan_retention(), Error);
  EXPECT_THROW(life.store.prune(), Error);
  EXPECT_THROW(life.store.check_claim(), Error);
  EXPECT_EQ(files.mutation_count(), 0);
  life.start();
  files.clear_log();
  life.store.apply_retention();  // nothing acknowledged yet
  EXPECT_TRUE(life.store.plan_retention().files.empty());
  EXPECT_EQ(files.count(Op::unlink), 0);
}

TEST_F(ChangingDirectory, AFileToStartFromNeedsItsDirectory) {
  Life life(disk, {.start = {.file = "best.h5"}});
  EXPECT_THAT(refusal([&] { life.store.preflight(); }), HasSubstr("nothing to resume from"));
}

TEST_F(ChangingDirectory, AFileOfAnyNameMayBeTheStart) {
  train({10, 20});
  disk.put(in_run("best.h5"), disk.get(in_run(name_of_step(10, 1))));
  Life life(disk, {.start = {.file = "best.h5"}, .keep = KeepLast{2}});
  EXPECT_EQ(life.start().newest->step, 10);
  for (const std::int64_t step : {30, 40, 50}) life.round(step);
  EXPECT_TRUE(disk.exists(in_run("best.h5")));
}

TEST_F(ChangingDirectory, TheChosenStartVanishes) {
  train({10, 20});
  Life life(files, {.start = {.step = 10}});
  before(Op::open_read, name_of_step(10, 1), [&] { remove(name_of_step(10, 1)); });
  EXPECT_THAT(refusal([&] { life.store.preflight(); }), HasSubstr("has just vanished"));
}

TEST_F(ChangingDirectory, AListHasNoFileThatIsGoneOrNoFile) {
  train({10, 20, 30});
  disk.link(in_run(name_of_step(40, 1)));
  Life life(files);
  before(Op::status, name_of_step(20, 1), [&] { remove(name_of_step(20, 1)); });
  std::vector<std::string> names;
  for (const CheckpointInfo& file : life.store.list()) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre(name_of_step(30, 1), name_of_step(10, 1)));
}

TEST_F(ChangingDirectory, WhatReadsBackAsAnotherStepIsNotAcknowledged) {
  Life life(disk);
  life.start();
  CommitRequest request = toy_request(life.toy(10));
  request.write = toy_request(life.toy(11)).write;
  EXPECT_THAT(refusal([&] { life.store.commit(request); }), HasSubstr("step 11 of attempt 1"));
  Toy other = life.toy(10);
  other.attempt = 9;
  request.write = toy_request(other).write;
  EXPECT_THAT(refusal([&] { life.store.commit(request); }), HasSubstr("step 10 of attempt 9"));
  EXPECT_FALSE(life.store.holds(10));
  EXPECT_THAT(checkpoints(disk), IsEmpty());
}

// The file has the last word on whether its state was finite.
TEST_F(ChangingDirectory, AFileThatSaysItIsNotFiniteIsNotTheLastGoodOne) {
  Life life(disk, {.keep = KeepLast{2}});
  life.start();
  life.round(10);
  for (const std::int64_t step : {20, 30, 40, 50}) {
    CommitRequest request = toy_request(life.toy(step, false));
    EXPECT_FALSE(life.store.commit(request).finite);
    life.store.apply_retention();
  }
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(10, 1)));
}

TEST_F(ChangingDirectory, AFileUnderAnotherNameIsNoRetentionsBusiness) {
  train({10, 20, 30});
  disk.put(in_run(name_of_step(15, 1)), disk.get(in_run(name_of_step(10, 1))));
  Life life(disk, {.keep = parse_retention("last=2,best=loss")});
  life.start();
  for (const std::int64_t step : {40, 50, 60}) life.round(step);
  EXPECT_THAT(checkpoints(disk), Contains(name_of_step(15, 1)));
  EXPECT_THAT(checkpoints(disk), testing::Not(Contains(name_of_step(20, 1))));
}

TEST_F(ChangingDirectory, WhatIsNoFileIsShownAndLeftAlone) {
  train({10, 20, 30});
  disk.link(in_run(name_of_step(5, 1)));
  disk.link(in_run("step-000000000003-a0001.h5.damaged"));
  disk.open_directory(in_run("tmp-a0001-x"), true);
  rot(disk, name_of_step(30, 1));
  rot(disk, name_of_step(20, 1));
  Life life(disk, {.keep = KeepLast{2}});
  EXPECT_EQ(life.store.preflight().skipped.size(), 2U);
  std::map<std::string, std::string> reasons;
  for (const auto& file : life.store.plan_retention().files) reasons[file.name] = file.reason;
  EXPECT_EQ(reasons.at(name_of_step(5, 1)), "not a regular file");
  EXPECT_EQ(reasons.at("tmp-a0001-x"), "not a name of Holdfast's");
  EXPECT_FALSE(reasons.at(name_of_step(20, 1)).empty());
  life.start();
  for (const std::int64_t step : {40, 50, 60}) life.round(step);
  EXPECT_TRUE(disk.exists(in_run("tmp-a0001-x")));
  EXPECT_TRUE(disk.exists(in_run("step-000000000003-a0001.h5.damaged")));
  EXPECT_TRUE(disk.exists(in_run(name_of_step(5, 1))));
}

TEST_F(ChangingDirectory, DamagedFilesAndOddNamesAreToldTogether) {
  train({10});
  rot(disk, name_of_step(10, 1));
  disk.put(in_run("step-ten.h5"), "x");
  Life life(disk);
  const std::string reason = refusal([&] { life.store.preflight(); });
  EXPECT_THAT(reason, HasSubstr(name_of_step(10, 1) + ": "));
  EXPECT_THAT(reason, HasSubstr("; step-ten.h5"));
}

TEST_F(ChangingDirectory, AStateThatVanishesOrGrowsUnderTheReaderIsNone) {
  train({10});
  const auto told = [&] { return read_run_state(*files.open_directory(kRun, false)).has_value(); };
  ASSERT_TRUE(told());
  disk.open_directory(in_run("attempts"), false)->unlink("1.state.json");
  ASSERT_TRUE(told());
  before(Op::open_read, "RUN_STATE.json",
         [&] { disk.put(in_run("RUN_STATE.json"), std::string(70000, ' ')); });
  EXPECT_FALSE(told());
  EXPECT_FALSE(told()) << "longer than any state";
  disk.put(in_run("RUN_STATE.json"), "{");
  before(Op::open_read, "RUN_STATE.json", [&] { remove("RUN_STATE.json"); });
  EXPECT_FALSE(told());
}

TEST_F(ChangingDirectory, ATemporaryFileThatComesBackIsSaid) {
  Life life(files);
  life.start();
  disk.put(in_run("attempts/tmp-a0001-state"), "x");
  files.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::create && operation.path.ends_with("tmp-a0001-state"))
      disk.put(in_run("attempts/tmp-a0001-state"), "x");
  });
  EXPECT_THAT(refusal([&] { life.store.write_run_state({.phase = RunPhase::running}); }),
              HasSubstr("comes back"));
  files.set_hook(nullptr);
  life.store.write_run_state({.phase = RunPhase::running});
}

TEST_F(ChangingDirectory, EachMemberOfAStateHasItsType) {
  const std::string members[] = {"step", "durable_step", "checkpoint", "reason", "exit_code",
                                 "host", "boot_id",      "time",       "copy_of"};
  for (const std::string& member : members) {
    const std::string start = R"({"attempt":1,"phase":"running",")" + member + "\":";
    EXPECT_FALSE(run_state_from_json(start + "[]}")) << member;
    EXPECT_FALSE(run_state_from_json(start + "1.5}")) << member;
  }
  EXPECT_EQ(run_state_from_json(R"({"attempt":1,"phase":"running","step":-5})")->step, -5);
}

TEST_F(ChangingDirectory, NamesThatAreAlmostOurs) {
  for (const std::string name : {"tmp-a0001", "tmp-a0001-", "tmp-a0001x1", "tmp-ax-1"}) {
    EXPECT_FALSE(parse_temporary_name(name)) << name;
  }
  for (const std::string name :
       {"ledger-a0001.json", "ledger-a0000.jsonl", "ledger-ax.jsonl", "ledger-a0001"}) {
    EXPECT_FALSE(parse_ledger_name(name)) << name;
  }
  EXPECT_EQ(parse_ledger_name("ledger-a0001.jsonl"), 1U);
}

// ---- prune ------------------------------------------------------------------------------------------------

class PruneOfAChangingDirectory : public ChangingDirectory {
 public:
  PruneResult prune(PruneOptions options = {}) {
    options.directory = kRun;
    options.keep = KeepLast{2};
    FakeClock clock;
    ToyVerifier verifier;
    return holdfast::prune(disk, clock, verifier, options);
  }
};

TEST_F(PruneOfAChangingDirectory, ADirectoryThatIsNotThereIsSaid) {
  EXPECT_THAT(refusal([&] { prune(); }), HasSubstr("is the volume mounted?"));
}

TEST_F(PruneOfAChangingDirectory, ARunThatSaysNeitherWhereNorWhenIsAliveAllTheSame) {
  train({10, 20, 30});
  for (const std::string name : {"RUN_STATE.json", "attempts/1.state.json"})
    disk.put(in_run(name), to_json({.attempt = 1, .phase = RunPhase::running}));
  const std::string reason = refusal([&] { prune(); });
  EXPECT_THAT(reason, HasSubstr("says that it is running: a run seems to be alive"));
  EXPECT_EQ(checkpoints(disk).size(), 3U);
}

TEST_F(PruneOfAChangingDirectory, WithoutAnyCheckpointOnlyWhatIsHalfWrittenGoes) {
  Life life(disk);
  life.start();
  disk.put(in_run("tmp-a0001-step-60-1"), "x");
  const PruneResult result = prune({.even_if_running = true});
  EXPECT_EQ(result.attempt, 2U);
  EXPECT_FALSE(disk.exists(in_run("tmp-a0001-step-60-1")));
  EXPECT_THROW(life.store.check_claim(), SupersededError);
}

TEST_F(PruneOfAChangingDirectory, AnAttemptThatBeginsMeanwhileIsLeftAlone) {
  train({10, 20, 30});
  std::optional<Life> rival;
  const std::string reason = refusal([&] {
    prune({.even_if_running = true, .planned = [&](const RetentionReport&) {
             rival.emplace(disk);
             rival->start();
           }});
  });
  EXPECT_THAT(reason, HasSubstr("has just begun"));
  EXPECT_EQ(checkpoints(disk).size(), 3U);
  rival->store.check_claim();
}

}}  // namespace holdfast::test
