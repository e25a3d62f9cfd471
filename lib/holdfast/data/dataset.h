// What a Loader can load. A data set has a size and makes samples; three shapes of it are known, and a type
// may be an existing torch::data data set:
//
//   Sample get(std::int64_t index);                        // one sample at a time; samples are stacked
//   Sample get(std::int64_t index, SampleRandom& random);  // the same, with resumable random numbers
//   std::vector<at::Tensor> get_batch(const BatchRequest&, TensorPool&);   // a whole batch at once: fast
//
// A Sample is a tensor, a plain struct of up to six tensors and numbers, a std::pair or std::tuple of them,
// or a torch::data::Example. Field i of all samples becomes field i of the batch; the first is `inputs`, the
// last `targets`. Random numbers must come from `random`: the global generator's order depends on the
// workers.
//
// Optional members: `std::string fingerprint() const`, a text that changes when the content does, checked on
// resume (without it the size and the types and shapes of sample 0 are taken: reading more could cost
// minutes); `void save_options(StateWriter&) const`, which records options that decide what a sample is; and,
// beside get_batch, `std::vector<at::Tensor> finish_batch(std::vector<at::Tensor> made)`, which makes the
// fields of the batch from what get_batch returned: kernels on a device belong there (resident_pictures.h).
//
// Threads: get and get_batch are called by several workers at once, finish_batch on the training thread,
// batch by batch as they are delivered, on the device's current stream; all under no-grad.
#pragma once

#include <ATen/core/grad_mode.h>

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/data/internal/sample_fields.h"
#include "holdfast/data/random.h"
#include "holdfast/data/tensor_pool.h"
#include "holdfast/state/stateful.h"

namespace holdfast::inline v1 {

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

// A data set behind one virtual interface, so that the loader is compiled once.
class BatchMaker {
 public:
  virtual ~BatchMaker() = default;
  virtual std::int64_t size() const = 0;
  virtual std::vector<at::Tensor> make(const BatchRequest& request, TensorPool& pool) = 0;
  virtual std::vector<at::Tensor> finish(std::vector<at::Tensor> made) = 0;
  virtual std::string fingerprint() = 0;
  virtual void save_options(StateWriter& out) const = 0;
};

// Stacks samples. `samples` names them in errors; `rows[i]` are the fields of samples[i].
std::vector<at::Tensor> stack(std::span<const std::int64_t> samples,
                              const std::vector<std::vector<at::Tensor>>& rows, TensorPool& pool);

// The default fingerprint, from the size and the types and shapes of one sample.
std::string shape_fingerprint(std::int64_t size, const std::vector<at::Tensor>& fields);

[[noreturn]] void throw_sample_failed(std::int64_t sample, const char* what);

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
      throw;  // already says what happened and carries its exit code
    } catch (const std::exception& failure) {
      throw_sample_failed(sample, failure.what());
    }
  }

  D data_;
};

}  // namespace internal
}  // namespace holdfast::inline v1
