// Starts a run on a disk that a power cut left, with the real recovery, and holds what it finds against what
// had been promised.
//
// Threads: one.
#pragma once

#include <optional>
#include <string>

#include "session.h"

namespace holdfast::test::power_loss {

struct Broken {
  enum class Kind {
    lost,    // something promised is gone: an acknowledged checkpoint, a claim, a state
    stuck,   // the start, or the run after it, cannot go on
    silent,  // wrong bytes were taken for good
  };
  Kind kind = Kind::lost;
  std::string why;
};

// Runs the start of `session` on `files`. `thorough` also looks at what is not newest.
std::optional<Broken> judge(SimFileSystem& files, Session& session, const Promise& promise, FileMaker& maker,
                            bool thorough);

}  // namespace holdfast::test::power_loss
