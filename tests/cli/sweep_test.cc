// `holdfast sweep` with small shell scripts in the place of trainers: the file of experiments, and who runs
// which line where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "supervised.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::UnorderedElementsAre;
using Settings = std::map<std::string, std::string>;

constexpr const char* kThreeRuns =
    R"({"name": "lr03", "lr": 0.30, "seed": 1}
{"name": "lr10", "lr": 1e-1, "seed": 12345678901234567890, "augment": true}
{"name": "lr_1", "lr": 1, "seed": -1, "note": "it's {here}"}
)";

class Sweep : public testing::Test {
 protected:
  Sweep() {
    write(kThreeRuns);
    fs::create_directory(root_);
    fs::create_directory(folder_.path() / "bin");
  }

  void write(const std::string& text) const { write_text(file_, text); }
  Words command(const Words& options, const Words& child) const {
    Words words{HOLDFAST_BIN_DIR "/holdfast", "sweep", file_.string(), "--root", root_.string()};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("--");
    words.insert(words.end(), child.begin(), child.end());
    return words;
  }
  Ended sweep(const Words& options, const Words& child, Settings environment = {}) const {
    return Subprocess(command(options, child), alone(std::move(environment))).wait();
  }
  // The engine that runs this test may set these.
  static Settings alone(Settings environment) {
    for (const char* name : {"SLURM_ARRAY_TASK_ID", "AWS_BATCH_JOB_ARRAY_INDEX", "JOB_COMPLETION_INDEX",
                             "SKYPILOT_JOB_RANK", "CUDA_VISIBLE_DEVICES"}) {
      environment.emplace(name, "");
    }
    return environment;
  }
  // A trainer that begins an attempt, does `text`, and says how it ended.
  Words trainer(const std::string& text, const std::string& phase = "complete") const {
    const fs::path script = folder_.path() / "train";
    write_text(script, R"(cd "$1" 2>/dev/null || { mkdir -p "$1/attempts"; cd "$1"; }
name=$(basename "$1"); attempt=$(($(ls attempts | grep -vc state) + 1))
echo "{\"supervisor\": \"$HOLDFAST_SUPERVISOR\"}" >attempts/$attempt
say() {
  echo "{\"attempt\": $attempt, \"phase\": \"$1\", \"step\": 7, \"durable_step\": 7, \"exit_code\": ${2:-0}}" >attempts/$attempt.state.json
}
echo $name $CUDA_VISIBLE_DEVICES >>../../lives
)" + text + "\nsay " + phase +
                           "\n");
    return {"/bin/sh", script.string(), "{run_dir}"};
  }
  Words lives() const { return lines_of(read_text(folder_.path() / "lives")); }
  std::string refused(const Words& options = {"--list"}, const Words& child = {"true"}) const {
    const Ended ended = sweep(options, child);
    EXPECT_EQ(ended.exit_code, 64) << ended.out << ended.err;
    EXPECT_THAT(lines_of(ended.err), SizeIs(1)) << ended.err;
    return ended.err;
  }

  TemporaryFolder folder_;
  const fs::path file_ = folder_.path() / "runs.jsonl";
  const fs::path root_ = folder_.path() / "ckpt";
};

TEST_F(Sweep, PutsTheValuesOfTheLineIntoTheCommand) {
  write(R"({"name": "a", "lr": 0.30, "seed": 1, "augment": false}
{"name": "lr10", "lr": 1e-1, "seed": 12345678901234567890, "augment": true})");
  const Ended ended = sweep({"--index", "1"}, {"/bin/sh", "-c", "echo \"$@\"; exit 64", "sh", "--lr={lr}",
                                               "{seed}", "{augment}", "{{seed}}", "{name}", "{run_dir}"});
  EXPECT_EQ(ended.out, "--lr=1e-1 12345678901234567890 true {seed} lr10 " + (root_ / "lr10").string() + "\n");
  EXPECT_EQ(ended.exit_code, 64) << "the code is supervise's";
}

TEST_F(Sweep, BecomesSuperviseWithTheRunsDirectory) {
  const Ended ended =
      sweep({"--index", "0", "--first-delay", "1ms", "--on-complete", "echo done in $HOLDFAST_RUN_DIRECTORY"},
            trainer("[ $attempt -ge 3 ] || { say interrupted 75; exit 75; }"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(lives(), SizeIs(3)) << "interruptions are restarted";
  EXPECT_THAT(ended.out, HasSubstr("done in " + (root_ / "lr03").string()));
}

TEST_F(Sweep, ListsTheCommandsQuotedForAShell) {
  const Ended ended =
      sweep({"--list", "--max-restarts", "3", "--mirror", "/mnt/home dir/{name}", "--requeue-slurm"},
            {"./train", "--note={note}", "{run_dir}"});
  EXPECT_EQ(ended.exit_code, 64) << "lr03 has no note";
  write(R"({"name": "a", "note": "it's {here}"})");
  const Ended one =
      sweep({"--list", "--max-restarts", "3", "--mirror", "/mnt/home dir/{name}", "--requeue-slurm"},
            {"./train", "--note={note}", "{run_dir}"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(one.out, "holdfast supervise --directory " + (root_ / "a").string() +
                         " --mirror '/mnt/home dir/a' --max-restarts 3 --requeue-slurm -- ./train "
                         R"('--note=it'\''s {here}' )" +
                         (root_ / "a").string() + "\n");
}

TEST_F(Sweep, TakesTheIndexThatTheEngineSets) {
  const Words child{"/bin/sh", "-c", "echo {name}; exit 64"};
  for (const char* name :
       {"SLURM_ARRAY_TASK_ID", "AWS_BATCH_JOB_ARRAY_INDEX", "JOB_COMPLETION_INDEX", "SKYPILOT_JOB_RANK"}) {
    EXPECT_EQ(sweep({}, child, {{name, "2"}}).out, "lr_1\n") << name;
    const Ended beyond = sweep({}, child, {{name, "3"}});
    EXPECT_EQ(beyond.exit_code, 64);
    EXPECT_THAT(beyond.err, AllOf(HasSubstr(std::string(name) + "=3 is beyond runs.jsonl"),
                                  HasSubstr("ends at line 3"), HasSubstr("0 to 2")));
  }
  EXPECT_EQ(sweep({"--index", "0"}, child, {{"SLURM_ARRAY_TASK_ID", "2"}}).out, "lr03\n");
  EXPECT_THAT(sweep({}, child, {{"SLURM_ARRAY_TASK_ID", "2"}, {"JOB_COMPLETION_INDEX", "1"}}).err,
              HasSubstr("SLURM_ARRAY_TASK_ID=2 and JOB_COMPLETION_INDEX=1 differ"));
  EXPECT_THAT(sweep({}, child, {{"JOB_COMPLETION_INDEX", "one"}}).err, HasSubstr("JOB_COMPLETION_INDEX"));
  EXPECT_THAT(refused({}), HasSubstr("which run?"));
  EXPECT_THAT(refused({"--index", "3"}), HasSubstr("--index 3 is beyond runs.jsonl"));
  EXPECT_THAT(refused({"--index", "-1"}), HasSubstr("0 to 2"));
}

TEST_F(Sweep, RefusesAFileByTheNumberOfTheLine) {
  const std::string good = R"({"name": "a", "lr": 1})";
  const auto second_line = [&](const std::string& line) {
    write(good + "\n" + line + "\n" + R"({"name": "z"})");
    return refused();
  };
  EXPECT_THAT(second_line("# a comment"), HasSubstr("runs.jsonl, line 2: a comment"));
  EXPECT_THAT(second_line("  // a comment"), HasSubstr("line 2: a comment"));
  EXPECT_THAT(second_line(""), HasSubstr("line 2: an empty line"));
  EXPECT_THAT(second_line("name: b"), HasSubstr("line 2: no JSON"));
  EXPECT_THAT(second_line(R"({"name": "b"} {"name": "c"})"), HasSubstr("line 2: no JSON"));
  EXPECT_THAT(second_line(R"({"name": "b")"), HasSubstr("line 2: no JSON"));
  EXPECT_THAT(second_line("[1]"), HasSubstr("line 2: expected an object"));
  EXPECT_THAT(second_line("7"), HasSubstr("line 2: expected an object"));
  EXPECT_THAT(second_line(R"({"name": "b", "lr": {"start": 1}})"),
              HasSubstr("line 2: the value of 'lr' is an object"));
  EXPECT_THAT(second_line(R"({"name": "b", "lr": [1]})"), HasSubstr("line 2: the value of 'lr' is a list"));
  EXPECT_THAT(second_line(R"({"name": "b", "lr": null})"), HasSubstr("line 2: the value of 'lr' is null"));
  EXPECT_THAT(second_line(R"({"name": "b", "lr": 1, "lr": 2})"),
              HasSubstr("line 2: the name 'lr' appears twice"));
  EXPECT_THAT(second_line(R"({"name": "b", "run_dir": "/"})"), HasSubstr("line 2: 'run_dir'"));
  EXPECT_THAT(second_line(R"({"lr": 1})"), HasSubstr("line 2: it has no \"name\""));
  EXPECT_THAT(second_line(good), HasSubstr("line 2: the name 'a' is that of line 1 already"));
  for (const char* name : {"a/b", "..", ".", "", "-x", ".hidden", "a b", "a\\nb", "\\u00e9"}) {
    EXPECT_THAT(second_line(std::string(R"({"name": ")") + name + "\"}"), HasSubstr("line 2: the name '"))
        << name;
  }
  EXPECT_THAT(second_line(R"({"name": ")" + std::string(101, 'x') + "\"}"), HasSubstr("unsafe"));
  write("\n");
  EXPECT_THAT(refused(), HasSubstr("runs.jsonl is empty"));
  fs::remove(file_);
  EXPECT_THAT(refused(), HasSubstr("cannot read " + file_.string()));
  fs::create_directory(file_);
  EXPECT_THAT(refused(), HasSubstr("runs.jsonl: Is a directory; expected a file with a line a run"));
}

TEST_F(Sweep, RefusesBracesThatNameNoValue) {
  EXPECT_THAT(refused({"--list"}, {"./train", "{momentum}"}),
              AllOf(HasSubstr("runs.jsonl, line 1: no value named 'momentum'"), HasSubstr("{{")));
  EXPECT_THAT(refused({"--list"}, {"./train", "{augment}"}), HasSubstr("line 1: no value named 'augment'"));
  EXPECT_THAT(refused({"--list"}, {"./train", "{lr"}), HasSubstr("a single {"));
  EXPECT_THAT(refused({"--list"}, {"./train", "lr}"}), HasSubstr("a single }"));
}

TEST_F(Sweep, RefusesAHomeForTwoRuns) {
  EXPECT_THAT(refused({"--list", "--mirror", "/mnt/home"}),
              AllOf(HasSubstr("runs.jsonl, line 2: --mirror has the HOME of runs.jsonl, line 1"),
                    HasSubstr("{name}")));
}

TEST_F(Sweep, RefusesARunDirectoryOnAnotherVolume) {
  // /dev/shm is a volume everywhere, and the folder of this test lies elsewhere.
  EXPECT_THAT(refused({"--list", "--mount", "/dev/shm"}),
              AllOf(HasSubstr("runs.jsonl, line 1: "), HasSubstr("does not lie on the mount /dev/shm")));
  EXPECT_THAT(refused({"--index", "1", "--mount", "/dev/shm"}), HasSubstr("line 2: "));
  // A link that leads away from the volume.
  const TemporaryFolder shm("/dev/shm");
  fs::create_directory_symlink(root_, shm.path() / "lr10");
  const Ended ended = Subprocess({HOLDFAST_BIN_DIR "/holdfast", "sweep", file_.string(), "--root",
                                  shm.path().string(), "--mount", "/dev/shm", "--list", "--", "true"})
                          .wait();
  EXPECT_THAT(ended.err, HasSubstr("line 2: ")) << ended.out;
}

TEST_F(Sweep, WithAnEmptyRootOrMountIsRefused) {
  for (const std::string option : {"--root", "--mount"}) {
    Words words = {HOLDFAST_BIN_DIR "/holdfast", "sweep", file_.string(), "--list", option, ""};
    if (option != "--root") words.insert(words.end(), {"--root", "/tmp"});
    words.insert(words.end(), {"--", "true"});
    const Ended ended = Subprocess(words).wait();
    EXPECT_EQ(ended.exit_code, 64) << ended.out << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(option + ": is empty"));
  }
}

// As supervise does, which has not begun: nothing else would start this element of an array again.
TEST_F(Sweep, AStopBeforeTheVolumeIsThereRequeuesTheJob) {
  const fs::path bin = folder_.path() / "bin";
  const fs::path asked = folder_.path() / "asked";
  for (const std::string answer : {"echo JobState=RUNNING", "exit 1"}) {
    write_text(bin / "scontrol", "#!/bin/sh\necho \"$*\" >>'" + asked.string() + "'\n" + answer + "\n");
    fs::permissions(bin / "scontrol", fs::perms::owner_all);
    const Words options{"--index",
                        "0",
                        "--mount",
                        root_.string(),
                        "--requeue-slurm",
                        "--on-give-up",
                        "echo $HOLDFAST_REASON >>'" + asked.string() + "'"};
    Subprocess process(command(options, {"true"}),
                       alone({{"SLURM_JOB_ID", "7"}, {"PATH", bin.string() + ":" + ::getenv("PATH")}}));
    ASSERT_TRUE(process.wait_until([&] { return process.err().find("waiting") != std::string::npos; }))
        << process.err();
    process.send(SIGTERM);
    if (answer == "exit 1") {
      EXPECT_TRUE(process.wait_until([&] { return lines_of(read_text(asked)).size() == 3; }));
      process.send(SIGTERM);  // no further tries
    }
    EXPECT_EQ(process.wait().exit_code, 75) << process.err();
  }
  EXPECT_THAT(lines_of(read_text(asked)),
              ElementsAre("show job --oneliner 7", "requeue 7", "show job --oneliner 7",
                          "Slurm job 7 could not be requeued"));
}

TEST_F(Sweep, NeedsACommand) {
  const Ended ended =
      Subprocess({HOLDFAST_BIN_DIR "/holdfast", "sweep", file_.string(), "--root", "/tmp", "--list"}).wait();
  EXPECT_EQ(ended.exit_code, 64);
  EXPECT_THAT(ended.err, HasSubstr("after two dashes"));
}

TEST_F(Sweep, RunsAllHereInOrderEachWithItsName) {
  const Ended ended = sweep({"--local", "1"}, trainer("echo trains"));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(lives(), ElementsAre("lr03", "lr10", "lr_1"));
  EXPECT_EQ(ended.out, "[lr03] trains\n[lr10] trains\n[lr_1] trains\n");
  EXPECT_THAT(ended.err, HasSubstr("3 runs: 3 complete, 0 interrupted, 0 not started"));
}

TEST_F(Sweep, GivesEachOfTwoRunsItsOwnGpu) {
  // Each waits until both train, so they must run at once.
  const Ended ended = sweep({"--local", "2"}, trainer(until("[ $(wc -l <../../lives) -ge 2 ]")),
                            {{"CUDA_VISIBLE_DEVICES", "3,GPU-77"}});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  Words first_two = lives();
  ASSERT_THAT(first_two, SizeIs(3));
  first_two.pop_back();
  EXPECT_THAT(first_two, UnorderedElementsAre("lr03 3", "lr10 GPU-77"));
}

TEST_F(Sweep, DividesWhatTheDriverLists) {
  const fs::path smi = folder_.path() / "bin/nvidia-smi";
  const auto lists = [&](const std::string& text) {
    write_text(smi, "#!/bin/sh\ncat <<'end'\n" + text + "end\n");
    fs::permissions(smi, fs::perms::owner_all);
  };
  const auto seen = [&](const char* at_once) {
    fs::remove_all(root_);
    fs::remove(folder_.path() / "lives");
    Words words{"/usr/bin/env", "-u", "CUDA_VISIBLE_DEVICES"};
    const Words rest = command({"--local", at_once}, trainer(":"));
    words.insert(words.end(), rest.begin(), rest.end());
    const Ended ended =
        Subprocess(words, {{"PATH", smi.parent_path().string() + ":" + std::getenv("PATH")}}).wait();
    if (ended.exit_code != 0) return Words{ended.err};
    return lives();
  };
  lists(
      "GPU 0: NVIDIA H100 (UUID: GPU-a)\nGPU 1: NVIDIA H100 (UUID: GPU-b)\nGPU 2: NVIDIA H100 (UUID: "
      "GPU-c)\n");
  EXPECT_THAT(seen("1"),
              ElementsAre("lr03 GPU-a,GPU-b,GPU-c", "lr10 GPU-a,GPU-b,GPU-c", "lr_1 GPU-a,GPU-b,GPU-c"));
  EXPECT_THAT(seen("3"), UnorderedElementsAre("lr03 GPU-a", "lr10 GPU-b", "lr_1 GPU-c"));
  lists(
      "GPU 0: NVIDIA H100 (UUID: GPU-a)\n  MIG 3g.40gb     Device  0: (UUID: MIG-1)\n"
      "  MIG 3g.40gb     Device  1: (UUID: MIG-2)\n");
  EXPECT_THAT(seen("1"), ElementsAre("lr03 MIG-1", "lr10 MIG-1", "lr_1 MIG-1"));
  EXPECT_THAT(seen("3"), ElementsAre(HasSubstr("there are 2 GPUs or MIG slices here")));
  lists("");
  EXPECT_THAT(seen("1"), ElementsAre("lr03", "lr10", "lr_1"));
}

TEST_F(Sweep, AFailedRunStopsNoOtherAndDecidesTheCode) {
  const Ended ended = sweep({"--local", "1"}, trainer("[ $name != lr10 ] || { say failed 78; exit 78; }"));
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(lives(), SizeIs(3));
  EXPECT_THAT(ended.err,
              HasSubstr("3 runs: 2 complete, 0 interrupted, 0 not started; failed: lr10 (exit 78)"));
}

TEST_F(Sweep, StartsNoCompleteRunAgain) {
  const Words child = trainer("[ $name != lr10 ] || [ $attempt -gt 1 ] || { say failed 78; exit 78; }");
  EXPECT_EQ(sweep({"--local", "1"}, child).exit_code, 78);
  const Ended second = sweep({"--local", "1"}, child);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(lives(), ElementsAre("lr03", "lr10", "lr_1", "lr10"));
  EXPECT_THAT(second.err, HasSubstr("lr03 is complete; not started"));
  const Ended one = sweep({"--index", "0"}, child);
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_THAT(lives(), SizeIs(4));
  EXPECT_EQ(sweep({"--index", "0", "--again"}, child).exit_code, 0);
  EXPECT_EQ(sweep({"--index", "0", "--on-complete", "true"}, child).exit_code, 0) << "the hook must run";
  EXPECT_THAT(lives(), SizeIs(6));
}

TEST_F(Sweep, AStopReachesEveryRunAndWaitsForItsCommit) {
  const Words child = trainer(
      "trap 'sleep 0.3; say interrupted 75; echo committed; exit 75' TERM; touch ../../$name.trains\n" +
      stay());
  Subprocess process(command({"--local", "2"}, child), alone(Settings()));
  ASSERT_TRUE(process.wait_until([&] {
    return fs::exists(folder_.path() / "lr03.trains") && fs::exists(folder_.path() / "lr10.trains");
  })) << process.err();
  process.send(SIGTERM);
  const Ended ended = process.wait();
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[lr03] committed\n"), HasSubstr("[lr10] committed\n")));
  EXPECT_THAT(lives(), SizeIs(2)) << "nothing starts after a stop";
  EXPECT_THAT(ended.err, HasSubstr("3 runs: 0 complete, 2 interrupted, 1 not started"));
}

TEST_F(Sweep, AnInterruptedRunCountsBeforeAFailedOne) {
  // An engine must start the sweep again, although lr03 will fail again.
  const Words child = trainer(
      "[ $name != lr03 ] || { say failed 78; exit 78; }\n"
      "trap 'say interrupted 75; exit 75' TERM; touch ../../trains\n" +
      stay());
  Subprocess process(command({"--local", "1"}, child), alone(Settings()));
  ASSERT_TRUE(process.wait_until([&] { return fs::exists(folder_.path() / "trains"); })) << process.err();
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 75);
}

TEST_F(Sweep, ASecondCtrlCEndsItWith130) {
  const Words child = trainer(
      "trap 'i=$((i+1)); touch ../../told$i; [ $i -lt 2 ] || exit 130' INT; touch ../../trains\n" + stay());
  Subprocess process(command({"--local", "1"}, child), alone(Settings()));
  ASSERT_TRUE(process.wait_until([&] { return fs::exists(folder_.path() / "trains"); })) << process.err();
  process.send(SIGINT);
  ASSERT_TRUE(process.wait_until([&] { return fs::exists(folder_.path() / "told1"); })) << process.err();
  process.send(SIGINT);
  EXPECT_EQ(process.wait().exit_code, 130);
}

TEST_F(Sweep, RefusesOptionsThatDoNotGoTogether) {
  EXPECT_THAT(refused({"--local", "2", "--requeue-slurm"}), HasSubstr("--requeue-slurm"));
  EXPECT_THAT(refused({"--local", "2", "--index", "0"}), HasSubstr("--index"));
  EXPECT_THAT(refused({"--list", "--index", "0"}), HasSubstr("--index"));
  EXPECT_THAT(refused({"--local", "0"}), HasSubstr("--local"));
  EXPECT_THAT(refused({"--index", "0", "--directory", "/tmp"}), HasSubstr("--directory"));
}

}}  // namespace holdfast::test
