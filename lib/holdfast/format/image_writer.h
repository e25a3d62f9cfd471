// Writes a staged image as a sealed checkpoint file: everything after the head in parallel, digests beside
// it, then the head. The caller reserves the space before, and syncs, closes and commits afterwards.
//
// Requires a snapshot staged into an image of this plan, and a `file` opened for writing that is no longer
// than the image. All writes are multiples of 4096 from aligned memory, as OpenMode::create_direct needs; the
// padding at the end is truncated. [0, head) is written last, so after an exception the file has no valid
// header. Errors: IoError of the first failed write (the others stop); RefusedError of seal(); Error if the
// image is no longer what was staged.
// Threads: starts `threads` writers, hashes what has no digest yet on the calling thread (30
// core-milliseconds a GB), and joins them. Memory does not grow with the state. Durability: none; the caller
// syncs.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

// Pieces that came with a digest (Snapshot::digests) and are hashed once more before the head is sealed:
// those with index % every == round % every (kRecheckEvery in layout.h says what for).
struct Recheck {
  std::uint64_t round = 0;  // number of the save
  std::uint64_t every = kRecheckEvery;
};

struct ImageWriterOptions {
  int threads = 2;  // writers; 2 to 4 saturate a disk
  // Called once, on the calling thread, when everything is hashed and before the head is sealed: the file
  // contains attributes that it sets. `not_finite`: a tensor with a NaN, or with an infinity where none
  // belongs (Snapshot::infinity). Cost: a tenth of the hashing; without a function nobody looks.
  std::function<void(Snapshot&, std::optional<std::size_t> not_finite)> before_seal = {};
  // MB/s (10^6 bytes); 0: none. Leaves the rest of a shared volume to others. A commit takes at least
  // bytes / limit, and a crash loses that much more work. Blocks become smaller: about 50 ms each.
  double write_limit = 0;
  Clock* clock = &Clock::real();                    // for the limit
  const std::atomic<bool>* limit_lifted = nullptr;  // true lifts the limit within 50 ms
  Recheck recheck = {};
};

// Returns the tensors' digests in layout order, as state_digest takes them.
std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan,
                                const ImageWriterOptions& options);
std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan, int threads = 2);

}}  // namespace holdfast::v0_2
