#include "holdfast/checkpoint/internal/trial.h"

#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

std::optional<Trial> Trial::begin(CheckpointerOptions& options) {
  const auto folder = env_text(kEnvTrial);
  if (!folder) return std::nullopt;
  if (options.ranks.channel != nullptr && options.ranks.channel->world_size() > 1) {
    throw UsageError("holdfast check proves a program of one process; run it with one rank");
  }
  Trial trial;
  trial.folder_ = *folder;
  trial.orders_ = read_orders(trial.folder_);
  log_warning("this is a trial of `holdfast check`: checkpoints go to {}, not to {}", trial.folder_.string(),
              options.directory.string());
  options.directory = trial_run(trial.folder_);
  // The program's mount, intervals and second place have no part in a trial.
  options.mount.clear();
  options.every.clear();
  options.start.resume_from.clear();
  options.start.home.clear();
  options.notices.cloud = false;
  return trial;
}

void Trial::at_boundary(Engine& engine, Ensemble& ensemble) {
  Run& run = engine.run;
  const std::int64_t step = run.step();
  engine.boundary.settle();
  note(engine.boundary.loss(), run.source.attributes(), engine.boundary_saves.digest());
  if (step == orders_.save_at) ensemble.save().wait();
  if (step == orders_.kill_at || step > orders_.stop_at) std::raise(SIGKILL);
  if (step != orders_.stop_at) return;
  run.monitor.post({"check", NoticeKind::stop, std::nullopt, "the trial ends here"});
}

// `now`: the attributes of the state.
void Trial::note(std::optional<double> loss, const Attributes& now, const Digest& state) {
  // What the step printed must be in the file before its length is read.
  std::cout.flush();
  std::fflush(stdout);
  TrialStep line;
  line.step = now.get_int("step");
  // As bits, because the runs of a trial are compared bit for bit.
  line.loss = loss ? std::to_string(std::bit_cast<std::uint64_t>(*loss)) : "-";
  line.epoch = now.has("cursor.epoch") ? now.get_int("cursor.epoch") : 0;
  line.state = to_hex(state);
  // In a trial standard output is a file, so its offset tells how much was printed.
  line.output = ::lseek(STDOUT_FILENO, 0, SEEK_CUR);
  append_step(folder_, line);
}

}}}  // namespace holdfast::v0_2::internal
