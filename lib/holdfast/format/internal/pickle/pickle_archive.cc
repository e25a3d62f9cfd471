#include "holdfast/format/internal/pickle/pickle_archive.h"

#include <utility>

#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/pickle/pickle_tensor.h"
#include "holdfast/format/internal/segments.h"
#include "holdfast/format/internal/zip/crc32.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr std::string_view kPickleName = "/data.pkl";
// How a file of PyTorch before 1.6 begins: a pickle of the number 0x1950a86a20f9469cfc6c.
constexpr std::string_view kLegacyStart = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.";

}  // namespace

PickleArchive::PickleArchive(const File& file) : file_(file) {
  auto zip = read_zip(file_);
  if (const auto* const rejection = std::get_if<Rejection>(&zip)) refuse(rejection->reason);
  for (ZipEntry& entry : std::get<std::vector<ZipEntry>>(zip)) entries_.emplace(entry.name, entry);
  name_ = archive_name();
  const std::string order = name_ + "/byteorder";
  if (entries_.contains(order) && text_of(entry_of(order), 64) != "little") {
    refuse("its numbers are big-endian");
  }
  pickle_ = text_of(entry_of(name_ + std::string(kPickleName)), kMaxPickle);
  auto unpickled = unpickle(pickle_);
  if (const auto* const rejection = std::get_if<Rejection>(&unpickled)) refuse(rejection->reason);
  values_ = std::get<Unpickled>(std::move(unpickled));
}

// PyTorch names the folder in the archive after the file.
std::string PickleArchive::archive_name() const {
  std::string found;
  for (const auto& [name, entry] : entries_) {
    if (!name.ends_with(kPickleName)) continue;
    std::string folder = name.substr(0, name.size() - kPickleName.size());
    if (folder.find('/') != std::string::npos) continue;
    if (!found.empty()) refuse("it has more than one data.pkl");
    found = std::move(folder);
  }
  if (found.empty()) refuse("it is a zip archive without data.pkl, so PyTorch did not write it");
  return found;
}

const ZipEntry& PickleArchive::entry_of(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse("'" + printable(name) + "' is missing in it");
  if (!found->second.stored) refuse("'" + printable(name) + "' is compressed, which PyTorch never does");
  return found->second;
}

std::string PickleArchive::text_of(const ZipEntry& entry, std::uint64_t most) const {
  if (entry.size > most) {
    refuse("'" + printable(entry.name) + "' has " + std::to_string(entry.size) +
           " bytes, more than it needs");
  }
  std::string text(entry.size, '\0');
  const auto bytes = std::as_writable_bytes(std::span(text));
  if (file_.read_at(bytes, entry.offset) < bytes.size()) refuse("the file became shorter while it was read");
  if (crc32(bytes) != entry.crc) {
    refuse("the checksum of '" + printable(entry.name) + "' differs: " + std::string(kBadCrc));
  }
  return text;
}

const ZipEntry& PickleArchive::entry_with(const std::string& name, const PickleTensor& tensor) const {
  const ZipEntry& entry = entry_of(name_ + "/data/" + std::string(tensor.storage->key));
  if (entry.size != tensor.storage->elements * tensor.storage->unit()) {
    refuse("tensor '" + printable(name) + "': its storage has another size than its description");
  }
  return entry;
}

void PickleArchive::add(TorchIndex& index, const std::string& name, const PickleTensor& tensor) {
  const ZipEntry& entry = entry_with(name, tensor);
  const auto [found, is_new] = storages_.emplace(tensor.storage->key, index.storages.size());
  if (is_new) index.storages.push_back({entry.offset, entry.size, entry.crc});
  index.tensors.push_back({{name, tensor.dtype, tensor.shape},
                           found->second,
                           tensor.offset * size_of(tensor.dtype),
                           tensor.strides,
                           tensor.type});
}

void PickleArchive::check_size(const TorchIndex& index) const {
  constexpr std::uint64_t kFactor = 4;
  const std::uint64_t most = kFactor * file_.size();
  std::uint64_t total = 0;
  for (const TorchIndex::Tensor& tensor : index.tensors) {
    std::uint64_t bytes = size_of(tensor.spec.dtype);
    for (const std::int64_t size : tensor.spec.shape) {
      const auto count = static_cast<std::uint64_t>(size);
      bytes = count != 0 && bytes > (most + 1) / count ? most + 1 : bytes * count;
    }
    total += bytes;
    if (total > most) {
      refuse("its tensors are more than " + std::to_string(kFactor) +
             " times larger than the file, because they repeat elements; save clones of them");
    }
  }
}

std::string PickleArchive::element(const std::string& name, const PickleTensor& tensor) const {
  constexpr std::uint64_t kMost = 1U << 20U;
  for (const std::int64_t size : tensor.shape) {
    if (size != 1) refuse("'" + printable(name) + "' is a tensor with more than one number");
  }
  const std::uint64_t size = size_of(tensor.dtype);
  return text_of(entry_with(name, tensor), kMost).substr(tensor.offset * size, size);
}

std::optional<Rejection> refuse_legacy(const File& file) {
  std::string start(kLegacyStart.size(), '\0');
  if (file.read_at(std::as_writable_bytes(std::span(start)), 0) != start.size() || start != kLegacyStart) {
    return std::nullopt;
  }
  return damaged(
      "the format of PyTorch before 1.6; in Python, torch.save(torch.load(FILE), NEW_FILE) writes today's");
}

}}}  // namespace holdfast::v0_2::internal
