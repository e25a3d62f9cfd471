#include "holdfast/mirror/start.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/mirror/aligned_blocks.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/mirror/internal/start_try.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/recovery.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(1);
constexpr Duration kLongestPause = std::chrono::minutes(1);
constexpr Duration kShortestPatience = std::chrono::seconds(30);  // a store may be slow

// A call that hangs is an answer, too: HOME is away.
class Patience {
 public:
  Patience(Pace& pace, Duration left) : pace_(pace) {
    pace_.set_patience(std::max<Duration>(left, kShortestPatience));
  }
  ~Patience() { pace_.set_patience(std::nullopt); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  Pace& pace_;
};

void say_alone(const std::string& why, const PreparedStart& start, const std::filesystem::path& directory) {
  log_warning(
      "{}: the run goes on alone from step {} in {}. What it saves is not home, and counts only if no other "
      "machine goes on with the run meanwhile",
      why, start.newest->step, directory.native());
}

// A fetched file that is not what its name says.
class FetchedBadly : public Error {
 public:
  explicit FetchedBadly(const Verdict& verdict) : Error(verdict.reason), kind(verdict.kind) {}
  const Verdict::Kind kind;
};

}  // namespace

class internal::StartTry {
 public:
  StartTry(FileSystem& file_system, Verifier& verifier, const std::filesystem::path& directory, Home& home,
           Pace& pace, const StartChecks& checks, StartTries& tries)
      : file_system_(file_system),
        verifier_(verifier),
        directory_(directory),
        home_(home),
        pace_(pace),
        store_(file_system, pace.clock(),
               {.directory = directory,
                .allow_fresh = true,
                .mount = checks.mount,
                .only_ours = checks.only_ours},
               verifier),
        claimed_(checks.claimed),
        tries_(tries) {}

  PreparedStart prepare() {
    read_record();
    if (claimed_ != 0) use_claim(claimed_);
    // Above the attempts of both places, so that the trainer can claim the same number here.
    if (prepared_.attempt <= here()) claim_home(here() + 1);
    // After the claim: from now on no other machine brings one home.
    if (others_went_on()) give_way();
    find_newest_here();
    for (const HomeFile& file : home_.starts()) {
      // What follows is not newer than the file here, or stands back behind a mark (RcloneHome::starts).
      if (prepared_.newest && file.id <= *prepared_.newest) break;
      see(file.id);
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
    write_record();
    fetch_kernels();
    return std::move(prepared_);
  }

  // By names alone: a start verifies what it begins from.
  void fetch_ahead() {
    std::optional<FileId> newest;
    if (const auto run = file_system_.open_directory(directory_, false)) {
      const std::vector<Candidate> found = candidates_in(*run);
      if (!found.empty()) newest = found.front().id;
    }
    for (const HomeFile& file : home_.list()) {
      if (newest && file.id <= *newest) return;
      const std::string name = checkpoint_name(file.id);
      const auto& skipped = prepared_.skipped;
      if (std::any_of(skipped.begin(), skipped.end(), [&](const Skipped& bad) { return bad.name == name; }))
        continue;
      if (!fetch(file)) continue;
      store_.apply_retention();
      return;
    }
  }

  // Without `newest`, if it cannot: nothing is good here, or what HOME has shown is newer.
  PreparedStart go_alone() {
    find_newest_here();
    if (prepared_.newest && tries_.newest && *prepared_.newest < *tries_.newest) prepared_.newest.reset();
    if (!prepared_.newest) return std::move(prepared_);
    prepared_.attempt = here() + 1;
    prepared_.alone = true;
    prepared_.claims = tries_.claims;  // of tries that failed afterwards
    read_record();
    write_record();
    return std::move(prepared_);
  }

 private:
  static FileId id_of(const CheckpointInfo& info) { return {.attempt = info.attempt, .step = info.step}; }

  AttemptNumber here() const {
    const auto run = file_system_.open_directory(directory_, false);
    return run ? highest_attempt(*run) : 0;
  }

  void claim_home(AttemptNumber least) { use_claim(home_.claim(least)); }

  void see(FileId newest) {
    tries_.newest = newest;
    if (tries_.changed) tries_.changed(tries_);
  }

  void use_claim(AttemptNumber number) {
    prepared_.attempt = number;
    prepared_.claims.push_back(number);
    tries_.claims.push_back(number);
    if (tries_.changed) tries_.changed(tries_);
  }

  // A claim proves nothing: a start of this directory that failed, or was killed, may have made it. A
  // checkpoint that came home does.
  bool others_went_on() const {
    if (record_.alone == 0) return false;
    const std::vector<HomeFile> there = home_.list();
    return std::any_of(there.begin(), there.end(), [&](const HomeFile& file) {
      return file.id.attempt >= record_.alone && !record_.owns(file.id.attempt);
    });
  }

  void find_newest_here() {
    if (const auto newest = store_.preflight().newest) prepared_.newest = id_of(*newest);
  }

  void read_record() {
    record_ = {};
    const auto run = file_system_.open_directory(directory_, false);
    if (const auto known = run ? read_home_record(*run) : std::nullopt; known && known->home == home_.name())
      record_ = *known;
    record_.home = home_.name();
  }

  // A mirror that is started by hand learns from it that HOME belongs to this directory.
  void write_record() {
    update_home_record(*file_system_.open_directory(directory_, true), [&](const auto& there) {
      HomeRecord record = there && there->home == record_.home ? *there : record_;
      if (prepared_.alone) record.go_alone(prepared_.attempt);
      for (const AttemptNumber claim : prepared_.claims) record.add(claim);
      if (!prepared_.alone) {
        record.alone = 0;
        record.superseded = false;
      }
      record.time = format_utc(pace_.clock().wall_now());
      return record;
    });
  }

  // Another machine has claimed the number with which an attempt began here alone.
  void give_way() {
    claim_here();
    store_.recover();
    const auto run = file_system_.open_directory(directory_, false);
    for (const Candidate& candidate : candidates_in(*run)) {
      if (candidate.id.attempt < record_.alone) continue;
      const std::string aside = store_.set_aside(candidate.id, false);
      if (aside.empty()) continue;
      log_warning(
          "{} does not count: it was made while {} was away, and another machine has gone on with the run; "
          "it is kept as {}",
          candidate.name, home_.name(), aside);
    }
  }

  // The number below the one that the trainer is to claim.
  void claim_here() {
    if (store_.attempt() != 0) return;
    const AttemptNumber won = prepared_.attempt;  // 0: nothing is claimed in HOME
    const AttemptNumber own = store_.claim(kClaimedByMirror, 0, won == 0 ? 0 : won - 1);
    // Somebody has taken that number here meanwhile, so HOME must be above it again.
    if (won != 0 && own >= won) claim_home(own + 1);
  }

  // On a new machine. A standby has compiled its own while it waited.
  void fetch_kernels() {
    if (!prepared_.fetched || claimed_ != 0) return;
    try {
      const auto run = file_system_.open_directory(directory_, true);
      if (!run->open_directory(kKernelsDirectory, false)) {
        home_.fetch_kernels(*run->open_directory(kKernelsDirectory, true));
      }
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::io_failed) throw;
      log_debug("{}; the kernels are compiled again", error.what());
    }
  }

  // False: the file is damaged, or gone.
  bool fetch(const HomeFile& file) {
    // Files are written under a claim only, as everywhere.
    if (store_.attempt() == 0) {
      claim_here();
      store_.recover();
    }
    const std::string name = checkpoint_name(file.id);
    log_info("fetching {} ({}) from {}", name, format_bytes(file.bytes), home_.name());
    try {
      store_.commit({.step = file.id.step,
                     .bytes = file.bytes,
                     .ancestry = {},
                     .write = [&](File& copy) { receive(file, copy); },
                     .copy_of = file.id,
                     // A file of that name did not verify here: the newest good one is older. But a read that
                     // failed may succeed later, so the file keeps its name until its copy can take it.
                     .before_rename = [&] { store_.set_aside(file.id, false); }});
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
  const AttemptNumber claimed_;
  PreparedStart prepared_;
  HomeRecord record_;
  StartTries& tries_;
};

PreparedStart internal::try_start(FileSystem& file_system, Verifier& verifier,
                                  const std::filesystem::path& directory, Home& home, Pace& pace,
                                  const StartChecks& checks, StartTries& tries) {
  return internal::StartTry(file_system, verifier, directory, home, pace, checks, tries).prepare();
}

PreparedStart go_alone_without(FileSystem& file_system, Verifier& verifier,
                               const std::filesystem::path& directory, Home& home, Pace& pace,
                               StartTries tries) {
  PreparedStart start =
      internal::StartTry(file_system, verifier, directory, home, pace, {}, tries).go_alone();
  if (!start.newest) {
    throw HomeError(home.name() + " does not answer, and there is no good checkpoint in " +
                    directory.native() +
                    ": a fresh start could train the run a second time beside another machine");
  }
  say_alone(home.name() + " does not answer", start, directory);
  return start;
}

PreparedStart prepare_start_or_go_alone(FileSystem& file_system, Verifier& verifier,
                                        const std::filesystem::path& directory, Home& home, Pace& pace,
                                        Duration patience, const StartChecks& checks, StartTries tries) {
  const SteadyTime end = pace.clock().now() + patience;
  bool said = false;
  for (Duration delay = kFirstPause;; delay = std::min(kLongestPause, delay * 2)) {
    try {
      const Patience limited(pace, end - pace.clock().now());
      return internal::try_start(file_system, verifier, directory, home, pace, checks, tries);
    } catch (const Error& error) {
      // A refusal and a newer owner stay as they are, however long a start waits. There may be memory again.
      if (checks.claimed != 0 || (error.exit_code() != ExitCode::io_failed && !is_about_memory(error))) throw;
      const Duration left = end - pace.clock().now();
      if (left <= Duration::zero()) {
        PreparedStart start =
            internal::StartTry(file_system, verifier, directory, home, pace, checks, tries).go_alone();
        // A fresh start without a claim could train the run a second time beside another machine.
        if (!start.newest) throw;
        say_alone(std::string(error.what()) + "; it was away for " + format_duration(patience), start,
                  directory);
        return start;
      }
      if (!std::exchange(said, true)) {
        log_warning("{}; tried again for {} at most, because another machine may own the run", error.what(),
                    format_duration(patience));
      }
      delay = std::min(delay, left);
    }
    pace.wait(delay);
  }
}

FetchAhead::FetchAhead(FileSystem& file_system, Verifier& verifier, const std::filesystem::path& directory,
                       Home& home, Pace& pace, const StartChecks& checks)
    : start_(std::make_unique<internal::StartTry>(file_system, verifier, directory, home, pace, checks,
                                                  tries_)) {}

FetchAhead::~FetchAhead() = default;

void FetchAhead::fetch() { start_->fetch_ahead(); }

}}  // namespace holdfast::v0_2
