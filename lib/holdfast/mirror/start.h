// What has to happen before a trainer starts in a run directory that has a HOME: claim the attempt there, and
// fetch the newest good checkpoint if the run directory lacks it (docs/two_tiers.md#before-each-start).
//
// Order: claim in HOME → list HOME → fetch what is newer than the newest good file here, newest first, older
// ones if it is damaged → raise the run directory's attempts, so that the trainer claims the number that was
// won in HOME. Every byte is verified before a file gets its name. After a crash the next start repeats it.
//
// Errors: IoError, HomeError: try again. RefusedError: checkpoints exist in HOME, none of them verifies, and
// the run directory has none; or a newer format. Exceptions of Pace pass through. Threads: one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/mirror/home.h"
#include "holdfast/mirror/pace.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {
namespace internal {
class StartTry;
}

struct PreparedStart {
  AttemptNumber attempt = 0;               // the number that the trainer will claim
  std::vector<AttemptNumber> claims = {};  // all that were claimed in HOME for it
  std::optional<FileId> newest = {};       // where the trainer will begin; nullopt: a fresh start
  bool fetched = false;
  std::vector<Skipped> skipped = {};  // in HOME, and why
  bool alone = false;                 // HOME was away: nothing is claimed there
};

// What the tries of a start have done and seen in HOME. Later ones must know it, also after a hang for which
// their process was killed.
struct StartTries {
  std::vector<AttemptNumber> claims = {};  // made there
  std::optional<FileId> newest = {};       // is there, newer than all here, and not known as damaged
  std::function<void(const StartTries&)> changed = {};
};

// Checks of the run directory; as in StoreOptions.
struct StartChecks {
  std::filesystem::path mount = {};
  bool only_ours = false;
  // Of a standby: its Home has claimed this number already (Home::claim_after). Then one try is made, and
  // never alone: the standby looks at HOME itself. 0: none.
  AttemptNumber claimed = 0;
};

// Tries for `patience`. Then it lets the trainer begin alone from a good checkpoint here; without one, or if
// HOME has shown a newer one, it throws what the last try threw. The mirror claims that attempt's number when
// HOME is back. If another machine has claimed it meanwhile, that machine's checkpoints count, and those of
// the attempt alone become .damaged.
PreparedStart prepare_start_or_go_alone(FileSystem& file_system, Verifier& verifier,
                                        const std::filesystem::path& directory, Home& home, Pace& pace,
                                        Duration patience, const StartChecks& checks = {},
                                        StartTries tries = {});

// The same without a try, because HOME hangs. HomeError: there is no such checkpoint here.
PreparedStart go_alone_without(FileSystem& file_system, Verifier& verifier,
                               const std::filesystem::path& directory, Home& home, Pace& pace,
                               StartTries tries = {});

// For a standby: brings the newest checkpoint of HOME into the run directory, and claims nothing in HOME. The
// claim that writing needs in the run directory is made once for each object.
// Errors: as above. Threads: one.
class FetchAhead {
 public:
  // All references outlive this object.
  FetchAhead(FileSystem& file_system, Verifier& verifier, const std::filesystem::path& directory, Home& home,
             Pace& pace, const StartChecks& checks);
  ~FetchAhead();
  FetchAhead(const FetchAhead&) = delete;
  FetchAhead& operator=(const FetchAhead&) = delete;
  void fetch();

 private:
  StartTries tries_ = {};
  std::unique_ptr<internal::StartTry> start_;
};

}}  // namespace holdfast::v0_2
