// What a file's index says it is made of: segments (a tensor, a stretch) that tile it, with the digest that
// each must have, and the pieces by which they are hashed.
//
// Threads: check_segments starts its own and is gone with them; everything else is pure.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "holdfast/format/reader.h"

namespace holdfast::inline v1::internal {

struct Segment {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t length = 0;
  const Digest* expected = nullptr;
  std::int64_t tensor = -1;  // its index, -1: a stretch
};

// All segments of a file in its order, or why they do not tile [user_block, file_length) exactly.
std::variant<std::vector<Segment>, Rejection> tile(const CheckpointIndex& index);

// What is hashed as one: up to 8 MiB, counted from its segment's start.
struct Piece {
  std::uint64_t offset;  // in the file
  std::uint64_t length;
};
// Of all segments, in their order.
std::vector<Piece> pieces_of(const std::vector<Segment>& segments);

// Names the segments whose pieces (of pieces_of, in that order) have other digests than the index says.
std::optional<Rejection> compare(const CheckpointIndex& index, const std::vector<Segment>& segments,
                                 std::span<const Digest> pieces);

// `once` is one of the others for a file of this size.
ReadMode resolved(ReadMode mode, std::uint64_t file_size);
// Requires a resolved mode.
std::size_t read_bytes(const File& file, ReadMode mode, std::span<std::byte> to, std::uint64_t offset);

std::uint64_t round_down(std::uint64_t offset);  // to a multiple of 4096
std::uint64_t round_up(std::uint64_t offset);

Rejection damaged(std::string reason);

// Reads every segment (ascending, not overlapping) on `threads` threads, in runs of up to 8 MiB so that small
// neighbours share a read, compares digests and keeps nothing. Memory: 8 MiB a thread. Returns what differs,
// by name; IoError is thrown. `progress`, when given, grows by the bytes read.
std::optional<Rejection> check_segments(const File& file, const CheckpointIndex& index,
                                        const std::vector<Segment>& segments, ReadMode mode, int threads,
                                        std::atomic<std::uint64_t>* progress = nullptr);

}  // namespace holdfast::inline v1::internal
