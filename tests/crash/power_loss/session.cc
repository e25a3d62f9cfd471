#include "session.h"

#include <algorithm>

namespace holdfast::test::power_loss {
namespace {

StoreOptions in_run(StoreOptions options) {
  options.directory = kRun;
  return options;
}

}  // namespace

Session::Session(SimFileSystem& files, Promise& promise, FileMaker& maker, StoreOptions options)
    : files_(files),
      promise_(promise),
      maker_(maker),
      store_(files, clock_, in_run(std::move(options)), maker.verifier()) {}

Selection Session::start() {
  preflight_ = store_.preflight();
  const AttemptNumber claimed = store_.claim();
  promise_.claimed = std::max(promise_.claimed, claimed);
  promised("claimed");
  Selection selection = store_.recover();
  store_.trial_commit();
  if (selection.newest) {
    ancestry_ = selection.newest->ancestry;
    ancestry_[selection.newest->attempt] = selection.newest->step;
    step_ = durable_ = selection.newest->step;
  }
  return selection;
}

void Session::save(bool finite) {
  const FileId id{.attempt = attempt(), .step = step_ + 1};
  CommitRequest request =
      maker_.request({.step = id.step, .attempt = id.attempt, .ancestry = ancestry_, .finite = finite});
  request.write = [this, id, finite, write = std::move(request.write)](File& file) {
    write(file);
    promise_.written[id] = {.content = content_hash(file), .finite = finite};
  };
  store_.commit(request);
  step_ = durable_ = id.step;
  promise_.acknowledged = std::max(promise_.acknowledged.value_or(id), id);
  if (finite) promise_.finite = std::max(promise_.finite.value_or(id), id);
  promised("acknowledged");
}

void Session::write_state(RunPhase phase) {
  store_.write_run_state(
      {.phase = phase, .step = step_, .durable_step = durable_, .host = "h", .boot_id = "b"});
  promise_.state_attempt = attempt();
  promise_.state_step = durable_;
  promised("state written");
}

void Session::live(Random& random) {
  start();
  if (random.chance(3, 4)) write_state(RunPhase::starting);
  const std::uint64_t rounds = random.below(5);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    step_ += static_cast<std::int64_t>(random.below(2));
    save(random.chance(4, 5));
    if (random.chance(2, 3)) write_state(RunPhase::running);
    for (std::uint64_t lines = random.below(3); lines > 0; --lines) append_ledger();
    if (random.chance(4, 5)) tidy();
  }
  if (random.chance(1, 2)) write_state(RunPhase::complete);
}

}  // namespace holdfast::test::power_loss
