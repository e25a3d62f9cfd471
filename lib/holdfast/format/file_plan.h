// The plan of a checkpoint file: where every byte goes, for one list of tensors. libhdf5 lays the file out
// once (in /dev/shm, else in $TMPDIR) and is never used again: later saves copy the kept metadata bytes.
//
// (tensor list, attribute capacity) is the whole input; equal inputs give equal bytes. Costs 10 ms for 500
// tensors, 0.3–0.5 s for 5,000: make it when a run is constructed or resumed, never inside a save under a
// deadline.
//
// Errors: RefusedError for names or sizes that cannot be stored; IoError when neither /dev/shm nor $TMPDIR
// works. Threads: make_file_plan holds libhdf5's global lock; a plan is immutable and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "holdfast/format/layout.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast::inline v1 {

// HDF5's own bytes between tensors, /meta among them (still zero here).
struct MetadataStretch {
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
  Digest digest;  // of `bytes`; a stretch with /meta in it gets another when the file is sealed
};

struct FilePlan {
  std::shared_ptr<const ImageLayout> layout;
  std::uint64_t attribute_capacity = 0;    // A
  std::uint64_t user_block = 0;            // U
  std::uint64_t head = 0;                  // H: [0, H) is written last; a multiple of 4096
  std::uint64_t step_offset = 0;           // /meta/step, int64
  std::uint64_t json_offset = 0;           // /meta/json, attribute_capacity bytes, NUL padded
  std::vector<MetadataStretch> stretches;  // with tensors they tile [user_block, length) exactly
};

// Smallest capacity (doubling from 256 KiB) that holds these attributes. RefusedError over 16 MiB.
std::uint64_t attribute_capacity_for(const Attributes& attributes);

// The checks that make_file_plan begins with, alone: names, sizes, the capacity.
void check_file_plan(std::span<const TensorSpec> tensors, std::uint64_t attribute_capacity);

std::shared_ptr<const FilePlan> make_file_plan(std::vector<TensorSpec> tensors,
                                               std::uint64_t attribute_capacity = kDefaultAttributeCapacity);

// Whether make_file_plan may run while other code of the program calls libhdf5: this libhdf5 has a lock of
// its own.
bool plans_beside_others();

// A zeroed arena with the plan's metadata bytes in place, ready to be staged into.
std::shared_ptr<Arena> make_image(const FilePlan& plan);
// Makes one of memory that held another image of the same length, a checkpoint that was read: its pages are
// there already.
void put_stretches(const FilePlan& plan, Arena& arena);

}  // namespace holdfast::inline v1
