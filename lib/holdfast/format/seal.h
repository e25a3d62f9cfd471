// Sealing: fills in the head of a staged image (header, index, /meta) once the tensors' digests are known.
// After it, the image is a complete checkpoint file: an HDF5 file with a sealed index in its user block.
//
// Threads: one thread per image.
#pragma once

#include <span>
#include <vector>

#include "holdfast/format/file_plan.h"

namespace holdfast::inline v1 {

// Digests of all tensors of a snapshot in layout order. `threads` hash pieces side by side.
std::vector<Digest> digest_tensors(const Snapshot& snapshot, int threads = 1);

// Requires: snapshot staged into an image of this plan. Writes [0, head) of the arena only.
// Errors: RefusedError when the attributes outgrow the plan's capacity (make a new plan first).
void seal(Snapshot& snapshot, const FilePlan& plan, std::span<const Digest> tensor_digests);

}  // namespace holdfast::inline v1
