// The curves of a run, from the ledgers of its attempts: losses, measured values such as the test accuracy,
// speed, and what saves cost. Steps that a later attempt computed again count once.
//
// Reads each ledger once, and needs memory for the curves alone, however long the run is.
// Errors: IoError if a ledger cannot be read; malformed lines are skipped. Threads: pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "holdfast/cli/report/chart.h"
#include "holdfast/io/file_system.h"
#include "holdfast/ledger/goodput.h"

namespace holdfast { inline namespace v0_2 {

struct RunCurves {
  std::int64_t first = 0;
  std::int64_t last = 0;
  Curve loss;
  std::map<std::string, Curve> measured;  // by name; at most kMostMeasured
  Curve speed;                            // steps per second
  Curve save;                             // seconds from submit to acknowledgement
  Curve waited;                           // seconds that training waited for a save
  std::vector<Cut> cuts;                  // where attempts began, but the first

  static constexpr std::size_t kMostMeasured = 8;
};

// `account` must be computed from `lives`.
RunCurves curves_of(Directory& run_directory, const std::vector<LedgerLife>& lives,
                    const RunAccount& account);

}}  // namespace holdfast::v0_2
