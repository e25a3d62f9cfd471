// Which rank writes which bytes of one checkpoint file that several ranks write together. A pure function of
// the file's plan, the ranks and whose each tensor is: every rank computes it for itself and gets the same,
// which the fingerprint proves before a byte is written.
//
// Tensors are divided by the pieces of their digests (8 MiB counted from the tensor's start). Each piece has
// one *source*: the rank that stages it, hashes it, and from whose memory every byte of it comes; so a digest
// never covers bytes of two ranks, which may differ where the state is not as replicated as it seems. A piece
// of a replicated tensor may have any source that can see the volume; a tensor that only one rank has, or has
// right, names its *owner*, who is the source.
//
// Bytes are written by whole blocks of 4096, each by one rank: the source of all that lies in it. A block
// with bytes of several sources, or of one that cannot see the volume, is rank 0's, and the others' bytes in
// it are *sent*: they travel with the report of their rank (checkpoint/shared_write.h) and rank 0 writes
// these *late* blocks once all reports are there. So is the head, [0, head), as a whole. In a file where only
// replicated tensors are divided there are fewer late blocks than ranks; an own tensor under 64 KiB (a random
// stream) is sent with its neighbours' blocks, one of many MiB is written in place but for its last block.
//
// Balance: replicated pieces fill up the ranks in file order to one level, so a rank reads and writes few
// long runs. No rank that sees the volume has more than the even share and half a piece at either end of it,
// unless it owns more by itself. Small replicated tensors (under 64 KiB) that touch owned ones go to their
// owner, or to rank 0 where that one does not see the volume.
//
// Errors: UsageError for ranks or owners that do not exist, or a rank 0 that cannot see the volume;
// RefusedError where a rank would have to send more than kMostSent. Threads: pure; constants afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/format/file_plan.h"

namespace holdfast::inline v1 {

inline constexpr int kAnyRank = -1;  // replicated: the same bytes on every rank

// What one rank may send to rank 0 for one checkpoint, bytes. It goes in one message, two digits a byte, and
// c10d's TCPStore takes 8 MiB.
inline constexpr std::uint64_t kMostSent = 3u << 20;

struct SharedPiece {
  std::size_t tensor = 0;  // of the layout
  ByteRange bytes;         // in the file
  int source = 0;
};

struct Share {
  std::vector<std::size_t> pieces;  // of Shares::pieces: what it stages and hashes, ascending
  std::vector<ByteRange> stages;  // the bytes of these pieces in the file, ascending, joined where they touch
  std::vector<ByteRange> writes;  // whole blocks from `head` on, ascending, joined; not the late ones
  std::vector<ByteRange> sends;   // what goes to rank 0, ascending; each within one piece
  std::uint64_t staged = 0;       // bytes
  std::uint64_t sent = 0;
};

struct Shares {
  std::vector<SharedPiece> pieces;  // of all tensors, in the layout's order and then ascending
  std::vector<Share> ranks;
  std::vector<ByteRange> late;  // blocks that rank 0 writes when everything sent is there; ascending, joined
  Digest fingerprint;           // of everything that the division follows from

  int world_size() const { return static_cast<int>(ranks.size()); }
};

struct Ranks {
  std::vector<bool> sees;   // by rank: it can write into the run directory; its size is the world's
  std::vector<int> owners;  // by tensor: a rank or kAnyRank; empty: all are replicated
};

// Owners as the names tell them: "rank/<r>/…" is rank r's, everything else replicated. What is not the same
// on all ranks although its name does not say so (buffers of which rank 0's are broadcast at the next
// forward) needs its owner set besides.
std::vector<int> owners_by_name(std::span<const TensorSpec> tensors);

Shares divide(const FilePlan& plan, const Ranks& ranks);
// The layout by which that rank stages: of each tensor is wanted what its pieces span.
std::shared_ptr<const ImageLayout> layout_of_share(const ImageLayout& layout, const Shares& shares, int rank);
// The same for a layout alone; `head` is a multiple of 4096.
Shares divide(const ImageLayout& layout, std::uint64_t head, const Ranks& ranks);

}  // namespace holdfast::inline v1
