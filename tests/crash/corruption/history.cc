#include "history.h"

#include <algorithm>
#include <cstring>

#include "holdfast/format/internal/header.h"

namespace holdfast::test::corruption {
namespace {

std::vector<Part> parts_of(const CheckpointIndex& index) {
  std::vector<Part> parts;
  const auto add = [&](const std::string& name, std::uint64_t offset, std::uint64_t length) {
    const std::uint64_t end = offset + length;
    if (length == 0) return;
    parts.push_back(
        {offset, end, name + " (bytes " + std::to_string(offset) + ".." + std::to_string(end) + ")"});
  };
  for (const IndexedTensor& tensor : index.tensors)
    add("tensor " + tensor.spec.name, tensor.offset, tensor.spec.bytes());
  for (const auto& stretch : index.stretches) add("HDF5 metadata", stretch.offset, stretch.length);
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.begin < b.begin; });
  return parts;
}

Known known_of(const MemoryFileSystem& disk, const std::string& name) {
  MemoryFileSystem copy = disk.copy();
  Known known;
  known.name = name;
  known.bytes = copy.get(std::string(kRun) + "/" + name);
  const auto file = copy.open_file(std::string(kRun) + "/" + name, OpenMode::read);
  known.index = std::get<CheckpointIndex>(read_index(*file));
  known.step = known.index.step;
  known.parts = parts_of(known.index);
  known.state = to_hex(state_digest(*std::get<std::shared_ptr<Snapshot>>(read_snapshot(*file, known.index))));
  return known;
}

bool differs(std::span<const std::byte> a, std::span<const std::byte> b, std::uint64_t begin,
             std::uint64_t end) {
  return std::memcmp(a.data() + begin, b.data() + begin, end - begin) != 0;
}

}  // namespace

std::vector<std::string> reasons(const Known& file, std::span<const std::byte> bytes) {
  const std::size_t size = file.bytes.size();
  if (bytes.size() < kHeaderSize) return {"the file has " + std::to_string(bytes.size()) + " bytes, fewer"};
  if (bytes.size() != size) {
    const bool shorter = bytes.size() < size;
    const std::size_t by = shorter ? size - bytes.size() : bytes.size() - size;
    return {std::to_string(by) + (shorter ? " fewer" : " more") + " than were sealed"};
  }
  if (differs(file.bytes, bytes, 0, kHeaderSize) &&
      std::holds_alternative<Rejection>(internal::read_header(bytes, size))) {
    const bool magic = std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
    return {magic ? "header: digest differs" : "not a Holdfast checkpoint (no magic number)"};
  }
  if (differs(file.bytes, bytes, 0, file.index.user_block)) return {"index: digest differs"};
  constexpr std::size_t kNamed = 4;
  std::vector<std::string> texts;
  for (const Part& part : file.parts) {
    if (differs(file.bytes, bytes, part.begin, part.end)) texts.push_back(part.name);
  }
  const std::size_t count = texts.size();
  if (count > kNamed) {
    texts.resize(kNamed);
    texts.push_back(" and " + std::to_string(count - kNamed) + " more");
  }
  texts.push_back(count == 1 ? ": digest differs" : ": digests differ");
  return texts;
}

History::History(MemorySource::Options state) : straight_(state_after(kSteps, state)) {
  for (const std::int64_t last : {5, 8}) {  // step 5 is never saved: the second attempt does it again
    CheckpointerOptions options = volume_.options({SaveEvery::steps(2)});
    options.keep = KeepLast{10};
    Attempt attempt(options, state);
    attempt.train_to(last);
  }
  std::vector<std::string> names = volume_.checkpoints();
  std::sort(names.rbegin(), names.rend());
  for (const std::string& name : names) files_.push_back(known_of(volume_.disk, name));
}

const History& history() {
  static const History made;
  return made;
}

}  // namespace holdfast::test::corruption
