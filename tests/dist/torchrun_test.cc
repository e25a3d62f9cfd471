// The torchrun of PyTorch's wheel, elastic over two hosts: one host dies, is cut off, or stands still. The other trains
// on alone from the last commit with the same global batch; the host comes back, and both go on. No sample is left out
// of a step, and none is in it twice.
//
// Needs a Python with torch: bench/peers/install, or HOLDFAST_TEST_TORCHRUN, a program that is torchrun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "dist/two_hosts.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

using Words = std::vector<std::string>;

constexpr int kSteps = 400;
constexpr char kBatch[] = "24";

// The program, or why there is none.
struct Torchrun {
  std::string program;
  std::string missing;
};

const Torchrun& torchrun() {
  static const Torchrun found = []() -> Torchrun {
    const char* const named = std::getenv("HOLDFAST_TEST_TORCHRUN");
    for (const std::string& program : {std::string(named != nullptr ? named : ""),
                                       std::string(HOLDFAST_SOURCE_DIR "/.deps/peers/bin/torchrun")}) {
      if (program.empty() || !std::filesystem::exists(program)) continue;
      const Ended tried = Subprocess({program, "--help"}).wait(5min);
      if (tried.exit_code == 0) return {program, {}};
      return {{}, program + " does not run: " + tried.err};
    }
    return {{}, "no Python with torch (bench/peers/install)"};
  }();
  return found;
}

// One batch of a rank, as it was printed: "ids STEP PASS a,b,…".
std::vector<std::pair<int, std::string>> batches_in(const std::string& out) {
  std::vector<std::pair<int, std::string>> batches;
  for (const std::string& line : lines_of(out)) {
    std::istringstream in(line);
    std::string word;
    std::string pass;
    std::string ids;
    int step = 0;
    if (in >> word >> step >> pass >> ids && word == "ids") batches.emplace_back(step, ids);
  }
  return batches;
}

// "a,b,…"
std::vector<std::string> words_of(const std::string& ids) {
  std::vector<std::string> words;
  std::istringstream in(ids);
  for (std::string word; std::getline(in, word, ',');) words.push_back(word);
  return words;
}

std::string value_after(const std::string& out, const std::string& word) {
  const std::size_t at = out.rfind(word);
  return at == std::string::npos ? "" : out.substr(at + word.size(), out.find('\n', at) - at - word.size());
}

Words elastic(const std::filesystem::path& run, const Words& more = {}) {
  // A trial's torchrun may need libraries that the program must not get.
  Words words = {"/usr/bin/env",
                 "-u",
                 "LD_PRELOAD",
                 "-u",
                 "LD_LIBRARY_PATH",
                 HOLDFAST_ELASTIC_PROGRAM,
                 run.string(),
                 std::to_string(kSteps),
                 "batch=" + std::string(kBatch)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class TorchrunOnOneHost : public testing::Test {
 protected:
  void SetUp() override {
    if (!torchrun().missing.empty()) GTEST_SKIP() << torchrun().missing;
  }
  Words supervised(const Words& more = {}) const {
    Words words = {HOLDFAST_BIN_DIR "/holdfast",
                   "supervise",
                   "--first-delay",
                   "10ms",
                   "--directory",
                   run().string(),
                   "--",
                   torchrun().program,
                   "--standalone",
                   "--nproc-per-node",
                   "2",
                   "--no-python"};
    const Words trainer = elastic(run(), more);
    words.insert(words.end(), trainer.begin(), trainer.end());
    return words;
  }
  std::filesystem::path run() const { return folder_.path() / "run"; }
  TemporaryFolder folder_;
};

// torchrun ends with 1 or 0, whatever its processes said.
TEST_F(TorchrunOnOneHost, ThatIsToldToStopIsInterruptedAndGoesOn) {
  const std::map<std::string, std::string> environment = {{"OMP_NUM_THREADS", "1"},
                                                          {"HOLDFAST_SOURCES", "signal"}};
  Subprocess first(supervised({"pace=100"}), environment);
  ASSERT_TRUE(first.wait_until([&] { return first.out().find("ids 9 ") != std::string::npos; }, 3min))
      << first.err();
  first.send(SIGTERM);
  const Ended stopped = first.wait(3min);
  EXPECT_EQ(stopped.exit_code, 75) << stopped.err;
  EXPECT_THAT(read_text(run() / "RUN_STATE.json"), HasSubstr("interrupted"));
  const Ended ended = Subprocess(supervised(), environment).wait(5min);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("complete step=" + std::to_string(kSteps)));
  EXPECT_THAT(ended.out, HasSubstr(" exact"));
}

struct Vanishing {
  const char* name;
  void (*go)(const TwoHosts&);
  void (*come_back)(const TwoHosts&);  // null: it was killed, and is started again
  int ranks = 1;                       // of each host
};

// Under `supervise` alone: when a host returns within seconds, torchrun 2.11 itself may end with a time-out of its store.
constexpr Vanishing kVanishings[] = {
    {"Killed", [](const TwoHosts& hosts) { hosts.signal_all(1, SIGKILL); }, nullptr},
    {"CutOff", [](const TwoHosts& hosts) { hosts.pull_the_plug(); },
     [](const TwoHosts& hosts) { hosts.mend(); }},
    {"Stopped", [](const TwoHosts& hosts) { hosts.signal_all(1, SIGSTOP); },
     [](const TwoHosts& hosts) { hosts.signal_all(1, SIGCONT); }},
    // The ranks of the host that is left meet as well, in the store of the start before.
    {"KilledOfFour", [](const TwoHosts& hosts) { hosts.signal_all(1, SIGKILL); }, nullptr, 2},
};

class TorchrunOnTwoHosts : public testing::TestWithParam<Vanishing> {
 protected:
  void SetUp() override {
    if (!torchrun().missing.empty()) GTEST_SKIP() << torchrun().missing;
    if (const auto why = TwoHosts::why_not()) GTEST_SKIP() << *why;
    hosts_ = std::make_unique<TwoHosts>();
    std::filesystem::create_directories(folder_.path());
  }
  // The command of docs/several_gpus.md on each host, with shorter time-outs. No name leads to these addresses, so
  // torchrun is told which host keeps its store (is_host).
  void start(int host) {
    Words words = {
        HOLDFAST_BIN_DIR "/holdfast", "supervise", "--first-delay", "100ms", "--max-restarts", "1000"};
    if (host == 0) words.insert(words.end(), {"--directory", run().string()});
    words.emplace_back("--");
    words.insert(words.end(), {torchrun().program,
                               "--nnodes",
                               "1:2",
                               "--nproc-per-node",
                               std::to_string(GetParam().ranks),
                               "--max-restarts",
                               "1000",
                               "--rdzv-backend",
                               "c10d",
                               "--rdzv-endpoint",
                               TwoHosts::address(0) + ":29400",
                               "--rdzv-id",
                               "run1",
                               "--local-addr",
                               TwoHosts::address(host),
                               "--rdzv-conf",
                               "last_call_timeout=5,keep_alive_interval=1,read_timeout=20,is_host=" +
                                   std::string(host == 0 ? "1" : "0"),
                               "--monitor-interval",
                               "0.2",
                               "--no-python"});
    const Words trainer = elastic(run(), {"pace=300"});
    words.insert(words.end(), trainer.begin(), trainer.end());
    said_[host] += agents_[host] ? agents_[host]->out() : "";
    agents_[host] = std::make_unique<Subprocess>(
        hosts_->on(host, words),
        std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"},
                                           {"HOLDFAST_SOURCES", "signal"},
                                           {"HOLDFAST_TERM_GRACE", "20s"},
                                           {"GLOO_SOCKET_IFNAME", TwoHosts::interface(host)}});
  }
  std::string said(int host) const { return said_[host] + agents_[host]->out(); }
  // Host 0 has printed a batch of that many samples after position `from` of its output.
  bool trains_with(std::size_t samples, std::size_t from) {
    return agents_[0]->wait_until(
        [&] {
          for (const auto& [step, ids] : batches_in(said(0).substr(from))) {
            if (1 + static_cast<std::size_t>(std::count(ids.begin(), ids.end(), ',')) == samples) return true;
          }
          return false;
        },
        5min);
  }
  std::filesystem::path run() const { return folder_.path() / "run"; }

  TemporaryFolder folder_;
  std::unique_ptr<TwoHosts> hosts_;
  std::unique_ptr<Subprocess> agents_[2];
  std::string said_[2];
};

TEST_P(TorchrunOnTwoHosts, TheOtherGoesOnAloneAndThenBothTogether) {
  const Ended straight =
      Subprocess(elastic(folder_.path() / "straight"), {{"HOLDFAST_SOURCES", "signal"}}).wait(5min);
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  std::map<int, std::string> order;
  for (const auto& [step, ids] : batches_in(straight.out)) order[step] = ids;

  start(0);
  start(1);
  const std::size_t alone = 24 / static_cast<std::size_t>(GetParam().ranks);  // samples of a rank
  ASSERT_TRUE(trains_with(alone / 2, 0)) << agents_[0]->err() << agents_[1]->err();
  ASSERT_TRUE(agents_[0]->wait_until([&] { return said(0).find("ids 7 ") != std::string::npos; }, 2min));
  std::size_t seen = said(0).size();
  GetParam().go(*hosts_);
  ASSERT_TRUE(trains_with(alone, seen)) << agents_[0]->err();
  seen = said(0).size();
  if (GetParam().come_back != nullptr) {
    GetParam().come_back(*hosts_);
  } else {
    start(1);
  }
  ASSERT_TRUE(trains_with(alone / 2, seen)) << agents_[0]->err() << agents_[1]->err();
  write_text(run().string() + ".quick", "");
  const Ended ended = agents_[0]->wait(5min);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("complete step=" + std::to_string(kSteps)));
  EXPECT_EQ(agents_[1]->wait(2min).exit_code, 0) << agents_[1]->err();

  // Each batch is a share of a step's global batch, or the whole; together they are every step.
  std::map<int, std::set<std::string>> seen_ids;
  for (int host = 0; host < 2; ++host) {
    const std::string out = host == 0 ? said_[0] + ended.out : said(1);
    for (const auto& [step, ids] : batches_in(out)) {
      EXPECT_THAT("," + order[step] + ",", HasSubstr("," + ids + ",")) << "step " << step;
      for (const std::string& id : words_of(ids)) seen_ids[step].insert(id);
    }
  }
  for (int step = 1; step <= kSteps; ++step) EXPECT_EQ(seen_ids[step].size(), 24U) << "step " << step;
  // The number of ranks changes the rounding alone.
  const std::string last = "loss " + std::to_string(kSteps) + " ";
  EXPECT_NEAR(std::atof(value_after(ended.out, last).c_str()),
              std::atof(value_after(straight.out, last).c_str()), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Of, TorchrunOnTwoHosts, testing::ValuesIn(kVanishings),
                         [](const auto& info) { return std::string(info.param.name); });

}}  // namespace holdfast::test
