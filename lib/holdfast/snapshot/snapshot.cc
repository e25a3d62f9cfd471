#include "holdfast/snapshot/snapshot.h"

#include <utility>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {

ImageLayout::ImageLayout(std::vector<TensorSpec> tensors, std::vector<std::uint64_t> offsets,
                         std::uint64_t length, std::vector<ByteRange> wanted)
    : tensors_(std::move(tensors)),
      offsets_(std::move(offsets)),
      length_(length),
      wanted_(std::move(wanted)) {
  if (offsets_.size() != tensors_.size()) throw Error("an image layout needs one offset a tensor");
  if (!wanted_.empty() && wanted_.size() != tensors_.size()) {
    throw Error("an image layout needs one range a tensor");
  }
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::uint64_t bytes = tensors_[i].bytes();
    // By subtraction, because a sum with a hostile offset could overflow.
    if (offsets_[i] > length_ || bytes > length_ - offsets_[i]) {
      throw Error("tensor '" + tensors_[i].name + "' lies outside its image");
    }
    by_name_.emplace(tensors_[i].name, i);
  }
}

std::optional<std::size_t> ImageLayout::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return std::nullopt;
  return found->second;
}

std::span<std::byte> ImageLayout::slot(std::size_t index, std::span<std::byte> image) const {
  return image.subspan(offsets_[index], tensors_[index].bytes());
}

std::span<const std::byte> ImageLayout::slot(std::size_t index, std::span<const std::byte> image) const {
  return image.subspan(offsets_[index], tensors_[index].bytes());
}

std::span<const std::byte> Snapshot::bytes(std::size_t index) const {
  return layout->slot(index, std::as_const(*arena).bytes());
}

std::optional<std::span<const std::byte>> Snapshot::find(std::string_view name) const {
  const auto index = layout->find(name);
  if (!index) return std::nullopt;
  return bytes(*index);
}

}}  // namespace holdfast::v0_2
