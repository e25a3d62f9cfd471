// The parts of a file by its index: segments (a tensor or a stretch) that tile the file, each with its
// expected digest, and the pieces that are hashed.
//
// Errors: return values, IoError. Threads: check_segments starts its own and joins them; the others are pure.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "holdfast/format/reader.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Segment {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t length = 0;
  const Digest* expected = nullptr;
  std::int64_t tensor = -1;  // index of the tensor; -1: a stretch
};

// All segments in the file's order, or a Rejection if they do not tile [user_block, file_length) exactly.
std::variant<std::vector<Segment>, Rejection> tile(const CheckpointIndex& index);

// One unit of hashing: up to 8 MiB, counted from its segment's start.
struct Piece {
  std::uint64_t offset;  // in the file
  std::uint64_t length;
};
// The pieces of all segments, in order.
std::vector<Piece> pieces_of(const std::vector<Segment>& segments);

// Names the segments with another digest than the index says. `pieces`: digests in the order of pieces_of().
std::optional<Rejection> compare(const CheckpointIndex& index, const std::vector<Segment>& segments,
                                 std::span<const Digest> pieces);

// Replaces `once` by the mode that a file of this size gets.
ReadMode resolved(ReadMode mode, std::uint64_t file_size);
// Requires a resolved mode.
std::size_t read_bytes(const File& file, ReadMode mode, std::span<std::byte> to, std::uint64_t offset);

std::uint64_t round_down(std::uint64_t offset);  // to a multiple of 4096
std::uint64_t round_up(std::uint64_t offset);

Rejection damaged(std::string reason);
// For files of other programs: names a tensor of booleans that holds another byte than 0 and 1.
std::optional<Rejection> check_booleans(const Snapshot& snapshot);

// Reads every segment (ascending, not overlapping) on `threads` threads and compares digests, without keeping
// bytes. Runs of up to 8 MiB let small neighbours share a read. Memory: 8 MiB a thread. Returns the names of
// what differs; throws IoError. `progress`, if given, grows by the bytes read.
std::optional<Rejection> check_segments(const File& file, const CheckpointIndex& index,
                                        const std::vector<Segment>& segments, ReadMode mode, int threads,
                                        std::atomic<std::uint64_t>* progress = nullptr);

}}}  // namespace holdfast::v0_2::internal
