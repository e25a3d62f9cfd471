// `holdfast supervise` with small shell scripts in the place of trainers: what its tests share.
//
// Threads: as Subprocess.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "holdfast/base/system/machine.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_state.h"
#include "support/subprocess.h"

namespace holdfast::test {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

// Where there is no reason to wait for long.
inline const Words kSoon = {"--first-delay", "1ms"};

// In a script: for a minute at most, so that nothing stays behind when a test fails.
inline std::string until(const std::string& condition) {
  return "n=0; until " + condition + " || [ $n -ge 6000 ]; do sleep 0.01; n=$((n+1)); done";
}
inline std::string stay() { return until("false"); }

// For a shell.
inline std::string quoted(const Words& words) {
  std::string text;
  for (const std::string& word : words) {
    text += " '";
    for (const char letter : word) text += letter == '\'' ? "'\\''" : std::string(1, letter);
    text += "'";
  }
  return text;
}

// In a script: the writer of a trainer says the same step again and again.
inline std::string standstill_in(const std::string& ledger, const std::string& more = "") {
  return "{ echo '{\"event\":\"start\",\"up_ms\":0,\"step\":1}'; for i in 1 2 3 4; do echo "
         "\"{\\\"event\\\":\\\"progress\\\",\\\"up_ms\\\":${i}0000,\\\"step\\\":1" +
         more + "}\"; done; } >" + ledger + "; ";
}

class Supervise : public testing::Test {
 protected:
  static Words command(Words options, const Words& child) {
    options.insert(options.begin(), {HOLDFAST_BIN_DIR "/holdfast", "supervise"});
    options.emplace_back("--");
    options.insert(options.end(), child.begin(), child.end());
    return options;
  }
  // A script, in the folder of the test; it notes each of its lives.
  Words script(const std::string& text) const {
    return {"/bin/sh", "-c", "cd '" + folder_.path().string() + "'; echo life >>lives; " + text};
  }
  Ended run(const Words& options, const std::string& text) const {
    return Subprocess(command(options, script(text))).wait();
  }
  std::size_t lives() const { return noted("lives").size(); }
  Words noted(const std::string& file) const { return lines_of(read_text(folder_.path() / file)); }
  bool there(const std::string& file) const { return fs::exists(folder_.path() / file); }

  // What a run directory says.
  fs::path directory() const { return folder_.path() / "run"; }
  void say(const RunState& state) const {
    fs::create_directories(directory() / kAttemptsDirectory);
    write_text(directory() / kAttemptsDirectory / claim_name(state.attempt), "");
    write_text(directory() / kAttemptsDirectory / state_name(state.attempt), to_json(state));
  }
  void claim(AttemptNumber attempt) const {
    fs::create_directories(directory() / kAttemptsDirectory);
    write_text(directory() / kAttemptsDirectory / claim_name(attempt), "");
  }
  // In a script: attempt $n begins and says this, as a trainer does that was started with this environment.
  static std::string attempt(const std::string& phase, const std::string& durable_step,
                             const std::string& supervisor = "$HOLDFAST_SUPERVISOR") {
    return "mkdir -p run/attempts; echo \"{\\\"supervisor\\\": \\\"" + supervisor +
           "\\\"}\" >run/attempts/$n; echo \"{\\\"attempt\\\": $n, \\\"phase\\\": \\\"" + phase +
           "\\\", \\\"step\\\": " + durable_step + ", \\\"durable_step\\\": " + durable_step +
           "}\" >run/attempts/$n.new; mv run/attempts/$n.new run/attempts/$n.state.json; ";
  }
  static std::string standing_still(const std::string& durable_step, const std::string& more = "") {
    return "trap 'exit 75' TERM; n=$(wc -l <lives); " + attempt("running", durable_step) +
           standstill_in("run/ledger-a000$n.jsonl", more);
  }
  Words in_directory(Words more = {}) const {
    more.insert(more.end(), {"--first-delay", "1ms", "--directory", directory().string()});
    return more;
  }
  static RunState interrupted_here() {
    RunState state{.attempt = 1, .phase = RunPhase::interrupted, .step = 7, .durable_step = 7};
    state.boot_id = boot_id();
    return state;
  }
  static std::int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  static std::string notice(std::chrono::milliseconds left, const std::string& kind = "deadline",
                            const std::string& source = "ec2", std::int64_t at = now_ms()) {
    return R"({"event":"notice","t":)" + std::to_string(at) + R"(,"up_ms":1,"source":")" + source +
           R"(","kind":")" + kind + R"(","left_ms":)" + std::to_string(left.count()) + "}\n";
  }
  void write_ledger(const std::string& lines) const {
    write_text(directory() / ledger_name(1), R"({"event":"start","t":1,"up_ms":0,"attempt":1,"step":0})"
                                             "\n" +
                                                 lines);
  }
  // Lives when a run that ended with 75 has said this.
  std::size_t lives_after(const RunState& state, const std::string& ledger) const {
    say(state);
    write_ledger(ledger);
    Subprocess process(command({"--directory", directory().string(), "--first-delay", "1ms"},
                               script("[ $(wc -l <lives) -lt 2 ] || exit 76; exit 75")));
    process.wait_until([&] { return process.err().find("goes away") != std::string::npos; });
    process.send(SIGTERM);
    process.wait();
    return lives();
  }

  TemporaryFolder folder_;
};

}  // namespace holdfast::test
