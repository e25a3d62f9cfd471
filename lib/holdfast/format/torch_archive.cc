#include "holdfast/format/torch_archive.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>

#include "holdfast/base/error.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/foreign_snapshot.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/workers.h"
#include "holdfast/format/internal/zip/crc32.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using internal::damaged;
using Tensor = TorchIndex::Tensor;
using Storage = TorchIndex::Storage;

bool is_contiguous(const Tensor& tensor) {
  std::int64_t stride = 1;
  for (std::size_t i = tensor.spec.shape.size(); i-- > 0;) {
    const std::int64_t size = tensor.spec.shape[i];
    // An empty tensor is contiguous whatever its strides are.
    if (size == 0) return true;
    // The stride of a dimension of size 1 is never used, and PyTorch leaves any value there.
    if (size != 1 && tensor.strides[i] != stride) return false;
    stride *= size;
  }
  return true;
}

// Copies the elements in the order of the shape.
void gather(const Tensor& tensor, std::span<const std::byte> storage, std::span<std::byte> to) {
  const std::size_t size = size_of(tensor.spec.dtype);
  std::vector<std::int64_t> place(tensor.spec.shape.size());
  std::uint64_t from = tensor.offset / size;
  for (std::uint64_t element = 0; element < to.size() / size; ++element) {
    std::memcpy(&to[element * size], &storage[from * size], size);
    // Like an odometer: the last dimension moves first.
    for (std::size_t i = place.size(); i-- > 0;) {
      from += static_cast<std::uint64_t>(tensor.strides[i]);
      if (++place[i] < tensor.spec.shape[i]) break;
      from -=
          static_cast<std::uint64_t>(tensor.strides[i]) * static_cast<std::uint64_t>(tensor.spec.shape[i]);
      place[i] = 0;
    }
  }
}

// Reads storages, each once, and copies their tensors into the image.
class StorageReader {
 public:
  StorageReader(const File& file, const TorchIndex& index, Snapshot& snapshot)
      : file_(file), index_(index), snapshot_(snapshot), users_(index.storages.size()) {
    for (std::size_t i = 0; i < index.tensors.size(); ++i) users_[index.tensors[i].storage].push_back(i);
  }

  std::optional<Rejection> read_all(int threads) {
    std::atomic<std::size_t> next{0};
    internal::run_workers(
        internal::threads_for(threads, users_.size()), [&](const internal::Stopped& stopped) {
          for (std::size_t i = next++; i < users_.size() && !stopped && !failed_; i = next++) {
            // Storages of the optimizer may be of no interest; skip them.
            if (users_[i].empty()) continue;
            if (auto rejection = read(i)) fail(std::move(*rejection));
          }
        });
    const MutexLock lock(mutex_);
    return std::move(rejection_);
  }

 private:
  std::span<std::byte> slot(std::size_t tensor) const {
    return snapshot_.layout->slot(tensor, snapshot_.arena->bytes());
  }

  // A storage that one tensor fills goes straight into its place.
  std::optional<Rejection> read(std::size_t i) {
    const Storage& storage = index_.storages[i];
    const Tensor& first = index_.tensors[users_[i][0]];
    const bool whole = first.offset == 0 && first.spec.bytes() == storage.size && is_contiguous(first);
    Arena scratch(whole ? 0 : storage.size);
    const std::span<std::byte> bytes = whole ? slot(users_[i][0]) : scratch.bytes();
    std::uint32_t crc = 0;
    for (std::uint64_t done = 0; done < bytes.size(); done += kTransferBlock) {
      // The checksum covers the whole storage, even if tensors use only a part of it.
      const auto piece = bytes.subspan(done, std::min<std::uint64_t>(bytes.size() - done, kTransferBlock));
      if (file_.read_at(piece, storage.offset + done) < piece.size())
        return damaged("the file became shorter while it was read");
      crc = internal::crc32(piece, crc);
    }
    if (crc != storage.crc) {
      return damaged("tensor " + printable(first.spec.name) +
                     ": its checksum differs: " + std::string(internal::kBadCrc));
    }
    for (const std::size_t tensor : users_[i]) {
      if (whole && tensor == users_[i][0]) continue;
      const Tensor& view = index_.tensors[tensor];
      const std::span<std::byte> to = slot(tensor);
      if (is_contiguous(view)) {
        // An empty tensor may begin at the storage's end, where there is no byte to point at.
        if (!to.empty()) std::memcpy(to.data(), &bytes[view.offset], to.size());
      } else {
        gather(view, bytes, to);
      }
    }
    return std::nullopt;
  }

  void fail(Rejection rejection) {
    const MutexLock lock(mutex_);
    if (!rejection_) rejection_ = std::move(rejection);
    failed_ = true;
  }

  const File& file_;
  const TorchIndex& index_;
  Snapshot& snapshot_;
  std::vector<std::vector<std::size_t>> users_;  // by storage: its tensors
  std::atomic<bool> failed_{false};
  Mutex mutex_;
  std::optional<Rejection> rejection_ HOLDFAST_GUARDED_BY(mutex_);
};

}  // namespace

std::variant<std::shared_ptr<Snapshot>, Rejection> read_torch(const File& file, const TorchIndex& index,
                                                              std::string_view group, int threads) {
  auto made = internal::foreign_snapshot(index.tensors, group);
  auto* const snapshot = std::get_if<std::shared_ptr<Snapshot>>(&made);
  if (snapshot == nullptr) return made;
  if (auto rejection = StorageReader(file, index, **snapshot).read_all(threads)) return std::move(*rejection);
  if (auto rejection = internal::check_booleans(**snapshot)) return std::move(*rejection);
  return made;
}

}}  // namespace holdfast::v0_2
