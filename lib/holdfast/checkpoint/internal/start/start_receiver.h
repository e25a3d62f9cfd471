// How a rank other than 0 gets the state from which rank 0 starts. One rank of a host reads the file and
// verifies every digest; the others of that host map its image (ranks/shared_image.h). Hosts that do not see
// the volume receive the bytes from rank 0, and each of their ranks verifies them.
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
#include "holdfast/checkpoint/internal/start/start_finder.h"
#include "holdfast/checkpoint/internal/start/start_verdict.h"
#include "holdfast/checkpoint/internal/start/started_run.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Files with equal digests are equal in every byte.
std::string index_digest(const File& file);

class StartReceiver {
 public:
  StartReceiver(Run& run, RankGroup& group, StartFinder& finder)
      : run_(run), group_(group), finder_(finder) {}

  // Throws RefusedError if this rank's state does not fit the file with this head.
  void check_head(std::vector<std::byte> head, std::uint64_t file_bytes);
  // The file's bytes, if rank 0 sends them to this rank. Collective.
  std::shared_ptr<Arena> receive(const Verdict& verdict);
  // Afterwards other ranks of this host may still map the image, until all ranks have loaded.
  StartedRun load(const Verdict& verdict, std::shared_ptr<Arena> received);

 private:
  void load_file(Start& start, const Verdict& verdict, std::shared_ptr<Arena> received);
  bool take(Start& start, const Verdict& verdict, int from);
  void read(Start& start, const Verdict& verdict);
  void read_for_others(Start& start, const Verdict& verdict);
  std::unique_ptr<File> file_seen(const std::string& name) const;
  void load_from(Start& start, const File& file, std::shared_ptr<Arena> received, bool verified = false);

  Run& run_;
  RankGroup& group_;
  StartFinder& finder_;
  std::shared_ptr<Arena> offered_;  // the image that this rank has read for others
};

}}}  // namespace holdfast::v0_2::internal
