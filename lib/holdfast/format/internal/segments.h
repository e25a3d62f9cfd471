// The pieces of a file that are read and checked as one: segments (a tensor, a stretch) with the digest each
// must have.
//
// Threads: check_segments starts its own and is gone with them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/format/reader.h"

namespace holdfast::inline v1::internal {

struct Segment {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t length = 0;
  const Digest* expected = nullptr;
  std::byte* destination = nullptr;  // nullptr: only to be checked
  std::int64_t tensor = -1;          // its index, -1: a stretch
};

// All segments of a file in its order, or why they do not tile [user_block, file_length) exactly.
std::variant<std::vector<Segment>, Rejection> tile(const CheckpointIndex& index);

// Reads every segment (ascending, not overlapping) on `threads` threads, in runs of up to 8 MiB so that small
// neighbours share a read, and compares digests. Memory: 8 MiB a thread for segments without destination.
// Returns what differs, by name; IoError is thrown. `progress`, when given, grows by the bytes read.
std::optional<Rejection> check_segments(const File& file, const CheckpointIndex& index,
                                        const std::vector<Segment>& segments, ReadMode mode, int threads,
                                        std::atomic<std::uint64_t>* progress = nullptr);

}  // namespace holdfast::inline v1::internal
