// Which committed checkpoints stay. A policy only proposes; rule 4 of store/commit.h protects: nothing newer
// than the newest acknowledged, never below two files that this attempt wrote or verified, only files of the
// own lineage, and the newest checkpoint whose loss and parameters were finite always stays.
//
// Threads: plain values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "holdfast/store/names.h"

namespace holdfast::inline v1 {

// The newest `count` checkpoints. Cost: count × size of the state on the volume, plus one file while a new
// one is written, plus one when the newest finite one is older. Requires count >= 2 (UsageError otherwise):
// with one file, every save would gamble the only copy.
struct KeepLast {
  int count = 3;
};

using Retention = KeepLast;

// What retention knows when it decides.
struct RetentionView {
  std::vector<FileId> present;          // the files of the own lineage, newest first
  std::map<FileId, bool> trusted;       // that this attempt wrote or verified; whether finite
  FileId newest_acknowledged;           // by this attempt
  std::optional<FileId> newest_finite;  // of those present
};

// What may be deleted, oldest first.
std::vector<FileId> superfluous(const RetentionView& view, Retention keep);

}  // namespace holdfast::inline v1
