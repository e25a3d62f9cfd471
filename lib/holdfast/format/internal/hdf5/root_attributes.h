// The attributes `step`, `run` and `holdfast_version` of HDF5's root group: what `h5py.File(…).attrs` shows.
// They repeat what the index says, for people; Holdfast reads nothing from them.
//
// libhdf5 lays them out once per plan, and every save puts its own values there. HDF5 keeps them in the root
// group's object header, whose blocks end with a checksum. Source: HDF5 File Format Specification 3.0,
// sections II (superblock, version 2), IV.A.1.b (object headers, version 2).
//
// Errors: Error if libhdf5 has laid them out in another way. Threads: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "holdfast/format/file_plan.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

inline constexpr std::size_t kRootRunSize = 96;  // bytes of the text, padded with NUL
inline constexpr std::size_t kRootVersionSize = 24;

// What libhdf5 writes first, so that the places of the values can be found.
inline constexpr std::int64_t kStepPlaceholder = 0x7065745374736648;
std::string run_placeholder();
std::string version_placeholder();

// `hdf5`: the file from its user block's end on, `user_block` bytes behind the file's start.
RootAttributes find_root_attributes(std::span<const std::byte> hdf5, std::uint64_t user_block);

// `run` is "attempt 3, 2026-11-24T12:00:00Z, host", as far as the snapshot records it.
void put_root_attributes(std::span<std::byte> image, const RootAttributes& places, const Snapshot& snapshot);

// Bob Jenkins' lookup3 (hashlittle with initial value 0), which HDF5 uses for its metadata.
std::uint32_t lookup3(std::span<const std::byte> bytes);

}}}  // namespace holdfast::v0_2::internal
