// Starts the run in a damaged directory and holds what happens against what must: the damage is seen and
// named, the start falls back to the right checkpoint, and the run comes to the state of the uninterrupted
// one.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "history.h"

namespace holdfast::test::corruption {

struct Named {
  std::string file;
  std::vector<std::string> texts;  // its reason contains all of them
  bool moved = true;               // set aside as damaged after the first commit
};

struct Expected {
  std::int64_t step = 0;     // where the start goes on
  std::vector<Named> named;  // exactly these are stepped past; newest first
  // A whole life of the real Checkpointer (start, training, commit, end, and the start after it); otherwise
  // what its start does; and of such cases every 32nd lives as well.
  bool whole = true;
  bool stale = false;  // header and index are those of another checkpoint
};

class Lane {
 public:
  void goes_on(const std::string& what, const MemoryFileSystem& disk, const Expected& expected);
  // Ends with 78 before anything was changed; the message contains all the texts.
  void refused(const std::string& what, const MemoryFileSystem& disk, const std::vector<std::string>& texts,
               MemorySource::Options state = {});
  // For cases that a test judges itself.
  void judged(const std::string& what, const std::string& wrong, bool silent = false);

  std::uint64_t cases() const { return cases_; }
  std::string summary() const;
  bool clean() const { return detected_ == cases_ && silent_ == 0 && crashes_ == 0; }

 private:
  void look(const MemoryFileSystem& disk, const Expected& expected);
  void live(const MemoryFileSystem& disk, const Expected& expected);
  void check_named(const std::vector<Skipped>& skipped, const Expected& expected);
  void check_start(std::int64_t step, const std::string& state, const Expected& expected);
  void wrong(const std::string& why);

  std::uint64_t cases_ = 0;
  std::uint64_t detected_ = 0;
  std::uint64_t silent_ = 0;
  std::uint64_t crashes_ = 0;
  std::uint64_t shown_ = 0;
  std::uint64_t looks_ = 0;
  std::string case_;
  std::string wrong_;
  bool was_silent_ = false;
};

Lane& lane();  // of the whole program

}  // namespace holdfast::test::corruption
