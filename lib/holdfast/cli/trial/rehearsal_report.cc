#include "holdfast/cli/trial/rehearsal_report.h"

#include <algorithm>
#include <bit>
#include <ostream>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::string steps(std::int64_t count) { return format_count(count) + (count == 1 ? " step" : " steps"); }

std::string commits_text(const RehearsedLife& life) {
  if (life.commits.empty()) {
    return "none after the notice; the newest is step " +
           (life.durable_step < 0 ? "-" : format_count(life.durable_step));
  }
  const auto& first = life.commits.front();
  const auto& last = life.commits.back();
  std::string text = "step " + format_count(first.step) + " after " + format_duration(first.after);
  if (life.commits.size() > 2) text += ", " + format_count(std::ssize(life.commits) - 2) + " more";
  if (life.commits.size() > 1) {
    text += ", step " + format_count(last.step) + " after " + format_duration(last.after);
  }
  return text;
}

std::string end_text(const RehearsedLife& life) {
  if (life.left)
    return to_text(life.ending) + ", by itself, " + format_duration(*life.left) + " after the notice";
  if (life.had_to_be_killed) return "killed: SIGTERM at the deadline was not enough";
  return to_text(life.ending) + ", at the deadline";
}

std::string resumed_text(const RehearsedLife& life) {
  if (!life.resumed_at) return "not at all";
  std::string text = "at step " + format_count(*life.resumed_at);
  // A ledger may lack the last steps of a life that was killed: the next life can begin beyond its end.
  const std::int64_t lost = std::max<std::int64_t>(life.furthest_step - *life.resumed_at, 0);
  text += ", " + steps(lost) + " lost";
  if (lost == 0 && life.computed_again == 0) text += "; nothing had to be computed again";
  if (life.computed_again > 0) {
    text += "; resume verified: " + steps(life.computed_again) + " computed again, " +
            (life.different == 0 ? "bit-identical" : format_count(life.different) + " DIFFERENT");
  }
  return text;
}

}  // namespace

std::vector<std::string> faults_of(const RehearsedLife& life) {
  std::vector<std::string> faults;
  if (life.attempt == 0) {
    // Nothing else of such a life can be judged, and each further fault would follow from this one.
    return {"it did not begin to train (" + to_text(life.ending) + ")"};
  }
  if (!life.given) return {"it ended before the notice came (" + to_text(life.ending) + ")"};
  const bool paused =
      life.ending.signal == 0 && life.ending.exit_code == static_cast<int>(ExitCode::interrupted);
  // A life that leaves with 75 has seen it, whatever its ledger shows.
  if (!life.seen && !(life.left && paused)) {
    faults.push_back(life.asked ? "the notice was not seen"
                                : "the notice was not seen: no process asked the metadata server");
  }
  if (life.left && !paused) faults.push_back("it ended by itself: " + to_text(life.ending));
  if (life.had_to_be_killed) faults.emplace_back("it did not leave after SIGTERM");
  // A life that had saved and waited loses nothing when it is killed.
  if (life.ending.signal != 0 && !life.left && !life.had_to_be_killed && !life.waited) {
    faults.emplace_back(
        "it trained until it was killed, as far as its ledger shows; how much of that is lost is unknown");
  }
  if (life.durable_step < 0) faults.emplace_back("nothing was ever committed");
  // Without a newer step there was nothing to commit.
  if (life.commits.empty() && life.durable_step < life.furthest_step) {
    faults.emplace_back("nothing was committed between the notice and the end");
  }
  if (!life.resumed_at) {
    faults.emplace_back("the next life did not begin to train");
    return faults;
  }
  // The worst of all: the program was told that this step is safe.
  if (*life.resumed_at < life.durable_step) {
    faults.push_back("step " + format_count(life.durable_step) +
                     " was acknowledged, and the next life began at " + format_count(*life.resumed_at));
  }
  if (life.furthest_step > *life.resumed_at) {
    faults.push_back(steps(life.furthest_step - *life.resumed_at) + " lost: trained up to " +
                     format_count(life.furthest_step) + ", resumed at " + format_count(*life.resumed_at));
  }
  if (life.different > 0) {
    faults.push_back("of " + steps(life.computed_again) + " computed again, " + format_count(life.different) +
                     " differ");
  }
  return faults;
}

Recomputed compare_losses(const LossesByStep& older, const LossesByStep& newer) {
  Recomputed recomputed;
  for (const auto& [step, loss] : newer) {
    const auto before = older.find(step);
    if (before == older.end()) continue;
    ++recomputed.steps;
    // Bits: NaN is equal to itself here, and 0 is not -0.
    if (std::bit_cast<std::uint64_t>(before->second) != std::bit_cast<std::uint64_t>(loss)) {
      ++recomputed.different;
    }
  }
  return recomputed;
}

void print_life(std::ostream& out, int number, const RehearsedLife& life) {
  out << "life " << number;
  if (life.attempt == 0) {
    out << ": it did not begin to train\n";
  } else if (!life.given) {
    out << ": attempt " << life.attempt << ", from step " << format_count(life.began_at)
        << ", ended before the notice: " << to_text(life.ending) << '\n';
  } else {
    out << ": attempt " << life.attempt << ", from step " << format_count(life.began_at) << '\n';
    out << "  notice    " << format_duration(life.notice) << " ahead; ";
    if (life.seen) {
      out << "seen after " << format_duration(*life.seen) << " (" << life.seen_by << "), "
          << format_duration(life.notice - *life.seen) << " before the end\n";
    } else {
      out << "not known to have been seen\n";
    }
    out << "  commits   " << commits_text(life) << '\n';
    out << "  ended     " << end_text(life) << '\n';
    const Duration used = !life.commits.empty() ? life.commits.back().after : Duration::zero();
    out << "  unused    " << format_duration(life.notice - used) << " of the grace, after the last commit\n";
    out << "  resumed   " << resumed_text(life) << '\n';
  }
  for (const std::string& fault : faults_of(life)) out << "  LOST?     " << fault << '\n';
}

}}  // namespace holdfast::v0_2
