// Small pictures that live on a device as bytes: batches are cropped, mirrored and normalised there, and what
// crosses the bus is 32 bytes a picture instead of its floats (12 KB for CIFAR-10's).
//
//   holdfast::Loader loader(holdfast::ResidentPictures(std::move(splits.train), augment, {.device =
//   at::kCUDA}),
//                           {.batch_size = 512, .seed = 1, .pin_memory = true});
//
// The batches are PictureDataset's, bit for bit: the order is the loader's, each choice is drawn on the host
// for (seed, epoch, sample), and each float is an entry of the host's NormalizeTable. Size, fingerprint and
// recorded options are PictureDataset's too, so a run may go on with its pictures at the other place.
//
// inputs: float32 [batch, channels, height, width] in the layout asked for; targets: int64 [batch]; both on
// the device. Memory there: a byte a value and a label, CIFAR-10's 50,000 + 10,000 pictures 154 + 31 MB; the
// host's is given back, unless the device is the CPU, whose bytes are the pictures' own. A CPU is for
// programs that must run on either: PictureDataset makes many times as many pictures a second there.
//
// Requires: a Loader, or a loop that calls finish_batch with what get_batch returned. Errors: UsageError for
// augmentation that cannot work (augment.h), and for a device without room for the pictures.
// Threads: get_batch may be called from any thread, finish_batch on the training thread: it launches on the
// device's current stream and never waits for it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/data/augment.h"
#include "holdfast/data/dataset.h"
#include "holdfast/data/pictures.h"

namespace holdfast::inline v1 {

struct ResidentOptions {
  at::Device device = at::kCPU;
  at::MemoryFormat layout = at::MemoryFormat::Contiguous;  // or ChannelsLast, at no further cost
};

class ResidentPictures {
 public:
  ResidentPictures(PictureSet pictures, const AugmentOptions& augmentation, const ResidentOptions& options);

  std::int64_t size() const { return records_.size(0); }
  // What is to be done with each picture: int64 [batch, 4] of sample, top, left, flip.
  std::vector<at::Tensor> get_batch(const BatchRequest& request, TensorPool& pool) const;
  // Does it: inputs and targets.
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

}  // namespace holdfast::inline v1
