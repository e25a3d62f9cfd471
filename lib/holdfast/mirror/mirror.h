// Copies the checkpoints of a run directory to HOME, newest first, and tells in HOME_STATE.json what is home.
// A copy is home once HOME holds it durably and every byte was verified there. A checkpoint that is not home
// when a newer one appears is skipped; a copy that has begun is finished. Two are home as soon as there are
// two.
//
//   Mirror mirror(file_system, verifier, *home, {.directory = dir}, pace);
//   mirror.run();            // until `pace` throws; with `once` until the newest are home, or damaged
//
// HOME that is full, away, slow or refuses, and a lack of memory: tried again for ever, after 1 s to 1 min;
// one log line when it begins and one when it ends. In the run directory it writes only HOME_STATE.json.
// Errors: SupersededError: another machine owns HOME. With `once`: HomeError, IoError of the first failure.
// Exceptions of Pace pass through. Threads: one.
#pragma once

#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "holdfast/mirror/home.h"
#include "holdfast/mirror/home_notes.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/mirror/pace.h"

namespace holdfast { inline namespace v0_2 {

struct MirrorOptions {
  std::filesystem::path directory = {};  // the run directory
  bool once = false;                     // end when its newest checkpoints are home
  // Called before each look at HOME, once there is a checkpoint. AnotherMirror ends run().
  std::function<void()> before_work = {};
  std::function<bool()> end_is_announced = {};  // of this machine; false if it is not set
};

class Mirror {
 public:
  // All references outlive this object.
  Mirror(FileSystem& file_system, Verifier& verifier, Home& home, MirrorOptions options, Pace& pace);

  // True: the newest checkpoint is home. False: it cannot come home any more.
  bool run();
  // Copies one checkpoint, or finds that there is nothing to do (false).
  bool turn();
  // From now on run() returns once the newest checkpoint is home. There will be no newer one.
  void finish() { finishing_ = true; }
  bool finishing() const { return finishing_; }
  const HomeRecord& record() const { return record_; }
  // Numbers that prepare_start_or_go_alone() has claimed with the same Home.
  void add_claims(const std::vector<AttemptNumber>& claims);
  // A start has claimed that number for a trainer to come, so older attempts say nothing about the run.
  void await_trainer(AttemptNumber attempt) { awaits_ = attempt; }
  // Also while a copy is under way: looks for a standby, and says to it that the run lives (home_notes.h).
  void exchange_notes();
  // After SupersededError: the newer claim in HOME is that of a start in this very run directory.
  bool goes_on_here() const;
  // prepare_start_or_go_alone() has let this attempt begin without a claim.
  void go_alone(AttemptNumber attempt) { record_.go_alone(attempt); }
  // Numbers that an earlier process has claimed for this run directory.
  void add_earlier_claim(AttemptNumber claim) {
    record_.add(claim);
    awaits_ = std::max(awaits_, claim);
  }

 private:
  struct Found {
    FileId id;
    std::string name;
  };
  struct Copied {
    std::uint64_t bytes = 0;
    Ancestry ancestry = {};
  };

  static std::vector<Found> candidates(const Directory& run);
  void adopt(Directory& run, AttemptNumber newest);
  void check_homes();
  bool copy(Directory& run, const Found& found);
  std::optional<MirrorSource> inspect(const Directory& run, const Found& found, const File& file);
  bool is_there_already(const MirrorSource& source);
  void put(Directory& run, const MirrorSource& source);
  void is_home(const MirrorSource& source);
  void retire(const MirrorSource& newest);
  void put_kernels(Directory& run);
  void note_time(Duration took);
  void save_record(Directory& run);
  void publish_record();
  void failed(const std::string& why);
  bool exchange(Directory& run, bool end_is_home);
  HolderNotes::News news(bool end_is_home) const;
  void recovered();

  FileSystem& file_system_;
  Verifier& verifier_;
  Home& home_;
  const MirrorOptions options_;
  Pace& pace_;
  HolderNotes notes_;
  AttemptNumber awaits_ = 0;  // the trainer of the last start
  bool exchanging_ = false;
  int notes_failed_ = 0;  // in a row
  HomeRecord record_;
  std::string saved_;  // the record as it was written last, without its time
  bool read_record_ = false;
  bool claimed_ = false;                   // by this process
  std::map<FileId, Copied> homes_;         // verified there by this process
  std::map<FileId, std::string> skipped_;  // cannot go home; value: why
  std::map<FileId, int> unreadable_;       // the looks at it
  std::set<std::string> kernels_;          // names of those that are home
  std::deque<Duration> took_;              // of the last copies
  std::string retire_failure_;             // the last one, as the log told it
  SteadyTime next_check_{};
  bool finishing_ = false;
  bool newest_is_home_ = false;
  bool cannot_come_ = false;  // the newest: it is skipped, or the run directory has gone
  bool seen_ = false;         // the run directory
  bool record_fails_ = false;
};

}}  // namespace holdfast::v0_2
