// Who has fallen silent, decided from signs of life alone: no clock, no thread, no socket. pulse.h runs it in
// a process, and the model of large runs (tests/crash/large_runs) in virtual time.
//
// At each poll rank 0's SignTable gets all ranks' signs and writes a *tale*: which have not moved, and for
// how many of its polls. Polls come every 0.5 s up to 512 ranks, and every 2 s at most (pulse_options()).
// Each rank's SilenceJudge reads the tale and counts its own polls without a new one. Counting polls, not
// seconds, means that a process that was stopped has missed polls itself and accuses nobody.
//
// Errors: std::invalid_argument for a sign that is no number. Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

// A sign: a count, plus 2^32 times the polls for which this machine may stand still (below 2^15), plus 2^47
// for a rank that calls rank 0.
std::int64_t sign_of(std::int64_t count, std::int64_t standing, bool calls);
std::int64_t most_polls_of_standing();

// Silence as rank 0 tells it.
struct Tale {
  std::map<int, int> silent;  // rank -> polls without a new sign, beyond the announced ones
  int announced = 0;          // polls for which machines may stand still
  bool called = false;        // another rank calls rank 0; not in the text
};

// "<count> <announced polls> <rank>:<polls beyond those> …"
std::string text_of(const Tale& tale, std::int64_t count);
Tale tale_of(const std::string& text);

// Rank 0's.
class SignTable {
 public:
  SignTable(int world_size, int looks);
  Tale poll(const std::vector<std::string>& signs);

 private:
  std::vector<std::string> signs_;  // as last read
  std::vector<int> unmoved_;        // polls since the last change
  int announced_ = 0;
};

// Each rank's. `looks`: polls without a sign after which a rank is lost. `tale_every`: polls from one tale to
// the next. `looks_to_tell`: polls by which rank 0 acts later than the others, because its store may end with
// it and they must learn the reason.
class SilenceJudge {
 public:
  SilenceJudge(int rank, int looks, int tale_every = 1, int looks_to_tell = 2);

  // A sign of rank 0.
  void learn(Tale tale);
  // Once a period. `closed`: the connection to the store has ended. True if this poll finds a rank lost.
  bool poll(bool closed);
  // As poll(), but counts none: for the moment of a new tale.
  bool decide(bool closed);

  // Half of a loss: worth asking rank 0 more often.
  bool suspects() const { return !silent(std::max(looks_ / 2, 1)).empty(); }
  const std::vector<int>& lost() const { return lost_; }  // of the first verdict
  bool store_is_lost() const { return store_is_lost_; }
  const Tale& tale() const { return tale_; }  // the last one
  int idle() const { return idle_; }          // polls since then
  int announced() const { return tale_.announced; }
  // True if the rank is lost, or after a verdict has been silent as long.
  bool fell_silent(int rank) const;
  // Ranks other than 0 without a sign for that many polls.
  std::vector<int> silent(int at_least) const;
  // After this many polls there is a verdict if a rank is silent now.
  int polls_to_verdict() const;

 private:
  int longest_silence() const;

  int looks_;
  int looks_to_tell_;
  int enough_;
  int enough_of_rank_0_;
  Tale tale_;
  bool heard_ = false;  // a sign of rank 0 since the last poll
  int idle_;            // polls without one
  bool store_is_lost_ = false;
  std::vector<int> lost_;
};

}}  // namespace holdfast::v0_2
