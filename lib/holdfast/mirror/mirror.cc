#include "holdfast/mirror/mirror.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/mirror/kernel_files.h"
#include "holdfast/mirror/local_lock.h"
#include "holdfast/snapshot/arena.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/lineage.h"
#include "holdfast/store/recovery.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kIdle = std::chrono::seconds(1);
// Doubled after each failure: a short outage costs little time, and a long one few requests.
constexpr Duration kFirstDelay = std::chrono::seconds(1);
constexpr Duration kLongestDelay = std::chrono::minutes(1);
constexpr int kLooksAtUnreadable = 10;                // over some minutes, as the pauses between them grow
constexpr Duration kCheck = std::chrono::minutes(1);  // costs two listings
// The newest may turn out damaged, so there must be one more.
constexpr std::size_t kLeastHome = 2;
// turn() asks about the newest few alone, and a copy that was forgotten is only compared again.
constexpr std::size_t kRemembered = 16;
// The slowest of these counts as the way home. A few, so that one slow copy is forgotten in time.
constexpr std::size_t kCopiesMeasured = 5;
// A run that is home ends without its standby's having heard of it, rather than wait for ever.
constexpr int kNotesTried = 5;

// False also where that cannot be read: copies go on, and exchange() tells the failure.
bool has_ended(Directory& run) {
  try {
    const auto state = last_word(run).state;
    return state && is_end(state->phase);
  } catch (const Error&) {
    return false;
  }
}

// Keeps a file open, and names it for other programs: retention may delete it while HOME is asked about it.
// Does nothing in a file system of a test.
class Held {
 public:
  explicit Held(const std::string& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {}
  ~Held() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  std::string path() const {
    if (descriptor_ < 0) return path_;
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_);
  }

 private:
  const std::string path_;
  const int descriptor_;
};

}  // namespace

Mirror::Mirror(FileSystem& file_system, Verifier& verifier, Home& home, MirrorOptions options, Pace& pace)
    : file_system_(file_system),
      verifier_(verifier),
      home_(home),
      options_(std::move(options)),
      pace_(pace),
      notes_(home) {
  record_.home = home.name();
}

void Mirror::add_claims(const std::vector<AttemptNumber>& claims) {
  for (const AttemptNumber claim : claims) record_.add(claim);
  claimed_ = claimed_ || !claims.empty();
}

bool Mirror::run() {
  Duration delay = kFirstDelay;
  for (;;) {
    try {
      const bool last_look = finishing_;  // nothing newer comes after a look that begins now
      const bool busy = turn();
      recovered();
      delay = kFirstDelay;
      if (busy) continue;
      if (options_.once || (last_look && (newest_is_home_ || cannot_come_))) return newest_is_home_;
      pace_.wait(kIdle);
    } catch (const AnotherMirror&) {
      throw;
    } catch (const SupersededError&) {
      record_.superseded = !goes_on_here();
      publish_record();
      throw;
    } catch (const Error& error) {
      // Only a volume or a store that fails may work again later, and there may be memory again.
      const bool passes = error.exit_code() == ExitCode::io_failed || is_about_memory(error);
      const bool first = record_.failure.empty();
      if (!options_.once) failed(error.what());
      if (options_.once || !passes) throw;
      if (first) log_warning("{}; tried again until it works, training goes on", error.what());
      pace_.wait(delay);
      delay = std::min(kLongestDelay, delay * 2);
    }
  }
}

bool Mirror::turn() {
  newest_is_home_ = false;
  const auto run = file_system_.open_directory(options_.directory, false);
  const bool was_there = seen_ || !record_.claims.empty();
  cannot_come_ = !run && was_there;
  if (!run) {
    if (options_.once || (was_there && !finishing_))
      throw IoError("open", options_.directory, ENOENT, "is its volume mounted?");
    newest_is_home_ = !was_there;  // the trainer makes it
    return false;
  }
  seen_ = true;
  check_homes();
  // Before the list: a last checkpoint and its end may come while HOME is asked.
  const bool had_ended = has_ended(*run);
  std::size_t home = 0;
  bool newest_is_skipped = false;
  std::optional<Lineage> lineage;
  const std::vector<Found> all = candidates(*run);
  if (options_.once && all.empty()) log_info("{} holds no checkpoint", run->path());
  for (const Found& found : all) {
    if (skipped_.contains(found.id)) {
      newest_is_skipped = newest_is_skipped || !lineage;
      continue;
    }
    // The newest decides which history goes home; an older file goes only if the newest grew from it.
    if (lineage && !lineage->contains(found.id)) continue;
    if (!lineage && options_.before_work) options_.before_work();
    if (!lineage) adopt(*run, found.id.attempt);
    if (!homes_.contains(found.id)) {
      copy(*run, found);
      return true;  // there may be a newer one by now
    }
    if (!lineage) lineage = Lineage{.own = found.id.attempt, .ancestry = homes_.at(found.id).ancestry};
    if (++home == kLeastHome) break;
  }
  save_record(*run);
  // An end that is told now is true of HOME: all that was durable at that end is there.
  const bool told = exchange(*run, had_ended && !newest_is_skipped) || notes_failed_ >= kNotesTried;
  newest_is_home_ = told && !newest_is_skipped;
  cannot_come_ = told && newest_is_skipped;
  return false;
}

HolderNotes::News Mirror::news(bool end_is_home) const {
  return {.covers = record_.claims.empty() ? 0 : record_.claims.back(),
          .awaits = awaits_,
          .all_home = end_is_home,
          .urgent = finishing_ || (options_.end_is_announced && options_.end_is_announced())};
}

void Mirror::exchange_notes() {
  if (!claimed_ || options_.once || exchanging_ || record_.superseded) return;
  if (!notes_.due(news(false), pace_.clock().now())) return;
  if (const auto run = file_system_.open_directory(options_.directory, false)) exchange(*run, false);
}

// False if HOME did not take them. Copies matter more, so that is no failure of the mirror.
bool Mirror::exchange(Directory& run, bool end_is_home) {
  if (!claimed_ || options_.once || std::exchange(exchanging_, true)) return true;
  struct Done {
    bool& flag;
    ~Done() { flag = false; }
  } const done{exchanging_};
  try {
    notes_.exchange(run, news(end_is_home), pace_.clock());
    notes_failed_ = 0;
    return true;
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::io_failed) throw;
    if (notes_failed_++ == 0) log_warning("{}; a standby would not hear from this run now", error.what());
    return false;
  }
}

std::vector<Mirror::Found> Mirror::candidates(const Directory& run) {
  std::vector<Found> found;
  for (const Candidate& candidate : candidates_in(run)) {
    if (candidate.kind == FileKind::regular) found.push_back({candidate.id, candidate.name});
  }
  return found;
}

// Before files of an attempt go home, this directory claims a number there that is not lower. So no other
// machine that still owns HOME writes a file of that name.
void Mirror::adopt(Directory& run, AttemptNumber newest) {
  if (!std::exchange(read_record_, true)) {
    const auto earlier = read_home_record(run);
    // A record about another HOME says nothing about this one.
    if (earlier && earlier->home == record_.home) {
      for (const AttemptNumber claim : earlier->claims) record_.add(claim);
      record_.newest = earlier->newest;
      record_.newest_since = earlier->newest_since;
      record_.took_ms = earlier->took_ms;
      if (!claimed_ && earlier->alone != 0) record_.go_alone(earlier->alone);
    }
  }
  // An earlier claim of this run covers these files as well.
  if (claimed_ && record_.claims.back() >= newest) return;
  const AttemptNumber alone = record_.alone;
  const std::vector<AttemptNumber> claims = record_.claims;
  const AttemptNumber highest = home_.highest();
  const bool own = home_.is_own(highest);
  // While HOME answered, a start may have claimed for this run: the list is older than that claim.
  if (record_.claims != claims) return adopt(run, newest);
  if (own) record_.add(highest);  // a claim of this process that seemed to fail
  if (record_.is_contested(highest, newest)) {
    throw SupersededError(home_.name() + " is at attempt " + std::to_string(highest) +
                          ", which did not begin in " + run.path() + " (at attempt " +
                          std::to_string(newest) +
                          "): another machine goes on with the run. To go on here, start the trainer with "
                          "`holdfast supervise --mirror`");
  }
  // Whoever has claimed one since keeps it: of two that fence each other off, none would go on.
  const AttemptNumber claimed = home_.claim_after(highest, newest);
  if (claimed == 0) {
    if (home_.highest() != highest) return adopt(run, newest);
    throw HomeError(home_.name() + ": another machine is about to claim an attempt");
  }
  record_.add(claimed);
  claimed_ = true;
  next_check_ = pace_.clock().now() + kCheck;  // a claim is a look as well
  save_record(run);
  // Unrecorded, the files of this attempt would look like another machine's to the next start.
  if (alone != 0 && record_fails_) throw HomeError("the claim cannot be recorded in " + run.path());
}

// Somebody may have deleted a copy, or taken HOME over.
void Mirror::check_homes() {
  const SteadyTime now = pace_.clock().now();
  if (!claimed_ || now < next_check_) return;
  next_check_ = now + kCheck;
  home_.check_not_superseded();
  const std::vector<HomeFile> there = home_.list();
  std::erase_if(homes_, [&](const auto& copied) {
    const bool found = std::any_of(there.begin(), there.end(), [&](const HomeFile& file) {
      return file.id == copied.first && file.bytes == copied.second.bytes;
    });
    return !found;
  });
}

bool Mirror::copy(Directory& run, const Found& found) {
  const auto file = run.open(found.name, OpenMode::read);
  if (!file) return false;  // overtaken, and deleted
  const Held held(run.path() + "/" + found.name);
  std::optional<MirrorSource> source;
  try {
    source = inspect(run, found, *file);
  } catch (const IoError& error) {
    if (error.code() != EIO || ++unreadable_[found.id] < kLooksAtUnreadable) throw;
    skipped_[found.id] = error.what();
    log_warning("{}; it does not go home", error.what());
    return false;
  }
  unreadable_.erase(found.id);
  if (!source) return false;
  source->path = held.path();
  const SteadyTime began = pace_.clock().now();
  const Duration held_back = pace_.held_back();
  try {
    if (!is_there_already(*source)) {
      put(run, *source);
      // Without the waits for the limit, which is lifted when time presses.
      note_time(pace_.clock().now() - began - (pace_.held_back() - held_back));
    }
  } catch (const SourceGone&) {
    return false;
  } catch (const CopyDiffers& error) {
    // Which of the two is it?
    const Verdict verdict = verifier_.inspect(*file, Verifier::Depth::full, true);
    if (verdict.kind == Verdict::Kind::good) throw;
    skipped_[found.id] = verdict.reason;
    log_warning("{}/{} is damaged ({}); it does not go home", run.path(), found.name, verdict.reason);
    return false;
  }
  if (skipped_.contains(found.id)) return false;
  is_home(*source);
  save_record(run);
  retire(*source);
  put_kernels(run);
  return true;
}

// For the next machine, which needs seconds to compile them. Checkpoints come first.
void Mirror::put_kernels(Directory& run) {
  if (news(false).urgent) return;
  try {
    const auto folder = run.open_directory(kKernelsDirectory, false);
    if (!folder) return;
    std::set<std::string> here = kernel_files(*folder);
    if (here == kernels_) return;
    home_.put_kernels(*folder);
    kernels_ = std::move(here);
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::io_failed) throw;
    log_debug("{}; tried again after the next copy", error.what());
  }
}

// The copy is home, even if an old one cannot be deleted.
void Mirror::retire(const MirrorSource& newest) {
  try {
    home_.retire(newest);
    retire_failure_.clear();
  } catch (const Error& error) {
    if (options_.once || error.exit_code() != ExitCode::io_failed) throw;
    // A file that HOME cannot delete fails after every copy; the log needs it once.
    if (std::exchange(retire_failure_, error.what()) != error.what())
      log_warning("{}; tried again after the next copy", error.what());
  }
}

std::optional<MirrorSource> Mirror::inspect(const Directory& run, const Found& found, const File& file) {
  Verdict verdict = verifier_.inspect(file, Verifier::Depth::head, false);
  // Looks again on the device: a bad page in the cache is not the file's fault.
  if (verdict.kind == Verdict::Kind::damaged) verdict = verifier_.inspect(file, Verifier::Depth::head, true);
  std::string why;
  if (verdict.kind != Verdict::Kind::good) {
    why = verdict.reason;
  } else if (FileId{.attempt = verdict.attempt, .step = verdict.step} != found.id) {
    why = "it is not what its name says";
  }
  if (!why.empty()) {
    skipped_[found.id] = why;
    log_warning("{}/{} does not go home: {}", run.path(), found.name, why);
    return std::nullopt;
  }
  return MirrorSource{.id = found.id,
                      .path = run.path() + "/" + found.name,
                      .file = &file,
                      .bytes = file.size(),
                      .ancestry = verdict.ancestry,
                      .finite = verdict.finite};
}

bool Mirror::is_there_already(const MirrorSource& source) {
  const std::vector<HomeFile> there = home_.list();
  const auto found =
      std::find_if(there.begin(), there.end(), [&](const HomeFile& file) { return file.id == source.id; });
  if (found == there.end()) return false;
  // The sizes first, because holds() reads the whole copy.
  if (found->bytes == source.bytes && home_.holds(source)) {
    home_.check_not_superseded();  // as behind a copy
    return true;
  }
  if (record_.owns(source.id.attempt)) return false;  // half there, or damaged: put() replaces it
  skipped_[source.id] = "HOME holds another file of that name";
  log_warning(
      "{} does not go home: {} holds another file of that name, of a machine that it did not come from",
      checkpoint_name(source.id), home_.name());
  return true;
}

void Mirror::put(Directory& run, const MirrorSource& source) {
  record_.copying = checkpoint_name(source.id);
  save_record(run);
  try {
    home_.put(source);
  } catch (...) {
    // The trainer's planner takes a copy that is named here for one on its way.
    record_.copying.clear();
    throw;
  }
  record_.copying.clear();
}

void Mirror::is_home(const MirrorSource& source) {
  homes_[source.id] = {.bytes = source.bytes, .ancestry = source.ancestry};
  while (homes_.size() > kRemembered) homes_.erase(homes_.begin());
  record_.copies = static_cast<int>(homes_.size());
  if (!record_.newest || *record_.newest < source.id || !homes_.contains(*record_.newest)) {
    record_.newest = homes_.rbegin()->first;
    record_.newest_since = format_utc(pace_.clock().wall_now());
  }
  log_info("step {} is home in {}", format_count(source.id.step), home_.name());
}

// The wait until the mirror looks at the run directory is part of the way home.
void Mirror::note_time(Duration took) {
  took_.push_back(took + kIdle);
  if (took_.size() > kCopiesMeasured) took_.pop_front();
  const Duration slowest = *std::max_element(took_.begin(), took_.end());
  record_.took_ms = std::chrono::ceil<std::chrono::milliseconds>(slowest).count();
}

bool Mirror::goes_on_here() const {
  const auto run = file_system_.open_directory(options_.directory, false);
  const auto told = run ? read_home_record(*run) : std::nullopt;
  if (!told || told->home != record_.home || told->claims.empty()) return false;
  return record_.claims.empty() || told->claims.back() > record_.claims.back();
}

// Best effort: it must not end the mirror. A start in this directory may have added claims meanwhile.
void Mirror::save_record(Directory& run) {
  // A start that prepares this directory writes its claims at this moment.
  if (record_.claims.empty() && record_.failure.empty() && !record_.superseded) return;
  // Compared without the time, which always differs.
  const auto merged = [&](const std::optional<HomeRecord>& told) {
    HomeRecord now = record_;
    if (told && told->home == now.home) {
      for (const AttemptNumber claim : told->claims) now.add(claim);
      if (told->alone != 0 && (now.claims.empty() || now.claims.back() < told->alone))
        now.go_alone(told->alone);
      // A start has just claimed for this directory.
      if (!told->claims.empty() && (record_.claims.empty() || told->claims.back() > record_.claims.back()))
        now.superseded = told->superseded;
    }
    now.time.clear();
    return now;
  };
  std::string text;
  try {
    text = to_json(merged(read_home_record(run)));
  } catch (const Error&) {  // the write tells
  }
  if (text == saved_) return;
  try {
    update_home_record(run, [&](const std::optional<HomeRecord>& told) {
      HomeRecord now = merged(told);
      text = to_json(now);
      now.time = format_utc(pace_.clock().wall_now());
      return now;
    });
    saved_ = text;
    record_fails_ = false;
  } catch (const Error& error) {
    saved_.clear();  // unknown: the next call writes again
    if (!std::exchange(record_fails_, true))
      log_warning("`holdfast status` does not see the mirror: {}", error.what());
  }
}

// `holdfast status` and the trainer's planner read it in the record.
void Mirror::failed(const std::string& why) {
  if (record_.failure.empty()) record_.failing_since = format_utc(pace_.clock().wall_now());
  record_.failure = why;
  publish_record();
}

void Mirror::publish_record() {
  try {
    if (const auto run = file_system_.open_directory(options_.directory, false)) save_record(*run);
  } catch (const Error& error) {
    log_debug("the mirror's record cannot be written: {}", error.what());
  }
}

void Mirror::recovered() {
  if (record_.failure.empty()) return;
  log_info("{} works again", home_.name());
  record_.failure.clear();
  record_.failing_since.clear();
}

}}  // namespace holdfast::v0_2
