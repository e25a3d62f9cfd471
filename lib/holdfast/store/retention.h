// Which committed checkpoints stay: policies that combine. A file stays when any of them wants it.
//
//   .keep = KeepLast{3}
//   .keep = KeepLast{3} | KeepEvery{10'000} | KeepBest{.metric = "test_accuracy", .better = Better::higher}
//
// A policy only proposes; rule 4 of store/commit.h protects: nothing newer than the newest acknowledged,
// never below two files that this attempt wrote or verified, only files of the own lineage, and the newest
// checkpoint whose loss and parameters were finite always stays.
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
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {

// The newest `count` checkpoints; at least 2, since with one file every save would gamble the only copy.
// Cost: count × size of the state on the volume, plus one file while a new one is written, plus one when the
// newest finite one is older. Where no KeepLast is given, KeepLast{3} holds.
struct KeepLast {
  int count = 3;
};

// The first checkpoint at or after each multiple of `steps`, which is that of the multiple itself where one
// was saved there. Cost: grows with the run, one file every `steps` steps, and nothing ever deletes them.
struct KeepEvery {
  std::int64_t steps = 0;
};

// The `count` best by a metric that was measured on exactly the checkpoint's state: "loss" (of its step's
// batch), or a name given to Checkpointer::metric(). A value that came after the file was written is found in
// the later ones. NaN and infinity are never best, nor is a state with one in it; of equals the newer stays.
// Cost: up to `count` files more, and one read of each file's head per process.
enum class Better { lower, higher };
struct KeepBest {
  std::string metric = "loss";
  int count = 1;
  Better better = Better::lower;
};

// All whose state is not older than `age`: by this process's steady clock for what it wrote itself, by the
// wall clock for the rest. It only adds to what stays, so a wrong clock costs room or the extra files, never
// the newest ones. Cost: age ÷ save interval files, and one read of each file's head per process.
struct KeepNewer {
  Duration age{};
};

using KeepPolicy = std::variant<KeepLast, KeepEvery, KeepBest, KeepNewer>;

class Retention {
 public:
  Retention() : Retention(KeepLast{}) {}
  Retention(KeepLast policy) : policies_{policy} {}             // NOLINT(google-explicit-constructor)
  Retention(KeepEvery policy) : policies_{policy} {}            // NOLINT(google-explicit-constructor)
  Retention(KeepBest policy) : policies_{std::move(policy)} {}  // NOLINT(google-explicit-constructor)
  Retention(KeepNewer policy) : policies_{policy} {}            // NOLINT(google-explicit-constructor)
  Retention& operator|=(const Retention& other);

  const std::vector<KeepPolicy>& policies() const { return policies_; }
  int last() const;            // how many of the newest stay in any case
  bool reads_content() const;  // whether a policy asks for more than names
  void check() const;          // UsageError for a number or a metric's name that makes no sense

 private:
  std::vector<KeepPolicy> policies_;
};

Retention operator|(Retention a, const Retention& b);

// 1 to 100 letters, digits and "_-./".
bool is_metric_name(const std::string& name);

// What one file tells the policies.
struct KeepFacts {
  std::map<std::string, double> metrics = {};  // measured at its step
  std::optional<Duration> age = {};
  bool finite = true;
};

// What retention knows when it decides.
struct RetentionView {
  std::vector<FileId> present;             // the files of the own lineage, newest first
  std::map<FileId, bool> trusted;          // that this attempt wrote or verified; whether finite
  FileId newest_acknowledged;              // by this attempt
  std::optional<FileId> newest_finite;     // of those present
  std::map<FileId, KeepFacts> facts = {};  // needed for policies that read content
};

// What stays, each with the first reason found: "last 3", "best test_accuracy (0.934)", "newest finite".
std::map<FileId, std::string> staying(const RetentionView& view, const Retention& keep);
// The others of those present, which may be deleted, oldest first.
std::vector<FileId> superfluous(const RetentionView& view, const Retention& keep);

}  // namespace holdfast::inline v1
