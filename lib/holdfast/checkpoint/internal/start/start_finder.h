// Finds where a run can start: checks the user's choice and the candidate's content. Writes nothing.
//
// Errors: RefusedError (78) where a person has to decide, IoError (74) for what cannot be read, UsageError.
// Threads: the training thread; read_ahead() has one of its own until open_store().
#pragma once

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/format/reader.h"
#include "holdfast/snapshot/snapshot.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Where a run could start.
struct Start {
  bool fresh = true;
  std::int64_t step = 0;
  std::string name;       // of the file; empty if fresh
  bool outside = false;   // a file that is not in the run directory
  std::string branch;     // its record if `resume_from` chose it (store/branch.h); else empty
  std::string once_more;  // the newest has grown from `resume_from`: how to go back there again; else empty
  RunRecord record;       // what the file says
  Attributes attributes;  // of the file
  Digest index;           // of its index (CheckpointIndex::digest)
  std::shared_ptr<Snapshot> snapshot;
};

class StartFinder {
 public:
  explicit StartFinder(Run& run) : run_(run) {}

  // Checkpointer::read_ahead(). The verifier keeps the result. A failure is not reported here, because it
  // will appear again in open_store() or later.
  void read_ahead() noexcept;

  // The newest checkpoint that verifies, or nothing. The verifier keeps its state. Throws as preflight().
  Selection newest_here();
  void end_reading_ahead();
  // Ends reading ahead. Throws UsageError for an impossible start.
  std::unique_ptr<CheckpointStore> open_store();
  Start candidate(CheckpointStore& store, const Selection& selection);
  // Throws RefusedError if the training state does not fit the file.
  void check(std::vector<TensorSpec> tensors, const Attributes& attributes);
  void check(const Start& start);
  // Throws UsageError if the training has begun already.
  void check_untrained() const;
  // Loads the weights of `init_from`, if there are any.
  void start_fresh(bool for_others = false);
  // `for_others`: the file that it has loaded; null if there is none.
  std::unique_ptr<File> take_weights() { return std::move(weights_); }
  // Loads the weights of `weights_in()` for a run of several ranks, which compare what each has loaded.
  void load_weights(const Snapshot& weights);
  const std::string& weights_loaded() const { return weights_loaded_; }
  // The weights in a checkpoint or a safetensors file; the content decides which it is.
  std::variant<std::shared_ptr<Snapshot>, Rejection> weights_in(const File& file);

  // The file of `resume_from` if it is outside the run directory and the run starts there; else empty. Set by
  // open_store() and candidate().
  const std::filesystem::path& outside() const { return outside_; }

 private:
  StoreOptions store_options(const StartingPoint& point) const;
  Start from_store(CheckpointStore& store, const Selection& selection);
  Start from_outside();

  Run& run_;
  StartingPoint point_;
  std::filesystem::path outside_;
  std::unique_ptr<File> weights_;
  std::string weights_loaded_;  // their digest; empty: none
  std::future<void> reading_ahead_;
};

}}}  // namespace holdfast::v0_2::internal
