// Manners of all commands: JSON on standard output alone, help, colors, progress, and completion in real shells.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/checkpoint/checkpointer.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/names.h"
#include "support/memory_source.h"
#include "support/soon.h"
#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

constexpr char kProgram[] = HOLDFAST_BIN_DIR "/holdfast";

Ended holdfast(std::vector<std::string> arguments,
               const std::map<std::string, std::string>& environment = {}) {
  arguments.insert(arguments.begin(), kProgram);
  return Subprocess(std::move(arguments), environment).wait();
}

class Manners : public testing::Test {
 protected:
  Manners() {
    fs::create_directories(run_ / "attempts");
    std::ofstream(run_ / "attempts" / claim_name(1)) << R"({"boot_id":"other"})";
    for (const std::int64_t step : {100, 200, 300}) files_.push_back(add(step));
    RunState state{.attempt = 1, .phase = RunPhase::complete, .step = 300, .durable_step = 300};
    state.time = "2026-03-01T12:00:05Z";
    std::ofstream(run_ / "attempts" / state_name(1)) << to_json(state);
  }

  std::string add(std::int64_t step) const {
    Attributes attributes = small_attributes();
    attributes.set("run.attempt", std::int64_t{1}, Role::record);
    attributes.set("run.time", std::string("2026-03-01T12:00:05Z"), Role::record);
    const Made made = make_snapshot(small_tensors(), attributes, step);
    std::string name = run_ / checkpoint_name({1, step});
    write(FileSystem::real(), name, made);
    return name;
  }
  // A run of 8 steps that saves every second one.
  static void train(const fs::path& directory) {
    MemorySource source;
    CheckpointerOptions options;
    options.directory = directory;
    options.every = {};
    options.keep = KeepLast{100};
    options.notices.hear_signals = false;
    Checkpointer checkpointer(source, options);
    checkpointer.resume();
    while (source.step() < 8) {
      checkpointer.after_step(source.train());
      if (source.step() % 2 == 0) checkpointer.save().wait();
    }
    EXPECT_EQ(checkpointer.finish(), 0);
  }
  static Json json_of(std::vector<std::string> arguments, int code) {
    arguments.emplace_back("--json");
    const Ended ended = holdfast(arguments);
    EXPECT_EQ(ended.exit_code, code) << ended.out << ended.err;
    Json json = Json::parse(ended.out, nullptr, false);
    EXPECT_TRUE(json.is_object()) << arguments.front() << ": " << ended.out;
    if (!json.is_object()) return Json::object();
    EXPECT_EQ(json.value("schema", 0), 1) << arguments.front();
    return json;
  }

  TemporaryFolder folder_;
  const fs::path run_ = folder_.path() / "run";
  std::vector<std::string> files_;
};

TEST_F(Manners, LsVerifyDiffPruneAndExportPrintJson) {
  Json json = json_of({"ls", run_.string()}, 0);
  ASSERT_EQ(json["checkpoints"].size(), 3u);
  EXPECT_EQ(json["checkpoints"][0]["step"], 300);
  EXPECT_EQ(json["checkpoints"][0]["state"], "ok");
  EXPECT_EQ(json["run"]["phase"], "complete");

  json = json_of({"verify", run_.string()}, 0);
  EXPECT_EQ(json["files"].size(), 3u);
  EXPECT_EQ(json["exit_code"], 0);

  json = json_of({"diff", files_[0], files_[0]}, 0);
  EXPECT_EQ(json["equal"], true);

  json = json_of({"export", files_[0], "--to", (folder_.path() / "w.safetensors").string()}, 0);
  EXPECT_EQ(json["step"], 100);
  EXPECT_EQ(json["bytes"], fs::file_size(folder_.path() / "w.safetensors"));

  const std::string trained = folder_.path() / "trained";
  train(trained);
  json = json_of({"prune", trained, "--keep", "last=2", "--dry-run"}, 0);
  EXPECT_EQ(json["dry_run"], true);
  EXPECT_TRUE(json["attempt"].is_null());
  EXPECT_EQ(json["files"].size(), 4u);
  EXPECT_EQ(json["files"][3]["fate"], "goes") << json;
  EXPECT_TRUE(fs::exists(trained + "/" + checkpoint_name({1, 2})));
  json = json_of({"prune", trained, "--keep", "last=2"}, 0);
  EXPECT_EQ(json["attempt"], 2);
  EXPECT_FALSE(fs::exists(trained + "/" + checkpoint_name({1, 2})));
}

TEST_F(Manners, DiffNamesWhatDiffersInJson) {
  Attributes attributes = small_attributes();
  attributes.set("run.attempt", std::int64_t{1}, Role::record);
  attributes.set("learning_rate", 0.5);
  const Made made = make_snapshot(small_tensors(), attributes, 100);
  made.plan->layout->slot(0, made.snapshot->arena->bytes())[0] ^= std::byte{1};
  const std::string other = folder_.path() / "other.h5";
  write(FileSystem::real(), other, made);
  const Json json = json_of({"diff", files_[0], other}, 1);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["changed"].size(), 1u) << json;
  EXPECT_THAT(json["attributes"].dump(), HasSubstr("learning_rate"));
}

TEST_F(Manners, ErrorsAreJsonToo) {
  const std::string nowhere = folder_.path() / "nowhere";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"ls", nowhere},
                                                  {"verify", nowhere},
                                                  {"diff", nowhere, files_[0]},
                                                  {"prune", nowhere, "--keep", "last=2"},
                                                  {"export", nowhere, "--to", nowhere + "2"}}) {
    const Json json = json_of(command, 2);
    EXPECT_EQ(json["exit_code"], 2);
    EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("nowhere"));
  }
  EXPECT_EQ(json_of({"ls", run_.string(), "--no-such-option"}, 64)["exit_code"], 64);
  EXPECT_EQ(json_of({"prune", run_.string(), "--keep", "nonsense"}, 64)["exit_code"], 64);
  std::fstream(files_[1], std::ios::in | std::ios::out | std::ios::binary) << "broken";
  const Json json = json_of({"verify", files_[1]}, 1);
  EXPECT_EQ(json["files"][0]["state"], "damaged");
}

TEST_F(Manners, HelpKnowsEveryCommandAndTheExitCodes) {
  EXPECT_EQ(holdfast({"help"}).out, holdfast({"--help"}).out);
  EXPECT_EQ(holdfast({"help", "prune"}).out, holdfast({"prune", "--help"}).out);
  const Ended codes = holdfast({"help", "exit-codes"});
  EXPECT_THAT(codes.out, HasSubstr("  75  interrupted; everything acknowledged stands"));
  EXPECT_THAT(codes.out, HasSubstr("SIGUSR1 "));
  EXPECT_EQ(holdfast({"help", "nothing"}).exit_code, 64);
}

TEST_F(Manners, ColorsAreForTerminalsUnlessAskedFor) {
  EXPECT_THAT(holdfast({"verify", files_[0]}).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(holdfast({"verify", files_[0], "--color=always"}).out, StartsWith("\x1b[32mok"));
  EXPECT_THAT(holdfast({"diff", files_[0], files_[1], "--color=always"}).out, HasSubstr("\x1b["));
  std::fstream(files_[1], std::ios::in | std::ios::out | std::ios::binary) << "broken";
  EXPECT_THAT(holdfast({"ls", run_.string()}).out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(holdfast({"ls", run_.string(), "--color=always"}).out,
              HasSubstr("\x1b[31m" + fs::path(files_[1]).filename().string()));
}

// A quarter of a minute for the file: a line comes after ten seconds.
TEST_F(Manners, LongReadsTellRateAndTimeLeft) {
  const std::string large = run_ / checkpoint_name({1, 400});
  write(FileSystem::real(), large, make_snapshot({{"model/large", DType::float32, {10 << 20}}}, {}, 400));
  const std::string rate = std::to_string(static_cast<double>(fs::file_size(large)) / 15e6);
  EXPECT_THAT(holdfast({"verify", large, "--read-limit", rate}, {{"HOLDFAST_LOG", "info"}}).err,
              testing::ContainsRegex("verifying step-0*400-.*  [1-9][0-9]* %  .*B/s  .* left"));
}

// A file at one second a file; without the limit it takes no time.
TEST_F(Manners, AReadLimitIsKept) {
  const std::uint64_t bytes = fs::file_size(files_[0]);
  const double rate = static_cast<double>(bytes) / 1e6;  // one second a file
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(holdfast({"verify", files_[0], "--read-limit", std::to_string(rate)}).exit_code, 0);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 700ms);
  EXPECT_EQ(holdfast({"verify", files_[0], "--read-limit", "-1"}).exit_code, 64);
}

// A terminal with a shell in it, as a user has one.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& command) {
    winsize size{.ws_row = 50, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = forkpty(&master_, nullptr, nullptr, &size);
    if (child_ == 0) {
      setenv("TERM", "dumb", 1);
      setenv("PATH", (std::string(HOLDFAST_BIN_DIR ":") + getenv("PATH")).c_str(), 1);
      std::vector<char*> words;
      for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
      words.push_back(nullptr);
      execvp(words[0], words.data());
      _exit(127);
    }
    fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    close(master_);
  }
  void type(const std::string& text) const {
    ASSERT_EQ(::write(master_, text.data(), text.size()), ssize_t(text.size()));
  }
  // What it shows from now on, until that text appears.
  bool shows(const std::string& text) {
    const bool shown = soon([&] {
      char piece[4096];
      for (ssize_t got = 0; (got = ::read(master_, piece, sizeof piece)) > 0;) shown_.append(piece, got);
      return shown_.find(text) != std::string::npos;
    });
    if (shown) shown_.erase(0, shown_.find(text) + text.size());
    return shown;
  }
  const std::string& shown() const { return shown_; }

 private:
  int master_ = -1;
  pid_t child_ = -1;
  std::string shown_;
};

TEST(Completion, BashCompletesCommandsOptionsAndValues) {
  if (Subprocess({"/bin/sh", "-c", "command -v bash"}).wait().exit_code != 0)
    GTEST_SKIP() << "bash is missing";
  Terminal bash({"bash", "--norc", "--noprofile", "-i"});
  bash.type("PS1='> '; source <(holdfast completion bash); echo rea''dy\n");
  ASSERT_TRUE(bash.shows("ready")) << bash.shown();
  const auto completes = [&](const std::string& typed, const std::string& completed) {
    bash.type(typed + "\t#\n");  // behind the completion a comment: nothing runs twice
    EXPECT_TRUE(bash.shows(completed)) << typed << ": " << bash.shown();
  };
  completes("echo; holdfast help sta", "holdfast help status ");
  completes("echo; holdfast help exi", "holdfast help exit-codes ");
  completes("echo; holdfast status --max-u", "--max-unsaved ");
  completes("echo; holdfast status --color al", "--color always ");
  completes("echo; holdfast status --color=ne", "--color=never ");
  completes("echo; holdfast completion z", "holdfast completion zsh ");
}

TEST(Completion, ZshCompletesCommandsOptionsAndValues) {
  if (Subprocess({"/bin/sh", "-c", "command -v zsh"}).wait().exit_code != 0) GTEST_SKIP() << "zsh is missing";
  Terminal zsh({"zsh", "-f", "-i"});
  zsh.type("PS1='> '; autoload -Uz compinit; compinit -D; source <(holdfast completion zsh); echo rea''dy\n");
  ASSERT_TRUE(zsh.shows("ready")) << zsh.shown();
  const auto completes = [&](const std::string& typed, const std::string& rest) {
    zsh.type("\x15" + typed + "\t");
    EXPECT_TRUE(zsh.shows(rest)) << typed << ": " << zsh.shown();
  };
  completes("holdfast sta", "tus");
  completes("holdfast status --max-u", "nsaved");
  completes("holdfast completion z", "sh");
}

TEST(Completion, HasEveryOptionOfTheHelp) {
  for (const std::string shell : {"bash", "zsh"}) {
    const Ended printed = holdfast({"completion", shell});
    EXPECT_EQ(printed.exit_code, 0);
    for (const std::string option :
         {"--max-age", "--read-limit", "--keep", "--stall-timeout", "--nproc", "--svg"}) {
      EXPECT_THAT(printed.out, HasSubstr(option)) << shell;
    }
  }
  EXPECT_EQ(holdfast({"completion", "fish"}).exit_code, 64);
}

}}  // namespace holdfast::test
