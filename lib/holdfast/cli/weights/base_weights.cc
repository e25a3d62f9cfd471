#include "holdfast/cli/weights/base_weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/format/foreign_weights.h"
#include "holdfast/format/state_dict.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Read = std::variant<std::shared_ptr<Snapshot>, Rejection>;

// The tensors begin at a whole block behind the checkpoint: readers read whole blocks.
std::uint64_t base_offset(std::uint64_t file_length) {
  constexpr std::uint64_t kBlock = 4096;
  return (file_length + kBlock - 1) / kBlock * kBlock;
}

// "model/fc.weight" -> "model", "fc.weight"
std::pair<std::string, std::string> parts_of(const std::string& name) {
  const std::size_t slash = name.find('/');
  return {name.substr(0, slash), name.substr(slash + 1)};
}

// A tensor's name in the base, and what lies there.
using Sources = std::map<std::string, TensorSpec>;

class Base {
 public:
  Base(const std::filesystem::path& path, ReadLimit& limit)
      : path_(path), opened_(open_checkpoint(path)), file_(*opened_, limit) {}

  std::shared_ptr<const Snapshot> read(const std::vector<DigestedTensor>& wanted) {
    const Sources sources = looks_foreign(file_) ? list_foreign(wanted) : list_checkpoint(wanted);
    std::set<std::string> names;
    for (const DigestedTensor& tensor : wanted) {
      const std::string& name = tensor.spec.name;
      const auto found = sources.find(name);
      if (found == sources.end()) refuse("it has no tensor '" + printable(name) + "'");
      const TensorSpec& there = found->second;
      if (there.dtype != tensor.spec.dtype || there.shape != tensor.spec.shape) {
        refuse(printable(name) + " is " + spec_text(there) + " there, and the checkpoint needs " +
               spec_text(tensor.spec));
      }
      names.insert(there.name);
    }
    const auto needed = [&](const TensorSpec& spec) { return names.contains(spec.name); };
    Read read = foreign_ ? read_foreign(file_, *foreign_, kGroup, kReadThreads, needed)
                         : read_tensors(file_, checkpoint_, needed);
    if (const auto* const rejection = std::get_if<Rejection>(&read)) damaged(rejection->reason);
    auto snapshot = std::get<std::shared_ptr<Snapshot>>(std::move(read));
    // Under the names of the checkpoint, in its order.
    std::vector<TensorSpec> specs;
    std::vector<std::uint64_t> offsets;
    for (const DigestedTensor& tensor : wanted) {
      const std::string& there = sources.at(tensor.spec.name).name;
      const std::size_t index =
          snapshot->layout->find(foreign_ ? std::string(kGroup) + "/" + there : there).value();
      if (tensor_digest(snapshot->bytes(index)) != tensor.digest) {
        refuse(printable(tensor.spec.name) + " has other bytes than the training had");
      }
      specs.push_back(tensor.spec);
      offsets.push_back(snapshot->layout->offset(index));
    }
    snapshot->layout =
        std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), snapshot->arena->size());
    return snapshot;
  }

 private:
  static constexpr std::string_view kGroup = "base";

  [[noreturn]] void refuse(const std::string& why) const {
    throw RefusedError("--base " + shown(path_) + ": " + why +
                       ". Name the file of the weights that the training began with");
  }
  [[noreturn]] void damaged(const std::string& why) const {
    throw Error("--base " + shown(path_) + ": " + why, ExitCode::difference);
  }

  Sources list_checkpoint(const std::vector<DigestedTensor>& wanted) {
    checkpoint_ = open_index(path_).index;
    Sources sources;
    std::set<std::string> modules;
    for (const DigestedTensor& tensor : wanted) modules.insert(parts_of(tensor.spec.name).first);
    for (const std::string& module : modules) {
      for (const ExportedTensor& tensor : state_dict_of(checkpoint_, module)) {
        sources[module + "/" + tensor.key] = checkpoint_.tensors[tensor.tensor].spec;
      }
    }
    return sources;
  }
  Sources list_foreign(const std::vector<DigestedTensor>& wanted) {
    auto index = read_foreign_index(file_);
    if (const auto* const rejection = std::get_if<Rejection>(&index)) damaged(rejection->reason);
    foreign_ = std::move(std::get<ForeignIndex>(index));
    std::map<std::string, TensorSpec> by_key;
    std::visit(
        [&](const auto& known) {
          for (const auto& tensor : known.tensors) by_key[tensor.spec.name] = tensor.spec;
        },
        *foreign_);
    Sources sources;
    for (const DigestedTensor& tensor : wanted) {
      const auto found = by_key.find(parts_of(tensor.spec.name).second);
      if (found != by_key.end()) sources[tensor.spec.name] = found->second;
    }
    return sources;
  }

  std::filesystem::path path_;
  std::unique_ptr<File> opened_;
  MeteredFile file_;
  CheckpointIndex checkpoint_;
  std::optional<ForeignIndex> foreign_;
};

}  // namespace

std::shared_ptr<const Snapshot> read_base(const std::filesystem::path& path,
                                          const std::vector<DigestedTensor>& wanted, ReadLimit& limit) {
  return Base(path, limit).read(wanted);
}

CheckpointIndex with_base(CheckpointIndex index, const std::vector<DigestedTensor>& wanted,
                          const Snapshot& base) {
  const std::uint64_t behind = base_offset(index.file_length);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    index.tensors.push_back({wanted[i].spec, behind + base.layout->offset(i), wanted[i].digest});
  }
  index.file_length = behind + base.arena->size();
  return index;
}

FileWithBase::FileWithBase(const File& checkpoint, const Snapshot* base)
    : checkpoint_(checkpoint), base_(base) {}

std::uint64_t FileWithBase::size() const {
  return base_ ? base_offset(checkpoint_.size()) + base_->arena->size() : checkpoint_.size();
}

template <class Read>
std::size_t FileWithBase::read(std::span<std::byte> buffer, std::uint64_t offset,
                               const Read& read_file) const {
  const std::uint64_t behind = base_ ? base_offset(checkpoint_.size()) : 0;
  if (!base_ || offset < behind) {
    const std::size_t read = read_file(buffer, offset);
    if (!base_ || read == buffer.size() || offset + buffer.size() <= behind) return read;
    // The rest of the file's last block, and what lies behind it.
    const auto gap = std::min<std::uint64_t>(behind - offset, buffer.size());
    std::fill(buffer.begin() + static_cast<std::ptrdiff_t>(read),
              buffer.begin() + static_cast<std::ptrdiff_t>(gap), std::byte{0});
    return gap + this->read(buffer.subspan(gap), behind, read_file);
  }
  const std::span<const std::byte> bytes = std::as_const(*base_->arena).bytes();
  const std::uint64_t begin = std::min<std::uint64_t>(offset - behind, bytes.size());
  const std::size_t count = std::min<std::uint64_t>(buffer.size(), bytes.size() - begin);
  std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin), count, buffer.begin());
  return count;
}

std::size_t FileWithBase::read_at(std::span<std::byte> buffer, std::uint64_t offset) const {
  return read(buffer, offset, [this](auto into, auto at) { return checkpoint_.read_at(into, at); });
}

std::size_t FileWithBase::read_uncached_at(std::span<std::byte> buffer, std::uint64_t offset) const {
  return read(buffer, offset, [this](auto into, auto at) { return checkpoint_.read_uncached_at(into, at); });
}

}}  // namespace holdfast::v0_2
