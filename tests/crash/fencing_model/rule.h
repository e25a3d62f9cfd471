// The fencing rule, and the ways to break it. The defaults are the rule as store/commit.h has it; each other
// value leaves one part of it out, so that the model can show what that part is for.
//
// Threads: plain values.
#pragma once

namespace holdfast::test::fencing {

enum class Sweep { before_the_list, after_the_list, never };
enum class Looks { every_time, once, never };  // for newer claims; once: after the recovery, not in a commit
// What makes a claim count: that it is there, or a mark that its attempt writes into it.
enum class Counts { being_there, marked_at_first_commit, marked_after_recovery };

struct Rule {
  bool look_before_rename = true;
  bool look_after_rename = true;
  Sweep sweep = Sweep::before_the_list;  // of temporary files of older attempts
  Looks looks = Looks::every_time;
  Counts counts = Counts::being_there;
  bool exclusive_claim = true;  // O_EXCL
  bool sync_claim = true;
  bool sync_sweep = true;  // fsync of the directory between the unlinks and the list
  bool sync_file = true;
  bool sync_rename = true;
  bool forgets_claims = false;  // of all older attempts, once recovered: fewer stay than in any run
  // Of a standby (docs/standby.md).
  bool waits_for_an_end = true;      // of the attempt that holds the run
  bool claims_what_it_saw = true;    // the number after that end, or nothing
  bool lists_after_the_wait = true;  // otherwise it begins with what it read while it waited
  // Not of the rule, but of the volume: renameat2 or link+unlink; and whether others see an operation only
  // when its machine can no longer take it back.
  bool rename_in_one = true;
  bool seen_is_durable = true;
};

}  // namespace holdfast::test::fencing
