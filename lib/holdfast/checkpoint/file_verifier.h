// Answers the store's questions about files with the format's reader: header and index, or every byte.
//
// A full inspection reads the candidate into a Snapshot and keeps the last good one, so a resume reads its
// file once: when recovery asks again about a file with the same index (which names the digest of every
// byte), or the state is taken for loading, no tensor is read twice, and the index that was read again is
// hashed but not parsed again. Cost while it keeps: memory for one state, also while it goes on to another
// file.
//
// A large file's first look goes to the device already (ReadMode::once): the page cache is neither used nor
// filled. Looks that are asked for as uncached follow it all the same: damage is believed when the device has
// shown it again.
//
// Errors: damage is a verdict; what the operating system refuses is an IoError.
// Threads: any; when_reading() before all others.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>

#include "holdfast/format/reader.h"
#include "holdfast/store/verifier.h"

namespace holdfast::inline v1 {

class FileVerifier final : public Verifier {
 public:
  explicit FileVerifier(int threads = kReadThreads) : threads_(threads) {}

  Verdict inspect(const File& file, Depth depth, bool uncached) override;

  struct Loaded {
    CheckpointIndex index;
    std::shared_ptr<Snapshot> snapshot;
  };
  // The whole state of `file`: the kept one when it is the same, read and verified otherwise. Damage is
  // believed only when the device shows it, too.
  std::variant<Loaded, Rejection> load(const File& file);
  // The state of a file of which every byte is in `image` already, where `file` reads from: it is verified
  // there and becomes the snapshot's, so that no state stands twice in memory. Nothing is kept.
  std::variant<Loaded, Rejection> load_in(const File& file, std::shared_ptr<Arena> image) const;
  // Some tensors alone, without a look at the others; nothing is kept. The index is that of the whole file.
  std::variant<Loaded, Rejection> load_some(const File& file, const TensorFilter& wanted) const;
  // Told of every index whose state is about to be read and kept, on the thread that reads: for what can be
  // done beside it. What it throws is thrown on.
  void when_reading(std::function<void(const CheckpointIndex&)> listener) { listener_ = std::move(listener); }
  // Forgets the kept state; full inspections hash without keeping from now on.
  void stop_keeping();

 private:
  std::variant<Loaded, Rejection> load(const File& file, ReadMode mode);
  std::shared_ptr<Snapshot> kept_of(const CheckpointIndex& index);
  std::shared_ptr<const CheckpointIndex> known_index();
  void forget();  // before another state is read: never two at a time

  const int threads_;
  std::function<void(const CheckpointIndex&)> listener_;
  std::mutex mutex_;
  bool keeping_ = true;
  std::shared_ptr<const CheckpointIndex> kept_index_;  // null exactly when kept_ is
  std::shared_ptr<Snapshot> kept_;
};

}  // namespace holdfast::inline v1
