// How a rank other than 0 gets the state from which rank 0 starts: it reads the file itself, or receives it
// from rank 0. It verifies every digest either way.
//
// Errors: RefusedError (78) where a person has to decide, IoError (74) for what cannot be read, and those of
// RankChannel. Threads: the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/checkpoint/internal/run.h"
#include "holdfast/checkpoint/internal/start_finder.h"
#include "holdfast/checkpoint/internal/started_run.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The result of rank 0's start.
struct Verdict {
  AttemptNumber attempt = 0;
  bool fresh = true;
  bool branch = false;        // Resumed::branch
  std::string checkpoint;     // the file's name
  std::int64_t durable = -1;  // the newest durable step
  std::uint64_t bytes = 0;    // of the file that all load; 0: none
  std::string index;          // its index_digest() if it is in the run directory; else empty
  bool shared_write = false;  // rank 0's option: all ranks check whether they see the volume
};

// Files with equal digests are equal in every byte.
std::string index_digest(const File& file);

class StartReceiver {
 public:
  StartReceiver(Run& run, RankGroup& group, StartFinder& finder)
      : run_(run), group_(group), finder_(finder) {}

  // Throws RefusedError if this rank's state does not fit the file with this head.
  void check_head(std::vector<std::byte> head, std::uint64_t file_bytes);
  // The file's bytes, unless this rank reads the file itself or there is none. Collective.
  std::shared_ptr<Arena> receive(const Verdict& verdict);
  StartedRun load(const Verdict& verdict, std::shared_ptr<Arena> received);

 private:
  bool reads(const Verdict& verdict) const;
  std::unique_ptr<File> file_seen(const std::string& name) const;
  void load_from(Start& start, const File& file, std::shared_ptr<Arena> received);

  Run& run_;
  RankGroup& group_;
  StartFinder& finder_;
};

}}}  // namespace holdfast::v0_2::internal
