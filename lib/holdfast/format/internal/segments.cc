#include "holdfast/format/internal/segments.h"

#include <algorithm>
#include <string>
#include <utility>

#include "holdfast/base/name_list.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/format/layout.h"
#include "holdfast/snapshot/arena.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

std::string name_of_segment(const CheckpointIndex& index, const Segment& segment) {
  const std::string where = " (bytes " + std::to_string(segment.offset) + ".." +
                            std::to_string(segment.offset + segment.length) + ")";
  if (segment.tensor < 0) return "HDF5 metadata" + where;
  return "tensor " + printable(index.tensors[static_cast<std::size_t>(segment.tensor)].spec.name) + where;
}

// Adjacent pieces that one read fetches.
struct Run {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::size_t first_piece = 0;
  std::size_t pieces = 0;
};

// Small tensors would otherwise cost a read each.
std::vector<Run> runs_of(const std::vector<Piece>& pieces) {
  std::vector<Run> runs;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    Run* const last = runs.empty() ? nullptr : &runs.back();
    if (last != nullptr && last->offset + last->length == piece.offset &&
        last->length + piece.length <= kTransferBlock) {
      last->length += piece.length;
      ++last->pieces;
    } else {
      runs.push_back({piece.offset, piece.length, i, 1});
    }
  }
  return runs;
}

// Reads whole blocks around the run, as O_DIRECT needs them. Returns the run's bytes in the buffer.
std::span<const std::byte> read_through(const File& file, ReadMode mode, const Run& run, Arena& buffer) {
  // One block more than the run may be needed, if it begins and ends inside blocks.
  const std::uint64_t begin = round_down(run.offset);
  const std::uint64_t end = round_up(run.offset + run.length);
  const std::size_t got = read_bytes(file, mode, buffer.bytes().first(end - begin), begin);
  const std::uint64_t skip = run.offset - begin;
  if (got <= skip) return {};
  return std::span<const std::byte>(buffer.bytes())
      .subspan(skip, std::min<std::uint64_t>(got - skip, run.length));
}

}  // namespace

Rejection damaged(std::string reason) { return {Rejection::Kind::damaged, std::move(reason)}; }

std::optional<Rejection> check_booleans(const Snapshot& snapshot) {
  for (std::size_t i = 0; i < snapshot.layout->tensors().size(); ++i) {
    const TensorSpec& tensor = snapshot.layout->tensors()[i];
    const auto bytes = snapshot.bytes(i);
    // Any other byte would be undefined behaviour as a C++ bool, and hence in LibTorch.
    if (tensor.dtype == DType::boolean &&
        std::any_of(bytes.begin(), bytes.end(), [](std::byte value) { return value > std::byte{1}; })) {
      return damaged("tensor " + tensor.name + ": a truth value is neither 0 nor 1");
    }
  }
  return std::nullopt;
}

std::uint64_t round_down(std::uint64_t offset) { return offset / kBlockSize * kBlockSize; }
std::uint64_t round_up(std::uint64_t offset) { return round_down(offset + kBlockSize - 1); }

ReadMode resolved(ReadMode mode, std::uint64_t file_size) {
  if (mode != ReadMode::once) return mode;
  // A large file that is read once would only push the training's pages out of memory.
  return file_size < kReadOnceUncached ? ReadMode::cached : ReadMode::uncached;
}

std::size_t read_bytes(const File& file, ReadMode mode, std::span<std::byte> to, std::uint64_t offset) {
  return mode == ReadMode::cached ? file.read_at(to, offset) : file.read_uncached_at(to, offset);
}

std::vector<Piece> pieces_of(const std::vector<Segment>& segments) {
  std::vector<Piece> pieces;
  pieces.reserve(segments.size());
  for (const Segment& segment : segments) {
    for (std::uint64_t done = 0; done < segment.length; done += kDigestPiece) {
      pieces.push_back({segment.offset + done, std::min(segment.length - done, kDigestPiece)});
    }
  }
  return pieces;
}

std::optional<Rejection> compare(const CheckpointIndex& index, const std::vector<Segment>& segments,
                                 std::span<const Digest> pieces) {
  // A sick disk may damage thousands of segments, and a message must stay readable.
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  for (const Segment& segment : segments) {
    const std::size_t own = (segment.length + kDigestPiece - 1) / kDigestPiece;
    const Digest digest = combine_digests(pieces.first(own));
    pieces = pieces.subspan(own);
    if (digest != *segment.expected) names.push_back(name_of_segment(index, segment));
  }
  if (names.empty()) return std::nullopt;
  return damaged(name_list(names, kShown) + (names.size() == 1 ? ": digest differs" : ": digests differ"));
}

std::variant<std::vector<Segment>, Rejection> tile(const CheckpointIndex& index) {
  std::vector<Segment> segments;
  segments.reserve(index.tensors.size() + index.stretches.size());
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const IndexedTensor& tensor = index.tensors[i];
    const std::uint64_t bytes = tensor.spec.bytes();
    if (bytes == 0 && tensor.offset != 0) {
      return damaged("index: the empty tensor '" + printable(tensor.spec.name) + "' has an offset");
    }
    // The digest of nothing: even an empty tensor's entry is checked.
    if (bytes == 0 && tensor.digest != combine_digests({})) {
      return damaged("tensor " + printable(tensor.spec.name) + " (empty): digest differs");
    }
    if (bytes != 0) {
      segments.push_back({tensor.offset, bytes, &tensor.digest, static_cast<std::int64_t>(i)});
    }
  }
  std::uint64_t last = 0;
  // Stretches are written in file order, so any other order is not from a writer of ours.
  for (const CheckpointIndex::Stretch& stretch : index.stretches) {
    if (stretch.length == 0 || stretch.offset < last) {
      return damaged("index: the stretch at " + std::to_string(stretch.offset) + " is empty or out of order");
    }
    last = stretch.offset;
    segments.push_back({stretch.offset, stretch.length, &stretch.digest, -1});
  }
  std::sort(segments.begin(), segments.end(),
            [](const Segment& a, const Segment& b) { return a.offset < b.offset; });

  // Every byte behind the user block belongs to exactly one segment; gaps and overlaps are damage.
  std::uint64_t covered = index.user_block;
  for (const Segment& segment : segments) {
    if (segment.offset != covered) {
      const char* const what =
          segment.offset < covered ? " overlaps what lies before it" : " leaves a gap before it";
      return damaged("index: the segment at " + std::to_string(segment.offset) + what);
    }
    // Compared by subtraction, because a hostile length could make a sum overflow.
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
  mode = resolved(mode, index.file_length);
  const std::vector<Piece> pieces = pieces_of(segments);
  const std::vector<Run> runs = runs_of(pieces);
  std::uint64_t longest = 0;
  for (const Run& run : runs) longest = std::max(longest, run.length);
  std::vector<Digest> digests(pieces.size());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> short_read{false};

  run_workers(threads_for(threads, runs.size()), [&](const Stopped& stopped) {
    std::optional<Arena> buffer;
    for (std::size_t i = next++; i < runs.size() && !stopped && !short_read; i = next++) {
      const Run& run = runs[i];
      // Allocated by the thread that uses it, so threads that find no work cost no memory.
      if (!buffer) buffer.emplace(round_up(longest) + kBlockSize);
      const std::span<const std::byte> bytes = read_through(file, mode, run, *buffer);
      if (bytes.size() < run.length) {
        short_read = true;
        return;
      }
      for (std::size_t p = run.first_piece; p < run.first_piece + run.pieces; ++p) {
        digests[p] = digest_of(bytes.subspan(pieces[p].offset - run.offset, pieces[p].length));
      }
      if (progress != nullptr) *progress += run.length;
    }
  });
  if (short_read) return damaged("the file became shorter while it was read");
  return compare(index, segments, digests);
}

}}}  // namespace holdfast::v0_2::internal
