// examples/resnet50_cifar10/run among programs that only say how they were called: how many ranks it starts,
// and that those of one host set up one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

class StartScript : public testing::Test {
 protected:
  StartScript() {
    fs::create_directories(root() / "examples/resnet50_cifar10");
    fs::copy(fs::path(HOLDFAST_SOURCE_DIR) / "examples/resnet50_cifar10/run", script());
    write("cmake/bootstrap", R"(mkdir -p "$root/.deps"; : >"$root/.deps/env")");
    write("cmake/configure", "");
    write("bin/ninja", "");
    see(0);
    write("build/release/bin/resnet50_cifar10", R"(echo "alone $*")");
    write("build/release/bin/holdfast", R"(echo "$1 $2 $3")");
  }
  fs::path root() const { return folder_.path() / "tree"; }
  fs::path script() const { return root() / "examples/resnet50_cifar10/run"; }
  void write(const fs::path& file, const std::string& commands) const {
    fs::create_directories((root() / file).parent_path());
    write_text(root() / file, "#!/usr/bin/env bash\nroot=" + root().string() + "\n" + commands + "\n");
    fs::permissions(root() / file, fs::perms::owner_all);
  }
  // What nvidia-smi lists, and whether the program's LibTorch finds them, too.
  void see(int gpus, bool by_program = true) const {
    write("bin/nvidia-smi",
          "for ((i = 0; i < " + std::to_string(gpus) + "; ++i)); do echo \"GPU $i: H100\"; done");
    const std::string help = by_program && gpus > 0 ? "--cuda, --no-cuda{false}" : "--threads";
    write("build/release/bin/resnet50_cifar10",
          "if [[ $1 == --help ]]; then echo '" + help + "'; else echo \"alone $*\"; fi");
  }
  std::unique_ptr<Subprocess> start(const Words& arguments, Environment environment = {}) const {
    Words words = {script().string(), "--data", "synthetic"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    environment.emplace("PATH", (root() / "bin").string() + ":/usr/local/bin:/usr/bin:/bin");
    for (const char* variable :
         {"RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "SLURM_STEP_NUM_TASKS"}) {
      environment.emplace(variable, "");
    }
    return std::make_unique<Subprocess>(words, environment);
  }
  std::string ranks(const Words& arguments = {}, const Environment& environment = {}) const {
    const Ended ended = start(arguments, environment)->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    said_ = ended.err;
    return ended.out.starts_with("alone ") ? "1" : ended.out;
  }
  TemporaryFolder folder_;
  mutable std::string said_;
};

TEST_F(StartScript, StartsARankForEachGpuThatDividesTheBatch) {
  EXPECT_EQ(ranks(), "1");
  for (const auto& [gpus, expected] : std::map<int, std::string>{{1, "1"},
                                                                 {2, "launch --nproc 2\n"},
                                                                 {3, "launch --nproc 2\n"},
                                                                 {7, "launch --nproc 4\n"},
                                                                 {8, "launch --nproc 8\n"}}) {
    see(gpus);
    EXPECT_EQ(ranks(), expected) << gpus;
    if (gpus == 7) {
      EXPECT_THAT(said_, HasSubstr("4 of 7 GPUs are used: a batch of 512 does not divide by more"));
    } else if (gpus == 8) {
      EXPECT_EQ(said_, "");
    }
  }
  EXPECT_EQ(ranks({"--no-cuda"}), "1");
  EXPECT_EQ(ranks({"--nproc", "3"}), "launch --nproc 3\n") << "as it was asked for";
  EXPECT_EQ(ranks({"--batch-size=96"}), "launch --nproc 8\n");
  EXPECT_EQ(ranks({"--batch-size", "99"}), "launch --nproc 3\n");
  EXPECT_EQ(ranks({"--batch-size", "many"}), "launch --nproc 8\n") << "the program says what is wrong";
  EXPECT_EQ(ranks({}, {{"CUDA_VISIBLE_DEVICES", "4,5"}}), "launch --nproc 2\n");
  EXPECT_EQ(ranks({}, {{"CUDA_VISIBLE_DEVICES", ""}}), "1");
  see(2);
  EXPECT_EQ(ranks({}, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}), "launch --nproc 2\n") << "of a larger host";
  EXPECT_EQ(ranks({}, {{"RANK", "3"}}), "1") << "a launcher's rank";
}

TEST_F(StartScript, StartsOneRankWhereTheProgramFindsNoGpu) {
  see(8, /*by_program=*/false);
  EXPECT_EQ(ranks(), "1") << "a LibTorch for CPUs";
  see(0);
  EXPECT_EQ(ranks({}, {{"CUDA_VISIBLE_DEVICES", "0,1,2,3"}}), "1") << "left over from another host";
}

TEST_F(StartScript, RefusesANumberOfRanksThatWouldNotCount) {
  const auto refusal = [&](const Words& arguments, const Environment& environment = {}) {
    const Ended ended = start(arguments, environment)->wait();
    EXPECT_NE(ended.exit_code, 0) << ended.out;
    return ended.err;
  };
  EXPECT_THAT(refusal({"--nproc"}), HasSubstr("--nproc: say how many ranks"));
  EXPECT_THAT(refusal({"--nproc", "--no-cuda"}), HasSubstr("--nproc --no-cuda: expected"));
  EXPECT_THAT(refusal({"--nproc=0"}), HasSubstr("--nproc 0: expected"));
  EXPECT_THAT(
      refusal({"--nproc", "8"}, {{"SLURM_STEP_NUM_TASKS", "1"}}),
      EndsWith("has started this process as one rank (SLURM_STEP_NUM_TASKS=1): leave --nproc away, or "
               "unset SLURM_STEP_NUM_TASKS\n"));
  EXPECT_EQ(ranks({"--nproc", "1"}, {{"RANK", "0"}}), "1");
}

TEST_F(StartScript, RanksOfOneHostSetUpOneAfterTheOther) {
  write("cmake/bootstrap", R"(mkdir "$root/at-work" || touch "$root/two-at-once"
sleep 0.3
rmdir "$root/at-work"
: >"$root/.deps/env")");
  std::vector<std::unique_ptr<Subprocess>> processes;
  for (const char* const rank : {"0", "1", "2"}) processes.push_back(start({}, {{"RANK", rank}}));
  for (const auto& process : processes) EXPECT_EQ(process->wait().exit_code, 0) << process->err();
  EXPECT_FALSE(fs::exists(root() / "two-at-once"));
}

// Another archive of the publisher's MD5 stands for what can be made to have it.
TEST_F(StartScript, TakesNoOtherDataThanTheArchiveThatIsNamed) {
  write("bin/md5sum", "[[ -e $1 ]] && echo c32a1d4ab5d03f1284b67883e8d87530");
  write("bin/curl", R"(while [[ $1 != --output ]]; do shift; done
mkdir -p "$root/cifar-10-batches-bin"
touch "$root"/cifar-10-batches-bin/{data_batch_1,test_batch}.bin
tar -C "$root" -czf "$2" cifar-10-batches-bin)");
  const Ended ended = Subprocess({script().string(), "--nproc", "1"},
                                 {{"PATH", (root() / "bin").string() + ":/usr/local/bin:/usr/bin:/bin"},
                                  {"HOLDFAST_CIFAR10_DIR", ""}})
                          .wait();
  EXPECT_EQ(ended.exit_code, 1) << ended.out;
  EXPECT_THAT(ended.err, HasSubstr("run: error: the CIFAR-10 download has the SHA-256 "));
  EXPECT_FALSE(fs::exists(root() / ".deps/cifar10"));
  EXPECT_FALSE(fs::exists(root() / ".deps/cifar10.part"));
}

// A network that comes late would otherwise cost a whole run on the wrong pictures, which counts as complete.
TEST_F(StartScript, TrainsOnSyntheticPicturesOnlyWhereNoRunIsNamed) {
  write("bin/curl", "echo tried >>\"$root/tried\"; exit 6");
  const auto offline = [&](Words arguments) {
    arguments.insert(arguments.begin(), script().string());
    const std::string path = (root() / "bin").string() + ":/usr/local/bin:/usr/bin:/bin";
    return Subprocess(arguments, {{"PATH", path}, {"HOLDFAST_CIFAR10_DIR", ""}}).wait();
  };
  const std::string run = (root() / "run1").string();
  for (const Words& named : {Words{"--checkpoint-dir", run}, Words{"--checkpoint-dir=" + run},
                             Words{"--mount", "/"}, Words{"--mount=/"}}) {
    const Ended ended = offline(named);
    EXPECT_EQ(ended.exit_code, 75) << ended.out << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("start again later, or give --data")) << named[0];
  }
  EXPECT_EQ(read_text(root() / "tried"), "tried\ntried\ntried\ntried\n")
      << "each start asks the network anew";
  EXPECT_THAT(offline({"--steps", "5"}).out, HasSubstr("alone --data synthetic "));
  EXPECT_THAT(offline({"--data", "synthetic", "--checkpoint-dir", run}).out,
              HasSubstr("alone --data synthetic "));
}

TEST_F(StartScript, BuildsTheProgramHoldfastWhereItStartsRanksAndForSetupOnly) {
  write("bin/ninja", R"(shift 2; echo "$*" >>"$root/built")");
  const auto built = [&](const Words& arguments) {
    fs::remove(root() / "built");
    const Ended ended = start(arguments)->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return read_text(root() / "built");
  };
  EXPECT_EQ(built({}), "resnet50_cifar10\n");
  EXPECT_EQ(built({"--nproc", "2"}), "resnet50_cifar10\nholdfast\n");
  EXPECT_EQ(built({"--setup-only"}), "resnet50_cifar10 holdfast\n");
}

TEST_F(StartScript, SaysHowToBuildTheProgramHoldfastWhereItIsMissing) {
  EXPECT_THAT(start({})->wait().err, Not(HasSubstr("ninja")));
  const fs::path program = root() / "build/release/bin/holdfast";
  fs::remove(program);
  EXPECT_THAT(start({})->wait().err, HasSubstr("build/release holdfast && " + program.string() +
                                               " status ./runs/resnet50_synthetic\n"));
  EXPECT_THAT(start({"--checkpoint-dir", "/mnt/run"})->wait().err, HasSubstr(" status /mnt/run\n"));
}

// A stand-in for ninja: half of sixty objects, and then a warning.
const char* const kHalfABuild =
    R"(line() { echo "$(sed "s|%f|$1|; s|%t|60|" <<<"$NINJA_STATUS")Building CXX object $1.cc.o"; }
echo "ninja: Entering directory 'x'"
for ((i = 1; i <= 30; ++i)); do line $i; done
printf 'thirty.cc:1:2: warning: the first half '
)";

TEST_F(StartScript, TellsNowAndThenHowFarTheBuildIsAndWholeWhatTheCompilerSays) {
  // In the pause a line about the progress falls due.
  write("bin/ninja", std::string(kHalfABuild) + R"(sleep 6.5
echo 'and the second'
for ((i = 31; i <= 60; ++i)); do line $i; done)");
  const Ended ended = start({})->wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("run: building: 30 of 60 in "));
  EXPECT_THAT(ended.err, HasSubstr(" s more\n"));
  EXPECT_THAT(ended.err, HasSubstr("thirty.cc:1:2: warning: the first half and the second\n"));
  EXPECT_THAT(ended.err, ContainsRegex("run: built in [0-9]+ s\n$"));
  EXPECT_THAT(ended.err, Not(HasSubstr("Building CXX object")));
  EXPECT_THAT(ended.err, Not(HasSubstr("Entering directory")));
}

TEST_F(StartScript, AFailedBuildShowsItsErrorWholeAndEndsTheStart) {
  write("bin/ninja", std::string(kHalfABuild) + R"(echo 'and the second'
echo 'FAILED: 31.cc.o'
echo '31.cc:3:4: error: no such thing'
printf 'ninja: build stopped: subcommand failed.'
exit 1)");
  const Ended ended = start({})->wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.out, "") << "it must not train";
  EXPECT_THAT(ended.err, Not(HasSubstr("run: built")));
  EXPECT_THAT(ended.err,
              EndsWith("thirty.cc:1:2: warning: the first half and the second\nFAILED: 31.cc.o\n"
                       "31.cc:3:4: error: no such thing\nninja: build stopped: subcommand failed.\n"
                       "run: error: the build failed\n"));
}

TEST_F(StartScript, WithNoInstallNothingIsInstalled) {
  write("cmake/bootstrap", R"(echo "bootstrap $*"; [[ $* != *--no-install* ]] || exit 1)");
  write("cmake/configure", "echo configured");
  const Ended ended = start({"--no-install"})->wait();
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(ended.err, "bootstrap --no-install\n");
}

}}  // namespace holdfast::test
