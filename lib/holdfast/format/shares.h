// Which rank writes which bytes of a checkpoint file that several ranks write together. A pure function of
// the file's plan, the ranks and the tensors' owners: every rank computes it, and the fingerprint proves that
// all got the same before a byte is written.
//
// Each piece of a digest (8 MiB of a tensor) has one *source*: the rank that stages and hashes it. Each block
// of 4096 has one writer: the source of all bytes in it. A block with bytes of several sources, or of a rank
// that does not see the volume, is *late*: its bytes are *sent* to rank 0, which writes it after all reports.
// docs/several_gpus.md#who-writes-which-bytes has the rules of balance.
//
// Errors: UsageError for ranks or owners that do not exist, or if rank 0 does not see the volume;
// RefusedError if a rank would have to send more than kMostSent. Threads: pure.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/format/file_plan.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr int kAnyRank = -1;  // replicated: the same bytes on every rank

// Most bytes that one rank may send to rank 0 for one checkpoint. They travel in one message with two hex
// digits a byte, and c10d's TCPStore limits a message to 8 MiB.
inline constexpr std::uint64_t kMostSent = 3u << 20;

struct SharedPiece {
  std::size_t tensor = 0;  // index in the layout
  ByteRange bytes;         // in the file
  int source = 0;
};

struct Share {
  std::vector<std::size_t> pieces;  // indices into Shares::pieces: what it stages and hashes, ascending
  std::vector<ByteRange> stages;    // bytes of these pieces in the file, ascending; adjacent ones are joined
  std::vector<ByteRange> writes;    // whole blocks after `head`, ascending, joined; without late blocks
  std::vector<ByteRange> sends;     // bytes for rank 0, ascending; each range lies within one piece
  std::uint64_t staged = 0;         // total bytes
  std::uint64_t sent = 0;
};

struct Shares {
  std::vector<SharedPiece> pieces;  // of all tensors, in the layout's order, ascending within a tensor
  std::vector<Share> ranks;
  std::vector<ByteRange> late;  // blocks that rank 0 writes after all reports; ascending, joined
  Digest fingerprint;           // of all inputs of the division

  int world_size() const { return static_cast<int>(ranks.size()); }
};

struct Ranks {
  std::vector<bool> sees;   // by rank: can it write into the run directory; the size is the number of ranks
  std::vector<int> owners;  // by tensor: a rank or kAnyRank; empty: all are replicated
};

// Owners by name: "rank/<r>/…" belongs to rank r, everything else is replicated. Set the owner of a tensor
// that differs between ranks under another name, such as buffers that rank 0 broadcasts at the next forward.
std::vector<int> owners_by_name(std::span<const TensorSpec> tensors);

Shares divide(const FilePlan& plan, const Ranks& ranks);
// The layout for that rank's staging: of each tensor it wants the bytes that the rank's pieces span.
std::shared_ptr<const ImageLayout> layout_of_share(const ImageLayout& layout, const Shares& shares, int rank);
// Divides a layout alone. Requires that `head` is a multiple of 4096.
Shares divide(const ImageLayout& layout, std::uint64_t head, const Ranks& ranks);

}}  // namespace holdfast::v0_2
