#include "holdfast/format/shares.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/snapshot/piece_digests.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Ranks write whole blocks only: two processes must never write into one block with O_DIRECT.
using internal::round_down;
using internal::round_up;

void check(const ImageLayout& layout, std::uint64_t head, const Ranks& ranks) {
  if (ranks.sees.empty() || !ranks.sees.front()) {
    throw UsageError("rank 0 writes the head of every checkpoint: it must see the volume");
  }
  if (head % kBlockSize != 0) throw Error("a file's head must end with a block");
  if (!ranks.owners.empty() && ranks.owners.size() != layout.tensors().size()) {
    throw Error("shares need one owner a tensor");
  }
  for (std::size_t i = 0; i < ranks.owners.size(); ++i) {
    const int owner = ranks.owners[i];
    if (owner == kAnyRank || (owner >= 0 && static_cast<std::size_t>(owner) < ranks.sees.size())) continue;
    throw UsageError("tensor '" + printable(layout.tensors()[i].name) + "' belongs to rank " +
                     std::to_string(owner) + " in a world of " + std::to_string(ranks.sees.size()));
  }
}

// The pieces of the layout's tensors. Their source is the owner, or kAnyRank for now.
std::vector<SharedPiece> shared_pieces(const ImageLayout& layout, const Ranks& ranks) {
  std::vector<SharedPiece> pieces;
  for (const auto& [tensor, bytes] : pieces_of(layout)) {
    pieces.push_back({tensor, bytes, ranks.owners.empty() ? kAnyRank : ranks.owners[tensor]});
  }
  return pieces;
}

using Order = std::vector<std::size_t>;  // indices of pieces, in file order

Order file_order(const std::vector<SharedPiece>& pieces) {
  Order order(pieces.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return pieces[a].bytes.begin < pieces[b].bytes.begin; });
  return order;
}

// Chooses the source of small replicated pieces that share blocks with owned ones, and of all pieces in the
// head. Their position decides, so that few blocks have several sources.
void settle_neighbours(std::vector<SharedPiece>& pieces, const Order& order, std::uint64_t head,
                       const Ranks& ranks) {
  for (std::size_t at = 0; at < order.size();) {
    // [at, end): a chain of pieces, each of which shares a block with the one before.
    std::size_t end = at + 1;
    int owner = kAnyRank;
    std::uint64_t reached = pieces[order[at]].bytes.end;
    while (end < order.size() && round_down(pieces[order[end]].bytes.begin) < round_up(reached)) {
      reached = pieces[order[end++]].bytes.end;
    }
    for (std::size_t i = at; i < end && owner == kAnyRank; ++i) owner = pieces[order[i]].source;
    // A rank that does not see the volume must not take more: rank 0 writes its blocks anyway.
    if (owner != kAnyRank && !ranks.sees[static_cast<std::size_t>(owner)]) owner = 0;
    for (; at < end; ++at) {
      // Large pieces are left to fill_up(), which balances the load.
      SharedPiece& piece = pieces[order[at]];
      if (piece.source != kAnyRank) continue;
      if (piece.bytes.begin < head) {
        piece.source = 0;
      } else if (piece.bytes.size() < kAlignedFrom) {
        piece.source = owner;
      }
    }
  }
}

// How many replicated bytes each rank takes, so that all ranks that take any end at the same level.
std::vector<std::uint64_t> quotas(const std::vector<SharedPiece>& pieces, const Ranks& ranks) {
  std::vector<std::uint64_t> load(ranks.sees.size());
  std::uint64_t free = 0;
  for (const SharedPiece& piece : pieces) {
    (piece.source == kAnyRank ? free : load[static_cast<std::size_t>(piece.source)]) += piece.bytes.size();
  }
  std::vector<std::size_t> takers;
  for (std::size_t r = 0; r < load.size(); ++r) {
    if (ranks.sees[r]) takers.push_back(r);
  }
  // A stable sort, because all ranks compute this and must come to the same result.
  std::stable_sort(takers.begin(), takers.end(),
                   [&](std::size_t a, std::size_t b) { return load[a] < load[b]; });
  // Leaves out ranks with a high load until the level of the others reaches theirs.
  std::uint64_t sum = free;
  std::size_t count = 0;
  while (count < takers.size() && (count == 0 || load[takers[count]] < sum / count)) {
    sum += load[takers[count++]];
  }
  std::vector<std::uint64_t> quota(load.size());
  std::uint64_t left = free;
  // The remainder goes to the first ranks, one byte each, so that nothing is left over.
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t level = sum / count + (i < sum % count ? 1 : 0);
    const std::uint64_t takes = level > load[takers[i]] ? std::min(level - load[takers[i]], left) : 0;
    quota[takers[i]] = takes;
    left -= takes;
  }
  return quota;
}

// Each rank takes its quota in file order. A piece goes to the rank whose range contains its middle.
void fill_up(std::vector<SharedPiece>& pieces, const Order& order, const Ranks& ranks) {
  const std::vector<std::uint64_t> quota = quotas(pieces, ranks);
  std::size_t last = 0;
  for (std::size_t r = 0; r < quota.size(); ++r) {
    if (quota[r] != 0) last = r;
  }
  std::size_t rank = 0;
  std::uint64_t until = quota[0];
  std::uint64_t done = 0;
  for (const std::size_t i : order) {
    if (pieces[i].source != kAnyRank) continue;
    const std::uint64_t size = pieces[i].bytes.size();
    // By its middle, so that a piece goes where most of its bytes lie.
    while (rank < last && done + size / 2 >= until) until += quota[++rank];
    pieces[i].source = static_cast<int>(rank);
    done += size;
  }
}

void append(std::vector<ByteRange>& ranges, ByteRange range) {
  if (range.begin >= range.end) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

// A range of blocks after the head with its writer. All runs tile the file.
struct Run {
  ByteRange blocks;
  int writer = 0;
  bool late = false;
};

class BlockMap {
 public:
  BlockMap(std::uint64_t head, const Ranks& ranks) : ranks_(ranks), end_(head) {}

  // Call it for all pieces, in file order.
  void add(const SharedPiece& piece) {
    const std::uint64_t end = round_up(piece.bytes.end);
    if (end <= end_ && runs_.empty()) return;  // inside the head
    const std::size_t source = static_cast<std::size_t>(piece.source);
    // Bytes of a rank that does not see the volume travel to rank 0, which writes them late.
    const Run own{{}, ranks_.sees[source] ? piece.source : 0, !ranks_.sees[source]};
    const std::uint64_t begin = round_down(piece.bytes.begin);
    if (begin < end_ && !runs_.empty()) share_last_block(own);
    // Bytes between tensors are the plan's; the writer before them writes them too.
    if (begin > end_) push({{end_, begin}, runs_.empty() ? 0 : writer_before(), false});
    if (end > end_) push({{end_, end}, own.writer, own.late});
  }
  std::vector<Run> finish(std::uint64_t file_end) {
    if (file_end > end_) push({{end_, file_end}, runs_.empty() ? 0 : writer_before(), false});
    return std::move(runs_);
  }

 private:
  int writer_before() const { return runs_.back().writer; }
  void push(Run run) {
    end_ = run.blocks.end;
    runs_.push_back(run);
  }
  void share_last_block(const Run& own) {
    Run& last = runs_.back();
    if (last.writer == own.writer && last.late == own.late) return;
    const bool whole = last.blocks.size() == kBlockSize;
    if (!whole) last.blocks.end -= kBlockSize;
    // The block has bytes of two ranks that see the volume, or of one that does not. So rank 0 writes it
    // late, when all its bytes are there.
    const Run shared{{end_ - kBlockSize, end_}, 0, true};
    if (whole) {
      last = shared;
    } else {
      runs_.push_back(shared);
    }
  }

  const Ranks& ranks_;
  std::vector<Run> runs_;
  std::uint64_t end_;  // end of the mapped blocks
};

void give_blocks(Shares& shares, const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    append(run.late ? shares.late : shares.ranks[static_cast<std::size_t>(run.writer)].writes, run.blocks);
  }
}

// Finds the bytes that ranks other than 0 stage in the head and in late blocks.
void find_sent(Shares& shares, const Order& order, std::uint64_t head) {
  std::size_t first = 0;
  for (const std::size_t i : order) {
    const SharedPiece& piece = shares.pieces[i];
    if (piece.source == 0) continue;
    Share& share = shares.ranks[static_cast<std::size_t>(piece.source)];
    const auto send = [&](ByteRange blocks) {
      // Only the part within these blocks: the rest is written by the rank itself.
      const ByteRange part{std::max(blocks.begin, piece.bytes.begin), std::min(blocks.end, piece.bytes.end)};
      if (part.begin >= part.end) return;
      share.sends.push_back(part);
      share.sent += part.size();
    };
    send({0, head});
    while (first < shares.late.size() && shares.late[first].end <= piece.bytes.begin) ++first;
    for (std::size_t l = first; l < shares.late.size() && shares.late[l].begin < piece.bytes.end; ++l) {
      send(shares.late[l]);
    }
  }
  for (std::size_t r = 0; r < shares.ranks.size(); ++r) {
    const std::uint64_t sent = shares.ranks[r].sent;
    if (sent <= kMostSent) continue;
    throw RefusedError("rank " + std::to_string(r) + " would have to send " + format_bytes(sent) +
                       " of every checkpoint to rank 0 (at most " + format_bytes(kMostSent) +
                       "): let it see the run directory, on a volume that all ranks mount");
  }
}

// All inputs of divide(): equal texts give equal divisions.
Digest fingerprint_of(const ImageLayout& layout, std::uint64_t head, const Ranks& ranks) {
  // The text's first words are its version: ranks of two versions must not believe that they agree.
  std::string text = "holdfast shares 1\n" + std::to_string(layout.length()) + ' ' + std::to_string(head);
  for (const bool sees : ranks.sees) text += sees ? " +" : " -";
  for (const int owner : ranks.owners) text += ' ' + std::to_string(owner);
  text += '\n';
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
    const TensorSpec& tensor = layout.tensors()[i];
    text += tensor.name;
    text += '\0';
    text += name_of(tensor.dtype);
    text += shape_text(tensor.shape) + '@' + std::to_string(layout.offset(i)) + '\n';
  }
  return digest_of(std::as_bytes(std::span(text)));
}

}  // namespace

std::vector<int> owners_by_name(std::span<const TensorSpec> tensors) {
  constexpr std::string_view kGroup = "rank/";
  std::vector<int> owners(tensors.size(), kAnyRank);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string_view name = tensors[i].name;
    if (!name.starts_with(kGroup)) continue;
    int rank = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kGroup.size(), end, rank);
    // Only a number and a slash: "rank/" alone or "rank/x" is an ordinary name.
    if (error == std::errc() && rank >= 0 && stop != end && *stop == '/') owners[i] = rank;
  }
  return owners;
}

Shares divide(const ImageLayout& layout, std::uint64_t head, const Ranks& ranks) {
  check(layout, head, ranks);
  Shares shares;
  shares.ranks.resize(ranks.sees.size());
  shares.fingerprint = fingerprint_of(layout, head, ranks);
  shares.pieces = shared_pieces(layout, ranks);
  const Order order = file_order(shares.pieces);
  settle_neighbours(shares.pieces, order, head, ranks);
  fill_up(shares.pieces, order, ranks);

  BlockMap blocks(head, ranks);
  for (const std::size_t i : order) {
    const SharedPiece& piece = shares.pieces[i];
    Share& share = shares.ranks[static_cast<std::size_t>(piece.source)];
    append(share.stages, piece.bytes);
    share.staged += piece.bytes.size();
    blocks.add(piece);
  }
  for (std::size_t i = 0; i < shares.pieces.size(); ++i) {
    shares.ranks[static_cast<std::size_t>(shares.pieces[i].source)].pieces.push_back(i);
  }
  give_blocks(shares, blocks.finish(round_up(layout.length())));
  find_sent(shares, order, head);
  return shares;
}

std::shared_ptr<const ImageLayout> layout_of_share(const ImageLayout& layout, const Shares& shares,
                                                   int rank) {
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) offsets.push_back(layout.offset(i));
  std::vector<ByteRange> wanted(offsets.size());
  for (const std::size_t i : shares.ranks.at(static_cast<std::size_t>(rank)).pieces) {
    const SharedPiece& piece = shares.pieces[i];
    const ByteRange part{piece.bytes.begin - offsets[piece.tensor], piece.bytes.end - offsets[piece.tensor]};
    ByteRange& whole = wanted[piece.tensor];
    whole = whole.size() == 0 ? part
                              : ByteRange{std::min(whole.begin, part.begin), std::max(whole.end, part.end)};
  }
  return std::make_shared<ImageLayout>(layout.tensors(), std::move(offsets), layout.length(),
                                       std::move(wanted));
}

Shares divide(const FilePlan& plan, const Ranks& ranks) {
  Shares shares = divide(*plan.layout, plan.head, ranks);
  // The bytes between tensors come from libhdf5, and another host may have another version of it.
  std::vector<Digest> all{shares.fingerprint};
  for (const MetadataStretch& stretch : plan.stretches) all.push_back(stretch.digest);
  shares.fingerprint = combine_digests(all);
  return shares;
}

}}  // namespace holdfast::v0_2
