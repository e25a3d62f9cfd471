// New text of the newest attempt's ledger since the last look. If it grew by more than 1 MiB, only the last 1
// MiB.
//
// Errors: none; a later look may succeed where this one failed. Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "holdfast/store/claim.h"

namespace holdfast { inline namespace v0_2 {

class LedgerTail {
 public:
  explicit LedgerTail(std::filesystem::path directory) : directory_(std::move(directory)) {}

  struct News {
    AttemptWord newest = {};  // attempt 0: none exists
    bool another = false;     // another attempt than at the last look: `lines` begin at its first line
    std::string lines = {};
  };
  News read_new_lines();

 private:
  const std::filesystem::path directory_;
  AttemptNumber attempt_ = 0;
  std::uint64_t read_ = 0;
};

}}  // namespace holdfast::v0_2
