#include "holdfast/mirror/start.h"

#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/mirror/aligned_blocks.h"
#include "holdfast/store/attempt.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A fetched file that is not what its name says.
class FetchedBadly : public Error {
 public:
  explicit FetchedBadly(const Verdict& verdict) : Error(verdict.reason), kind(verdict.kind) {}
  const Verdict::Kind kind;
};

class Start {
 public:
  Start(FileSystem& file_system, Verifier& verifier, const std::filesystem::path& directory, Home& home,
        Pace& pace)
      : file_system_(file_system),
        verifier_(verifier),
        directory_(directory),
        home_(home),
        pace_(pace),
        store_(file_system, pace.clock(), {.directory = directory, .allow_fresh = true}, verifier) {}

  PreparedStart prepare() {
    claim_home(here() + 1);
    if (const auto newest = store_.preflight().newest) prepared_.newest = id_of(*newest);
    for (const HomeFile& file : home_.starts()) {
      if (prepared_.newest && file.id <= *prepared_.newest) break;
      if (fetch(file)) break;
    }
    if (!prepared_.newest && !prepared_.skipped.empty()) {
      throw RefusedError("no checkpoint in " + home_.name() + " verifies (" + prepared_.skipped.front().name +
                         ": " + prepared_.skipped.front().reason +
                         "); is it the right one? To start over, choose an empty home");
    }
    // The trainer claims the next number here, which must be the one claimed in HOME.
    if (here() + 1 < prepared_.attempt) claim_here();
    if (prepared_.newest) home_.begin_from(*prepared_.newest);
    // Another machine may have started meanwhile, and what was fetched may be its checkpoint.
    home_.check_not_superseded();
    if (here() >= prepared_.attempt)
      throw HomeError(directory_.native() + ": another attempt began during the fetch");
    return std::move(prepared_);
  }

 private:
  static FileId id_of(const CheckpointInfo& info) { return {.attempt = info.attempt, .step = info.step}; }

  AttemptNumber here() const {
    const auto run = file_system_.open_directory(directory_, false);
    return run ? highest_attempt(*run) : 0;
  }

  void claim_home(AttemptNumber least) {
    prepared_.attempt = home_.claim(least);
    prepared_.claims.push_back(prepared_.attempt);
  }

  // The number below the one that the trainer is to claim.
  void claim_here() {
    if (store_.attempt() != 0) return;
    const AttemptNumber own = store_.claim(kClaimedByMirror, 0, prepared_.attempt - 1);
    // Somebody has taken that number here meanwhile, so HOME must be above it again.
    if (own >= prepared_.attempt) claim_home(own + 1);
  }

  // False: the file is damaged, or gone.
  bool fetch(const HomeFile& file) {
    // Files are written under a claim only, as everywhere.
    if (store_.attempt() == 0) {
      claim_here();
      store_.recover();
    }
    const std::string name = checkpoint_name(file.id);
    store_.set_aside(file.id);  // a file of that name is not good: the newest good one is older
    log_info("fetching {} ({}) from {}", name, format_bytes(file.bytes), home_.name());
    try {
      store_.commit({.step = file.id.step,
                     .bytes = file.bytes,
                     .ancestry = {},
                     .write = [&](File& copy) { receive(file, copy); },
                     .copy_of = file.id});
    } catch (const FetchedBadly& bad) {
      // An older file would throw away work that a newer program can read.
      if (bad.kind == Verdict::Kind::newer_format) {
        throw RefusedError(home_.name() + "/" + name + " is newer than this program can read (" + bad.what() +
                           ")");
      }
      log_warning("{}/{} is damaged there ({}); an older one is looked for", home_.name(), name, bad.what());
      prepared_.skipped.push_back({name, bad.what()});
      return false;
    }
    prepared_.newest = file.id;
    prepared_.fetched = true;
    return true;
  }

  void receive(const HomeFile& file, File& copy) {
    BlockStream stream(copy);
    home_.read(file, [&](std::span<const std::byte> bytes) {
      stream.append(bytes);
      pace_.moved(bytes.size());
    });
    stream.finish();
    const Verdict verdict = verifier_.inspect(copy, Verifier::Depth::full, true);
    if (verdict.kind != Verdict::Kind::good) throw FetchedBadly(verdict);
    if (FileId{.attempt = verdict.attempt, .step = verdict.step} != file.id) {
      throw FetchedBadly({.kind = Verdict::Kind::damaged, .reason = "it is not what its name says"});
    }
  }

  FileSystem& file_system_;
  Verifier& verifier_;
  const std::filesystem::path& directory_;
  Home& home_;
  Pace& pace_;
  CheckpointStore store_;
  PreparedStart prepared_;
};

}  // namespace

PreparedStart prepare_start(FileSystem& file_system, Verifier& verifier,
                            const std::filesystem::path& directory, Home& home, Pace& pace) {
  return Start(file_system, verifier, directory, home, pace).prepare();
}

}}  // namespace holdfast::v0_2
