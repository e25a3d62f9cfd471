// Small pictures that stay on a device as bytes; crop, mirror and normalisation run there. 32 bytes per
// picture cross the bus instead of its floats (12 KB for CIFAR-10's).
//
//   holdfast::ResidentPictures pictures(std::move(splits.train), augment, {.device = at::kCUDA});
//   holdfast::Loader loader(std::move(pictures), {.batch_size = 512, .seed = 1, .pin_memory = true});
//
// inputs: float32 [batch, channels, height, width] in the chosen layout; targets: int64 [batch]; both on the
// device. Requires: a Loader, or a loop that calls finish_batch with the result of get_batch. Errors:
// UsageError for impossible augmentation (augment.h) and for a device without room for the pictures. Threads:
// get_batch from any thread; finish_batch on the training thread, on the current stream, without waiting.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/data/augment.h"
#include "holdfast/data/dataset.h"
#include "holdfast/data/pictures.h"

namespace holdfast { inline namespace v0_2 {

// The batches have the bits of PictureDataset's: the loader gives the order, the host draws each choice for
// (seed, epoch, sample), and each float is an entry of the host's NormalizeTable. Size, fingerprint and
// recorded options are PictureDataset's too, so a resumed run may move its pictures.
//
// Device memory: a byte per value and a label; CIFAR-10's 50,000 + 10,000 pictures take 154 + 31 MB. The
// host's copy is freed. On a CPU there is no second copy. Use a CPU only in programs that must run on both:
// PictureDataset is many times faster there.
struct ResidentOptions {
  at::Device device = at::kCPU;
  at::MemoryFormat layout = at::MemoryFormat::Contiguous;  // or ChannelsLast, at the same cost
};

class HOLDFAST_EXPORT ResidentPictures {
 public:
  ResidentPictures(PictureSet pictures, const AugmentOptions& augmentation, const ResidentOptions& options);

  std::int64_t size() const { return records_.size(0); }
  // The choices for each picture: int64 [batch, 4] of sample, top, left, flip.
  std::vector<at::Tensor> get_batch(const BatchRequest& request, TensorPool& pool) const;
  // Applies the choices: inputs and targets.
  std::vector<at::Tensor> finish_batch(std::vector<at::Tensor> made) const;
  std::string fingerprint() const { return fingerprint_; }
  void save_options(StateWriter& out) const;

 private:
  AugmentOptions augmentation_;
  ResidentOptions options_;
  std::string fingerprint_;
  PictureShape shape_;
  std::optional<PictureSet> host_;  // on a CPU, where records_ is a view of it
  at::Tensor records_;              // uint8 [size, 1 + bytes]: label, planes
  at::Tensor table_;                // float32 [channels, 257]: NormalizeTable::value
};

}}  // namespace holdfast::v0_2
