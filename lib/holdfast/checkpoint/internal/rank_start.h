// The start of several ranks: rank 0 finds a state, all ranks check whether they would go on from it, and
// rank 0 claims it. Who sees the volume reads the file there; if one does not, rank 0 sends it byte by byte.
// Each verifies every digest itself.
//
//   rank 0: start_run() with ask_others() before its claim; tell_verdict(), send(), all_ready()
//   others: answer_rank_0(), hear_verdict(), load(), all_ready()
//
// Errors: as StartFinder and RankChannel. Another rank's error is thrown here with its exit code.
// Threads: the training thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/checkpoint/internal/run_start.h"
#include "holdfast/checkpoint/internal/start_finder.h"
#include "holdfast/ranks/rank_group.h"

namespace holdfast { inline namespace v1 { namespace internal {

// What rank 0's start came to.
struct Verdict {
  AttemptNumber attempt = 0;
  bool fresh = true;
  std::string checkpoint;     // the file's name
  std::int64_t durable = -1;  // the newest step that is safe
  std::uint64_t bytes = 0;    // of the file that all load; 0: none
  std::string index;          // digest of its index if it is in the run directory; else empty
  bool shared_write = false;  // rank 0's option: all look whether they see the volume
};

class RankStart {
 public:
  RankStart(RankGroup& ranks, const StartParts& parts, StartFinder& finder)
      : ranks_(ranks), parts_(parts), finder_(finder) {}

  // Rank 0: a BeforeClaim. Of the file the others need no more than its head.
  void ask_others(CheckpointStore& store, const Selection& selection, const Start& start);
  // The others hear why there will be no verdict.
  void tell_failure(const Error& error);
  // The file that all load; null: they need none. Nothing deletes it before the first commit.
  std::unique_ptr<File> file_to_share(const Resumed& resumed) const;
  void tell_verdict(const StartedRun& run, const File* file);
  // To those who do not see it (RankGroup::sees).
  void send(const StartedRun& run, const File* file);

  // The others.
  void answer_rank_0();
  Verdict hear_verdict();
  // The file's bytes, unless this rank reads the file itself or there is none. Collective.
  std::shared_ptr<Arena> receive(const Verdict& verdict);
  StartedRun load(const Verdict& verdict, std::shared_ptr<Arena> received);
  void tell_not_ready(const Error& error);

  // All: nobody trains before everybody can. False: not all of them are bit-exact.
  bool all_ready(bool bit_exact);

 private:
  nlohmann::json hear(int rank, const char* name, Duration limit);
  bool reads(const Verdict& verdict) const;
  void check_head(std::vector<std::byte> head, std::uint64_t file_bytes);
  std::unique_ptr<File> file_seen(const std::string& name) const;
  void load_from(Start& start, const File& file, std::shared_ptr<Arena> received);

  RankGroup& ranks_;
  const StartParts parts_;
  StartFinder& finder_;
};

}}}  // namespace holdfast::v1::internal
