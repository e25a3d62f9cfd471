#include "checkpointer_level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/writing/file_verifier.h"
#include "support/memory_source.h"
#include "support/subprocess.h"

namespace holdfast::test::faults {
namespace {

using namespace std::chrono_literals;

constexpr char kRun[] = "/vol/run";
constexpr char kRotten[] = "step-000000000004-a0001.h5";  // of a past
constexpr auto kHang = 60s;

// Says nothing beyond its own log: the space of an abandoned file, the signature in a claim.
bool may_be_silent(const Operation& operation) {
  const bool claim = operation.path.find("/attempts/") != std::string::npos &&
                     operation.path.find("state") == std::string::npos &&
                     (operation.kind == Op::write || operation.kind == Op::close);
  return claim || (operation.kind == Op::unlink && operation.path.find("/tmp-") != std::string::npos);
}

// Tries to add a line to a ledger, up to their end.
std::ptrdiff_t ledger_lines(const FaultFileSystem& files) {
  const auto log = files.log();
  return std::count_if(log.begin(), log.end(), [](const Operation& operation) {
    const bool own = operation.path.find("/ledger-a") != std::string::npos && operation.kind != Op::open_read;
    return own && (operation.kind == Op::write || operation.failed);
  });
}

// The writer keeps house after a save. That has an end, too, before the next step: every run makes the same
// operations in the same order.
void await_lines(const FaultFileSystem& files, std::ptrdiff_t lines) {
  const auto limit = std::chrono::steady_clock::now() + 3s;
  while (ledger_lines(files) < lines && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
}

void damage(MemoryFileSystem& disk, const std::string& name) {
  const std::string path = std::string(kRun) + "/" + name;
  disk.flip_bit(path, disk.get(path).size() - 3000);
}

// Whether a log warns of anything but the file that is rotten in every run; that it cannot be read is news.
bool warns(const std::string& log) {
  const auto lines = lines_of(log);
  return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return (line.find("warning: ") != std::string::npos || line.find("error: ") != std::string::npos) &&
           (line.find(std::string("skipped ") + kRotten) == std::string::npos ||
            line.find("cannot be read") != std::string::npos);
  });
}

std::string digits(const Digest& digest) { return to_hex(digest); }

}  // namespace

CheckpointerOptions CheckpointerLevel::options(FileSystem& files) const {
  CheckpointerOptions options;
  options.directory = kRun;
  options.mount = "/vol";
  options.every = {};
  options.keep = KeepLast{2};
  options.writing.threads = 1;
  options.notices.hear_signals = false;
  options.start.seams.file_system = &files;
  options.start.seams.clock = &clock_;
  return options;
}

CheckpointerLevel::CheckpointerLevel(bool with_a_past) : last_step_(with_a_past ? 7 : 3) {
  past_.mount("/vol");
  {
    MemoryFileSystem other;
    other.mount("/vol");
    MemorySource source;
    Checkpointer straight(source, options(other));
    straight.resume();
    states_.push_back({});
    while (source.step() < last_step_) {
      straight.after_step(source.train());
      states_.push_back(straight.state_digest());
    }
  }
  if (!with_a_past) return;
  MemorySource source;
  {
    Checkpointer first(source, options(past_));
    first.resume();
    while (source.step() < 5) {
      first.after_step(source.train());
      if (source.step() % 2 == 0) first.save().wait();
    }
  }
  safe_ = 2;
  dead_attempts_ = 1;
  damage(past_, kRotten);
  past_.put(std::string(kRun) + "/tmp-a0001-step-5-3", "x");
  past_.put(std::string(kRun) + "/attempts/tmp-a0001-state", "x");
}

Outcome CheckpointerLevel::run(const std::optional<Fault>& fault, int number) {
  Outcome outcome;
  MemoryFileSystem disk = past_.copy();
  disk.mount("/vol");
  FaultFileSystem files(disk);
  if (fault) fault->plant(files);
  std::int64_t acknowledged = safe_;
  bool told = false;
  testing::internal::CaptureStderr();
  try {
    train(files, disk, outcome, acknowledged, told);
  } catch (const std::exception& error) {
    outcome.stuck.push_back(std::string("an exception in the training: ") + error.what());
  }
  const std::string log = testing::internal::GetCapturedStderr();
  told = told || warns(log);
  // Or every fault of this level would count as told.
  if (!fault && told) outcome.stuck.push_back("a warning without a fault: " + log);
  outcome.fired = files.faults_fired();
  outcome.log = files.log();
  check_syncs(kRun, outcome);
  for (const Operation& operation : outcome.log) {
    if (!told && operation.failed && !may_be_silent(operation)) {
      outcome.unreported.push_back("nobody was told that this failed: " + operation.text());
    }
  }

  set_log_level(LogLevel::off);
  MemoryFileSystem cut = disk.crash();
  const std::string after = "after a power cut, ";
  look_at(cut, acknowledged, after, outcome);
  look_at(disk, acknowledged, "", outcome);
  // A whole life costs more than a look: on the one and the other disk by turns.
  if (number % 2 == 0) {
    go_on(cut, after, outcome);
  } else {
    go_on(disk, "", outcome);
  }
  set_log_level(LogLevel::info);
  return outcome;
}

void CheckpointerLevel::train(FaultFileSystem& files, const MemoryFileSystem& disk, Outcome& outcome,
                              std::int64_t& acknowledged, bool& told) const {
  MemorySource source;
  Checkpointer checkpointer(source, options(files));
  try {
    checkpointer.resume();
  } catch (const Error& error) {
    told = true;
    if (error.exit_code() != ExitCode::io_failed) {
      outcome.stuck.push_back(std::string("the start takes it for something else: ") + error.what());
    }
    return;
  }
  const auto acknowledge = [&](const std::string& who) {
    acknowledged = source.step();
    if (checkpointer.last_durable().step != acknowledged) {
      outcome.false_success.push_back(who + " says durable, and last_durable() does not");
    }
    MemoryFileSystem cut = disk.crash();
    look_at(cut, acknowledged, who + " says durable, and ", outcome);
  };
  bool failed = false;  // the newest save
  std::ptrdiff_t lines = 1;
  await_lines(files, lines);
  while (source.step() < last_step_) {
    const Decision decision = checkpointer.after_step(source.train());
    if (decision.stop) return outcome.stuck.push_back("the loop is told to stop: " + decision.reason);
    if (decision.failure.has_value() != failed) {
      outcome.unreported.push_back("Decision.failure is " + decision.failure.value_or("unset") + " at step " +
                                   std::to_string(source.step()));
    }
    if (source.step() % 2 != 0) continue;
    const SaveHandle handle = checkpointer.save();
    const auto status = handle.wait_for(kHang);
    if (!status) return outcome.stuck.push_back("a save never ends");
    failed = *status != SaveStatus::durable;
    told = told || failed;
    if (failed && handle.error().empty()) outcome.unreported.emplace_back("a failed save says nothing");
    if (!failed) acknowledge("the save");
    await_lines(files, lines += failed ? 1 : 2);
  }
  const int code = checkpointer.finish();
  if (code == static_cast<int>(ExitCode::complete)) return acknowledge("the end");
  told = true;
  if (code != static_cast<int>(ExitCode::io_failed)) {
    outcome.stuck.push_back("finish() returns " + std::to_string(code));
  } else if (checkpointer.last_durable().step == last_step_) {
    outcome.unreported.emplace_back("finish() denies what is durable");
  }
}

// What a reader finds, byte for byte.
void CheckpointerLevel::look_at(MemoryFileSystem& disk, std::int64_t acknowledged, const std::string& what,
                                Outcome& outcome) const {
  try {
    FileVerifier verifier(1);
    CheckpointStore store(disk, clock_, {.directory = kRun, .keep = KeepLast{2}}, verifier);
    const auto newest = store.preflight().newest;
    const std::int64_t step = newest ? newest->step : -1;
    if (step < acknowledged) {
      outcome.lost.push_back(what + "step " + std::to_string(acknowledged) + " was acknowledged, step " +
                             std::to_string(step) + " is there");
    }
    if (newest) {
      const auto loaded = verifier.load(*store.open(*newest));
      const auto* const found = std::get_if<FileVerifier::Loaded>(&loaded);
      if (found == nullptr ||
          digits(state_digest(*found->snapshot)) != digits(states_.at(static_cast<std::size_t>(step)))) {
        outcome.lost.push_back(what + newest->name + " holds another state");
      }
    }
    const auto run = disk.open_directory(kRun, false);
    const auto state = run ? read_run_state(*run) : std::nullopt;
    // What the dead attempt told was true until its file rotted.
    if (state && state->attempt > dead_attempts_ &&
        (state->durable_step > step || (state->phase == RunPhase::complete && step != last_step_))) {
      outcome.false_success.push_back(what + "the run state claims more than step " + std::to_string(step));
    }
  } catch (const std::exception& error) {
    outcome.stuck.push_back(what + error.what());
  }
}

// The next attempt, without faults.
void CheckpointerLevel::go_on(MemoryFileSystem& disk, const std::string& what, Outcome& outcome) const {
  try {
    disk.mount("/vol");
    MemorySource source;
    Checkpointer checkpointer(source, options(disk));
    checkpointer.resume();
    while (source.step() < last_step_) checkpointer.after_step(source.train());
    const int code = checkpointer.finish();
    if (code != 0) outcome.stuck.push_back(what + "the next run ends with " + std::to_string(code));
    if (digits(checkpointer.state_digest()) != digits(states_.back())) {
      outcome.stuck.push_back(what + "the next run ends in another state");
    }
    MemoryFileSystem cut = disk.crash();
    look_at(cut, last_step_, what + "after the next run, ", outcome);
  } catch (const std::exception& error) {
    outcome.stuck.push_back(what + error.what());
  }
}

}  // namespace holdfast::test::faults
