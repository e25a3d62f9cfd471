// Small checkpoints for the tests of the format: tensors of every type with bytes that depend on their name.
//
// Threads: free functions.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/format/image_writer.h"
#include "holdfast/format/internal/header.h"
#include "holdfast/format/reader.h"
#include "holdfast/format/seal.h"
#include "support/memory_file_system.h"

namespace holdfast::test {

inline constexpr std::uint64_t kSmallCapacity = 2048;  // keeps test files small

struct Made {
  std::shared_ptr<const FilePlan> plan;
  std::shared_ptr<Snapshot> snapshot;
};

inline std::vector<TensorSpec> small_tensors() {
  return {{"model/conv.weight", DType::float32, {4, 3, 2}},
          {"model/scale", DType::float64, {}},
          {"model/empty", DType::float32, {0, 7}},
          {"optimizer/momentum_buffer/conv.weight", DType::bfloat16, {4, 3, 2}},
          {"rng/cpu", DType::uint8, {33}}};
}

inline Attributes small_attributes() {
  Attributes attributes;
  attributes.set("step", std::int64_t{42});
  attributes.set("lr", 0.1);
  attributes.set("names", std::vector<std::string>{"a\"\\\n", "é"});
  attributes.set("host", std::string("here"), Role::record);
  return attributes;
}

// Any bit pattern may appear: NaN payloads must survive.
inline void fill(std::span<std::byte> bytes, const std::string& seed) {
  std::uint64_t state = std::hash<std::string>{}(seed) | 1;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(&bytes[i], &state, std::min(sizeof state, bytes.size() - i));
  }
}

// For read_tensors: those whose name starts with `prefix`.
inline TensorFilter under(std::string prefix) {
  return [prefix = std::move(prefix)](const TensorSpec& spec) { return spec.name.starts_with(prefix); };
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

inline Made make_snapshot(std::vector<TensorSpec> tensors, Attributes attributes, std::int64_t step = 42,
                          std::uint64_t capacity = kSmallCapacity) {
  Made made;
  made.plan = make_file_plan(std::move(tensors), capacity);
  made.snapshot = std::make_shared<Snapshot>();
  made.snapshot->layout = made.plan->layout;
  made.snapshot->arena = make_image(*made.plan);
  made.snapshot->attributes = std::move(attributes);
  made.snapshot->step = step;
  for (std::size_t i = 0; i < made.plan->layout->tensors().size(); ++i) {
    fill(made.plan->layout->slot(i, made.snapshot->arena->bytes()), made.plan->layout->tensors()[i].name);
  }
  return made;
}

inline std::vector<Digest> write(FileSystem& file_system, const std::string& path, const Made& made,
                                 int threads = 2) {
  const auto file = file_system.open_file(path, OpenMode::create_direct);
  file->reserve(made.plan->layout->length());
  auto digests = write_image(*file, *made.snapshot, *made.plan, threads);
  file->sync();
  file->close();
  return digests;
}

// The bytes of a sealed small checkpoint.
inline std::vector<std::byte> small_file() {
  MemoryFileSystem disk;
  write(disk, "/a", make_snapshot(small_tensors(), small_attributes()));
  return disk.get("/a");
}

// A small file with the header of another format, its digest in order.
inline std::vector<std::byte> of_format(std::uint32_t version, std::uint32_t lowest_reader) {
  std::vector<std::byte> file = small_file();
  const auto header = std::get<internal::Header>(internal::read_header(file, file.size()));
  internal::Header other = header;
  other.format_version = version;
  other.lowest_reader = lowest_reader;
  internal::write_header(file, other);
  return file;
}

// What a reader says of these bytes: "good", or its reason.
inline std::string judge(std::span<const std::byte> bytes, ReadMode mode = ReadMode::cached) {
  MemoryFileSystem disk;
  disk.put("/a", bytes);
  const auto file = disk.open_file("/a", OpenMode::read);
  const auto index = read_index(*file, mode);
  if (const auto* const rejection = std::get_if<Rejection>(&index)) {
    return (rejection->kind == Rejection::Kind::newer_format ? "newer: " : "") + rejection->reason;
  }
  const auto damage = verify_bytes(*file, std::get<CheckpointIndex>(index), mode);
  return damage ? damage->reason : "good";
}

}  // namespace holdfast::test
