// Relates a run directory to the command that `holdfast supervise` runs: which attempts the command began,
// whether they made progress, and how the command really ended. A launcher may change exit codes (torchrun:
// 75 to 0, 76 to 1); the run state does not.
//
//   account.begin(news);                                   // before each start of the command
//   start(command, {{"HOLDFAST_SUPERVISOR", account.life()}});
//   const Judgement judged = account.end(ending, news);    // after it
//
// An attempt belongs to the command if its claim carries the name of the command's life. A launcher may
// remove that variable; so if no claim has this supervisor's name, unnamed claims made since the command's
// start count too. Errors: none. Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "holdfast/cli/child/attended_child.h"
#include "holdfast/cli/run/run_news.h"

namespace holdfast { inline namespace v0_2 {

struct Judgement {
  Ending ending = {};        // 75 for a 0 of an interrupted run, 76 if another attempt trains, …
  std::string remark = {};   // why it differs from the command's ending; empty: it does not
  bool progress = false;     // an attempt of this life has committed a newer step
  bool complete = false;     // exit 0, and an attempt of this supervisor says that it is complete
  bool handed_over = false;  // before an announced end, to a standby
};

class SupervisedRun {
 public:
  SupervisedRun();

  void begin(const RunNews& news);
  // Name of the life that begin() opened, for HOLDFAST_SUPERVISOR.
  const std::string& life() const { return life_; }
  Judgement end(const Ending& ending, const RunNews& news);

  // `news` must include attempts newer than this.
  AttemptNumber since() const { return first_.value_or(0); }
  std::int64_t durable_step() const { return durable_step_; }  // newest one that the directory told; -1: none
  // An attempt of the life that begin() opened has claimed the run.
  bool has_claimed(const RunNews& news) const;
  // True if the attempt belongs to the life that begin() opened.
  bool is_of_this_life(const AttemptWord& word) const;
  // An attempt that is neither this supervisor's nor finished; nullptr: none.
  const AttemptWord* newer_attempt(const RunNews& news) const;

 private:
  bool is_ours(const AttemptWord& word, const RunNews& news, AttemptNumber since,
               const std::string& name) const;
  void learn(const RunNews& news);

  const std::string supervisor_;
  int lives_ = 0;
  std::string life_;
  std::optional<AttemptNumber> first_;   // newest attempt before the first life; nullopt: unknown
  std::optional<AttemptNumber> before_;  // newest attempt before this life
  std::int64_t durable_step_ = -1;
};

// Of a standby's command, which has claimed nothing. Other attempts may come and go meanwhile. With a HOME,
// which only the command has asked, the sign counts that it has left in the run directory.
Judgement judge_standby(const Ending& ending, const RunNews& news, bool has_home);
// True if its process may still train: it has not recorded its end, is not known to be dead, and gave a sign
// of life in the last ten minutes.
bool may_be_alive(const AttemptWord& word, const RunNews& news);
// "attempt 7 (host ip-10-0-0-7)"
std::string to_text(const AttemptWord& word);

}}  // namespace holdfast::v0_2
