#include "holdfast/checkpoint/internal/start/start_finder.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/format/foreign_weights.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/io/volume_probe.h"
#include "holdfast/ranks/ranked_state.h"
#include "holdfast/store/branch.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// The user typed this name: a missing file is a refusal (78), not a fault of the volume.
std::unique_ptr<File> open_given(FileSystem& file_system, const std::filesystem::path& path,
                                 const char* option) {
  try {
    if (auto file = file_system.open_file(path, OpenMode::read)) return file;
  } catch (const IoError& error) {
    // Any other error is a fault of the volume.
    if (error.code() != ENOENT && error.code() != ENOTDIR) throw;
  }
  throw RefusedError(option + path.native() + ": no such file");
}

bool looks_like_checkpoint(const File& file) {
  std::array<std::byte, kMagic.size()> start{};
  return file.read_at(start, 0) == start.size() &&
         std::memcmp(start.data(), kMagic.data(), start.size()) == 0;
}

}  // namespace

void StartFinder::read_ahead() noexcept {
  // Only a start from the newest checkpoint can be foreseen.
  if (reading_ahead_.valid() || !run_.options.start.resume_from.empty()) return;
  const auto look = [this] {
    try {
      const auto& mount = run_.options.mount;
      // Without the mount this would read the empty mount point.
      if (!mount.empty() && !run_.file_system.is_mount_point(mount)) return;
      newest_here();
    } catch (const std::exception& error) {
      log_debug("reading ahead: {}", error.what());
    }
  };
  try {
    reading_ahead_ = std::async(std::launch::async, look);
  } catch (const std::exception& error) {
    log_debug("cannot start a thread to read ahead: {}", error.what());
  }
}

Selection StartFinder::newest_here() {
  return CheckpointStore(run_.file_system, run_.clock, store_options({}), run_.verifier).preflight();
}

void StartFinder::end_reading_ahead() {
  if (reading_ahead_.valid()) reading_ahead_.get();
}

std::unique_ptr<CheckpointStore> StartFinder::open_store() {
  point_ = starting_point_from(run_.options.start.resume_from, run_.file_system, run_.options.directory);
  outside_ = point_.outside;
  // The verifier then has what was read ahead, and the store need not read it again.
  end_reading_ahead();
  return std::make_unique<CheckpointStore>(run_.file_system, run_.clock, store_options(point_),
                                           run_.verifier);
}

StoreOptions StartFinder::store_options(const StartingPoint& point) const {
  const CheckpointerOptions& options = run_.options;
  return {.directory = options.directory,
          // The user chose a file elsewhere: this loses nothing in the run directory.
          .allow_fresh = options.start.allow_fresh || !point.outside.empty(),
          .start = point,
          .keep = options.keep,
          .mount = options.mount,
          .only_ours = !options.start.trust_directory,
          .makes_room = true,
          .read_back = options.writing.read_back};
}

Start StartFinder::candidate(CheckpointStore& store, const Selection& selection) {
  // Asked again after the claim, the answer may be another one: what grew from there could not be read again.
  outside_ = selection.has_grown ? std::string() : point_.outside;
  Start start = outside_.empty() ? from_store(store, selection) : from_outside();
  if (selection.has_grown) {
    start.once_more = once_more(point_);
  } else if (point_.given()) {
    start.branch = branch_from(point_, start.name);
  }
  return start;
}

Start StartFinder::from_store(CheckpointStore& store, const Selection& selection) {
  Start start;
  if (!selection.newest) return start;
  const std::string path = (run_.options.directory / selection.newest->name).native();
  const auto file = store.open(*selection.newest);
  if (!file) {
    throw IoError("open", path, ENOENT,
                  "the checkpoint vanished while it was read; is another program deleting files there?");
  }
  auto loaded = run_.verifier.load(*file);
  if (const auto* rejection = std::get_if<Rejection>(&loaded)) {
    throw IoError("read", path, EIO,
                  "it was whole a moment ago and now is not (" + rejection->reason + "); check the volume");
  }
  auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
  start.fresh = false;
  start.step = index.step;
  start.name = selection.newest->name;
  start.record = run_record_of(index.attributes);
  // The file is intact but not the chosen one: another file has replaced it in between.
  if (start.step != selection.newest->step || start.record.attempt != selection.newest->attempt) {
    throw IoError("read", path, EIO,
                  "it held step " + std::to_string(selection.newest->step) +
                      " a moment ago and now holds step " + std::to_string(start.step) + " of attempt " +
                      std::to_string(start.record.attempt) + "; check the volume");
  }
  start.attributes = std::move(index.attributes);
  start.index = index.digest;
  start.snapshot = std::move(snapshot);
  return start;
}

Start StartFinder::from_outside() {
  const auto file = open_given(run_.file_system, outside_, "resume_from ");
  auto loaded = run_.verifier.load(*file);
  if (const auto* rejection = std::get_if<Rejection>(&loaded)) {
    throw RefusedError("resume_from " + outside_.native() + ": " + rejection->reason);
  }
  auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
  Start start;
  start.fresh = false;
  start.outside = true;
  start.step = index.step;
  start.name = outside_.native();
  start.record = run_record_of(index.attributes);
  // Attempt numbers of another directory mean nothing here. An ancestry of them could name files of this
  // directory that are not ancestors.
  start.record.attempt = 0;
  start.record.ancestry.clear();
  start.record.branches.clear();
  start.attributes = std::move(index.attributes);
  start.index = index.digest;
  start.snapshot = std::move(snapshot);
  return start;
}

void StartFinder::check(std::vector<TensorSpec> tensors, const Attributes& attributes) {
  run_.source.check(without_ranks(tensors), attributes, run_.options.start.overrides);
}

void StartFinder::check(const Start& start) {
  if (!start.fresh) check(start.snapshot->layout->tensors(), start.attributes);
}

void StartFinder::check_untrained() const {
  if (run_.step() == 0) return;
  throw UsageError("the training state stands at step " + std::to_string(run_.step()) +
                   " before a fresh start; call resume() before the first update");
}

void StartFinder::start_fresh(bool for_others) {
  check_untrained();
  run_.stager.plan_ahead();  // refuses names and sizes that cannot be stored, before the claim
  const std::filesystem::path& path = run_.options.start.init_from;
  if (path.empty()) return;
  const std::string given = "init_from " + path.native() + ": ";
  auto file = open_given(run_.file_system, path, "init_from ");
  auto weights = weights_in(*file);
  if (const auto* const rejection = std::get_if<Rejection>(&weights)) {
    throw RefusedError(given + rejection->reason);
  }
  const Snapshot& found = *std::get<std::shared_ptr<Snapshot>>(weights);
  try {
    for_others ? load_weights(found) : run_.source.load(found, {.weights_only = true});
  } catch (const RefusedError& error) {
    throw RefusedError(given + error.what());
  }
  if (for_others) weights_ = std::move(file);
}

void StartFinder::load_weights(const Snapshot& weights) {
  run_.source.load(weights, {.weights_only = true});
  const std::vector<TensorSpec>& tensors = weights.layout->tensors();
  std::vector<Digest> digests(tensors.size());  // of a checkpoint, only the weights were read
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (run_.source.role(tensors[i]).weight) digests[i] = digest_of(weights.bytes(i));
  }
  weights_loaded_ = to_hex(state_digest(weights, digests));
}

std::variant<std::shared_ptr<Snapshot>, Rejection> StartFinder::weights_in(const File& file) {
  if (looks_foreign(file)) {
    return read_weights(file, run_.source.attributes(), run_.options.writing.threads);
  }
  if (!looks_like_checkpoint(file)) {
    return Rejection{
        Rejection::Kind::damaged,
        "neither a Holdfast checkpoint nor a file of safetensors or PyTorch; Python writes one with "
        "torch.save(model.state_dict(), FILE)"};
  }
  auto loaded =
      run_.verifier.load_some(file, [this](const TensorSpec& spec) { return run_.source.role(spec).weight; });
  if (auto* const rejection = std::get_if<Rejection>(&loaded)) return std::move(*rejection);
  return std::move(std::get<FileVerifier::Loaded>(loaded).snapshot);
}

}}}  // namespace holdfast::v0_2::internal
