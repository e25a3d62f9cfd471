// The claims of a HOME that is a store (lib/holdfast/mirror/rclone_home.h), as an explicit-state model: machines
// that list, claim, list again, fetch, upload and tell what is home, over a store without O_EXCL. Some may write
// their number first, only where nothing lies, as S3 can.
//
// The store lists what was written (strong consistency). A request that was sent arrives at any later time, or
// never: after its machine gave it up, and after that machine's death. A machine may stand still for any time
// between two operations, so each machine can be a zombie. A death is a machine that takes no further step;
// the search visits every prefix, so it visits every death.
//
// Left out: bytes (a copy that was not read back stands for damage); an upload of a name that was deleted.
// Threads: plain values; one search by one thread. Every bit of a StoreWorld counts: equal worlds have equal bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace holdfast::test::store_claims {

inline constexpr int kMachines = 3;
inline constexpr int kTries = 3;  // at most, for a claim
inline constexpr int kSaves = 2;  // at most, of each machine
inline constexpr int kPast = 2;   // checkpoints of attempt 1, which is over and has left no claim
inline constexpr int kFiles = kPast + kMachines * kSaves;
inline constexpr int kNoFile = 0xf;

// The rule as the library has it. Each other value leaves one part out, to show what that part is for.
struct StoreRule {
  bool lists_after_the_claim = true;
  bool equal_number_loses = true;   // if anybody else has that number; otherwise both win
  bool higher_number_loses = true;  // if anybody has a higher number
  bool own_claim_must_be_listed = true;
  bool next_try_takes_next_number = true;
  bool counts_files = true;          // a number in the name of a file is taken
  bool keeps_highest_claim = true;   // otherwise a machine deletes its claim when it ends
  bool forgets_lower_claims = true;  // as soon as it has won: earlier than the library
  bool marks_its_start = true;       // and what is newer than that, of an older machine, stands back
  bool reads_back = true;            // before a copy counts
  bool looks_after_the_copy = true;
  bool newest_by_attempt = true;  // otherwise by step alone
  bool looks_before_it_deletes = true;
  int keeps = 2;  // checkpoints that stay
  // How many of the machines write their number first, if nothing lies there (If-None-Match); the others have
  // an older rclone.
  int conditional = 0;
  bool next_try_passes_taken_number = true;
  bool write_decides = false;  // a write that the store accepted wins, without a list
  // Of a standby. Without a look, its next try takes the next number, as that of a machine that just starts.
  bool waits_for_an_end = true;  // of the machine whose mark is the highest
  bool looks_again = true;       // after a lost claim
  bool standby_passes_taken_number = true;
  bool fetches_after_the_wait = true;      // otherwise it begins with what it read while it waited
  bool records_end_after_the_copy = true;  // otherwise its last copy may still be on the way
  // Not of the rule, but of the store.
  bool lists_what_was_written = true;
  bool honours_conditions = true;  // otherwise it accepts every write
};

enum class StoreViolation : std::uint8_t {
  none,
  two_winners,  // of one number, or the number of a checkpoint that was there
  overtaken,    // a machine wins below a number that has won
  behind,       // a copy counts after a machine with a higher number fetched without it
  // What counted as home, or what a machine began with, is not in the history of the checkpoint that the next
  // start takes.
  lost,
  early,  // a standby claims while it can see that a machine has begun, and no end of it
  older,  // a standby goes on from less than the machine had saved whose end it saw
  stuck,  // a machine that is alone with the store does not win its claim
};
const char* name_of(StoreViolation violation);

struct StoreRequest {
  StoreRule rule = {};
  int machines = kMachines;
  int tries = 2;
  int saves = 1;
  // So many, the last ones, stand by: they claim when they see the end of the machine that goes on with the
  // run. Then each machine may record its end after each of its saves, and a claim that lost may be deleted.
  // (One that also waits while a claim lies there that nobody has begun with does less.)
  int standbys = 0;
  bool silence = false;  // a standby may claim at any time
};

struct StoreResult {
  std::uint64_t states = 0;  // distinct
  std::uint64_t transitions = 0;
  std::uint64_t completed = 0;    // states in which a machine has told all its saves
  std::uint64_t lost_claims = 0;  // transitions in which a machine lost a number
  std::uint64_t refused = 0;      // transitions in which a conditional write made a machine lose
  std::uint64_t late = 0;         // requests that arrived after their machine had given them up
  StoreViolation violation = StoreViolation::none;
  std::vector<std::string> trace;  // the shortest way to it
};

StoreResult search(const StoreRequest& request);

}  // namespace holdfast::test::store_claims
