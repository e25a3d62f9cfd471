// Reads checkpoint files with Holdfast's own strict parser, without libhdf5. It hashes first and parses
// afterwards: no byte is believed before its digest holds, and no length becomes an allocation before it is
// compared with the file's size.
//
// Errors: damage is a value (Rejection), because a store then takes an older file. An error of the operating
// system (EIO, ESTALE, EACCES, ENOMEM) is an IoError, because it says nothing about the file.
// Threads: free functions; they may run on any thread, and join the threads that they start.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 {

struct Rejection {
  enum class Kind { damaged, newer_format };
  Kind kind = Kind::damaged;
  std::string reason;  // "tensor model/fc.weight (bytes 8388608..16777216): digest differs"
};

struct IndexedTensor {
  TensorSpec spec;
  std::uint64_t offset = 0;
  Digest digest;
};

// The verified index of a file.
struct CheckpointIndex {
  std::uint32_t format_version = 0;
  std::uint64_t file_length = 0;
  std::uint64_t user_block = 0;
  Digest digest;  // of the index: files of equal length and digest are equal in every byte
  std::uint64_t attribute_capacity = 0;
  std::int64_t step = 0;
  Attributes attributes;
  std::vector<IndexedTensor> tensors;  // in the plan's order
  struct Stretch {
    std::uint64_t offset = 0, length = 0;
    Digest digest;
  };
  std::vector<Stretch> stretches;
};

enum class ReadMode {
  cached,    // through the page cache
  uncached,  // from the device: to check damage again, or to read back after a write
  // For a single read: a file of kReadOnceUncached bytes or more comes from the device, so that the page
  // cache is neither used nor filled; a smaller file comes through the cache.
  once,
};
inline constexpr std::uint64_t kReadOnceUncached = 16u << 20;

// Threads that read and hash in turns: with four the device always has a next block to fetch.
inline constexpr int kReadThreads = 4;

// Reads and verifies length, header and index only; fast for any file size. A file that is no checkpoint
// counts as damaged. `known`: an index that may be this file's. If its digest matches the bytes, it is
// copied, not parsed.
HOLDFAST_EXPORT std::variant<CheckpointIndex, Rejection> read_index(const File& file,
                                                                    ReadMode mode = ReadMode::cached,
                                                                    const CheckpointIndex* known = nullptr);
// Verifies every byte. `progress`, if given, grows by the verified bytes. Memory: 8 MiB a thread.
HOLDFAST_EXPORT std::optional<Rejection> verify_bytes(const File& file, const CheckpointIndex& index,
                                                      ReadMode mode = ReadMode::once,
                                                      int threads = kReadThreads,
                                                      std::atomic<std::uint64_t>* progress = nullptr);
// Makes the memory for an image of that size; empty: an Arena of this process alone.
using MakeArena = std::function<std::shared_ptr<Arena>(std::uint64_t bytes)>;
// Reads the whole state. Each byte is read once, and verified while the next ones are read. The image's user
// block stays zero.
HOLDFAST_EXPORT std::variant<std::shared_ptr<Snapshot>, Rejection> read_snapshot(
    const File& file, const CheckpointIndex& index, int threads = kReadThreads,
    ReadMode mode = ReadMode::once, const MakeArena& make = {});
// Makes the snapshot of verified bytes that lie in `image`: the whole file, as long as the index says.
HOLDFAST_EXPORT std::shared_ptr<Snapshot> snapshot_in(std::shared_ptr<Arena> image,
                                                      const CheckpointIndex& index);
// Reads some tensors into an image of their own. Touches only the blocks of 4096 bytes that contain them.
using TensorFilter = std::function<bool(const TensorSpec&)>;
HOLDFAST_EXPORT std::variant<std::shared_ptr<Snapshot>, Rejection> read_tensors(
    const File& file, const CheckpointIndex& index, const TensorFilter& wanted, int threads = kReadThreads,
    ReadMode mode = ReadMode::once);

}}  // namespace holdfast::v0_2
