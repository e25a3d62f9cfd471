// Writes a staged image as a sealed checkpoint file: everything beyond the head in parallel, digests beside
// it, then the head. The caller has reserved the space and syncs, closes and commits afterwards.
//
// Requires: snapshot staged into an image of this plan; `file` opened for writing, and nothing in it that is
// longer than the image. Every write is a multiple of 4096 at a multiple of 4096 from 4096-aligned memory, so
// OpenMode::create_direct is fine; the padding after the image's end is truncated away.
// Ensures: [0, head) is written after every other byte was. On an exception the file has no valid header.
// Errors: IoError of the first failed write (the others stop); RefusedError of seal().
// Threads: starts `threads` writers (2–4 saturate a disk), and hashes on the calling thread beside them, at
// about 30 core-milliseconds a GB; gone when it returns. Needs no memory that grows with the state.
// Durability: none; the caller syncs.
#pragma once

#include <atomic>
#include <functional>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/format/file_plan.h"
#include "holdfast/io/file_system.h"

namespace holdfast::inline v1 {

struct ImageWriterOptions {
  int threads = 2;
  // Called once, on the calling thread, when everything is hashed and before the head is sealed: attributes
  // that it sets are in the file. `finite`: no tensor holds a NaN or an infinity. Without it nobody looks;
  // with it a tenth of the hashing is added.
  std::function<void(Snapshot&, bool finite)> before_seal = {};
  // MB/s (10^6 bytes) that are left to others on a shared volume by taking no more; 0: none. A commit takes
  // bytes / limit at least, and as long is lost with a crash. Blocks become smaller, to about 50 ms each.
  double write_limit = 0;
  Clock* clock = &Clock::real();             // of the limit
  const std::atomic<bool>* hurry = nullptr;  // true lifts the limit, within 50 ms
};

// Returns the tensors' digests in layout order (what state_digest takes).
std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan,
                                const ImageWriterOptions& options);
std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan, int threads = 2);

}  // namespace holdfast::inline v1
