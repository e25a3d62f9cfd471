// Sealing: fills in the head of a staged image (header, index, /meta) from the tensors' digests. Afterwards
// the image is a complete checkpoint file.
//
// Errors: RefusedError of seal(). Threads: one thread per image.
#pragma once

#include <span>

#include "holdfast/format/file_plan.h"

namespace holdfast { inline namespace v0_2 {

// Requires a snapshot staged into an image of this plan, and the digests of its tensors in layout order.
// Writes only [0, head) of the arena.
// Errors: RefusedError if the attributes outgrow the plan's capacity; then make a new plan.
void seal(Snapshot& snapshot, const FilePlan& plan, std::span<const Digest> tensor_digests);

}}  // namespace holdfast::v0_2
