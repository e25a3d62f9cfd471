// bench/gpu_session and bench/gpu_pack as a user runs them, without a GPU: what they record, keep, leave out and end, and
// that a pack has all that its programs load. HOLDFAST_NIGHTLY=1 rehearses the whole session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

const std::string kRoot = HOLDFAST_SOURCE_DIR;
const std::string kBuild = fs::path(HOLDFAST_BIN_DIR).parent_path();

json job(const std::string& name, const std::string& command, double seconds = 1) {
  return {{"name", name}, {"seconds", seconds}, {"command", {"sh", "-c", command}}, {"why", "a test"}};
}

bool lives(const std::string& pid) {
  return !pid.empty() && fs::exists("/proc/" + pid) &&
         read_text("/proc/" + pid + "/stat").find(") Z ") == std::string::npos;
}

// A table of jobs of its own, and the folder of its results.
class GpuSession : public testing::Test {
 protected:
  std::vector<std::string> command(const json& table, const std::vector<std::string>& options) const {
    write_text(folder_.path() / "table.json", table.dump());
    std::vector<std::string> words = {kRoot + "/bench/gpu_session",
                                      "--device",
                                      "cpu",
                                      "--done",
                                      done().string(),
                                      "--table",
                                      (folder_.path() / "table.json").string()};
    words.insert(words.end(), options.begin(), options.end());
    return words;
  }
  Ended run(const json& table, const std::vector<std::string>& options = {}) const {
    return Subprocess(command(table, options)).wait();
  }
  fs::path done() const { return folder_.path() / "done"; }
  json record(const std::string& name) const { return json::parse(read_text(done() / (name + ".json"))); }
  std::string archived() const {
    return Subprocess({"/bin/tar", "-tzf", (done() / "all.tar.gz").string()}).wait().out;
  }
  std::string text(const std::string& name) const { return read_text(folder_.path() / name); }
  std::string place(const std::string& name) const { return (folder_.path() / name).string(); }

 private:
  TemporaryFolder folder_;
};

TEST_F(GpuSession, RecordsEachJobAndArchivesAll) {
  const Ended ended =
      run({job("figures", "echo '{\"ms\": 4}' > {files}/figures.json; sh -c 'echo {work}; test -d {work}'"),
           job("line", "echo first; echo last words"), job("bad", "echo no >&2; exit 3")});
  // Placeholders are replaced inside of words, too.
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("bad: FAILED with 3"), HasSubstr("2 done, 1 failed, 0 left")));
  const json figures = record("figures");
  EXPECT_EQ(figures["rc"], 0);
  EXPECT_EQ(figures["result"], json({{"ms", 4}}));
  EXPECT_THAT(figures["device"].get<std::string>(), testing::StartsWith("cpu, "));
  EXPECT_FALSE(figures["commit"].get<std::string>().empty());
  EXPECT_GE(figures["seconds"].get<double>(), 0);
  EXPECT_EQ(record("line")["result"], "last words");
  EXPECT_EQ(record("bad")["rc"], 3);
  EXPECT_THAT(record("bad")["tail"].get<std::string>(), HasSubstr("no\n"));
  EXPECT_THAT(archived(), AllOf(HasSubstr("done/figures.json"), HasSubstr("done/files/figures.json"),
                                HasSubstr("done/logs/bad.log"), HasSubstr("done/bad.json")));
  for (const auto& entry : fs::directory_iterator(done())) {
    EXPECT_THAT(entry.path().filename().string(), Not(testing::StartsWith("."))) << "left behind";
  }
}

TEST_F(GpuSession, KeepsWhatTheSameCommitHasDone) {
  const json table = {job("a", "echo a >> " + place("ran")), job("b", "echo b >> " + place("ran"))};
  EXPECT_EQ(run(table, {"--first", "1"}).exit_code, 0);
  const Ended second = run(table);
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("kept: a:"));
  EXPECT_EQ(text("ran"), "a\nb\n");
  json other = record("b");
  other["commit"] = "another";
  fs::create_directories(done() / "files/b.run");
  write_text(done() / "b.json", other.dump());
  EXPECT_EQ(run(table, {"--again", "a"}).exit_code, 0);
  EXPECT_EQ(text("ran"), "a\nb\na\nb\n") << "asked for again; done by another commit";
  EXPECT_FALSE(fs::exists(done() / "files/b.run")) << "another commit's rows";
  write_text(done() / "a.json", "{\"rc\": 0,");
  EXPECT_EQ(run(table).exit_code, 0);
  EXPECT_EQ(text("ran"), "a\nb\na\nb\na\n") << "a torn record is none";
}

TEST_F(GpuSession, LeavesOutAloudWhatDoesNotFit) {
  json impossible = job("never", "true");
  impossible["lacks"] = "there is no tea";
  const Ended ended = run({job("long", "true", 3000), impossible, job("short", "true")}, {"--minutes", "2"});
  EXPECT_EQ(ended.exit_code, 75) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("left out: long: takes 3000 s, and "), HasSubstr("short: ok"),
                               HasSubstr("left out: never: there is no tea"), HasSubstr("left: long"),
                               HasSubstr("1 done, 0 failed, 1 left")));
  EXPECT_FALSE(fs::exists(done() / "long.json"));
}

TEST_F(GpuSession, AJobOfMoreThanHalfWantsASessionOfItsOwn) {
  const json table = {job("compile", "true", 70), job("short", "true")};
  const Ended ended = run(table, {"--minutes", "2"});
  EXPECT_EQ(ended.exit_code, 75) << ended.out << ended.err;
  EXPECT_THAT(ended.out,
              AllOf(HasSubstr("left out: compile: takes 70 s, more than half of this session: give it one "
                              "of its own (--only compile)"),
                    HasSubstr("short: ok")));
  const Ended own = run(table, {"--minutes", "2", "--only", "compile"});
  EXPECT_EQ(own.exit_code, 0) << own.out << own.err;
}

// What torch.compile has tuned is worth minutes: the next session, on another machine, brings it.
TEST_F(GpuSession, TheNextOneBringsWhatWasTuned) {
  json tune = job("tune", "cat $TUNED || echo tuned > $TUNED");
  tune["variables"] = {{"TUNED", "{cache}/tune.bin"}};
  EXPECT_EQ(run(json::array({tune})).exit_code, 0);
  EXPECT_THAT(archived(), HasSubstr("done/cache/tune.bin"));
  fs::create_directories(place("brought"));
  fs::rename(done() / "cache/tune.bin", place("brought") + "/tune.bin");
  fs::remove_all(done());
  EXPECT_EQ(run(json::array({tune}), {"--cache", place("brought")}).exit_code, 0);
  EXPECT_EQ(record("tune")["result"], "tuned");
}

// Proofs, then what docs/figures.md has no figure of. No job but those that want a session of their own fills half of a
// quarter of an hour.
TEST_F(GpuSession, TheTableBeginsWithWhatIsNotKnown) {
  const std::string list = Subprocess({kRoot + "/bench/gpu_session", "--list", "--minutes", "13"}).wait().out;
  std::vector<std::string> names;
  std::map<std::string, double> seconds;
  for (const std::string& line : lines_of(list)) {
    if (line.empty() || line[0] == ' ') continue;
    names.push_back(line.substr(0, line.find(' ')));
    seconds[names.back()] = std::stod(line.substr(line.find(' ')));
  }
  ASSERT_GT(names.size(), 20U);
  EXPECT_EQ(names[0], "tests");
  EXPECT_EQ(names[1], "nccl");
  for (const auto& [name, takes] : seconds) {
    if (name == "all" || name == "resnet50-autotune" || name == "checkpoint-all" || name == "table") continue;
    EXPECT_LE(takes, 13 * 60 / 2) << name;
  }
  const std::string page = read_text(kRoot + "/docs/figures.md");
  const auto begin = page.find("\n## On a GPU\n");
  const std::string known = page.substr(begin, page.find("Not measured", begin) - begin);
  const auto place_of = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  ASSERT_THAT(known, HasSubstr("resnet50-fused"));
  ASSERT_THAT(known, Not(HasSubstr("resnet50-autotune")));
  EXPECT_LT(place_of("resnet50-autotune"), place_of("resnet50-fused"));
  EXPECT_LT(place_of("resume-cifar"), place_of("resnet50-autotune")) << "a proof";
}

// A process that left its group and its parent is one of the job's all the same.
TEST_F(GpuSession, EndsAJobThatTakesTooLongWithAllItsProcesses) {
  json slow = job("slow", "setsid sh -c 'trap \"\" TERM; echo $$ > " + place("orphan") +
                              "; while :; do sleep 1; done' & sleep 0.2; exec sleep 1000");
  slow["limit"] = 1;
  const Ended ended = run({slow, job("next", "true")});
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("slow: ended after its limit of 1 s"), HasSubstr("next: ok")));
  EXPECT_EQ(record("slow")["rc"], 124);
  const std::string orphan = text("orphan").substr(0, text("orphan").find('\n'));
  ASSERT_FALSE(orphan.empty());
  EXPECT_FALSE(lives(orphan));
}

TEST_F(GpuSession, AJobThatEndsLeavesNoProcess) {
  EXPECT_EQ(run(json::array({job("a", "setsid sleep 1000 & echo $! > " + place("orphan"))})).exit_code, 0);
  EXPECT_FALSE(lives(text("orphan").substr(0, text("orphan").find('\n'))));
}

TEST_F(GpuSession, ItsEndCutsAJobWhichIsLeftForTheNextOne) {
  const Ended ended =
      run(json::array({job("cut", "sleep 1000", 0.5)}), {"--minutes", "0.36"});  // 20 s are for the end
  EXPECT_EQ(ended.exit_code, 75) << ended.out << ended.err;
  EXPECT_EQ(record("cut")["rc"], 124);
  const Ended next = run(json::array({job("cut", "true", 0.5)}));
  EXPECT_EQ(next.exit_code, 0) << next.out;
  EXPECT_THAT(next.out, Not(HasSubstr("kept")));
}

TEST_F(GpuSession, ASignalEndsItWith75AndTheNextOneGoesOn) {
  const json table = {
      job("a", "true"),
      job("b", "echo $$ > " + place("pid") + "; test -e " + place("again") + " || exec sleep 1000"),
      job("c", "true")};
  for (const int signal : {SIGTERM, SIGINT}) {
    fs::remove(place("pid"));
    Subprocess session(command(table, {}));
    ASSERT_TRUE(session.wait_until([&] { return !text("pid").empty(); }));
    session.send(signal);
    const Ended ended = session.wait();
    EXPECT_EQ(ended.exit_code, 75) << ended.out << ended.err;
    EXPECT_THAT(ended.out, AllOf(HasSubstr("interrupted during b"), HasSubstr("left: b c")));
    EXPECT_FALSE(lives(text("pid").substr(0, text("pid").find('\n'))));
    EXPECT_EQ(record("b")["complete"], false);
    EXPECT_THAT(archived(),
                AllOf(HasSubstr("done/a.json"), HasSubstr("done/b.json"), Not(HasSubstr("done/c.json"))));
  }
  write_text(place("again"), "");
  const Ended next = run(table);
  EXPECT_EQ(next.exit_code, 0) << next.out << next.err;
  EXPECT_THAT(next.out, AllOf(HasSubstr("kept: a"), HasSubstr("3 done")));
}

TEST_F(GpuSession, WhatIsWrongIsSaidInOneLine) {
  const auto wrong = [&](const std::vector<std::string>& options) {
    std::vector<std::string> words = {kRoot + "/bench/gpu_session"};
    words.insert(words.end(), options.begin(), options.end());
    const Ended ended = Subprocess(words).wait();
    EXPECT_EQ(ended.exit_code, 2) << ended.out;
    return ended.err;
  };
  if (!fs::exists("/dev/nvidiactl")) {
    const std::string said = wrong({});
    EXPECT_THAT(said, HasSubstr("there is no GPU here; --device cpu"));
    EXPECT_EQ(lines_of(said).size(), 1U) << said;
  }
  EXPECT_THAT(wrong({"--minutes", "0"}), HasSubstr("--minutes 0"));
  EXPECT_THAT(wrong({"--only", "tea"}), HasSubstr("--only tea: there is no such job"));
  EXPECT_THAT(wrong({"--device", "cpu", "--build", "/nowhere"}), HasSubstr("no programs in /nowhere/bin"));
}

// The real table. By day its first job that a CPU can do.
TEST_F(GpuSession, IsRehearsedOnACpu) {
  if (!fs::exists(HOLDFAST_BIN_DIR "/resnet50_cifar10")) GTEST_SKIP() << "the example is not built";
  std::vector<std::string> words = {kRoot + "/bench/gpu_session",
                                    "--device",
                                    "cpu",
                                    "--scale",
                                    "0.01",
                                    "--minutes",
                                    "600",
                                    "--done",
                                    done().string(),
                                    "--build",
                                    kBuild};
  if (!nightly()) words.insert(words.end(), {"--first", "3"});
  const Ended ended = Subprocess(words).wait(std::chrono::minutes(60));
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("left out: tests: only a build with CUDA has them"),
                               HasSubstr("resume-imagenet: ok")));
  EXPECT_THAT(record("resume-imagenet")["result"].get<std::string>(),
              AllOf(HasSubstr("equal after 2 kills"), HasSubstr("state=")));
}

TEST(GpuPack, HasAllThatItsProgramsLoadAndStartSaysWhatIsMissing) {
  if (!nightly()) GTEST_SKIP() << "it packs hundreds of megabytes: HOLDFAST_NIGHTLY=1";
  if (!fs::exists(HOLDFAST_BIN_DIR "/holdfast") || !fs::exists(HOLDFAST_BIN_DIR "/resnet50_cifar10")) {
    GTEST_SKIP() << "the programs are not built";
  }
  const TemporaryFolder folder;
  const std::string pack = folder.path() / "pack";
  const Ended packed =
      Subprocess({kRoot + "/bench/gpu_pack", "--build", kBuild, "--data", "none", "--level", "0", pack})
          .wait(std::chrono::minutes(5));
  ASSERT_EQ(packed.exit_code, 0) << packed.out << packed.err;
  EXPECT_THAT(packed.out, AllOf(HasSubstr("no CIFAR-10 here"), HasSubstr("left out: gpu_")));
  EXPECT_LE(fs::file_size(pack + "/holdfast-gpu.tar.xz"), 44U << 20);

  // An empty folder without LibTorch and without a network.
  const std::map<std::string, std::string> nothing = {{"HOLDFAST_LIBTORCH", ""}, {"PIP_NO_INDEX", "1"}};
  const Ended bare = Subprocess({pack + "/start", "--check"}, nothing).wait();
  if (bare.out.find("start: LibTorch") == std::string::npos) {  // else a Python here has it
    EXPECT_EQ(bare.exit_code, 2);
    EXPECT_THAT(bare.err, HasSubstr("there is no LibTorch "));
    EXPECT_EQ(lines_of(bare.err).size(), 1U) << bare.err;
  }
  const std::string tree = pack + "/holdfast-gpu";
  EXPECT_TRUE(fs::exists(tree + "/build/gpu/bin/resnet50_cifar10"));
  EXPECT_FALSE(fs::exists(tree + "/bench/gpu/__pycache__"));
  for (const char* file : {"published.csv", "printed_speed_ups.csv"}) {
    EXPECT_TRUE(fs::exists(tree + "/bench/precision_table/" + file)) << file;
  }
  for (const auto& entry : fs::directory_iterator(tree + "/lib")) {
    EXPECT_THAT(entry.path().filename().string(),
                Not(testing::ContainsRegex("^lib(c|m|stdc\\+\\+|torch|c10|cudart|torch_cpu)\\.so")));
  }
  // No library of the system counts but those that every machine or LibTorch brings.
  const std::string torch = Subprocess({"/bin/sh", "-c",
                                        "ldd " HOLDFAST_BIN_DIR "/resnet50_cifar10 | sed -n "
                                        "'s,.*libtorch_cpu.so => \\(.*\\)/lib/libtorch_cpu.so.*,\\1,p'"})
                                .wait()
                                .last_line();
  const std::map<std::string, std::string> here = {{"HOLDFAST_LIBTORCH", torch}, {"PIP_NO_INDEX", "1"}};
  const Ended check = Subprocess({pack + "/start", "--check", "--device", "cpu"}, here).wait();
  EXPECT_EQ(check.exit_code, 0) << check.out << check.err;
  EXPECT_THAT(check.out, HasSubstr("start: LibTorch "));
  const std::map<std::string, std::string> in_python = {
      {"HOLDFAST_LIBTORCH", ""}, {"PIP_NO_INDEX", "1"}, {"PYTHONPATH", fs::path(torch).parent_path()}};
  const Ended found = Subprocess({pack + "/start", "--check", "--device", "cpu"}, in_python).wait();
  EXPECT_EQ(found.exit_code, 0) << found.out << found.err;
  // This machine has all libraries itself: what comes from where?
  const Ended loaded = Subprocess({"/bin/sh", "-c", "ldd " + tree + "/build/gpu/bin/resnet50_cifar10"},
                                  {{"LD_LIBRARY_PATH", tree + "/lib:" + torch + "/lib"}})
                           .wait();
  int own = 0;
  for (const std::string& line : lines_of(loaded.out)) {
    if (line.find(" => ") == std::string::npos || line.find(" => " + torch) != std::string::npos) continue;
    const bool packed_too = line.find(" => " + tree + "/lib/") != std::string::npos;
    own += packed_too ? 1 : 0;
    if (!packed_too) {
      EXPECT_THAT(line,
                  testing::ContainsRegex(
                      "^\tlib(c|m|dl|rt|pthread|util|resolv|stdc\\+\\+|gcc_s|cu[a-z]+|nv[a-zA-Z]+)\\.so"));
    }
  }
  EXPECT_GT(own, 10) << loaded.out;
  const Ended session = Subprocess({pack + "/start", "--device", "cpu", "--scale", "0.01", "--only",
                                    "resume-imagenet", "--done", pack + "/results"},
                                   here)
                            .wait(std::chrono::minutes(5));
  EXPECT_EQ(session.exit_code, 0) << session.out << session.err;
  EXPECT_THAT(session.out, HasSubstr("resume-imagenet: ok"));
}

// A library with code for three architectures, as nvcc makes it: headers of 64 bytes, contents that do not compress.
TEST(ShrinkLibrary, KeepsTheCodeOfSomeArchitecturesAlone) {
  const TemporaryFolder folder;
  const std::string make = R"(
import random, struct, subprocess, sys
random.seed(1)
def entry(kind, arch, size):
    return struct.pack("<HHIQ", kind, 0x101, 64, size) + bytes(12) + struct.pack("<I", arch) + bytes(32) + random.randbytes(size)
def region(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
code = region(entry(2, 80, 4096), entry(2, 90, 4096), entry(1, 90, 4096)) + bytes(8) + region(entry(2, 120, 4096))
open("code", "wb").write(code)
open("relinked", "wb").write(region(entry(2, 90, 4096)))
open("a.S", "w").write('.section .nv_fatbin,"a"\n.balign 8\n.incbin "code"\n.section __nv_relfatbin,"a"\n.balign 8\n'
                       '.incbin "relinked"\n.text\n.globl answer\nanswer: ret\n')
subprocess.run([sys.argv[1], "-shared", "-nostdlib", "-o", "whole.so", "a.S"], check=True)
)";
  const std::string shrink = kRoot + "/bench/gpu/shrink_library";
  const auto sh = [&](const std::string& text) {
    return Subprocess({"/bin/sh", "-c", "cd " + folder.path().string() + " && " + text}).wait();
  };
  write_text(folder.path() / "make.py", make);
  const Ended made = sh("python3 make.py cc");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Ended shrunk = sh(shrink + " --sm 90,120 whole.so small.so");
  ASSERT_EQ(shrunk.exit_code, 0) << shrunk.err;
  const Ended same = sh(R"(python3 -c "
whole, small, code = (open(name, 'rb').read() for name in ('whole.so', 'small.so', 'code'))
at = whole.index(code)
assert len(whole) == len(small)
where = [16 + 64, 4096 + 128 + 16, 2 * 4096 + 3 * 64 + 16, 3 * (4096 + 64) + 16 + 8 + 16 + 64]
kept = [small[at + begin:at + begin + 4096] == whole[at + begin:at + begin + 4096] for begin in where]
zero = [not any(small[at + begin:at + begin + 4096]) for begin in where]
print(kept, zero, small.count(bytes(4096)))
assert small[:at] == whole[:at]
")");
  EXPECT_EQ(same.last_line(), "[False, True, False, True] [True, False, True, False] 3")
      << same.out << same.err;
  const Ended lacks = sh(shrink + " --sm 75 whole.so small.so");
  EXPECT_EQ(lacks.exit_code, 2);
  EXPECT_THAT(lacks.err, HasSubstr("whole.so has no code for sm_75: it has [80, 90, 120]"));
  for (const std::string bad : {"code", "make.py", "missing"}) {
    const Ended refused = sh(shrink + " --sm 90 " + bad + " small.so");
    EXPECT_EQ(refused.exit_code, 2) << bad;
    EXPECT_EQ(lines_of(refused.err).size(), 1U) << refused.err;
  }
}

TEST(GpuPack, WhatIsWrongIsSaidInOneLine) {
  const auto wrong = [&](const std::vector<std::string>& options) {
    std::vector<std::string> words = {kRoot + "/bench/gpu_pack"};
    words.insert(words.end(), options.begin(), options.end());
    const Ended ended = Subprocess(words, {{"HOLDFAST_CIFAR10_DIR", ""}}).wait();
    EXPECT_EQ(ended.exit_code, 2) << ended.out << ended.err;
    EXPECT_EQ(lines_of(ended.err).size(), 1U) << ended.err;
    return ended.err;
  };
  EXPECT_THAT(wrong({}), HasSubstr("where to?"));
  EXPECT_THAT(wrong({"--data", "/nowhere", "/tmp/x"}),
              HasSubstr("no data_batch_1.bin and test_batch.bin in /nowhere"));
  EXPECT_THAT(wrong({"--build", "/nowhere", "/tmp/x"}), HasSubstr("--build"));
  EXPECT_THAT(wrong({"--most", "much", "/tmp/x"}), HasSubstr("--most much"));
  EXPECT_THAT(wrong({"--nccl", "/nowhere", "/tmp/x"}), HasSubstr("--nccl /nowhere: there is no such file"));
  EXPECT_THAT(wrong({"--sm", "ninety", "/tmp/x"}), HasSubstr("--sm ninety"));
}

}}  // namespace holdfast::test
