// Verifies files for the store with the format's reader: header and index, or every byte.
//
// A full inspection keeps the last good state it read. No tensor is read twice if the state is loaded, or if
// recovery asks again about a file with the same index, which has the digest of every byte. Cost
// while it keeps one: memory for one state.
//
// The first look at a large file already bypasses the page cache (ReadMode::once). Uncached looks follow
// anyway, because damage counts only if the device shows it again.
//
// Errors: damage is a verdict; an error of the operating system is an IoError.
// Threads: any; call when_reading() and share_images() before all others.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "holdfast/base/mutex.h"
#include "holdfast/format/reader.h"
#include "holdfast/store/copy_verifier.h"

namespace holdfast { inline namespace v0_2 {

class FileVerifier final : public CopyVerifier {
 public:
  explicit FileVerifier(int threads = kReadThreads) : threads_(threads) {}

  Verdict inspect(const File& file, Depth depth, bool uncached) override;
  std::unique_ptr<ArrivingCopy> expect_copy(const File& file) override;

  struct Loaded {
    CheckpointIndex index;
    std::shared_ptr<Snapshot> snapshot;
  };
  // The whole state of `file`: the kept one if the file is the same, otherwise read and verified. Damage
  // counts only if the device shows it too.
  std::variant<Loaded, Rejection> load(const File& file);
  // Verifies a file of which every byte is in `image` already, and makes `image` the snapshot's. So no state
  // exists twice in memory. Nothing is kept. `verified`: another process has verified the image in this very
  // memory; then only its index is.
  std::variant<Loaded, Rejection> load_in(const File& file, std::shared_ptr<Arena> image,
                                          bool verified = false) const;
  // Reads and verifies only some tensors; nothing is kept. The index is that of the whole file.
  std::variant<Loaded, Rejection> load_some(const File& file, const TensorFilter& wanted) const;
  // `listener` gets every index whose state is about to be read and kept, on the reading thread, so that
  // other work can start beside the read. Its exceptions pass through.
  void when_reading(std::function<void(const CheckpointIndex&)> listener) { listener_ = std::move(listener); }
  // Ends a read in progress, and every later one, with an Error: the process was told to stop. Any thread.
  void stop_reading() { stopped_ = true; }
  // From now on whole states are read into memory that other processes can map (snapshot/shared_arena.h).
  void share_images();
  // Releases the kept state. From now on full inspections keep nothing.
  void stop_keeping();

 private:
  std::variant<Loaded, Rejection> load(const File& file, ReadMode mode);
  std::shared_ptr<Snapshot> kept_of(const CheckpointIndex& index);
  std::shared_ptr<const CheckpointIndex> known_index();
  // Call before another state is read, so that there are never two. Returns how to make its memory: that of
  // the kept state serves again if nobody else holds it, because new pages cost as much as the read.
  MakeArena forget();

  const int threads_;
  std::atomic<bool> stopped_{false};
  std::function<void(const CheckpointIndex&)> listener_;
  MakeArena make_;
  Mutex mutex_;
  bool keeping_ HOLDFAST_GUARDED_BY(mutex_) = true;
  std::shared_ptr<const CheckpointIndex> kept_index_
      HOLDFAST_GUARDED_BY(mutex_);  // null if and only if kept_ is null
  std::shared_ptr<Snapshot> kept_ HOLDFAST_GUARDED_BY(mutex_);
};

}}  // namespace holdfast::v0_2
