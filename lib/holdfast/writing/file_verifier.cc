#include "holdfast/writing/file_verifier.h"

#include <cmath>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/format/arriving_bytes.h"
#include "holdfast/io/read_only_file.h"
#include "holdfast/snapshot/shared_arena.h"
#include "holdfast/staging/run_record.h"

namespace holdfast { inline namespace v0_2 {
namespace {

class Arriving final : public ArrivingCopy {
 public:
  explicit Arriving(ArrivingBytes bytes) : bytes_(std::move(bytes)) {}
  void append(std::span<const std::byte> bytes) override { bytes_.append(bytes); }
  bool is_whole() override { return bytes_.is_whole(); }

 private:
  ArrivingBytes bytes_;
};

// A file whose reading can be ended between two blocks.
class Stoppable final : public ReadOnlyFile {
 public:
  Stoppable(const File& file, const std::atomic<bool>& stopped) : file_(file), stopped_(stopped) {}
  std::uint64_t size() const override { return file_.size(); }
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    look();
    return file_.read_at(buffer, offset);
  }
  std::size_t read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    look();
    return file_.read_uncached_at(buffer, offset);
  }

 private:
  void look() const {
    if (stopped_)
      throw Error("the read was ended, because the program was told to stop", ExitCode::interrupted);
  }

  const File& file_;
  const std::atomic<bool>& stopped_;
};

std::unique_ptr<ArrivingCopy> arriving_copy(const File& file, const CheckpointIndex& index) {
  auto bytes = ArrivingBytes::of(file, index);
  return bytes ? std::make_unique<Arriving>(*std::move(bytes)) : nullptr;
}

Verdict rejected(const Rejection& rejection) {
  Verdict verdict;
  verdict.kind =
      rejection.kind == Rejection::Kind::newer_format ? Verdict::Kind::newer_format : Verdict::Kind::damaged;
  verdict.reason = rejection.reason;
  return verdict;
}

Verdict accepted(const CheckpointIndex& index) {
  Verdict verdict;
  try {
    const RunRecord record = run_record_of(index.attributes);
    verdict.step = index.step;
    verdict.attempt = record.attempt;
    verdict.ancestry = record.ancestry;
    verdict.branches = record.branches;
    verdict.finite = record.finite;
    verdict.metrics = record.metrics;
    // NaN compares with nothing, so it is no metric that a policy could choose by.
    if (record.loss && !std::isnan(*record.loss)) verdict.metrics["loss"][index.step] = *record.loss;
    if (const auto time = parse_utc(record.time)) {
      verdict.unix_seconds = std::chrono::floor<std::chrono::seconds>(*time).time_since_epoch().count();
    }
  } catch (const RefusedError& error) {
    return rejected({Rejection::Kind::damaged, std::string("holds no record of a run: ") + error.what()});
  }
  return verdict;
}

// Looks again on the device: a bad page in the cache, or one bad transfer, is not the file's fault.
template <class Look>
auto twice(const Look& look) {
  auto seen = look(ReadMode::once);
  if (std::holds_alternative<Rejection>(seen)) seen = look(ReadMode::uncached);
  return seen;
}

}  // namespace

Verdict FileVerifier::inspect(const File& file, Depth depth, bool uncached) {
  // A head is small, and a caller that lists a directory reads it repeatedly: use the cache.
  ReadMode mode = depth == Depth::head ? ReadMode::cached : ReadMode::once;
  if (uncached) mode = ReadMode::uncached;
  auto read = read_index(file, mode, known_index().get());
  if (const auto* rejection = std::get_if<Rejection>(&read)) return rejected(*rejection);
  auto& index = std::get<CheckpointIndex>(read);
  Verdict verdict = accepted(index);
  if (depth == Depth::head || verdict.kind != Verdict::Kind::good) return verdict;

  bool keep = false;
  {
    const MutexLock lock(mutex_);
    keep = keeping_ && !uncached;
  }
  // An uncached look checks damage a second time, or reads back. It must read, and must not keep anything.
  if (!keep) {
    const auto rejection = verify_bytes(file, index, mode, threads_);
    return rejection ? rejected(*rejection) : verdict;
  }
  // Recovery looks again after the claim, and the state of the same file is here already.
  if (kept_of(index)) return verdict;
  // First, because two states at once may not fit into memory.
  const MakeArena make = forget();
  if (listener_) listener_(index);
  auto state = read_snapshot(Stoppable(file, stopped_), index, threads_, mode, make);
  if (const auto* rejection = std::get_if<Rejection>(&state)) return rejected(*rejection);
  auto kept_index = std::make_shared<const CheckpointIndex>(std::move(index));
  const MutexLock lock(mutex_);
  // stop_keeping() may have come during the read.
  if (!keeping_) return verdict;
  kept_index_ = std::move(kept_index);
  kept_ = std::get<std::shared_ptr<Snapshot>>(std::move(state));
  return verdict;
}

std::unique_ptr<ArrivingCopy> FileVerifier::expect_copy(const File& file) {
  const auto read = read_index(file, ReadMode::uncached);
  const auto* const index = std::get_if<CheckpointIndex>(&read);
  return index != nullptr ? arriving_copy(file, *index) : nullptr;
}

std::variant<FileVerifier::Loaded, Rejection> FileVerifier::load(const File& file) {
  return twice([&](ReadMode mode) { return load(file, mode); });
}

std::variant<FileVerifier::Loaded, Rejection> FileVerifier::load_some(const File& file,
                                                                      const TensorFilter& wanted) const {
  return twice([&](ReadMode mode) -> std::variant<Loaded, Rejection> {
    auto read = read_index(file, mode);
    if (const auto* rejection = std::get_if<Rejection>(&read)) return *rejection;
    Loaded loaded{std::get<CheckpointIndex>(std::move(read)), nullptr};
    auto state = read_tensors(file, loaded.index, wanted, threads_, mode);
    if (const auto* rejection = std::get_if<Rejection>(&state)) return *rejection;
    loaded.snapshot = std::get<std::shared_ptr<Snapshot>>(std::move(state));
    return loaded;
  });
}

std::variant<FileVerifier::Loaded, Rejection> FileVerifier::load_in(const File& file,
                                                                    std::shared_ptr<Arena> image,
                                                                    bool verified) const {
  auto read = read_index(file);
  if (const auto* rejection = std::get_if<Rejection>(&read)) return *rejection;
  Loaded loaded{std::get<CheckpointIndex>(std::move(read)), nullptr};
  // The file lies in memory (ranks/received_file.h), so there is no device to ask.
  if (!verified) {
    if (auto rejection = verify_bytes(file, loaded.index, ReadMode::cached, threads_)) return *rejection;
  }
  loaded.snapshot = snapshot_in(std::move(image), loaded.index);
  return loaded;
}

std::variant<FileVerifier::Loaded, Rejection> FileVerifier::load(const File& file, ReadMode mode) {
  auto read = read_index(file, mode, known_index().get());
  if (const auto* rejection = std::get_if<Rejection>(&read)) return *rejection;
  Loaded loaded{std::get<CheckpointIndex>(std::move(read)), nullptr};
  loaded.snapshot = kept_of(loaded.index);
  if (!loaded.snapshot) {
    // First, because two states at once may not fit into memory.
    const MakeArena make = forget();
    if (listener_) listener_(loaded.index);
    auto state = read_snapshot(file, loaded.index, threads_, mode, make);
    if (const auto* rejection = std::get_if<Rejection>(&state)) return *rejection;
    loaded.snapshot = std::get<std::shared_ptr<Snapshot>>(std::move(state));
  }
  return loaded;
}

void FileVerifier::share_images() { make_ = make_shared_arena; }

void FileVerifier::stop_keeping() {
  const MutexLock lock(mutex_);
  keeping_ = false;
  kept_index_.reset();
  kept_.reset();
}

MakeArena FileVerifier::forget() {
  std::shared_ptr<Snapshot> kept;
  {
    const MutexLock lock(mutex_);
    kept_index_.reset();
    kept.swap(kept_);
  }
  // Other processes may have mapped a shared one.
  if (make_ || !kept || kept.use_count() != 1 || kept->arena.use_count() != 1) return make_;
  return [spare = std::move(kept->arena)](std::uint64_t bytes) mutable {
    if (spare && spare->size() == bytes) return std::exchange(spare, nullptr);
    spare.reset();
    return std::make_shared<Arena>(bytes);
  };
}

std::shared_ptr<Snapshot> FileVerifier::kept_of(const CheckpointIndex& index) {
  const MutexLock lock(mutex_);
  // Equal indexes mean equal files: an index has digests of all bytes, and the attributes themselves.
  const bool same =
      kept_ && kept_index_->digest == index.digest && kept_index_->file_length == index.file_length;
  return same ? kept_ : nullptr;
}

std::shared_ptr<const CheckpointIndex> FileVerifier::known_index() {
  const MutexLock lock(mutex_);
  return kept_index_;
}

}}  // namespace holdfast::v0_2
