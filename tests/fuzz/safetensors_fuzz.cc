// The safetensors reader. The input is the file; its mutator keeps the header's length true most of the time.
#include <random>

#include "bytes_file.h"
#include "holdfast/base/error.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/safetensors.h"
#include "holdfast/format/safetensors_writer.h"
#include "memory_budget.h"
#include "support/memory_file_system.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace holdfast::test { namespace {

constexpr std::size_t kLengthSize = 8;

void check_tiles(const SafetensorsIndex& index) {
  std::uint64_t covered = 0;
  for (const SafetensorsIndex::Tensor& tensor : index.tensors) {
    require(tensor.offset == covered, "tensors that do not tile the data");
    require(tensor.spec.bytes() <= index.data_length - covered, "a tensor behind the end of the data");
    covered += tensor.spec.bytes();
  }
  require(covered == index.data_length, "bytes that belong to no tensor");
}

// Written by our own writer, it is read again with the same tensors.
void check_written_again(const Snapshot& snapshot, const SafetensorsIndex& index) {
  std::vector<TensorSpec> specs;
  std::vector<const ByteType*> types;
  for (const SafetensorsIndex::Tensor& tensor : index.tensors) {
    specs.push_back(tensor.spec);
    types.push_back(tensor.type);
  }
  MemoryFileSystem disk;
  {
    const auto file = disk.open_file("/again", OpenMode::create);
    SafetensorsWriter writer(*file, specs, index.metadata, types);
    for (const std::size_t tensor : writer.order()) {
      const auto bytes = snapshot.bytes(tensor);
      const auto to = writer.next(bytes.size());
      std::copy(bytes.begin(), bytes.end(), to.begin());
    }
    writer.finish();
  }
  const auto file = disk.open_file("/again", OpenMode::read);
  const auto read = read_safetensors_index(*file);
  require(std::holds_alternative<SafetensorsIndex>(read), "what our writer wrote is refused");
  const auto& again = std::get<SafetensorsIndex>(read);
  require(again.metadata == index.metadata, "metadata that changed");
  const auto types_by_key = [](const SafetensorsIndex& of) {
    std::map<std::string, const ByteType*> types;
    for (const SafetensorsIndex::Tensor& tensor : of.tensors) types.emplace(tensor.spec.name, tensor.type);
    return types;
  };
  require(types_by_key(again) == types_by_key(index), "a type that changed");
  const auto state = read_safetensors(*file, again, "model", 1);
  require(std::holds_alternative<std::shared_ptr<Snapshot>>(state), "what our writer wrote cannot be read");
  for (const TensorSpec& spec : snapshot.layout->tensors()) {
    const auto here = *snapshot.find(spec.name);
    const auto there = std::get<std::shared_ptr<Snapshot>>(state)->find(spec.name);
    require(there && std::equal(here.begin(), here.end(), there->begin(), there->end()),
            "a tensor that changed");
  }
}

struct Accepted {
  SafetensorsIndex index;
  std::shared_ptr<Snapshot> snapshot;
};

std::optional<Accepted> check(std::span<const std::byte> bytes) {
  const MemoryBudget budget(budget_for(bytes.size()));
  const BytesFile file(bytes);
  static_cast<void>(looks_like_safetensors(file));
  const auto read = read_safetensors_index(file);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) {
    require(!rejection->reason.empty(), "a rejection without a reason");
    return std::nullopt;
  }
  const auto& index = std::get<SafetensorsIndex>(read);
  require(looks_like_safetensors(file), "a file that is one does not look like one");
  require(index.data_begin + index.data_length == bytes.size(), "a file of another length was accepted");
  check_tiles(index);
  const auto state = read_safetensors(file, index, "model", 1);
  if (std::holds_alternative<Rejection>(state)) return std::nullopt;
  const auto& snapshot = *std::get<std::shared_ptr<Snapshot>>(state);
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const auto tensor = snapshot.bytes(i);
    const auto there = bytes.subspan(index.data_begin + index.tensors[i].offset, tensor.size());
    require(std::equal(tensor.begin(), tensor.end(), there.begin()),
            "a tensor with other bytes than the file's");
  }
  return Accepted{index, std::get<std::shared_ptr<Snapshot>>(state)};
}

}}  // namespace holdfast::test

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace holdfast::test;
  using holdfast::internal::get_little_endian;
  std::mt19937 random(seed);
  const auto bytes = std::as_writable_bytes(std::span(data, size));
  if (size < kLengthSize || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  const auto length = get_little_endian<std::uint64_t>(bytes, 0);
  if (length > size - kLengthSize) return LLVMFuzzerMutate(data, size, max_size);

  std::vector<std::uint8_t> header(data + kLengthSize, data + kLengthSize + length);
  std::vector<std::uint8_t> body(data + kLengthSize + length, data + size);
  auto& part = random() % 4 == 0 ? body : header;
  const std::size_t was = part.size();
  part.resize(was + max_size - size);
  if (part.empty()) return size;
  part.resize(LLVMFuzzerMutate(part.data(), was, part.size()));
  holdfast::internal::put_little_endian(bytes, 0, static_cast<std::uint64_t>(header.size()));
  std::copy(header.begin(), header.end(), data + kLengthSize);
  std::copy(body.begin(), body.end(), data + kLengthSize + header.size());
  return kLengthSize + header.size() + body.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast::test;
  if (const auto accepted = check(std::as_bytes(std::span(data, size)))) {
    check_written_again(*accepted->snapshot, accepted->index);
  }
  return 0;
}
