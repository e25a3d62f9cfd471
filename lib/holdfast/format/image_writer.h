// Writes a staged image as a sealed checkpoint file: everything beyond the head in parallel, digests beside
// it, then the head. The caller has reserved the space and syncs, closes and commits afterwards.
//
// Requires: snapshot staged into an image of this plan; `file` new and opened for writing. Every write is a
// multiple of 4096 at a multiple of 4096 from 4096-aligned memory, so OpenMode::create_direct is fine; the
// padding after the image's end is truncated away.
// Ensures: [0, head) is written after every other byte was. On an exception the file has no valid header.
// Errors: IoError of the first failed write (the others stop); RefusedError of seal().
// Threads: starts `threads` writers (2–4 saturate a disk), and hashes on the calling thread beside them, at
// about 30 core-milliseconds a GB; gone when it returns. Needs no memory that grows with the state.
// Durability: none; the caller syncs.
#pragma once

#include <vector>

#include "holdfast/format/file_plan.h"
#include "holdfast/io/file_system.h"

namespace holdfast::inline v1 {

// Returns the tensors' digests in layout order (what state_digest takes).
std::vector<Digest> write_image(File& file, Snapshot& snapshot, const FilePlan& plan, int threads = 2);

}  // namespace holdfast::inline v1
