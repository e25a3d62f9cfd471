// What a Loader can load: a class with size() and one of these members. It may be a torch::data data set.
//
//   Sample get(std::int64_t index);                        // one sample; the loader stacks samples
//   Sample get(std::int64_t index, SampleRandom& random);  // the same, with resumable random numbers
//   std::vector<at::Tensor> get_batch(const BatchRequest&, TensorPool&);   // a whole batch at once: fast
//
// A Sample is a tensor, a struct of up to six tensors and numbers, a std::pair or std::tuple of them, or a
// torch::data::Example. Draw random numbers only from `random`: the order of the global generator depends on
// workers. Threads: several workers call get and get_batch at once; the training thread calls finish_batch.
// All run under no-grad.
#pragma once

#include <ATen/core/grad_mode.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/export.h"
#include "holdfast/data/random.h"
#include "holdfast/data/sample_fields.h"
#include "holdfast/data/tensor_pool.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v0_2 {

// Field i of all samples becomes field i of the batch. The first is `inputs`, the last `targets`.
//
// Optional members of a data set:
// - `std::string fingerprint() const`: a text that changes with the content; resume compares it. Without it
//   the loader uses the size and the types and shapes of sample 0, because reading more could take minutes.
// - `void save_options(StateWriter&) const`: records options that decide what a sample is.
// - `std::vector<at::Tensor> finish_batch(std::vector<at::Tensor> made)`, beside get_batch: makes the batch's
//   fields from the result of get_batch. Kernels on a device belong there (resident_pictures.h). The loader
//   calls it batch by batch as they are delivered, on the device's current stream.
struct BatchRequest {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
  std::span<const std::int64_t> samples;  // indices in the data set, in order of delivery
};

template <class D>
concept SizedDataset = requires(const D& data) {
  { data.size() } -> std::convertible_to<std::int64_t>;
}
|| requires(const D& data) {
  { *data.size() } -> std::convertible_to<std::int64_t>;
};

template <class D>
concept PlainDataset = SizedDataset<D> && requires(D& data, std::int64_t index) {
  data.get(index);
};

template <class D>
concept RandomDataset = SizedDataset<D> && requires(D& data, std::int64_t index, SampleRandom& random) {
  data.get(index, random);
};

template <class D>
concept BatchedDataset = SizedDataset<D> && requires(D& data, const BatchRequest& request, TensorPool& pool) {
  { data.get_batch(request, pool) } -> std::convertible_to<std::vector<at::Tensor>>;
};

template <class D>
concept FinishingDataset = BatchedDataset<D> && requires(D& data, std::vector<at::Tensor> made) {
  { data.finish_batch(std::move(made)) } -> std::convertible_to<std::vector<at::Tensor>>;
};

template <class D>
concept Dataset = PlainDataset<D> || RandomDataset<D> || BatchedDataset<D>;

namespace internal {

// Hides a data set behind one virtual interface, so that the loader is compiled once.
class HOLDFAST_EXPORT BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  virtual std::int64_t size() const = 0;
  virtual std::vector<at::Tensor> make(const BatchRequest& request, TensorPool& pool) = 0;
  virtual std::vector<at::Tensor> finish(std::vector<at::Tensor> made) = 0;
  virtual std::string fingerprint() = 0;
  virtual void save_options(StateWriter& out) const = 0;
};

// Stacks samples. `samples` are their indices, for errors; `rows[i]` are the fields of samples[i].
HOLDFAST_EXPORT std::vector<at::Tensor> stack(std::span<const std::int64_t> samples,
                                              const std::vector<std::vector<at::Tensor>>& rows,
                                              TensorPool& pool);

// The default fingerprint: the size, and the types and shapes of one sample.
HOLDFAST_EXPORT std::string shape_fingerprint(std::int64_t size, const std::vector<at::Tensor>& fields);

[[noreturn]] HOLDFAST_EXPORT void throw_sample_failed(std::int64_t sample, const char* what);

template <Dataset D>
class BatchMakerOf final : public BatchMaker {
 public:
  explicit BatchMakerOf(D data) : data_(std::move(data)) {}

  std::int64_t size() const override {
    if constexpr (requires { static_cast<std::int64_t>(*data_.size()); }) {  // torch::data: an optional
      return data_.size() ? static_cast<std::int64_t>(*data_.size()) : 0;
    } else {
      return static_cast<std::int64_t>(data_.size());
    }
  }

  std::vector<at::Tensor> make(const BatchRequest& request, TensorPool& pool) override {
    if constexpr (BatchedDataset<D>) {
      return data_.get_batch(request, pool);
    } else {
      std::vector<std::vector<at::Tensor>> rows;
      rows.reserve(request.samples.size());
      for (const std::int64_t sample : request.samples) rows.push_back(one(request, sample));
      return stack(request.samples, rows, pool);
    }
  }

  std::vector<at::Tensor> finish(std::vector<at::Tensor> made) override {
    if constexpr (FinishingDataset<D>) {
      const at::NoGradGuard no_grad;
      return data_.finish_batch(std::move(made));
    } else {
      return made;
    }
  }

  std::string fingerprint() override {
    if constexpr (requires { std::string(data_.fingerprint()); }) {
      return data_.fingerprint();
    } else if constexpr (BatchedDataset<D>) {
      TensorPool pool;
      const std::int64_t first = 0;
      return shape_fingerprint(size(),
                               data_.get_batch({.seed = 0, .epoch = 0, .samples = {&first, 1}}, pool));
    } else {
      return shape_fingerprint(size(), one({}, 0));
    }
  }

  void save_options(StateWriter& out) const override {
    if constexpr (requires { data_.save_options(out); }) data_.save_options(out);
  }

 private:
  std::vector<at::Tensor> one(const BatchRequest& request, std::int64_t sample) {
    try {
      if constexpr (RandomDataset<D>) {
        SampleRandom random(request.seed, request.epoch, sample);
        return sample_fields(data_.get(sample, random));
      } else {
        return sample_fields(data_.get(sample));
      }
    } catch (const Error&) {
      throw;  // it says what happened and has its exit code
    } catch (const std::exception& failure) {
      throw_sample_failed(sample, failure.what());
    }
  }

  D data_;
};

}  // namespace internal
}}  // namespace holdfast::v0_2
