// The constants of checkpoint format 1; no other file has any. docs/file_format.md specifies the format:
// header, index, HDF5 part, digests, and the order of writing. The format is frozen: a change needs a new
// version and a new golden file (tests/golden).
//
//   [0, 4096)     header: magic, versions, digest, lengths
//   [4096, U)     index: one JSON object in UTF-8, then zeros; U is a power of two, 8192 <= U <= 256 MiB
//   [U, length)   an HDF5 file with the user block [0, U)
//
// The head [0, H) is written last; H is the end of /meta, rounded up to 4096. Numbers are little-endian.
// Errors: none. Threads: constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace holdfast { inline namespace v0_2 {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint32_t kLowestReaderVersion = 1;

inline constexpr std::string_view kMagic = "HOLDFAST";
inline constexpr std::uint64_t kHeaderSize = 4096;
inline constexpr std::uint64_t kIndexOffset = kHeaderSize;
inline constexpr std::uint64_t kBlockSize = 4096;  // unit of H, and of O_DIRECT

// Offsets of the header's fields.
inline constexpr std::size_t kMagicAt = 0;
inline constexpr std::size_t kFormatVersionAt = 8;
inline constexpr std::size_t kLowestReaderAt = 12;
inline constexpr std::size_t kHeaderDigestAt = 32;
inline constexpr std::size_t kFileLengthAt = 64;
inline constexpr std::size_t kUserBlockAt = 72;
inline constexpr std::size_t kIndexLengthAt = 80;
inline constexpr std::size_t kIndexDigestAt = 88;
inline constexpr std::size_t kHeaderFieldsEnd = 104;

inline constexpr std::uint64_t kMinUserBlock = 8192;
inline constexpr std::uint64_t kMaxUserBlock = 256u << 20;

// A: space for attributes. It is doubled when they outgrow it, which makes a new plan.
// usual_attribute_capacity (file_plan.h) chooses between the small value, for a small state, and the default.
inline constexpr std::uint64_t kMinAttributeCapacity = 1u << 10;
inline constexpr std::uint64_t kSmallAttributeCapacity = 16u << 10;
inline constexpr std::uint64_t kDefaultAttributeCapacity = 256u << 10;
inline constexpr std::uint64_t kMaxAttributeCapacity = 16u << 20;

inline constexpr std::size_t kMaxRank = 32;  // HDF5's limit
inline constexpr std::string_view kMetaGroup = "meta";
inline constexpr std::string_view kStepDataset = "step";
inline constexpr std::string_view kJsonDataset = "json";

// Settings for libhdf5. Data of 64 KiB or more begins at a multiple of 4096, for O_DIRECT and for views in
// place; smaller tensors lie close together at any offset.
inline constexpr std::uint64_t kAlignedFrom = 64u << 10;
inline constexpr std::uint64_t kAlignment = 4096;
inline constexpr std::uint64_t kMetadataPerObject = 512;
inline constexpr std::uint64_t kMinMetadataBlock = 2u << 10;
inline constexpr std::uint64_t kMaxMetadataBlock = 1u << 20;

// Size of the blocks in which files are read and written: large enough that calls cost nothing.
inline constexpr std::uint64_t kTransferBlock = 8u << 20;

// How digests protect a state that is digested while it is staged (snapshot/piece_digests.h), so that the
// writer reads it only to write it. The digest in the index is that of the staged bytes. So a bit that flips
// between staging and writing shows at every verified read: resume, `holdfast verify`, a copy to a mirror. (A
// digest of the image at the moment of the write would vouch for the flipped bit.) But the save may already
// be acknowledged, and then that checkpoint is lost; with a memory cell that is stuck, each one until the
// sample meets its piece. To bound this, each save hashes one piece in 17 again before it seals the head,
// other pieces each time, and fails if one has changed: at most 16 saves of that image are lost. (17 is odd,
// because two images may take turns.) The read-back of the head proves that this head is on the device;
// ReadBack::all compares every byte there before the acknowledgement, for one more read of the file.
inline constexpr std::uint64_t kRecheckEvery = 17;

}}  // namespace holdfast::v0_2
