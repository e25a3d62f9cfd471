// The plan of a checkpoint file: where every byte lies, for one list of tensors. libhdf5 lays the file out
// once (in /dev/shm, otherwise in $TMPDIR). Later saves copy the kept metadata bytes and never call libhdf5.
//
// The tensor list and the attribute capacity are the whole input; equal inputs give equal bytes. Cost: 10 ms
// for 500 tensors, 0.3 to 0.5 s for 5,000. Make the plan when a run is constructed or resumed, never in a
// save under a deadline.
//
// Errors: RefusedError for names or sizes that cannot be stored; IoError if neither /dev/shm nor $TMPDIR
// works. Threads: make_file_plan holds libhdf5's global lock. A plan is immutable and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "holdfast/format/layout.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast { inline namespace v0_2 {

// HDF5's own bytes between tensors, including /meta (still zero here) and the root group's attributes.
struct MetadataStretch {
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
  Digest digest;  // of `bytes`; sealing replaces it where it fills in values
};

// Where the values of the root group's attributes lie, as offsets from the file's start.
struct RootAttributes {
  std::uint64_t step = 0;         // an int64
  std::uint64_t run = 0;          // a text
  std::uint64_t version = 0;      // a text
  std::vector<ByteRange> blocks;  // of the root's object header; the last four bytes of each are its checksum
};

struct FilePlan {
  std::shared_ptr<const ImageLayout> layout;
  std::uint64_t attribute_capacity = 0;  // A in layout.h
  std::uint64_t user_block = 0;          // U
  std::uint64_t head = 0;                // H: [0, H) is written last; a multiple of 4096
  std::uint64_t step_offset = 0;         // of /meta/step, an int64
  std::uint64_t json_offset = 0;         // of /meta/json: attribute_capacity bytes, padded with NUL
  RootAttributes root;
  std::vector<MetadataStretch> stretches;  // tensors and stretches tile [user_block, length) exactly
};

// Bytes that these attributes need. RefusedError above 16 MiB.
std::uint64_t attribute_bytes(const Attributes& attributes);
// The capacity for a state with these tensors: a 64th of their bytes and 256 bytes for each, but from 16 KiB
// to 256 KiB, because a new plan is quick for a small state only; a power of two.
std::uint64_t usual_attribute_capacity(std::span<const TensorSpec> tensors);
// The usual capacity, doubled until it holds these attributes and some room to grow.
std::uint64_t attribute_capacity_for(const Attributes& attributes, std::span<const TensorSpec> tensors);

// Only the checks of make_file_plan: names, sizes, the capacity.
void check_file_plan(std::span<const TensorSpec> tensors, std::uint64_t attribute_capacity);

std::shared_ptr<const FilePlan> make_file_plan(std::vector<TensorSpec> tensors,
                                               std::uint64_t attribute_capacity = kDefaultAttributeCapacity);

// True if make_file_plan may run while other code of the program calls libhdf5, because this libhdf5 has its
// own lock.
bool plans_beside_others();

// A zeroed arena with the plan's metadata bytes in place, ready for staging.
std::shared_ptr<Arena> make_image(const FilePlan& plan);
// Turns memory with another image of the same length, such as a loaded checkpoint, into such an arena. Its
// pages exist already.
void put_stretches(const FilePlan& plan, Arena& arena);

}}  // namespace holdfast::v0_2
