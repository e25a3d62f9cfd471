#include "holdfast/cli/run_news.h"

#include <exception>

#include "holdfast/base/error.h"
#include "holdfast/base/machine.h"
#include "holdfast/cli/life_story.h"
#include "holdfast/snapshot/utf8.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/names.h"

namespace holdfast::inline v1 {
namespace {

const char* word_of(RunPhase phase) {
  switch (phase) {
    case RunPhase::starting:
      return "starting";
    case RunPhase::running:
      return "running";
    case RunPhase::complete:
      return "complete";
    case RunPhase::interrupted:
      return "interrupted";
    case RunPhase::failed:
      return "failed";
    case RunPhase::superseded:
      return "superseded";
  }
  return "unknown";
}

}  // namespace

RunNews read_run_news(const std::filesystem::path& directory, const Clock& clock) {
  RunNews news;
  const std::string name = printable(directory.string(), 4096);
  try {
    const auto run = FileSystem::real().open_directory(directory, false);
    if (!run) {
      news.silence = "there is no " + name;
      return news;
    }
    news.state = read_run_state(*run);
    if (!news.state) {
      const auto attempts = run->open_directory(kAttemptsDirectory, false);
      const AttemptNumber highest = highest_attempt(*run, attempts.get());
      news.silence = highest == 0 ? "nobody has ever trained in " + name
                                  : "attempt " + std::to_string(highest) + " has said nothing in " + name;
      return news;
    }
    if (news.state->boot_id != boot_id() || news.state->boot_id.empty()) return news;
    const auto ends = read_life_story(*run, news.state->attempt).machine_ends();
    if (ends) news.deadline = clock.now() + (*ends - clock.wall_now());
  } catch (const std::exception& error) {
    news.silence = what_of(error);
  }
  return news;
}

std::string doubt_of_completion(const RunNews& news) {
  if (!news.state) return news.silence;
  if (news.state->phase == RunPhase::complete) return {};
  std::string text = "attempt " + std::to_string(news.state->attempt) + " says '" +
                     word_of(news.state->phase) + "', not 'complete'";
  if (!news.state->reason.empty()) text += " (" + printable(news.state->reason) + ")";
  return text;
}

}  // namespace holdfast::inline v1
