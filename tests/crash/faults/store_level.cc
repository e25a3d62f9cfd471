#include "store_level.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "holdfast/base/error.h"
#include "holdfast/store/names.h"
#include "support/fake_clock.h"

namespace holdfast::test::faults {
namespace {

const std::filesystem::path kStoreRun = "/volume/run";
constexpr std::uint64_t kPiece = 2 * kToyBlock;  // so that half a write is whole blocks
constexpr std::uint64_t kBodyBlocks = 3;
constexpr int kSaves = 4;

Toy toy_of(std::int64_t step, AttemptNumber attempt, const Ancestry& ancestry) {
  return {.step = step, .attempt = attempt, .ancestry = ancestry, .body_blocks = kBodyBlocks};
}

// As write_toy, in larger pieces.
void write_in_pieces(File& file, const Toy& toy) {
  const std::vector<std::byte> all = toy_bytes(toy);
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  const std::unique_ptr<std::byte, Free> aligned(
      static_cast<std::byte*>(std::aligned_alloc(kToyBlock, all.size())));
  std::memcpy(aligned.get(), all.data(), all.size());
  const std::span<const std::byte> bytes(aligned.get(), all.size());
  for (std::uint64_t at = kPiece; at < all.size(); at += kPiece) {
    file.write_at(bytes.subspan(at, std::min<std::uint64_t>(kPiece, all.size() - at)), at);
  }
  file.write_at(bytes.first(kPiece), 0);
}

struct Life {
  Life(FileSystem& files, Verifier& asked)
      : store(files, clock, {.directory = kStoreRun, .keep = KeepLast{2}}, asked) {}

  std::optional<CheckpointInfo> start() {
    store.preflight();
    store.claim();
    const Selection selection = store.recover();
    store.trial_commit();
    if (selection.newest) {
      ancestry = selection.newest->ancestry;
      ancestry[selection.newest->attempt] = selection.newest->step;
    }
    return selection.newest;
  }
  CheckpointInfo save(std::int64_t step) {
    CommitRequest request = toy_request(toy(step));
    request.write = [toy = toy(step)](File& file) { write_in_pieces(file, toy); };
    return store.commit(request);
  }
  void tell(std::int64_t step) {
    store.write_run_state({.phase = RunPhase::running, .step = step, .durable_step = step});
  }
  void tidy() {
    store.append_ledger("{}");
    store.apply_retention();
  }
  Toy toy(std::int64_t step) const { return toy_of(step, store.attempt(), ancestry); }

  FakeClock clock;
  CheckpointStore store;
  Ancestry ancestry;
};

std::string name_of(std::int64_t step, AttemptNumber attempt) {
  return checkpoint_name({.attempt = attempt, .step = step});
}

// Failures that nobody needs to hear of: the space of an abandoned file, the signature in a claim. The ledger
// tells its own in the log.
bool store_may_be_silent(const Operation& operation) {
  const auto& path = operation.path;
  const bool claim = std::isdigit(static_cast<unsigned char>(path.back())) != 0 &&
                     path.find("/attempts/") != std::string::npos &&
                     (operation.kind == Op::write || operation.kind == Op::close);
  const bool abandoned = operation.kind == Op::unlink && path.find("/tmp-") != std::string::npos;
  return claim || abandoned || path.find("/ledger-") != std::string::npos;
}

// What retention cannot read it leaves alone for good, and says so in the log.
bool is_left_alone(const char* call, const Operation& operation) {
  return std::string_view(call) == "retention" && !operation.mutating &&
         operation.path.find("/step-") != std::string::npos;
}

// One EIO of a checkpoint may pass: the next look decides, and the log says so.
bool is_read_again(const char* call, const Operation& operation) {
  return std::string_view(call) == "the start" && !operation.mutating &&
         operation.path.find("/step-") != std::string::npos;
}

// A full volume stops no start, and the log says so; nor does "cannot" that is said once.
bool is_trial(const char* call, const Operation& operation) {
  return std::string_view(call) == "the start" && operation.path.find("-probe-") != std::string::npos;
}

// Calls into the store, and sees that a call in which something failed says so.
class Listener {
 public:
  Listener(const FaultFileSystem& files, Outcome& outcome) : files_(files), outcome_(outcome) {}

  bool call(const char* what, const std::function<void()>& work) {
    const int before = files_.faults_fired();
    try {
      work();
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::io_failed) {
        outcome_.stuck.push_back(std::string(what) + " takes it for something else: " + error.what());
      }
      return false;
    }
    if (files_.faults_fired() == before) return true;
    int skip = before;
    for (const Operation& operation : files_.log()) {
      if (operation.failed && skip-- <= 0 && !store_may_be_silent(operation) &&
          !is_left_alone(what, operation) && !is_read_again(what, operation) && !is_trial(what, operation)) {
        outcome_.unreported.push_back(std::string(what) +
                                      " succeeds although this failed: " + operation.text());
      }
    }
    return true;
  }

 private:
  const FaultFileSystem& files_;
  Outcome& outcome_;
};

std::optional<RunState> state_on(MemoryFileSystem& disk) {
  const auto run = disk.open_directory(kStoreRun, false);
  return run ? read_run_state(*run) : std::nullopt;
}

}  // namespace

StoreLevel::StoreLevel(bool with_a_past, Between between) : between_(std::move(between)) {
  past_.mount("/volume");
  if (!with_a_past) return;
  ToyVerifier verifier;
  {
    Life life(past_, verifier);
    life.start();
    for (const std::int64_t step : {10, 11, 12, 13}) {
      life.save(step);
      life.tell(step);
      life.tidy();
    }
  }
  safe_ = 13;
  past_.put(kStoreRun / name_of(15, 1), toy_bytes(toy_of(15, 1, {})));
  past_.flip_bit(kStoreRun / name_of(15, 1), kToyBlock + 77);
  past_.put(kStoreRun / "tmp-a0001-step-16-1", "x");
  past_.put(kStoreRun / "attempts/tmp-a0001-state", "x");
}

Outcome StoreLevel::run(const std::optional<Fault>& fault, int /*number*/) {
  Outcome outcome;
  MemoryFileSystem disk = past_.copy();
  FaultFileSystem files(disk);
  if (fault) fault->plant(files);
  const std::unique_ptr<FileSystem> between = between_ ? between_(files) : nullptr;
  ToyVerifier verifier;
  std::int64_t acknowledged = safe_;
  {
    Life life(between ? *between : files, verifier);
    Listener listener(files, outcome);
    const bool started = listener.call("the start", [&] { life.start(); });
    for (std::int64_t step = 20; started && step < 20 + kSaves; ++step) {
      CheckpointInfo saved;
      if (!listener.call("a commit", [&] { saved = life.save(step); })) continue;
      acknowledged = step;
      MemoryFileSystem cut = disk.crash();
      const auto path = kStoreRun / saved.name;
      if (!cut.exists(path) || cut.get(path) != toy_bytes(life.toy(step))) {
        outcome.false_success.push_back("step " + std::to_string(step) +
                                        " is acknowledged and not on the disk");
      }
      if (listener.call("a run state", [&] { life.tell(step); })) {
        MemoryFileSystem later = disk.crash();
        const auto state = state_on(later);
        if (!state || state->durable_step != step)
          outcome.false_success.emplace_back("a run state that is not there");
      }
      listener.call("retention", [&] { life.tidy(); });
    }
  }
  outcome.fired = files.faults_fired();
  outcome.log = files.log();
  check_syncs(kStoreRun.native(), outcome);
  MemoryFileSystem cut = disk.crash();
  judge(cut, acknowledged, "after a power cut, ", outcome);
  judge(disk, acknowledged, "", outcome);
  return outcome;
}

void StoreLevel::judge(MemoryFileSystem& disk, std::int64_t acknowledged, const std::string& what,
                       Outcome& outcome) {
  try {
    const auto state = state_on(disk);
    ToyVerifier verifier;
    Life life(disk, verifier);
    const auto newest = life.start();
    const std::int64_t step = newest ? newest->step : -1;
    if (step < acknowledged) {
      outcome.lost.push_back(what + "step " + std::to_string(acknowledged) + " was acknowledged, step " +
                             std::to_string(step) + " is there");
    }
    if (newest &&
        disk.get(kStoreRun / newest->name) != toy_bytes(toy_of(step, newest->attempt, newest->ancestry))) {
      outcome.lost.push_back(what + "step " + std::to_string(step) + " holds other bytes");
    }
    if (state && state->durable_step > step)
      outcome.false_success.push_back(what + "the run state knows more");
    life.save(step + 100);
    life.tell(step + 100);
    life.tidy();
    MemoryFileSystem cut = disk.crash();
    Life last(cut, verifier);
    const auto found = last.start();
    if (!found || found->step != step + 100)
      outcome.lost.push_back(what + "the next run's save is not there");
  } catch (const std::exception& error) {
    outcome.stuck.push_back(what + error.what());
  }
}

}  // namespace holdfast::test::faults
