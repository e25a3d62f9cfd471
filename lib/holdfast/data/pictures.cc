#include "holdfast/data/pictures.h"

#include <sys/mman.h>
#include <xxhash.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "holdfast/base/error.h"
#include "holdfast/data/internal/augment_options.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A huge page of x86-64.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kBlock = std::size_t{1} << 20;
// Beyond a gigabyte samples of the bytes are enough to tell two sets apart.
constexpr std::size_t kMostHashed = std::size_t{1} << 30;

std::uint8_t* allocate(std::size_t bytes) {
  // std::aligned_alloc() requires a multiple of the alignment.
  const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory, rounded, MADV_HUGEPAGE);  // saves 37,000 page faults for 50,000 pictures; may fail
  return static_cast<std::uint8_t*>(memory);
}

}  // namespace

void PictureSet::Free::operator()(std::uint8_t* memory) const { std::free(memory); }

PictureSet::PictureSet(std::string name, std::int64_t count, PictureShape shape, std::int64_t classes)
    : name_(std::move(name)),
      count_(count),
      shape_(shape),
      classes_(classes),
      record_bytes_(1 + shape.bytes()) {
  if (count < 1 || shape.channels < 1 || shape.channels > 4 || shape.height < 1 || shape.width < 1) {
    throw UsageError("a picture set needs at least one picture of 1 to 4 channels");
  }
  records_.reset(allocate(static_cast<std::size_t>(count * record_bytes_)));
}

std::string PictureSet::fingerprint() const {
  const auto bytes = static_cast<std::size_t>(count_ * record_bytes_);
  XXH3_state_t* const state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state);
  // The shape as well: the same bytes may be pictures of another shape.
  const std::array<std::int64_t, 5> head{count_, shape_.channels, shape_.height, shape_.width, classes_};
  XXH3_128bits_update(state, head.data(), sizeof head);
  if (bytes <= kMostHashed) {
    XXH3_128bits_update(state, records_.get(), bytes);
  } else {
    constexpr std::size_t kBlocks = kMostHashed / kBlock;
    for (std::size_t i = 0; i < kBlocks; ++i) {
      // Evenly spread, with the first and the last block.
      XXH3_128bits_update(state, records_.get() + (bytes - kBlock) / (kBlocks - 1) * i, kBlock);
    }
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  std::array<char, 33> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text.data();
}

PictureDataset::PictureDataset(PictureSet pictures, const AugmentOptions& options)
    : pictures_(std::move(pictures)), options_(options), table_(options) {
  internal::check_augmentation(options, pictures_.shape());
}

std::vector<at::Tensor> PictureDataset::get_batch(const BatchRequest& request, TensorPool& pool) const {
  const PictureShape& shape = pictures_.shape();
  const auto count = static_cast<std::int64_t>(request.samples.size());
  at::Tensor inputs = pool.take({count, shape.channels, shape.height, shape.width}, at::kFloat);
  at::Tensor targets = pool.take({count}, at::kLong);
  auto* pixels = inputs.mutable_data_ptr<float>();
  auto* labels = targets.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < request.samples.size(); ++i) {
    const std::int64_t sample = request.samples[i];
    if (i + 1 < request.samples.size()) {  // the order is random, so the hardware does not prefetch
      const std::uint8_t* next = pictures_.record(request.samples[i + 1]);
      // A cache line each.
      for (std::int64_t line = 0; line < pictures_.record_bytes(); line += 64)
        __builtin_prefetch(next + line);
    }
    const AugmentChoice choice = choose_augmentation(options_, request.seed, request.epoch, sample);
    augment_picture(pictures_.pixels(sample), shape, options_.padding, choice, table_, pixels);
    labels[i] = pictures_.label(sample);
    pixels += shape.bytes();
  }
  return {std::move(inputs), std::move(targets)};
}

void PictureDataset::save_options(StateWriter& out) const {
  internal::save_augmentation(options_, pictures_.shape(), out);
}

}}  // namespace holdfast::v0_2
