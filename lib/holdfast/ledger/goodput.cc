#include "holdfast/ledger/goodput.h"

#include <algorithm>
#include <array>

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr Duration kZero = Duration::zero();
// Wall clocks of two machines differ. A smaller overlap of two lives does not mean that both ran at once.
constexpr Duration kClockError = std::chrono::seconds(30);

LifeEnding ending_of(const LedgerLife& life, const LedgerLife* next) {
  // The run's own word about its end outranks what follows from later lives.
  if (life.end) {
    if (life.end->phase == "complete") return LifeEnding::complete;
    if (life.end->phase == "interrupted") return LifeEnding::interrupted;
    return life.end->phase == "superseded" ? LifeEnding::superseded : LifeEnding::failed;
  }
  if (next == nullptr) return LifeEnding::silent;
  // It wrote while its successor had begun already, so it was fenced off.
  if (next->start + kClockError < life.last_sign) return LifeEnding::superseded;
  // An equal boot: the machine lived on, so the process crashed. Another boot: the machine went away.
  return !life.boot.empty() && next->boot == life.boot ? LifeEnding::crashed : LifeEnding::vanished;
}

void listen(const LedgerLife& life, LifeAccount& account) {
  std::optional<Duration> deadline;
  for (const LedgerNotice& notice : life.notices) {
    // A withdrawn notice needs no preparation, so its lead does not count.
    if (notice.kind == "withdrawn") {
      account.noticed = false;
      account.lead.reset();
      deadline.reset();
    }
    if (notice.kind != "deadline" && notice.kind != "stop") continue;
    account.noticed = true;
    if (notice.kind != "deadline" || !notice.left || notice.hibernates) continue;
    // The longest lead is what the run had to prepare itself.
    account.lead = std::max(account.lead.value_or(*notice.left), *notice.left);
    const Duration at = notice.up + *notice.left;
    deadline = std::min(deadline.value_or(at), at);
  }
  if (!deadline) return;
  account.unused_grace = life.paused_until(std::min(*deadline, life.last_up));
  if (life.end && life.end->phase == "interrupted") {
    account.unused_grace += std::max(*deadline - life.last_up, kZero) + life.end->ending;
  }
}

void split(const LedgerLife& life, LifeAccount& account) {
  TimeSplit& time = account.time;
  const LedgerMark& last = life.marks.back();
  time.up = life.length();
  time.startup = life.startup;
  time.kept = life.work_until(account.kept_step);
  time.lost = life.work_until(life.last_step + 1) - time.kept;
  // Clamped, because a torn ledger may claim more waiting than the life has.
  time.waited = std::min(last.waited, last.up - life.start_up);
  time.paused = life.paused_until(life.last_up);
  if (life.end) time.ending = life.end->ending;
  time.unknown = std::max(
      time.up - time.startup - time.kept - time.lost - time.waited - time.paused - time.ending, kZero);
}

void add(TimeSplit& sum, const TimeSplit& one) {
  // By pointers to members, so that a part that is added later cannot be forgotten in one place.
  for (Duration TimeSplit::*const part :
       {&TimeSplit::up, &TimeSplit::startup, &TimeSplit::kept, &TimeSplit::lost, &TimeSplit::waited,
        &TimeSplit::paused, &TimeSplit::ending, &TimeSplit::unknown}) {
    sum.*part = bounded_sum(sum.*part, one.*part);
  }
}

}  // namespace

std::string word_of(LifeEnding ending) {
  // With a question mark: a life without an end line may be gone without anybody having noticed.
  constexpr std::array kWords = {"complete", "interrupted", "failed",  "superseded",
                                 "crashed",  "vanished",    "running?"};
  return kWords.at(static_cast<std::size_t>(ending));
}

RunAccount account_for(const std::vector<LedgerLife>& all) {
  RunAccount run;
  std::vector<const LedgerLife*> lives;
  for (const LedgerLife& life : all) {
    run.skipped_lines += life.skipped_lines;
    run.lost_lines += life.lost_lines;
    if (life.started) {
      lives.push_back(&life);
    } else {
      ++run.never_started;
    }
  }

  for (const LedgerLife* const life : lives) {
    LifeAccount account;
    account.attempt = life->attempt;
    account.from_step = life->start_step;
    account.last_step = life->last_step;
    account.kept_step = life->start_step;
    run.lives.push_back(std::move(account));
  }
  // From the newest life back, each keeps what its successor continued. Lives in between kept nothing.
  const LedgerLife* successor = nullptr;
  for (std::size_t i = lives.size(); i-- > 0;) {
    const LedgerLife& life = *lives[i];
    if (successor != nullptr && life.attempt > successor->from_attempt) continue;
    // Durable steps count in the newest, and in one whose successor has no ledger.
    const bool continued = successor != nullptr && life.attempt == successor->from_attempt;
    const std::int64_t kept = continued ? successor->start_step : life.durable_step;
    run.lives[i].kept_step = std::clamp(kept, life.start_step, life.last_step);
    successor = &life;
  }

  for (std::size_t i = 0; i < lives.size(); ++i) {
    const LedgerLife& life = *lives[i];
    LifeAccount& account = run.lives[i];
    account.ending = ending_of(life, i + 1 < lives.size() ? lives[i + 1] : nullptr);
    account.began = life.start - std::chrono::duration_cast<WallTime::duration>(life.startup);
    account.saves = static_cast<std::int64_t>(life.commits.size());
    for (const LedgerCommit& commit : life.commits) account.bytes += commit.bytes;
    for (const auto& [name, figures] : life.sources) account.blind = std::max(account.blind, figures.blind);
    if (life.end) {
      account.exit_code = life.end->exit_code;
      account.reason = life.end->reason;
      run.most_risk = std::max(run.most_risk, life.end->most_risk);
    }
    listen(life, account);
    split(life, account);
    add(run.time, account.time);
    run.unused_grace = bounded_sum(run.unused_grace, account.unused_grace);
    const bool vanished = account.ending == LifeEnding::vanished;
    if (vanished || account.ending == LifeEnding::interrupted) ++run.interruptions;
    if (vanished && !account.noticed) ++run.missed;
  }
  if (!run.lives.empty()) {
    const LifeAccount& newest = run.lives.back();
    run.risk_steps = newest.last_step - newest.kept_step;
    run.risk = newest.time.lost;
  }
  if (run.time.up > kZero) {
    run.goodput = std::chrono::duration<double>(run.time.kept).count() /
                  std::chrono::duration<double>(run.time.up).count();
  }
  return run;
}

}}  // namespace holdfast::v0_2
