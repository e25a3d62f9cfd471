#include "holdfast/checkpoint/internal/trial.h"

#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// How long a trial lasts whose last step nobody ordered. Its other lives last as long.
constexpr std::int64_t kLeastTrialSteps = 60;
constexpr std::int64_t kEnoughTrialSteps = 200;  // with an epoch's end and an evaluation among them
constexpr std::int64_t kMostTrialSteps = 1000;
constexpr Duration kEnoughTrialTime = std::chrono::seconds(5);
constexpr Duration kMostTrialTime = std::chrono::seconds(10);

constexpr std::size_t kShownOfValue = 60;

std::string form_of_tensor(const TensorSpec& spec) {
  return std::string(name_of(spec.dtype)) + " " + shape_text(spec.shape);
}

// Equal only for equal values.
std::string short_text(const AttributeValue& value) {
  const std::string text = to_text(value);
  std::string shown = printable(text, kShownOfValue);
  if (shown != text) shown += " (" + to_hex(digest_of(std::as_bytes(std::span(text)))) + ")";
  return shown;
}

}  // namespace

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

void Trial::at_boundary(Engine& engine, Calls& calls) {
  const bool ignored_a_stop = stopped_;
  engine.boundary.settle();
  // Returns without the image of the state: a save would wait for it.
  note(engine);
  const std::int64_t step = engine.run.step();
  if (step == orders_.save_at) calls.save().wait();
  if (step == orders_.kill_at || ignored_a_stop) std::raise(SIGKILL);
  if (stopped_) engine.run.monitor.post({"check", NoticeKind::stop, std::nullopt, "the trial ends here"});
}

void Trial::note(Engine& engine) {
  const auto state = engine.saves.state();
  std::vector<Digest> digests;
  for (std::size_t i = 0; i < state->layout->tensors().size(); ++i) {
    digests.push_back(tensor_digest(state->bytes(i)));
  }
  const std::optional<double> loss = engine.boundary.loss();
  TrialStep line;
  line.step = state->step;
  // As bits, because the runs of a trial are compared bit for bit.
  line.loss = loss ? std::to_string(std::bit_cast<std::uint64_t>(*loss)) : "-";
  line.epoch = state->attributes.has("cursor.epoch") ? state->attributes.get_int("cursor.epoch") : 0;
  line.state = to_hex(state_digest(*state, digests));
  line.evaluations = evaluations_;
  line.stops = stopped_ = stops_at(line, engine.run.clock.now());
  // What the step printed must be in the file before its length is read.
  std::cout.flush();
  std::fflush(stdout);
  // In a trial standard output is a file, so its offset tells how much was printed.
  line.output = ::lseek(STDOUT_FILENO, 0, SEEK_CUR);
  note_values(line.step, *state, digests);
  append_step(folder_, line);
}

bool Trial::stops_at(const TrialStep& step, SteadyTime now) {
  if (orders_.stop_at > 0) return step.step >= orders_.stop_at;
  if (!first_) first_ = step, began_ = now;
  if (seen_all_at_ == 0 && step.epoch != first_->epoch && step.evaluations > 0) seen_all_at_ = step.step;
  const std::int64_t steps = step.step - first_->step + 1;
  if (steps < kLeastTrialSteps) return false;
  if (steps >= kMostTrialSteps || now - began_ >= kMostTrialTime) return true;
  // Some steps must follow what was seen last: only what is computed again is compared.
  return seen_all_at_ > 0 && step.step >= seen_all_at_ + steps / 5 &&
         (steps >= kEnoughTrialSteps || now - began_ >= kEnoughTrialTime);
}

// Writes what has changed since the step before.
void Trial::note_values(std::int64_t step, const Snapshot& state, std::span<const Digest> digests) {
  std::map<std::string, TrialValue> present;
  const auto add = [&](const std::string& name, std::string form, std::string value) {
    present.emplace(name, TrialValue{step, name, std::move(form), std::move(value)});
  };
  const std::vector<TensorSpec>& tensors = state.layout->tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    add(tensors[i].name, form_of_tensor(tensors[i]), to_hex(digests[i]));
  }
  for (const auto& [name, attribute] : state.attributes) {
    if (attribute.role == Role::decides) add(name, "attribute", short_text(attribute.value));
  }
  std::vector<TrialValue> changed;
  for (const auto& [name, value] : present) {
    const auto before = known_.find(name);
    const bool same =
        before != known_.end() && before->second.form == value.form && before->second.value == value.value;
    if (!same) changed.push_back(value);
  }
  for (const auto& [name, value] : known_) {
    if (!present.contains(name)) changed.push_back({step, name, "", ""});
  }
  append_values(folder_, changed);
  known_ = std::move(present);
}

}}}  // namespace holdfast::v0_2::internal
