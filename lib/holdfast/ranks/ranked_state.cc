#include "holdfast/ranks/ranked_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

bool of_other_rank(const TensorSpec& tensor) { return tensor.name.starts_with(kRankGroup); }

std::string group_of(int rank) { return std::string(kRankGroup) + std::to_string(rank) + "/"; }

// A rank's own tensors appear under the names that a process alone gives them: sources know no ranks.
std::unique_ptr<ImageLayout> layout_for(int rank, const ImageLayout& whole) {
  std::vector<TensorSpec> tensors;
  std::vector<std::uint64_t> offsets;
  std::vector<ByteRange> wanted;
  for (std::size_t i = 0; i < whole.tensors().size(); ++i) {
    const TensorSpec& tensor = whole.tensors()[i];
    // Tensors of other ranks are the file's, and this rank's source does not know them.
    if (of_other_rank(tensor)) continue;
    // A file of fewer ranks has no tensors of this one, so rank 0's take their place.
    const auto own = rank > 0 ? whole.find(name_in_file(rank, tensor.name)) : std::nullopt;
    TensorSpec spec = whole.tensors()[own.value_or(i)];
    spec.name = tensor.name;
    tensors.push_back(std::move(spec));
    offsets.push_back(whole.offset(own.value_or(i)));
    wanted.push_back(whole.wanted(own.value_or(i)));
  }
  return std::make_unique<ImageLayout>(std::move(tensors), std::move(offsets), whole.length(),
                                       std::move(wanted));
}

}  // namespace

std::string name_in_file(int rank, const std::string& name) {
  // Rank 0's tensors have the names of a run of one process, so a file fits any number of ranks.
  return rank == 0 ? name : group_of(rank) + name;
}

std::vector<TensorSpec> without_ranks(std::span<const TensorSpec> tensors) {
  std::vector<TensorSpec> kept;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(kept),
               [](const TensorSpec& tensor) { return !of_other_rank(tensor); });
  return kept;
}

bool has_own_of(int rank, std::span<const TensorSpec> tensors) {
  const std::string group = group_of(rank);
  return rank == 0 || std::any_of(tensors.begin(), tensors.end(),
                                  [&](const TensorSpec& tensor) { return tensor.name.starts_with(group); });
}

std::shared_ptr<Snapshot> share_of(int rank, const std::shared_ptr<Snapshot>& whole) {
  const auto& tensors = whole->layout->tensors();
  // A file without groups of ranks serves every rank as it is.
  if (std::none_of(tensors.begin(), tensors.end(), of_other_rank)) return whole;
  auto share = std::make_shared<Snapshot>(*whole);
  share->layout = layout_for(rank, *whole->layout);
  share->digests = nullptr;  // of the whole layout's pieces
  return share;
}

void put_own_of(int rank, std::string_view own, const ImageLayout& layout, std::span<std::byte> image) {
  // In the order of the tensors, which is the same on every rank.
  std::vector<std::span<std::byte>> slots;
  std::uint64_t bytes = 0;
  const std::string group = group_of(rank);
  for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
    if (!layout.tensors()[i].name.starts_with(group)) continue;
    slots.push_back(layout.slot(i, image));
    bytes += slots.back().size();
  }
  if (own.size() != bytes) {
    throw Error("rank " + std::to_string(rank) + " has " + std::to_string(own.size()) +
                " bytes of its own where rank 0 has " + std::to_string(bytes) +
                ": all ranks need as many random streams, of the same kinds");
  }
  for (const std::span<std::byte> slot : slots) {
    std::memcpy(slot.data(), own.data(), slot.size());
    own.remove_prefix(slot.size());
  }
}

std::string own_tensors(SnapshotSource& source) {
  std::string text;
  for (const TensorSpec& tensor : source.describe()) {
    if (of_other_rank(tensor) || source.role(tensor).sharing != Sharing::own) continue;
    text += (text.empty() ? "" : ", ") + tensor.name + " (" + std::to_string(tensor.bytes()) + " bytes)";
  }
  return text.empty() ? "nothing" : text;
}

std::string own_of(SnapshotSource& source) {
  std::vector<TensorSpec> tensors;
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;
  for (TensorSpec& tensor : source.describe()) {
    if (of_other_rank(tensor) || source.role(tensor).sharing != Sharing::own) continue;
    offsets.push_back(bytes);
    bytes += tensor.bytes();
    tensors.push_back(std::move(tensor));
  }
  // Such a source need not know Part::own.
  if (tensors.empty()) return {};
  std::string own(bytes, '\0');
  source.copy(ImageLayout(std::move(tensors), std::move(offsets), bytes),
              std::as_writable_bytes(std::span(own)), Part::own);
  return own;
}

std::vector<TensorSpec> RankedSource::describe() {
  std::vector<TensorSpec> tensors = source_.describe();
  for (const TensorSpec& tensor : tensors) {
    if (!of_other_rank(tensor)) continue;
    throw UsageError("tensor '" + tensor.name + "' of the training state: names that begin with " +
                     std::string(kRankGroup) + " are those of the other ranks' own tensors");
  }
  const std::size_t alone = tensors.size();
  for (int rank = 1; rank < world_size_; ++rank) {
    // Appended behind the common tensors, so that those lie alike for any number of ranks.
    for (std::size_t i = 0; i < alone; ++i) {
      if (source_.role(tensors[i]).sharing != Sharing::own) continue;
      TensorSpec others = tensors[i];
      others.name = name_in_file(rank, others.name);
      tensors.push_back(std::move(others));
    }
  }
  return tensors;
}

std::unique_ptr<LateCopy> RankedSource::copy(const ImageLayout& layout, std::span<std::byte> image,
                                             Part part) {
  return source_.copy(*layout_for(rank_, layout), image, part);
}

}}}  // namespace holdfast::v0_2::internal
