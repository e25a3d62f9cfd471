// Reads checkpoint files with our own strict parser; libhdf5 is not involved. Hash first, parse after: no
// byte is believed before its digest holds, and no length becomes an allocation before it was checked against
// the file's size.
//
// Damage is a value (Rejection), because a store falls back to an older file; what the operating system
// refuses (EIO, ESTALE, EACCES, ENOMEM) is thrown as IoError, because nothing may be concluded from it.
// Threads: const methods may be called from any thread.
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

#include "holdfast/io/file_system.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast::inline v1 {

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
  Digest digest;  // of the index itself: files of one length with equal ones are equal in every byte
  std::uint64_t attribute_capacity = 0;
  std::int64_t step = 0;
  Attributes attributes;
  std::vector<IndexedTensor> tensors;  // in file order of the plan
  struct Stretch {
    std::uint64_t offset = 0, length = 0;
    Digest digest;
  };
  std::vector<Stretch> stretches;
};

enum class ReadMode {
  cached,    // through the page cache
  uncached,  // from the device: a second opinion about damage, a read-back after a write
  // For what is read once: a file of kReadOnceUncached bytes or more from the device, straight into memory,
  // so that the page cache is neither used nor filled; a smaller one through the cache.
  once,
};
inline constexpr std::uint64_t kReadOnceUncached = 16u << 20;

// Threads that read and hash in turns: enough that the device always has a next block to fetch.
inline constexpr int kReadThreads = 4;

// Header and index alone: cheap, whatever the file's size. Covers length, header, index.
// Rejects a file that is not a checkpoint at all as damaged. `known`: an index that may be this file's; where
// the bytes that were read have its digest, it is copied and nothing is parsed again.
std::variant<CheckpointIndex, Rejection> read_index(const File& file, ReadMode mode = ReadMode::cached,
                                                    const CheckpointIndex* known = nullptr);
// Every byte of the file. `progress`, when given, grows by the bytes that were checked. 8 MiB a thread.
std::optional<Rejection> verify_bytes(const File& file, const CheckpointIndex& index,
                                      ReadMode mode = ReadMode::once, int threads = kReadThreads,
                                      std::atomic<std::uint64_t>* progress = nullptr);
// The whole state, every byte of it read once and verified while the next ones are on their way. The image's
// user block stays zero.
std::variant<std::shared_ptr<Snapshot>, Rejection> read_snapshot(const File& file,
                                                                 const CheckpointIndex& index,
                                                                 int threads = kReadThreads,
                                                                 ReadMode mode = ReadMode::once);
// The same of bytes that have been verified and lie in `image`: the whole file, as long as the index says.
std::shared_ptr<Snapshot> snapshot_in(std::shared_ptr<Arena> image, const CheckpointIndex& index);
// Some tensors, in an image of their own; touches the blocks of 4096 bytes that hold them and no others.
using TensorFilter = std::function<bool(const TensorSpec&)>;
std::variant<std::shared_ptr<Snapshot>, Rejection> read_tensors(const File& file,
                                                                const CheckpointIndex& index,
                                                                const TensorFilter& wanted,
                                                                int threads = kReadThreads,
                                                                ReadMode mode = ReadMode::once);
// Those whose name starts with `prefix` ("model/").
std::variant<std::shared_ptr<Snapshot>, Rejection> read_part(const File& file, const CheckpointIndex& index,
                                                             std::string_view prefix);

}  // namespace holdfast::inline v1
