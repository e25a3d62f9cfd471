#include "holdfast/distributed/data_parallel.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdlib>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/name_list.h"
#include "holdfast/distributed/internal/c10d_compat.h"
#include "holdfast/distributed/internal/compressed_sum.h"
#include "holdfast/distributed/internal/replica.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Buckets = std::vector<std::vector<std::size_t>>;

// As PyTorch's DistributedDataParallel.
constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // bytes that are flattened into one
                                                                 // broadcast

const char* name_of(GradientCompression compression) {
  switch (compression) {
    case GradientCompression::none:
      return "none";
    case GradientCompression::fp16:
      return "fp16";
    case GradientCompression::bf16:
      return "bf16";
  }
  return "none";
}

// Encoding: [2, 3, 1, 1, 0] is a bucket of two (3 and 1) and a bucket of one (0).
std::vector<std::int64_t> flat(const Buckets& buckets) {
  std::vector<std::int64_t> numbers;
  for (const auto& bucket : buckets) {
    numbers.push_back(static_cast<std::int64_t>(bucket.size()));
    numbers.insert(numbers.end(), bucket.begin(), bucket.end());
  }
  return numbers;
}

Buckets unflat(const std::vector<std::int64_t>& numbers) {
  Buckets buckets;
  for (std::size_t at = 0; at < numbers.size();) {
    const std::int64_t count = numbers[at++];
    // The numbers come from a file and decide how much is read.
    if (count < 1 || static_cast<std::size_t>(count) > numbers.size() - at) {
      throw RefusedError("the recorded order of gradient buckets is malformed");
    }
    const auto begin = numbers.begin() + static_cast<std::ptrdiff_t>(at);
    buckets.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(count));
    at += static_cast<std::size_t>(count);
  }
  return buckets;
}

bool holds_each_once(const Buckets& buckets, std::size_t parameters) {
  std::vector<bool> seen(parameters, false);
  std::size_t count = 0;
  for (const auto& bucket : buckets) {
    for (const std::size_t index : bucket) {
      if (index >= parameters || seen[index]) return false;
      seen[index] = true;
      ++count;
    }
  }
  return count == parameters;
}

}  // namespace

struct DataParallel::Parts {
  std::vector<ModuleTensor> tensors;
  std::vector<bool> trains;            // of `tensors`: a parameter that took a gradient at construction
  std::vector<at::Tensor> parameters;  // those with gradients
  std::vector<at::Tensor> buffers;
  std::vector<std::string> names;  // names of `parameters`
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;  // the Reducer crashes with find_unused if it has none

  void check_layout(ProcessGroup& group) const;
  void make_reducer(const ProcessGroup& group, const DataParallelOptions& options);
  void require_same_set(bool find_unused) const;
  Buckets arranged() const;
  std::string without_gradient(const std::string& complaint) const;
};

// Exchanges digests first; texts only if they differ.
void DataParallel::Parts::check_layout(ProcessGroup& group) const {
  const std::string own = layout_text(tensors);
  // A digest is enough as long as all are equal, and a layout may have megabytes.
  const auto seen = group.exchange("the models' layouts", to_hex(digest_of(std::as_bytes(std::span(own)))));
  if (std::all_of(seen.begin(), seen.end(), [&](const std::string& text) { return text == seen.front(); }))
    return;
  const auto layouts = group.exchange("the models' layouts", own);
  for (std::size_t rank = 1; rank < layouts.size(); ++rank) {
    if (layouts[rank] == layouts.front()) continue;
    throw UsageError("ranks have different models: rank " + std::to_string(rank) + " " +
                     layout_difference(layouts[rank], layouts.front()) +
                     "; build the same one everywhere (same program, same options)");
  }
}

void DataParallel::Parts::make_reducer(const ProcessGroup& group, const DataParallelOptions& options) {
  const auto limits = std::vector<std::size_t>{static_cast<std::size_t>(options.first_bucket_bytes),
                                               static_cast<std::size_t>(options.bucket_bytes)};
  // Nobody knows the order of the gradients yet, so the order of registration stands in.
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      parameters, limits, std::vector<bool>(parameters.size(), false)));
  std::reverse(buckets.begin(), buckets.end());  // backward computes the last layer's gradients first
  std::unordered_map<std::size_t, std::string> numbered;
  for (std::size_t i = 0; i < names.size(); ++i) numbered.emplace(i, names[i]);
  reducer = compat::make_reducer({.parameters = parameters,
                                  .buckets = std::move(buckets),
                                  .group = group.c10d(),
                                  .bucket_bytes = options.bucket_bytes,
                                  .find_unused = options.find_unused,
                                  .names = std::move(numbered),
                                  .first_bucket_bytes = options.first_bucket_bytes});
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  logger->set_construction_data_and_log("model", {}, -1, options.broadcast_buffers, false, false);
  if (options.compression != GradientCompression::none) {
    const auto type = options.compression == GradientCompression::fp16 ? c10::kHalf : c10::kBFloat16;
    reducer->register_comm_hook(std::make_unique<CompressedSum>(group.c10d(), type));
  }
}

// The Reducer has hooks for the parameters of its construction alone: another one would stay this rank's own.
void DataParallel::Parts::require_same_set(bool find_unused) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool trains_now = !tensors[i].buffer && tensors[i].tensor.requires_grad();
    // One that is frozen since is unused on all ranks.
    if (trains_now == trains[i] || (!trains_now && find_unused)) continue;
    throw UsageError("parameter " + tensors[i].name +
                     (trains_now ? " takes a gradient now, and was frozen" : " is frozen now, and was not") +
                     " when the DataParallel was made: by requires_grad_(), or as resume() restored it. Make "
                     "the DataParallel anew after the last change, and before resume() with what the "
                     "checkpoint has (Checkpointer::peek())");
  }
}

Buckets DataParallel::Parts::arranged() const {
  std::unordered_map<const c10::TensorImpl*, std::size_t> index_of;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    index_of.emplace(parameters[i].unsafeGetTensorImpl(), i);
  Buckets buckets;
  for (const c10d::GradBucket& bucket : reducer->get_grad_buckets(false)) {
    auto& indices = buckets.emplace_back();
    for (const at::Tensor& parameter : bucket.getParameters()) {
      indices.push_back(index_of.at(parameter.unsafeGetTensorImpl()));
    }
  }
  return buckets;
}

// Parses c10d's message "… did not receive grad for rank 0: 3 7".
std::string DataParallel::Parts::without_gradient(const std::string& complaint) const {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> found;
  auto at = complaint.find(": ", complaint.find("did not receive grad for rank"));
  while (at != std::string::npos && at + 1 < complaint.size()) {
    char* end = nullptr;
    const unsigned long index = std::strtoul(complaint.c_str() + at + 1, &end, 10);
    const auto next = static_cast<std::size_t>(end - complaint.c_str());
    if (next <= at + 1 || index >= names.size()) break;
    found.push_back(names[index]);
    at = next < complaint.size() && complaint[next] == ' ' ? next : std::string::npos;
  }
  return found.empty() ? "some" : name_list(found, kShown);
}

DataParallel::DataParallel(torch::nn::Module& module, ProcessGroup& group, const DataParallelOptions& options)
    : group_(&group), options_(options) {
  if (options.first_bucket_bytes < 1 || options.bucket_bytes < 1) {
    throw UsageError("gradient buckets need a size: first_bucket_bytes and bucket_bytes must be at least 1");
  }
  if (group.alone() && group.world_size() > 1) {
    throw UsageError("the ranks have parted already: make a DataParallel before ProcessGroup::leave()");
  }
  if (group.alone()) return;
  auto parts = std::make_unique<Parts>();
  parts->tensors = replica_of(module);
  std::vector<at::Tensor> all;
  for (const ModuleTensor& entry : parts->tensors) {
    all.push_back(entry.tensor.detach());
    if (entry.buffer) parts->buffers.push_back(entry.tensor);  // itself: a load may give it other memory
    parts->trains.push_back(!entry.buffer && entry.tensor.requires_grad());
    if (!parts->trains.back()) continue;
    // Frozen parameters take no gradient, so the Reducer would wait for them for ever.
    parts->parameters.push_back(entry.tensor);
    parts->names.push_back(entry.name);
  }
  // Before the broadcast: with different layouts it would write one tensor's bytes into another, or hang.
  parts->check_layout(group);
  if (parts->parameters.empty()) throw UsageError("the model has no parameter that takes a gradient");
  const c10::NoGradGuard no_grad;
  group.guard("rank 0's parameters",
              [&] { c10d::broadcast_coalesced(group.c10d(), all, kBroadcastBytes, 0); });
  // Adopted before verify(), which uses it; a constructor that throws destroys it again.
  parts_ = std::move(parts);
  verify();
  group.guard("the reducer", [&] { parts_->make_reducer(group, options_); });
}

DataParallel::~DataParallel() = default;

void DataParallel::before_forward() {
  if (!parts_ || !options_.broadcast_buffers || !buffers_due_ || parts_->buffers.empty()) return;
  const c10::NoGradGuard no_grad;
  group_->guard("rank 0's buffers",
                [&] { c10d::broadcast_coalesced(group_->c10d(), parts_->buffers, kBroadcastBytes, 0); });
}

void DataParallel::backward(const at::Tensor& loss, Gradients gradients) {
  buffers_due_ = gradients == Gradients::reduce;
  // The Reducer's hooks ignore a pass that prepare_for_backward() has not announced, so its gradients only
  // add up on this rank.
  if (!parts_ || gradients == Gradients::accumulate) {
    loss.backward();
    return;
  }
  parts_->require_same_set(options_.find_unused);
  group_->guard("gradients", [&] {
    // Without unused parameters the graph need not be searched.
    parts_->reducer->prepare_for_backward(options_.find_unused ? std::vector<at::Tensor>{loss}
                                                               : std::vector<at::Tensor>{});
    loss.backward();
  });
  try {
    // Outside of guard(): a missing gradient is this program's mistake, not a lost rank.
    parts_->reducer->check_finalized();
  } catch (const c10::Error& error) {
    throw UsageError("no gradient in this step for " +
                     parts_->without_gradient(error.what_without_backtrace()) +
                     ": the ranks' sums are not complete. Leave them out of the model, or set find_unused");
  }
  if (!settled_) settle_buckets();
}

// Called here, not in the next forward pass as PyTorch does: a checkpoint may be taken in between.
void DataParallel::settle_buckets() {
  // The Reducer has seen one backward pass and can now order buckets by the arrival of gradients.
  group_->guard("the order of buckets", [&] { parts_->reducer->rebuild_buckets(); });
  settled_ = true;
  if (buckets_.empty()) {
    buckets_ = parts_->arranged();
  } else {
    // A resumed run takes over the recorded order: another one would round sums differently.
    parts_->reducer->initialize_buckets(buckets_);
  }
}

void DataParallel::verify() {
  if (!parts_) return;
  const std::vector<Digest> digests = digests_of(parts_->tensors);
  // One digest of all first. Those of each tensor are sent only to name the one that differs.
  const auto seen = group_->exchange("the models' digests", to_hex(combine_digests(digests)));
  if (std::all_of(seen.begin(), seen.end(), [&](const std::string& text) { return text == seen.front(); }))
    return;
  std::string own;
  for (const Digest& digest : digests) own += to_hex(digest);
  const auto all = group_->exchange("the models' digests", own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    for (std::size_t i = 0; i < digests.size(); ++i) {
      // 32 hexadecimal digits for each digest.
      const auto of = [&](const std::string& text) { return text.substr(32 * i, 32); };
      if (of(all[rank]) == of(all.front())) continue;
      throw UsageError(
          "ranks have drifted apart: '" + parts_->tensors[i].name + "' of rank " + std::to_string(rank) +
          " is not rank 0's: does something change the model on one rank alone, or was a gradient not "
          "reduced?");
    }
  }
}

void DataParallel::save(StateWriter& out) const {
  out.option("compression", std::string(name_of(options_.compression)));
  out.option("first_bucket_bytes", options_.first_bucket_bytes);
  out.option("bucket_bytes", options_.bucket_bytes);
  out.put("buckets", flat(buckets_));
}

void DataParallel::load(const StateReader& in) {
  Buckets recorded = unflat(in.get_ints("buckets"));
  if (parts_ && !recorded.empty()) {
    if (!holds_each_once(recorded, parts_->parameters.size())) {
      throw RefusedError("the recorded order of gradient buckets does not name each of this model's " +
                         std::to_string(parts_->parameters.size()) +
                         " parameters with gradients once: make the DataParallel with those frozen that were "
                         "frozen then");
    }
    // For the sums of the first update. settle_buckets() does it again, because the Reducer orders its
    // buckets anew after that one.
    parts_->reducer->initialize_buckets(recorded);
  }
  // Kept in a world of one, too: a later start with several ranks continues with this order.
  buckets_ = std::move(recorded);
}

}}  // namespace holdfast::v0_2
