// HOME_STATE.json in a run directory: what its mirror says about the copies elsewhere. `status` and `ls` show
// it. `claims` lets a mirror that was killed go on; no rule of the store reads the file, and it may be old,
// torn or gone.
//
// Errors: IoError. Threads: plain values. Durability: durable when update_home_record() returns.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/io/file_system.h"
#include "holdfast/store/names.h"
#include "holdfast/store/verifier.h"

namespace holdfast { inline namespace v0_2 {

struct HomeRecord {
  std::string home = {};                   // as the user wrote it
  std::vector<AttemptNumber> claims = {};  // numbers that were claimed in HOME for this directory, ascending
  // The lowest attempt that began here without a claim, because HOME was away; 0: none. Its checkpoints count
  // only if nobody has claimed that number in HOME meanwhile.
  AttemptNumber alone = 0;
  std::optional<FileId> newest = {};  // newest checkpoint that is home
  std::string newest_since = {};      // UTC, when it was
  // From durable here to home: the slowest of the last copies. 0: none was measured.
  std::int64_t took_ms = 0;
  int copies = 0;                  // verified by this mirror
  std::string copying = {};        // name of the file that is being copied; may be empty
  std::string failure = {};        // why the last try failed; empty: it did not
  std::string failing_since = {};  // UTC
  bool superseded = false;         // somebody else owns HOME
  std::string time = {};           // UTC, when this was written
  bool owns(AttemptNumber attempt) const;
  // Keeps the newest 100. A claim that is not lower than `alone` settles that attempt.
  void add(AttemptNumber attempt);
  // The attempt began without a claim.
  void go_alone(AttemptNumber attempt) {
    if (alone == 0 || attempt < alone) alone = attempt;
  }
  // `highest`, the highest attempt in HOME, is another machine's, and files of `newest` and of attempts that
  // began alone must not go there.
  bool is_contested(AttemptNumber highest, AttemptNumber newest) const;
};

std::string to_json(const HomeRecord& record);
std::optional<HomeRecord> home_record_from_json(const std::string& text);  // nullopt: torn, empty or foreign
std::optional<HomeRecord> read_home_record(Directory& run_directory);
// Reads, merges and writes as one operation, whoever else does: a start and a mirror add claims at any
// moment. `merge` gets what is there; nullopt: nothing. Afterwards the file holds what it returns.
void update_home_record(Directory& run_directory,
                        const std::function<HomeRecord(const std::optional<HomeRecord>&)>& merge);

}}  // namespace holdfast::v0_2
