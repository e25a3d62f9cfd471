#include "holdfast/format/internal/segments.h"

#include <algorithm>

#include "holdfast/format/internal/workers.h"
#include "holdfast/format/layout.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/snapshot/utf8.h"

namespace holdfast::inline v1::internal {
namespace {

Rejection damaged(std::string reason) { return {Rejection::Kind::damaged, std::move(reason)}; }

std::string name_of_segment(const CheckpointIndex& index, const Segment& segment) {
  const std::string where = " (bytes " + std::to_string(segment.offset) + ".." +
                            std::to_string(segment.offset + segment.length) + ")";
  if (segment.tensor < 0) return "HDF5 metadata" + where;
  return "tensor " + printable(index.tensors[static_cast<std::size_t>(segment.tensor)].spec.name) + where;
}

struct Piece {
  std::uint64_t offset;
  std::uint64_t length;
};

// Neighbouring pieces that one read fetches.
struct Run {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::byte* destination = nullptr;
  std::size_t first_piece = 0;
  std::size_t pieces = 0;
};

struct Work {
  std::vector<Piece> pieces;
  std::vector<std::size_t> first_piece;  // of each segment
  std::vector<Run> runs;
  std::uint64_t longest_run = 0;
};

Work divide(const std::vector<Segment>& segments) {
  Work work;
  for (const Segment& segment : segments) {
    work.first_piece.push_back(work.pieces.size());
    for (std::uint64_t done = 0; done < segment.length; done += kDigestPiece) {
      const Piece piece{segment.offset + done, std::min(segment.length - done, kDigestPiece)};
      std::byte* const destination = segment.destination == nullptr ? nullptr : segment.destination + done;
      Run* const last = work.runs.empty() ? nullptr : &work.runs.back();
      const bool joins = last != nullptr && last->offset + last->length == piece.offset &&
                         last->length + piece.length <= kTransferBlock &&
                         (last->destination == nullptr) == (destination == nullptr) &&
                         (destination == nullptr || last->destination + last->length == destination);
      if (joins) {
        last->length += piece.length;
        ++last->pieces;
      } else {
        work.runs.push_back({piece.offset, piece.length, destination, work.pieces.size(), 1});
      }
      work.pieces.push_back(piece);
      work.longest_run = std::max(work.longest_run, work.runs.back().length);
    }
  }
  return work;
}

std::size_t read_plain(const File& file, ReadMode mode, std::span<std::byte> to, std::uint64_t offset) {
  return mode == ReadMode::cached ? file.read_at(to, offset) : file.read_uncached_at(to, offset);
}

std::uint64_t round_down(std::uint64_t value) { return value / kBlockSize * kBlockSize; }
std::uint64_t round_up(std::uint64_t value) { return round_down(value + kBlockSize - 1); }

// Straight into a destination that others fill at the same time: whole blocks go to the device as they are,
// and only the ends, which share a block with a neighbour, take the file's own detour.
std::size_t read_into(const File& file, ReadMode mode, std::span<std::byte> to, std::uint64_t offset) {
  const std::uint64_t end = offset + to.size();
  const std::uint64_t first = round_up(offset);
  const std::uint64_t last = round_down(end);
  const bool congruent = (reinterpret_cast<std::uintptr_t>(to.data()) - offset) % kBlockSize == 0;
  if (mode == ReadMode::cached || !congruent || first >= last) return read_plain(file, mode, to, offset);
  std::size_t got = 0;
  for (const auto& [from, until] : {std::pair{offset, first}, {first, last}, {last, end}}) {
    if (from == until) continue;
    const std::size_t count = read_plain(file, mode, to.subspan(from - offset, until - from), from);
    got += count;
    if (count < until - from) break;
  }
  return got;
}

// Through a private buffer, of which whole blocks may be overwritten. Returns where the run begins in it.
std::span<const std::byte> read_through(const File& file, ReadMode mode, const Run& run, Arena& buffer) {
  const std::uint64_t begin = round_down(run.offset);
  const std::uint64_t end = round_up(run.offset + run.length);
  const std::size_t got = read_plain(file, mode, buffer.bytes().first(end - begin), begin);
  const std::uint64_t skip = run.offset - begin;
  if (got <= skip) return {};
  return std::span<const std::byte>(buffer.bytes())
      .subspan(skip, std::min<std::uint64_t>(got - skip, run.length));
}

std::optional<Rejection> compare(const CheckpointIndex& index, const std::vector<Segment>& segments,
                                 const Work& work, const std::vector<Digest>& digests) {
  constexpr std::size_t kNamed = 4;
  std::string names;
  std::size_t count = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::size_t first = work.first_piece[i];
    const std::size_t last = i + 1 < segments.size() ? work.first_piece[i + 1] : work.pieces.size();
    if (combine_digests(std::span(digests).subspan(first, last - first)) == *segments[i].expected) continue;
    if (count++ >= kNamed) continue;
    if (!names.empty()) names += ", ";
    names += name_of_segment(index, segments[i]);
  }
  if (count == 0) return std::nullopt;
  if (count > kNamed) names += " and " + std::to_string(count - kNamed) + " more";
  return damaged(names + (count == 1 ? ": digest differs" : ": digests differ"));
}

}  // namespace

std::variant<std::vector<Segment>, Rejection> tile(const CheckpointIndex& index) {
  std::vector<Segment> segments;
  segments.reserve(index.tensors.size() + index.stretches.size());
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const IndexedTensor& tensor = index.tensors[i];
    const std::uint64_t bytes = tensor.spec.bytes();
    if (bytes == 0 && tensor.offset != 0) {
      return damaged("index: the empty tensor '" + printable(tensor.spec.name) + "' has an offset");
    }
    if (bytes == 0 && tensor.digest != combine_digests({})) {
      return damaged("tensor " + printable(tensor.spec.name) + " (empty): digest differs");
    }
    if (bytes != 0) {
      segments.push_back({tensor.offset, bytes, &tensor.digest, nullptr, static_cast<std::int64_t>(i)});
    }
  }
  std::uint64_t last = 0;
  for (const CheckpointIndex::Stretch& stretch : index.stretches) {
    if (stretch.length == 0 || stretch.offset < last) {
      return damaged("index: the stretch at " + std::to_string(stretch.offset) + " is empty or out of order");
    }
    last = stretch.offset;
    segments.push_back({stretch.offset, stretch.length, &stretch.digest, nullptr, -1});
  }
  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.offset < b.offset; });

  std::uint64_t covered = index.user_block;
  for (const Segment& segment : segments) {
    if (segment.offset != covered) {
      const char* const what =
          segment.offset < covered ? " overlaps what lies before it" : " leaves a gap before it";
      return damaged("index: the segment at " + std::to_string(segment.offset) + what);
    }
    if (segment.length > index.file_length - covered) {
      return damaged("index: the segment at " + std::to_string(segment.offset) +
                     " passes the end of the file");
    }
    covered += segment.length;
  }
  if (covered != index.file_length)
    return damaged("index: bytes from " + std::to_string(covered) + " are not covered");
  return segments;
}

std::optional<Rejection> check_segments(const File& file, const CheckpointIndex& index,
                                        const std::vector<Segment>& segments, ReadMode mode, int threads,
                                        std::atomic<std::uint64_t>* progress) {
  const Work work = divide(segments);
  std::vector<Digest> digests(work.pieces.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> short_read{false};

  run_workers(
      std::min<int>(threads, static_cast<int>(std::min<std::size_t>(work.runs.size(), 1024))),
      [&](const Stopped& stopped) {
        std::optional<Arena> buffer;
        for (std::size_t i = next++; i < work.runs.size() && !stopped && !short_read; i = next++) {
          const Run& run = work.runs[i];
          std::span<const std::byte> bytes;
          if (run.destination == nullptr) {
            if (!buffer) buffer.emplace(round_up(work.longest_run) + kBlockSize);
            bytes = read_through(file, mode, run, *buffer);
          } else {
            bytes = {run.destination, read_into(file, mode, {run.destination, run.length}, run.offset)};
          }
          if (bytes.size() < run.length) {
            short_read = true;
            return;
          }
          for (std::size_t p = run.first_piece; p < run.first_piece + run.pieces; ++p) {
            digests[p] = digest_of(bytes.subspan(work.pieces[p].offset - run.offset, work.pieces[p].length));
          }
          if (progress != nullptr) *progress += run.length;
        }
      });
  if (short_read) return damaged("the file became shorter while it was read");
  return compare(index, segments, work, digests);
}

}  // namespace holdfast::inline v1::internal
