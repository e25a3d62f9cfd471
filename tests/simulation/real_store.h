// The real store beneath a simulated run: claims, commits, retention, run states and recovery on a disk in memory, with
// power cuts in the middle of a commit, operations that fail, newer claims in between, and damaged files. What it
// answers decides how the run goes on; what it breaks is told as a promise.
//
// Errors: `check` may throw. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "holdfast/planning/run_events.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"
#include "support/store_life.h"

namespace holdfast::simulation {

enum class Promise : unsigned;

class RealStore {
 public:
  // A checkpoint: the content of each rank at one step.
  struct Image {
    run::Step step = -1;
    std::vector<std::uint64_t> content;
  };
  using Check = std::function<void(Promise promise, bool held, const char* broken)>;

  RealStore(std::uint64_t seed, Check check);

  // Looks, claims and recovers, as a start does. nullopt: a fresh start. `damages`: a file may have rotted.
  std::optional<Image> start(bool damages);
  // `fails`: an operation of the commit fails. `superseded`: a newer attempt starts in the middle of it, or has started.
  run::Outcome write(const Image& image, bool fails, bool superseded);
  // The process ends without a word, or its machine does, in the middle of a write of `in_flight`.
  void die(const std::optional<Image>& in_flight);
  // The process records how it ends.
  void end(int code, run::Step step);

 private:
  std::uint64_t draw(std::uint64_t below);
  std::optional<Image> chosen(const Selection& found);
  void save(const Image& image);
  void record(RunState state);
  void check_state(const std::optional<RunState>& state) const;
  void start_rival();
  test::MemoryFileSystem after_power_cut();
  std::set<FileId> good_files() const;
  void damage_newest(const std::set<FileId>& good);
  void start_in_bad_weather();
  void start_where_nothing_is_readable(const std::set<FileId>& good);
  void plan_failure();
  void check_calls(bool durable, const std::string& name);

  std::uint64_t chance_;
  const Check check_;
  test::MemoryFileSystem disk_;
  test::FaultFileSystem files_{disk_};
  std::unique_ptr<test::Life> life_;
  std::map<FileId, std::vector<std::uint64_t>> written_;  // everything that any commit began to write
  std::set<FileId> acknowledged_;
  std::set<FileId> damaged_;
  std::set<FileId> set_apart_;               // could not be read once, so the run went on without them
  std::optional<FileId> newest_;             // acknowledged, and not damaged
  std::optional<RunState> state_;            // the last one that is durable; nullopt: it may be one of two
  AttemptNumber claimed_ = 0;                // the highest number
  std::optional<std::int64_t> rivals_step_;  // a newer attempt has begun with this step; -1: with nothing
  bool rival_before_rename_ = false, rival_before_end_ = false;  // of the last write
  bool failing_ = false, directory_failed_ = false;              // a call of this life
  std::set<std::string> in_doubt_;  // names that a failed fsync of the directory could not write
};

}  // namespace holdfast::simulation
