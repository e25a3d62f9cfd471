// Small pictures with labels, in memory as bytes, and the data set that makes normalised, augmented float32
// batches.
//
// PictureSet is the data, as cifar10.h and synthetic.h return it. PictureDataset adds the augmentation; a
// Loader takes it. inputs: float32 [batch, channels, height, width]; targets: int64 [batch].
//
// The fingerprint is the XXH3-128 of all pictures and labels, about 15 ms for CIFAR-10; less would miss a
// changed file. Above 1 GiB it hashes evenly spaced blocks of 1 GiB in total.
//
// Errors: UsageError for an impossible shape or augmentation. Threads: const methods may be called from any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/data/augment.h"
#include "holdfast/data/dataset.h"

namespace holdfast { inline namespace v0_2 {

class HOLDFAST_EXPORT PictureSet {
 public:
  // A picture is a record: a label byte, then channels x height x width bytes, planes in order. The memory is
  // uninitialised.
  PictureSet(std::string name, std::int64_t count, PictureShape shape, std::int64_t classes);

  const std::string& name() const { return name_; }
  std::int64_t size() const { return count_; }
  const PictureShape& shape() const { return shape_; }
  std::int64_t classes() const { return classes_; }

  const std::uint8_t* record(std::int64_t index) const { return records_.get() + index * record_bytes_; }
  std::uint8_t* record(std::int64_t index) { return records_.get() + index * record_bytes_; }
  std::int64_t record_bytes() const { return record_bytes_; }
  int label(std::int64_t index) const { return *record(index); }
  const std::uint8_t* pixels(std::int64_t index) const { return record(index) + 1; }

  std::string fingerprint() const;

 private:
  struct Free {
    void operator()(std::uint8_t* memory) const;
  };
  std::string name_;
  std::int64_t count_;
  PictureShape shape_;
  std::int64_t classes_;
  std::int64_t record_bytes_;
  std::unique_ptr<std::uint8_t[], Free> records_;
};

// Both halves of a data set. Evaluation never uses `train`.
struct PictureSplits {
  PictureSet train;
  PictureSet test;
};

class HOLDFAST_EXPORT PictureDataset {
 public:
  PictureDataset(PictureSet pictures, const AugmentOptions& options);

  std::int64_t size() const { return pictures_.size(); }
  std::vector<at::Tensor> get_batch(const BatchRequest& request, TensorPool& pool) const;
  std::string fingerprint() const { return pictures_.fingerprint(); }
  void save_options(StateWriter& out) const;
  const PictureSet& pictures() const { return pictures_; }

 private:
  PictureSet pictures_;
  AugmentOptions options_;
  NormalizeTable table_;
};

}}  // namespace holdfast::v0_2
