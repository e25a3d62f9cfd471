#include "lane.h"

#include <algorithm>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/writing/file_verifier.h"

namespace holdfast::test::corruption {
namespace {

constexpr std::uint64_t kLiveEvery = 32;
constexpr std::uint64_t kMostShown = 20;
constexpr int kDamagedKept = 2;

std::string grouped(std::uint64_t number) { return format_count(static_cast<std::int64_t>(number)); }

const Known* known_at(std::int64_t step) {
  for (const Known& file : history().files()) {
    if (file.step == step) return &file;
  }
  return nullptr;
}

}  // namespace

void Lane::goes_on(const std::string& what, const MemoryFileSystem& disk, const Expected& expected) {
  std::string stuck;
  case_ = what;
  wrong_.clear();
  was_silent_ = false;
  try {
    if (expected.whole || ++looks_ % kLiveEvery == 0) {
      live(disk, expected);
    } else {
      look(disk, expected);
    }
  } catch (const std::exception& error) {
    ++crashes_;
    wrong(error.what());
  }
  judged(what, wrong_, was_silent_);
}

void Lane::refused(const std::string& what, const MemoryFileSystem& disk,
                   const std::vector<std::string>& texts, MemorySource::Options state) {
  Volume volume;
  volume.disk = disk.copy();
  std::string message = "it started";
  try {
    MemorySource source(state);
    Checkpointer(source, volume.options()).resume();
  } catch (const RefusedError& error) {
    message = error.what();
  }
  std::string why;
  for (const std::string& text : texts) {
    if (message.find(text) == std::string::npos) why += "no '" + text + "' in: " + message + "\n";
  }
  if (volume.faults.mutation_count() != 0) why += "it changed the directory before it refused\n";
  judged(what, why, message == "it started");
}

void Lane::judged(const std::string& what, const std::string& wrong, bool silent) {
  ++cases_;
  silent_ += silent ? 1U : 0U;
  if (wrong.empty()) {
    ++detected_;
    return;
  }
  if (shown_++ < kMostShown) ADD_FAILURE() << what << ": " << wrong;
}

std::string Lane::summary() const {
  return "corruption: " + grouped(cases_) + " cases, " + grouped(detected_) + " detected, " +
         grouped(silent_) + " silent, " + grouped(crashes_) + " crashes";
}

void Lane::wrong(const std::string& why) { wrong_ += why + "\n"; }

// What Checkpointer::resume does before it claims anything.
void Lane::look(const MemoryFileSystem& disk, const Expected& expected) {
  MemoryFileSystem files = disk.copy();
  FakeClock clock;
  // Over all cases one and the same, which has read the checkpoint that is fallen back to: what costs time is
  // memory that is new. Never where a damaged file holds an index that it knows: it would take it for that
  // one.
  static FileVerifier reused(1);
  FileVerifier fresh(1);
  const bool known = expected.step < history().newest().step && !expected.stale;
  FileVerifier& verifier = known ? reused : fresh;
  CheckpointStore store(files, clock, {.directory = kRun}, verifier);
  const Selection selection = store.preflight();
  check_named(selection.skipped, expected);
  if (!selection.newest) return wrong("nothing was found to start from");
  if (known && looks_ % 4 != 0) {
    was_silent_ = selection.newest->step != expected.step;
    if (was_silent_) wrong("starts with " + selection.newest->name);
    return;
  }
  const auto loaded = verifier.load(*store.open(*selection.newest));
  if (const auto* rejection = std::get_if<Rejection>(&loaded)) {
    return wrong("what was found does not load: " + rejection->reason);
  }
  const auto& [index, snapshot] = std::get<FileVerifier::Loaded>(loaded);
  check_start(index.step, to_hex(state_digest(*snapshot)), expected);
}

void Lane::live(const MemoryFileSystem& disk, const Expected& expected) {
  Volume volume;
  volume.disk = disk.copy();
  {
    Attempt attempt(volume.options());
    check_named(attempt.resumed.skipped, expected);
    check_start(attempt.resumed.step, attempt.state(), expected);
    attempt.train_to(kSteps);
    if (attempt.checkpointer.finish() != 0) wrong("the run did not complete");
    if (attempt.state() != history().straight()) {
      was_silent_ = true;
      wrong("the run came to another state");
    }
  }
  int aside_so_far = 0;
  for (const Named& named : expected.named) {
    const std::string aside = volume.path(named.file + ".damaged");
    const bool kept = !named.moved || aside_so_far++ < kDamagedKept;
    if (volume.disk.exists(aside) != (named.moved && kept)) wrong(named.file + ": moved, or not, wrongly");
    if (!kept) continue;
    const std::string place = named.moved ? aside : volume.path(named.file);
    if (!volume.disk.exists(place) || volume.disk.get(place) != disk.get(volume.path(named.file))) {
      wrong(named.file + " is gone or was changed");
    }
  }
  const Attempt next(volume.options());
  if (next.resumed.step != kSteps || !next.resumed.skipped.empty()) wrong("the start after it is not clean");
}

void Lane::check_named(const std::vector<Skipped>& skipped, const Expected& expected) {
  if (skipped.size() != expected.named.size()) {
    wrong(std::to_string(skipped.size()) + " files were stepped past, not " +
          std::to_string(expected.named.size()));
  }
  for (const Named& named : expected.named) {
    const auto found =
        std::find_if(skipped.begin(), skipped.end(), [&](const Skipped& s) { return s.name == named.file; });
    if (found == skipped.end()) {
      wrong(named.file + " was not named");
      continue;
    }
    for (const std::string& text : named.texts) {
      if (found->reason.find(text) == std::string::npos) wrong("no '" + text + "' in: " + found->reason);
    }
  }
}

void Lane::check_start(std::int64_t step, const std::string& state, const Expected& expected) {
  if (step != expected.step) {
    wrong("starts at step " + std::to_string(step) + ", not " + std::to_string(expected.step));
  }
  const Known* const known = known_at(step);
  if (known == nullptr || known->state != state) {
    was_silent_ = true;
    wrong("wrong bytes were taken for good");
  }
}

Lane& lane() {
  static Lane made;
  return made;
}

}  // namespace holdfast::test::corruption
