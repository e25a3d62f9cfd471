// Snapshots without files: tensors packed one after another at odd offsets, large ones aligned, as the file's
// plan does.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "holdfast/snapshot/snapshot.h"
#include "holdfast/snapshot/snapshot_source.h"

namespace holdfast::test {

inline std::vector<std::string> names_of(SnapshotSource& source) {
  std::vector<std::string> names;
  for (const auto& spec : source.describe()) names.push_back(spec.name);
  return names;
}

inline std::shared_ptr<Snapshot> empty_snapshot(SnapshotSource& source) {
  auto specs = source.describe();
  std::vector<std::uint64_t> offsets;
  std::uint64_t end = 64;
  for (const TensorSpec& spec : specs) {
    end = spec.bytes() >= 65536 ? (end + 4095) / 4096 * 4096 : end + 1;
    offsets.push_back(end);
    end += spec.bytes();
  }
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->layout = std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), end);
  snapshot->arena = std::make_shared<Arena>(end);
  return snapshot;
}

inline std::shared_ptr<Snapshot> stage(SnapshotSource& source) {
  auto snapshot = empty_snapshot(source);
  source.copy(*snapshot->layout, snapshot->arena->bytes(), Part::all);
  snapshot->attributes = source.attributes();
  snapshot->step = source.position().step;
  return snapshot;
}

inline std::string digest(const Snapshot& snapshot) { return to_hex(state_digest(snapshot)); }
inline std::string digest(SnapshotSource& source) { return digest(*stage(source)); }

inline bool holds(const Snapshot& snapshot, std::string_view name) {
  return snapshot.layout->find(name).has_value();
}

template <class T>
std::vector<T> values(const Snapshot& snapshot, std::string_view name) {
  const auto bytes = snapshot.find(name).value();
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

// The message of the error that `action` throws; empty when it throws none of that type.
template <class E, class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace holdfast::test
