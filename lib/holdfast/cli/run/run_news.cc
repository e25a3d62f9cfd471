#include "holdfast/cli/run/run_news.h"

#include <algorithm>
#include <exception>

#include "holdfast/base/error.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/run/announced_ends.h"
#include "holdfast/store/run_progress.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast { inline namespace v0_2 {

RunNews read_run_news(const std::filesystem::path& directory, AttemptNumber since, const Clock& clock) {
  RunNews news;
  const std::string name = shown(directory);
  try {
    const auto run = FileSystem::real().open_directory(directory, false);
    // A directory that is missing is an answer, not an error: the first start makes it.
    if (run) news.attempts = attempt_words(*run, since);
    news.readable = true;
    const auto standby = run ? read_standby_sign(*run) : std::nullopt;
    news.standby_says_complete = standby && standby->complete;
    if (news.attempts.empty()) {
      news.silence = run ? "nobody has ever trained in " + name : "there is no " + name;
      return news;
    }
    const AttemptWord& newest = news.attempts.front();
    const LedgerLife life = read_life(newest.attempt, *run, kLedgerEnds);
    std::optional<WallTime> sign = life.last_wall;
    // Written at different times: the newest counts. The ledger is silent while a checkpoint is written.
    const auto also = [&sign](std::optional<WallTime> told) {
      if (told) sign = sign ? std::max(*sign, *told) : *told;
    };
    if (newest.state) also(parse_utc(newest.state->time));
    if (const auto progress = read_progress(*run, newest.attempt)) {
      also(WallTime(std::chrono::milliseconds(progress->unix_ms)));
    }
    if (sign) news.silent_for = std::chrono::duration_cast<Duration>(clock.wall_now() - *sign);
    if (!newest.state) {
      news.silence = "attempt " + std::to_string(newest.attempt) + " has written nothing in " + name;
      return news;
    }
    const bool left = newest.state->phase == RunPhase::interrupted;
    news.time_is_over = own_time_is_over(life, left, clock.wall_now());
    // A deadline is about one machine and one boot; another machine's deadline must not delay a restart here.
    if (newest.state->boot_id != boot_id() || newest.state->boot_id.empty()) return news;
    // On the steady clock, because the wall clock may be set meanwhile.
    if (const auto ends = machine_ends(life)) news.deadline = clock.now() + (*ends - clock.wall_now());
  } catch (const std::exception& error) {
    news.silence = what_of(error);
  }
  return news;
}

}}  // namespace holdfast::v0_2
