// One process life of a run on a store, as a trainer lives it: look, claim, recover, go on from there, save.
// A Life that ends without ceremony is a crash.
//
// Threads: one.
#pragma once

#include <filesystem>
#include <optional>

#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/names.h"
#include "support/fake_clock.h"
#include "support/memory_file_system.h"
#include "support/toy_format.h"

namespace holdfast::test {

inline const std::filesystem::path kRun = "/volume/run";

// Tests that go through every operation take every n-th under sanitizers, which find other things than they
// do.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kStride = 11;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kStride = 4;
#else
inline constexpr int kStride = 1;
#endif

inline std::filesystem::path in_run(const std::string& name) { return kRun / name; }

class Life : public History {
 public:
  explicit Life(FileSystem& file_system, StoreOptions options = {})
      : store(file_system, clock, with_directory(std::move(options)), verifier) {}

  // preflight, claim, recover, trial commit. The history goes on from what recover() chose.
  Selection start() {
    Selection selection = start_without_trial();
    store.trial_commit();
    return selection;
  }
  Selection start_without_trial() {
    store.preflight();
    store.claim();
    return recover();
  }
  Selection recover() {
    Selection selection = store.recover();
    go_on_from(selection);
    return selection;
  }
  Toy toy(std::int64_t at, bool finite = true) const {
    Toy toy{.step = at, .attempt = store.attempt(), .ancestry = ancestry, .finite = finite};
    toy.metrics = metrics;
    if (tells_time) {
      toy.unix_seconds =
          std::chrono::floor<std::chrono::seconds>(clock.wall_now()).time_since_epoch().count();
    }
    return toy;
  }
  CheckpointInfo save(std::int64_t at, bool finite = true) {
    const CheckpointInfo saved = store.commit(toy_request(toy(at, finite)));
    step = at;
    return saved;
  }
  // Save, state, ledger and retention, as the writer does it.
  CheckpointInfo round(std::int64_t at, bool finite = true) {
    const CheckpointInfo saved = save(at, finite);
    store.write_run_state(
        {.phase = RunPhase::running, .step = at, .durable_step = at, .checkpoint = saved.name});
    store.append_ledger(R"({"step":)" + std::to_string(at) + "}");
    store.apply_retention();
    return saved;
  }

  FakeClock clock;
  ToyVerifier verifier;
  CheckpointStore store;
  Metrics metrics;          // recorded in what is saved from here on
  bool tells_time = false;  // so is the wall clock

 private:
  static StoreOptions with_directory(StoreOptions options) {
    if (options.directory.empty()) options.directory = kRun;
    return options;
  }
};

// Names of the checkpoints in the run directory, oldest step first.
inline std::vector<std::string> checkpoints(const MemoryFileSystem& disk) {
  std::vector<std::string> found;
  for (const std::string& name : disk.names(kRun)) {
    if (name.starts_with("step-")) found.push_back(name);
  }
  return found;
}

inline std::string name_of_step(std::int64_t step, AttemptNumber attempt) {
  return checkpoint_name({.attempt = attempt, .step = step});
}

inline void put_toy(MemoryFileSystem& disk, const Toy& toy) {
  disk.put(in_run(name_of_step(toy.step, toy.attempt)), toy_bytes(toy));
}

// Damages the body: only a full look sees it.
inline void rot(MemoryFileSystem& disk, const std::string& name) {
  disk.flip_bit(in_run(name), kToyBlock + 77);
}

}  // namespace holdfast::test
