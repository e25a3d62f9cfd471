// Policies that say which committed checkpoints stay. They combine: a file stays if any policy wants it.
//
//   .keep = KeepLast{3}
//   .keep = KeepLast{3} | KeepEvery{10'000} | KeepBest{.metric = "test_accuracy", .better = Better::higher}
//
// Rule 4 of store/commit.h protects more files: all from the newest acknowledged one on, two that this
// attempt wrote or verified, other lineages, and the newest whose loss and parameters were finite.
//
// Errors: Retention::check throws UsageError. Threads: plain values, pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {

// The newest `count` checkpoints. At least 2: with one file, every save would risk the only copy. The default
// 3 leaves two files even if one is damaged. Cost: count × size of the state, one file more during a save,
// and one more if the newest finite file is older. Without any KeepLast, KeepLast{3} applies.
struct KeepLast {
  int count = 3;
};

// The first checkpoint at or after each multiple of `steps`. Cost: the directory grows by one file every
// `steps` steps, and Holdfast never deletes them.
struct KeepEvery {
  std::int64_t steps = 0;
};

// The `count` best by a metric that was measured on exactly the checkpoint's state: "loss" (of its step's
// batch), or a name given to Checkpointer::metric(). A value measured after the file was written is found in
// later files. NaN and infinity never count as best, nor does a state that contains one. Of equal values the
// newer file stays. `count`: at most kMostBest, except by "loss". Cost: up to `count` more files, and one
// read of each file's head a process.
enum class Better { lower, higher };
inline constexpr int kMostBest = 16;  // so many of the least and greatest values each file records
struct KeepBest {
  std::string metric = "loss";
  int count = 1;
  Better better = Better::lower;
};

// All files whose state is not older than `age`. For files of this process the steady clock counts, otherwise
// the wall clock. The policy only adds files, so a wrong clock can cost space or these extra files, never the
// newest ones. Cost: age ÷ save interval files, and one read of each file's head a process.
struct KeepNewer {
  Duration age{};
};

using KeepPolicy = std::variant<KeepLast, KeepEvery, KeepBest, KeepNewer>;

class HOLDFAST_EXPORT Retention {
 public:
  Retention() : Retention(KeepLast{}) {}
  Retention(KeepLast policy) : policies_{policy} {}             // NOLINT(google-explicit-constructor)
  Retention(KeepEvery policy) : policies_{policy} {}            // NOLINT(google-explicit-constructor)
  Retention(KeepBest policy) : policies_{std::move(policy)} {}  // NOLINT(google-explicit-constructor)
  Retention(KeepNewer policy) : policies_{policy} {}            // NOLINT(google-explicit-constructor)
  Retention& operator|=(const Retention& other);

  const std::vector<KeepPolicy>& policies() const { return policies_; }
  int last() const;            // how many of the newest files stay in any case
  bool reads_content() const;  // whether a policy needs more than names
  void check() const;          // throws UsageError for an invalid number or metric name

 private:
  std::vector<KeepPolicy> policies_;
};

HOLDFAST_EXPORT Retention operator|(Retention a, const Retention& b);

// 1 to 100 letters, digits and "_-./".
HOLDFAST_EXPORT bool is_metric_name(const std::string& name);

// What the policies know about one file.
struct KeepFacts {
  std::map<std::string, double> metrics = {};  // measured at the file's step
  std::optional<Duration> age = {};
  bool finite = true;
};

// What retention knows when it decides.
struct RetentionView {
  std::vector<FileId> present;             // files of the own lineage, newest first
  std::map<FileId, bool> trusted;          // written or verified by this attempt; value: is it finite
  FileId newest_acknowledged;              // by this attempt
  std::optional<FileId> newest_finite;     // of `present`
  std::map<FileId, KeepFacts> facts = {};  // only for policies that read content
};

// The files that stay, each with the first reason found: "last 3", "best test_accuracy (0.934)".
HOLDFAST_EXPORT std::map<FileId, std::string> staying(const RetentionView& view, const Retention& keep);
// All others of `present`, oldest first. They may be deleted.
HOLDFAST_EXPORT std::vector<FileId> superfluous(const RetentionView& view, const Retention& keep);

}}  // namespace holdfast::v0_2
