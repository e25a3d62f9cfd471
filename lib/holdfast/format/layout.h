// Format 1 of a Holdfast checkpoint: where every byte goes. All constants of the format are here and nowhere
// else, and this comment is enough to write a reader from. Numbers are little-endian; "XXH3-128" is the
// canonical (big-endian) 16 bytes of https://github.com/Cyan4973/xxHash, written in JSON as 32 lower-case hex
// digits. A *piece digest list* of some bytes: XXH3-128 of each 8 MiB piece counted from their start (the
// last may be shorter), then XXH3-128 of those 16-byte digests in order; no bytes give the digest of an empty
// list.
//
// The file, from its first byte to its last:
//
//   [0, 4096)     header
//   [4096, U)     index: one JSON object in UTF-8, then zeros. U is a power of two, 8192 <= U <= 256 MiB.
//   [U, length)   an HDF5 file whose user block is [0, U): superblock version 2, contiguous little-endian
//                 datasets. Foreign tools read it; our reader takes the tensors' bytes by the index alone.
//
// Header. The first 64 bytes keep their meaning in every version, and so does what the digest covers:
//
//     0   8  magic "HOLDFAST"
//     8   4  format version, 1
//    12   4  lowest reader version: a reader of an older format must not go on ("newer format")
//    16  16  zero
//    32  16  XXH3-128 of bytes [0, 4096) with these 16 taken as zeros. Nothing else in the file, the versions
//            included, is believed unless this holds: a flipped bit must read as damage, not as "newer".
//    48  16  zero
//   Then, for format 1:
//    64   8  length of the whole file: more or fewer bytes are damage
//    72   8  U
//    80   8  length of the index without its zeros
//    88  16  XXH3-128 of [4096, U), zeros included
//   104      zeros to 4096
//
// Index. Exactly these members, in any order; a duplicate or unknown key, a number with a fraction or
// exponent or of more than 64 bits is damage. (A file of a higher version that we may read can have more
// members on the top level: they are skipped.)
//
//   "attribute_capacity"  A, bytes: what the attributes may take up here and in /meta/json
//   "step"                the step boundary that the state belongs to
//   "tensors"             [{"name", "dtype", "shape", "offset", "length", "digest"}, …] in the plan's order.
//                         offset counts from the file's start (0 when length is 0); length is what dtype and
//                         shape give; elements lie in row-major order; digest is the piece digest list.
//                         dtype: a name of snapshot/dtype.h. Names: snapshot/tensor_spec.h; none in "meta/".
//   "stretches"           [{"offset", "length", "digest"}, …] the bytes between tensors (HDF5's own and
//                         alignment), ascending; digest is the piece digest list. Tensors and stretches tile
//                         [U, length) exactly: every byte of the file is covered by one digest.
//   "attributes"          {"decides": {…}, "record": {…}}: by role, then by name. A value is a truth
//                         value; an integer; a "text"; {"float": bits}; {"integers": [n, …]}; {"floats":
//                         [bits]}; {"texts": ["…"]}; bits is a double's bit pattern, "3fb999999999999a" for
//                         0.1.
//
// HDF5 part. A tensor "group/…/leaf" is the dataset of that path. bool is an enum {FALSE = 0, TRUE = 1} of
// int8; float16 and bfloat16 are 2-byte float types; float8 types are uint8 with a text attribute "dtype";
// complex is a compound {r, i}. `/meta/step` is an int64; `/meta/json` a text of A bytes, NUL padded, of the
// attributes with plain numbers (NaN and infinities as texts), for foreign tools alone. Both are part of
// stretches.
//
// Head: [0, H), H = end of /meta rounded up to 4096. Written last, so that a torn file has no valid header.
//
// Threads: constants.
#pragma once

#include <cstdint>
#include <string_view>

namespace holdfast::inline v1 {

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint32_t kLowestReaderVersion = 1;

inline constexpr std::string_view kMagic = "HOLDFAST";
inline constexpr std::uint64_t kHeaderSize = 4096;
inline constexpr std::uint64_t kIndexOffset = kHeaderSize;
inline constexpr std::uint64_t kBlockSize = 4096;  // what H and O_DIRECT are rounded to

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

// A. The default is doubled when outgrown, which makes a new plan; small values are for small files.
inline constexpr std::uint64_t kMinAttributeCapacity = 1u << 10;
inline constexpr std::uint64_t kDefaultAttributeCapacity = 256u << 10;
inline constexpr std::uint64_t kMaxAttributeCapacity = 16u << 20;

inline constexpr std::size_t kMaxRank = 32;  // HDF5's limit
inline constexpr std::string_view kMetaGroup = "meta";
inline constexpr std::string_view kStepDataset = "step";
inline constexpr std::string_view kJsonDataset = "json";

// How libhdf5 is told to lay out the file: data from 64 KiB on begins at a multiple of 4096 (O_DIRECT, and a
// view in place); smaller tensors lie close together at any offset.
inline constexpr std::uint64_t kAlignedFrom = 64u << 10;
inline constexpr std::uint64_t kAlignment = 4096;
inline constexpr std::uint64_t kMetadataPerObject = 512;
inline constexpr std::uint64_t kMinMetadataBlock = 2u << 10;
inline constexpr std::uint64_t kMaxMetadataBlock = 1u << 20;

// Files are read and written in blocks of this size.
inline constexpr std::uint64_t kTransferBlock = 8u << 20;

}  // namespace holdfast::inline v1
