// What the fencing rule promises, as properties of the model.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "rule.h"
#include "world.h"

namespace holdfast::test::fencing {

// What must never happen.
enum class Violation : std::uint8_t {
  none,
  // Something that a user was told is safe (a commit that was acknowledged, or the file that an attempt began
  // with, which is what an attempt that ends before its first commit leaves behind) is not in the history
  // that a recovery finds, whatever a power cut has taken by then. What a user left by choosing an older
  // start is given up as soon as that branch has a checkpoint.
  lost,
  // A commit is acknowledged after a newer attempt has listed without it.
  behind,
  // A checkpoint's name appears that way: the next recovery would find what the winner never saw.
  stray,
  // An older attempt deletes or overwrites what a newer one wrote or grew from. (But the older start that a
  // user chose may be what retention was about to delete.)
  touched,
  // A standby supersedes an attempt that has recorded no end, though silence is no end.
  early,
  // Superseded without a newer claim; or an attempt that nobody disturbs, the newest one or a new one, does
  // not get through its recovery and its commits.
  stuck,
};
const char* name_of(Violation violation);

// What bounds the attempts.
struct Lives {
  int saves = kSaves;    // of each
  bool choices = false;  // a start may be the one before the newest (--resume-from)
  // So many, the last ones, stand by until the attempt that holds the run records its end. Then each attempt
  // may be interrupted before each of its saves, and is after the last.
  int standbys = 0;
  bool silence = false;  // a standby may take over at any time: --takeover-after, or `holdfast takeover`
};

// `lost` and `stuck` are properties of a world as it stands; the others, of a step.
Violation check(const World& world, bool with_a_past, const Rule& rule, const Lives& lives);

}  // namespace holdfast::test::fencing
