#include "holdfast/state/internal/late_tensors.h"

#include <algorithm>
#include <cstring>

#include "holdfast/snapshot/piece_digests.h"
#include "holdfast/state/stager.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::size_t kBlock = 256u << 10;  // written, and then digested from the cache

// Row by row of the outermost dimension, so that the bytes ascend.
void copy_digesting(const Strided& tensor, std::span<std::byte> to, PieceDigester& stream) noexcept {
  const std::int64_t rows = tensor.sizes.empty() || to.empty() ? 1 : tensor.sizes[0];
  const std::size_t row = to.size() / static_cast<std::size_t>(rows);
  const auto most =
      static_cast<std::int64_t>(std::max<std::size_t>(1, kBlock / std::max<std::size_t>(1, row)));
  Strided part = tensor;
  for (std::int64_t done = 0; done < rows; done += most) {
    const std::int64_t count = std::min(most, rows - done);
    if (!part.sizes.empty()) {
      part.from = tensor.from + done * tensor.strides[0] * static_cast<std::int64_t>(tensor.element);
      part.sizes[0] = count;
    }
    const auto block =
        to.subspan(static_cast<std::size_t>(done) * row, static_cast<std::size_t>(count) * row);
    copy_strided(part, block.data());
    stream.passed(block);
  }
}

}  // namespace

void LateTensors::add(const std::string& name, const at::Tensor& tensor, std::span<std::byte> to) {
  const auto* const memory = static_cast<const std::byte*>(tensor.const_data_ptr());
  if (plain_memory(tensor)) {
    const std::span from(memory, tensor.nbytes());
    plain_.push_back({name, tensor.storage(), from, to});
    copies_.add(from, to);
    // Even numbers are plain tensors, odd ones strided; one list of samples serves both.
    samples_.add(2 * (plain_.size() - 1), from);
  } else if (tensor.device().is_cpu() && !tensor.is_conj() && !tensor.is_neg()) {
    strided_.push_back({name, tensor.storage(),
                        strided(memory, tensor.element_size(), tensor.sizes(), tensor.strides()), to});
    // In the gaps of a sparse stride lie other tensors, which may change. Then only the first element is a
    // sample.
    samples_.add(2 * strided_.size() - 1,
                 {memory, tensor.is_non_overlapping_and_dense() ? tensor.nbytes() : tensor.element_size()});
  } else {
    // Elements that ATen computes on reading cannot be copied by a thread without Torch, so copy them now.
    Stager now;
    now.add(tensor, to);
    now.run();
  }
}

void LateTensors::run() noexcept {
  copies_.work();
  while (true) {
    // Relaxed: the counter only divides the work. The end of the threads makes the copies visible.
    const std::size_t next = taken_.fetch_add(1, std::memory_order_relaxed);
    if (next >= strided_.size()) return;
    copy_strided(strided_[next].from, strided_[next].to.data());
  }
}

void LateTensors::run_digesting(PieceDigests& digests) noexcept {
  copies_.work(digests);
  PieceDigester stream(digests);
  while (true) {
    const std::size_t next = taken_.fetch_add(1, std::memory_order_relaxed);  // shares out numbers, no data
    if (next >= strided_.size()) return;
    copy_digesting(strided_[next].from, strided_[next].to, stream);
  }
}

// Compared as bytes, not as numbers: a NaN that has not changed differs from itself as a number.
std::vector<std::string> LateTensors::changed() const {
  std::vector<std::string> names;
  for (const Plain& tensor : plain_) {
    const bool same =
        tensor.from.empty() || std::memcmp(tensor.from.data(), tensor.to.data(), tensor.from.size()) == 0;
    if (!same) names.push_back(tensor.name);
  }
  for (const Spread& tensor : strided_) {
    if (!same_as_strided(tensor.from, tensor.to.data())) names.push_back(tensor.name);
  }
  return names;
}

std::vector<std::string> LateTensors::changed_samples() const {
  std::vector<std::string> names;
  for (const std::size_t owner : samples_.changed()) {
    names.push_back(owner % 2 == 0 ? plain_[owner / 2].name : strided_[owner / 2].name);
  }
  return names;
}

}}}  // namespace holdfast::v0_2::internal
