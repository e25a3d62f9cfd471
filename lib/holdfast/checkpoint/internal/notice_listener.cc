#include "holdfast/checkpoint/internal/notice_listener.h"

#include <algorithm>
#include <new>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/checkpoint/internal/run_driver.h"
#include "holdfast/interruption/sources.h"
#include "holdfast/interruption/term_grace.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

NoticeListener::NoticeListener(Run& run, RunDriver& driver, OtherRanks& others)
    : run_(run),
      driver_(driver),
      leads_(others.leads()),
      watch_(run.clock,
             {.pending = [this] { return driver_.pending(); },
              .respond = [this] { driver_.look(); },
              .waits = [this] { return driver_.has_work(); },
              // The training looks at notices between steps alone, and a step may be longer than deaf_after.
              .patience =
                  [this] { return std::max(run_.options.notices.deaf_after, run_.costs.costs().step * 2); },
              .what = [this] { return pending_text(); }}) {}

void NoticeListener::start() {
  const NoticeOptions& options = run_.options.notices;
  run_.monitor.listen([this](const Notice& notice) {
    // Before the command, which needs memory: the ledger and the ranks hear of the notice in any case.
    run_.ledger.notice(notice);
    driver_.hear(notice);
    try {
      watch_.wake(command_for(notice));
    } catch (const std::bad_alloc&) {
      log_warning(
          "out of memory after a notice: nobody checks whether the training reacts, and no command is run");
    }
  });
  SourceOptions heard{.signals = options.hear_signals,
                      .term_grace = options.term_grace,
                      .max_wall = options.max_wall,
                      .cloud = options.cloud,
                      .blind_after = options.blind_after};
  if (env_flag(kEnvApproveEnd).value_or(options.approve_end)) {
    // Asked at every poll: an approval lets Azure begin at once, so it waits until the last commit is
    // durable.
    heard.azure_approve = [this] { return driver_.may_go(); };
  }
  if (!options.notice_file.empty()) heard.notice_files.push_back(options.notice_file);
  for (auto& made : make_sources(heard, run_.clock)) run_.monitor.add(std::move(made));
  for (const auto& make : options.sources) {
    if (auto made = make(run_.clock)) run_.monitor.add(std::move(made));
  }
  run_.monitor.start();
  // Once a start, by one rank: all ranks and the sources of other programs guess the same.
  if (!options.hear_signals || !leads_) return;
  const TermGrace grace = term_grace(options.term_grace);
  if (grace.guessed && grace.time == kContainerTermGrace) {
    log_info("in a container: 10 s from SIGTERM to SIGKILL are assumed; {} sets another time",
             kEnvTermGrace.name);
  }
  if (grace.cut) {
    log_warning("torchrun kills 30 s after SIGTERM: 25 s are assumed, less than {} or term_grace names",
                kEnvTermGrace.name);
  }
}

void NoticeListener::run_is_over() noexcept {
  for (const auto& source : run_.monitor.sources()) {
    if (auto* const signals = dynamic_cast<SignalSource*>(source.get())) signals->stop_listening();
  }
}

void NoticeListener::stop() noexcept {
  // The monitor first: afterwards no notice can wake the watch again.
  run_.monitor.stop();
  watch_.stop();
}

std::string NoticeListener::pending_text() const {
  std::string text = driver_.text_of_end();
  if (text.empty()) text = "a save is asked for";
  if (const auto left = driver_.time_left()) text += ", " + format_duration(*left) + " left";
  return text;
}

// Any thread. Empty: no command is configured.
RiskCommand NoticeListener::command_for(const Notice& notice) const {
  if (notice.kind != NoticeKind::at_risk) return {};
  RiskCommand command{.text = run_.options.notices.on_risk};
  command.context.directory = run_.options.directory.string();
  command.context.step = run_.book->step();
  command.context.reason = notice.text;
  const auto left =
      notice.deadline ? std::optional<Duration>(*notice.deadline - run_.clock.now()) : driver_.time_left();
  if (left)
    command.context.deadline = run_.clock.wall_now() + std::chrono::duration_cast<WallTime::duration>(*left);
  return command;
}

}}}  // namespace holdfast::v0_2::internal
