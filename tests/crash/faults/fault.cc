#include "fault.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "holdfast/base/text.h"

namespace holdfast::test::faults {
namespace {

constexpr int kCodes[] = {EIO, ENOSPC, EROFS, EDQUOT, EINTR, EMFILE, ESTALE, ENOMEM};
constexpr std::size_t kShown = 5;

// A disk that takes no more is still read.
bool hinders_looking(int code) { return code != ENOSPC && code != EDQUOT && code != EROFS; }

void add(int& count, const std::vector<std::string>& sentences, const char* word, const std::string& where,
         std::vector<std::string>& shown) {
  count += sentences.empty() ? 0 : 1;
  for (const std::string& sentence : sentences) shown.push_back(std::string(word) + ": " + where + sentence);
}

}  // namespace

void Fault::plant(FaultFileSystem& files) const {
  switch (of) {
    case Of::any:
      return files.fail_any(nth, code, options);
    case Of::mutation:
      return files.fail_mutation(nth, code, options);
    case Of::write:
      return files.fail(Op::write, nth, code, options);
  }
}

std::string Fault::text() const {
  const char* const what = of == Of::any ? " operation " : of == Of::mutation ? " mutation " : " write ";
  return std::string(options.short_write ? "short write and " : "") + strerrorname_np(code) + " at" + what +
         std::to_string(nth) + (options.for_ever ? ", for ever" : "") + (options.after ? ", after it" : "");
}

std::vector<Fault> faults_of(const std::vector<Operation>& clean, Thinning thinning) {
  const auto count = [&](auto&& fits) {
    return static_cast<int>(std::count_if(clean.begin(), clean.end(), fits));
  };
  const int all = static_cast<int>(clean.size());
  const int mutations = count([](const Operation& operation) { return operation.mutating; });
  const int writes = count([](const Operation& operation) { return operation.kind == Op::write; });

  std::vector<Fault> faults;
  int offset = 0;
  for (const int code : kCodes) {
    const int stride = code == EIO ? thinning.full : code == ENOSPC ? thinning.no_space : thinning.others;
    const int first = 1 + offset++ % stride;  // another part of the history for each
    for (int nth = first; nth <= all; nth += stride) {
      faults.push_back({.of = Fault::Of::any, .nth = nth, .code = code});
      if (clean[static_cast<std::size_t>(nth) - 1].mutating) {
        faults.push_back({.of = Fault::Of::any, .nth = nth, .code = code, .options = {.after = true}});
      }
      if (hinders_looking(code)) {
        faults.push_back({.of = Fault::Of::any, .nth = nth, .code = code, .options = {.for_ever = true}});
      }
    }
    for (int nth = first; nth <= mutations; nth += stride) {
      for (const bool after : {false, true}) {
        faults.push_back({.of = Fault::Of::mutation,
                          .nth = nth,
                          .code = code,
                          .options = {.for_ever = true, .after = after}});
      }
    }
  }
  for (int nth = 1; nth <= writes; nth += thinning.full) {
    for (const bool for_ever : {false, true}) {
      faults.push_back({.of = Fault::Of::write,
                        .nth = nth,
                        .code = ENOSPC,
                        .options = {.for_ever = for_ever, .short_write = true}});
    }
  }
  return faults;
}

std::string Tally::text() const {
  return format_count(planned) + " planned, " + format_count(fired) + " fired, " + format_count(lost) +
         " lost, " + format_count(false_success) + " false successes, " + format_count(unreported) +
         " unreported, " + format_count(stuck) + " stuck";
}

void explore(Level& level, const char* name, Thinning thinning, Tally& tally) {
  // The shorter of two, should the machine have stood still in one of them: an idle writer looks around.
  std::vector<Operation> clean;
  for (int i = 0; i < 2; ++i) {
    Outcome without = level.run(std::nullopt, i);
    ASSERT_TRUE(without.kept()) << name << " without any fault";
    if (clean.empty() || without.log.size() < clean.size()) clean = std::move(without.log);
  }
  std::vector<std::string> shown;
  int number = 0;
  for (const Fault& fault : faults_of(clean, thinning)) {
    const Outcome outcome = level.run(fault, number++);
    ++tally.planned;
    tally.fired += outcome.fired > 0 ? 1 : 0;
    std::string where = std::string(name) + ", " + fault.text();
    const auto failed = std::find_if(outcome.log.begin(), outcome.log.end(),
                                     [](const Operation& operation) { return operation.failed; });
    if (failed != outcome.log.end()) where += " (" + failed->text() + ")";
    where += ": ";
    add(tally.lost, outcome.lost, "LOST", where, shown);
    add(tally.false_success, outcome.false_success, "FALSE SUCCESS", where, shown);
    add(tally.unreported, outcome.unreported, "UNREPORTED", where, shown);
    add(tally.stuck, outcome.stuck, "STUCK", where, shown);
    if (outcome.fired == 0) shown.push_back("DID NOT FIRE: " + where);
  }
  for (std::size_t i = 0; i < std::min(shown.size(), kShown); ++i) ADD_FAILURE() << shown[i];
  EXPECT_LE(shown.size(), kShown) << "and more of the kind";
  // Beyond the last operation nothing is left to fail.
  const int beyond = static_cast<int>(clean.size()) + 100;
  EXPECT_EQ(level.run(Fault{.nth = beyond, .code = EIO, .options = {.for_ever = true}}, 0).fired, 0);
}

void check_syncs(const std::string& run, Outcome& outcome) {
  std::set<std::string> failed;  // files as they are now under these names
  bool directory_failed = false;
  for (const Operation& operation : outcome.log) {
    if (operation.kind == Op::create && !operation.failed) failed.erase(operation.path);
    if (operation.kind == Op::sync_file) {
      if (failed.contains(operation.path)) {
        outcome.false_success.push_back(operation.path + " is synced again after a failed sync");
      }
      if (operation.failed) failed.insert(operation.path);
    }
    if (operation.kind == Op::sync_directory && operation.path == run && operation.failed)
      directory_failed = true;
    // A new descriptor; what is renamed from here on can be made durable.
    if (operation.kind == Op::open_directory && operation.path == run && !operation.failed)
      directory_failed = false;
    if (operation.kind == Op::rename_new && directory_failed &&
        operation.to.find(".damaged") == std::string::npos) {
      outcome.false_success.push_back("a checkpoint gets its name after a failed sync of the run directory");
    }
  }
}

}  // namespace holdfast::test::faults
