// A whole checkpoint file: index, verification, reading of tensors. The input is the file. Its mutator knows
// where index and tensors lie and sets the digests right again most of the time, so that what is behind them
// is reached.
#include <random>

#include "bytes_file.h"
#include "holdfast/format/internal/index_json.h"
#include "holdfast/format/layout.h"
#include "holdfast/writing/file_verifier.h"
#include "index_mutator.h"
#include "memory_budget.h"
#include "sealed_file.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace holdfast::test { namespace {

using SnapshotPtr = std::shared_ptr<Snapshot>;

bool good(std::span<const std::byte> bytes) {
  const BytesFile file(bytes);
  const auto index = read_index(file);
  return std::holds_alternative<CheckpointIndex>(index) &&
         !verify_bytes(file, std::get<CheckpointIndex>(index));
}

void check_snapshot(const Snapshot& snapshot, const CheckpointIndex& index,
                    std::span<const std::byte> bytes) {
  std::vector<Digest> digests;
  for (std::size_t i = 0; i < index.tensors.size(); ++i) {
    const auto tensor = snapshot.bytes(i);
    const auto there = bytes.subspan(index.tensors[i].offset, tensor.size());
    require(std::equal(tensor.begin(), tensor.end(), there.begin()),
            "a tensor with other bytes than the file's");
    digests.push_back(index.tensors[i].digest);
  }
  require(state_digest(snapshot) == state_digest(snapshot, digests), "two digests of one state");
}

void check_part(const BytesFile& file, const CheckpointIndex& index, const Snapshot& all,
                std::string_view prefix) {
  const auto part =
      read_tensors(file, index, [&](const TensorSpec& spec) { return spec.name.starts_with(prefix); });
  require(std::holds_alternative<SnapshotPtr>(part), "a part of a good file is refused");
  const Snapshot& snapshot = *std::get<SnapshotPtr>(part);
  for (const TensorSpec& spec : snapshot.layout->tensors()) {
    const auto here = *snapshot.find(spec.name);
    const auto there = *all.find(spec.name);
    require(std::equal(here.begin(), here.end(), there.begin(), there.end()),
            "a part with other bytes than the whole");
  }
}

// Of a good file every byte is covered: no other byte, one more and one fewer are damage.
void check_covered(std::vector<std::byte> bytes) {
  std::uint64_t place = 1469598103934665603u;
  for (std::size_t i = 0; i < bytes.size(); i += 61) {
    place = (place ^ static_cast<std::uint64_t>(bytes[i])) * 1099511628211u;
  }
  std::byte& byte = bytes[place % bytes.size()];
  const std::byte was = byte;
  byte ^= static_cast<std::byte>(1u << (place >> 40) % 8);
  require(!good(bytes), "a flipped bit was not noticed");
  byte = was;
  bytes.push_back(std::byte{0});
  require(!good(bytes), "a byte at the end was not noticed");
  bytes.resize(bytes.size() - 2);
  require(!good(bytes), "a missing byte was not noticed");
}

void check_verifier(const BytesFile& file, bool whole) {
  FileVerifier verifier(1);
  const Verdict verdict = verifier.inspect(file, Verifier::Depth::full, false);
  require(whole || verdict.kind != Verdict::Kind::good, "the store would take a damaged file");
  if (verdict.kind == Verdict::Kind::good) {
    require(std::holds_alternative<FileVerifier::Loaded>(verifier.load(file)),
            "a file that was good cannot be loaded");
  }
}

void check(const std::vector<std::byte>& bytes) {
  const BytesFile file(bytes);
  const auto read = read_index(file);
  const auto* const index = std::get_if<CheckpointIndex>(&read);
  if (index == nullptr) return check_verifier(file, false);
  const bool whole = !verify_bytes(file, *index);
  require(whole == !verify_bytes(file, *index, ReadMode::uncached), "two ways to read, two verdicts");
  const auto snapshot = read_snapshot(file, *index, 1);
  require(whole == std::holds_alternative<SnapshotPtr>(snapshot), "verification and reading disagree");
  check_verifier(file, whole);
  if (!whole) return;
  const Snapshot& all = *std::get<SnapshotPtr>(snapshot);
  check_snapshot(all, *index, bytes);
  for (const char* const prefix : {"", "model/", "a"}) check_part(file, *index, all, prefix);
  check_covered(bytes);
}

std::size_t mutate_bytes(std::vector<std::byte>& bytes, std::size_t from, std::size_t most) {
  std::vector<std::uint8_t> part(std::max<std::size_t>(most, 1));
  const std::size_t size = bytes.size() - from;
  if (size > part.size()) return bytes.size();
  if (size > 0) std::memcpy(part.data(), bytes.data() + from, size);
  const std::size_t mutated = LLVMFuzzerMutate(part.data(), size, part.size());
  bytes.resize(from + mutated);
  if (mutated > 0) std::memcpy(bytes.data() + from, part.data(), mutated);
  return bytes.size();
}

// The index's text as libFuzzer likes it.
void mutate_text(std::vector<std::byte>& file, std::string text) {
  const std::size_t room = header_of(file).user_block - kIndexOffset;
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  mutate_bytes(bytes, 0, room);
  set_index_text(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// The index as a value; `digests`: the bytes' own afterwards.
void mutate_value(std::vector<std::byte>& file, CheckpointIndex& index, std::mt19937& random, bool digests) {
  mutate_index(index, file.size(), random);
  if (digests) set_digests(index, file);
  set_index_text(file, internal::index_json(index));
}

// The bytes behind the user block. The last stretch becomes as long as the file then is.
void mutate_body(std::vector<std::byte>& file, CheckpointIndex& index, std::size_t most) {
  internal::Header header = header_of(file);
  mutate_bytes(file, header.user_block, most - header.user_block);
  header.file_length = file.size();
  set_header(file, header);
  if (!index.stretches.empty() && index.stretches.back().offset < file.size()) {
    index.stretches.back().length = file.size() - index.stretches.back().offset;
  }
  set_digests(index, file);
  set_index_text(file, internal::index_json(index));
}

}}  // namespace holdfast::test

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
  using namespace holdfast;
  using namespace holdfast::test;
  std::mt19937 random(seed);
  std::vector<std::byte> file(size);
  std::memcpy(file.data(), data, size);
  const auto text = index_text(file);
  const unsigned way = random() % 16;
  if (!text || way == 0 || max_size < file.size()) return LLVMFuzzerMutate(data, size, max_size);

  auto parsed = internal::parse_index(*text, true);
  auto* const index = std::get_if<CheckpointIndex>(&parsed);
  if (way == 1) {
    mutate_bytes(file, 0, max_size);
    if (file.size() >= kHeaderSize) {
      internal::Header header = header_of(file);
      if (random() % 2 == 0) header.file_length = file.size();
      set_header(file, header);
    }
  } else if (way == 2) {
    internal::Header header = header_of(file);
    mutate_header(header, random);
    set_header(file, header);
  } else if (way < 6 || index == nullptr) {
    mutate_text(file, *text);
  } else if (way < 13) {
    mutate_value(file, *index, random, way != 6);
  } else {
    mutate_body(file, *index, max_size);
  }
  if (file.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast::test;
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  const MemoryBudget budget(budget_for(size));
  check(bytes);
  return 0;
}
