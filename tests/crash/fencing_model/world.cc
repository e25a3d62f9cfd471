#include "world.h"

#include "step.h"

namespace holdfast::test::fencing {
namespace {

bool is_claim(int name) { return name >= claim_of(0) && name < temporary_of(0); }

}  // namespace

World beginning(bool with_a_past, int first_standby, int standbys) {
  World world{};
  for (Attempt& attempt : world.attempts) {
    attempt.step = Step::preflight;
    attempt.start = attempt.at_hand = kNoFile;
  }
  for (int i = first_standby; i < first_standby + standbys; ++i) {
    world.attempt(i).step = Step::stand_by;
    world.attempt(i).standby = 1;
  }
  if (with_a_past) {
    for (int file = 0; file < kPast; ++file) world.name(file).present = world.name(file).durable = 1;
  }
  return world;
}

void World::change(int index, bool present, int attempt) {
  Name& changed = name(index);
  changed.present = present ? 1 : 0;
  changed.by = changed.open() ? static_cast<std::uint8_t>(1 + attempt) & 3U : 0U;
}

void World::settle(int index) {
  name(index).durable = name(index).present;
  name(index).by = 0;
}

void World::settle_run_state() {
  run_state.durable = run_state.owner;
  run_state.by = 0;
}

void World::sync_run() {
  for (int i = 0; i < kNames; ++i) {
    if (!is_claim(i)) settle(i);
  }
  settle_run_state();
}

void World::sync_attempts() {
  for (int i = claim_of(0); is_claim(i); ++i) settle(i);
}

void World::see_run(int attempt) {
  for (int i = 0; i < kNames; ++i) {
    if (!is_claim(i) && name(i).by != attempt + 1) settle(i);
  }
  if (run_state.by != attempt + 1) settle_run_state();
}

void World::see_attempts(int attempt) {
  for (int i = claim_of(0); is_claim(i); ++i) {
    if (name(i).by != attempt + 1) settle(i);
  }
}

unsigned World::open_operations(int attempt) const {
  unsigned open = 0;
  for (int i = 0; i < kNames; ++i) {
    if (name(i).open() && name(i).by == attempt + 1) open |= 1U << i;
  }
  if (run_state.open() && run_state.by == attempt + 1) open |= 1U << kRunState;
  return open;
}

void World::take_back(unsigned lost) {
  for (int i = 0; i < kNames; ++i) {
    if ((lost >> i & 1U) == 0) continue;
    name(i).present = name(i).durable;
    name(i).by = 0;
  }
  if ((lost >> kRunState & 1U) != 0) {
    run_state.owner = run_state.durable;
    run_state.by = 0;
  }
}

void World::end(int index) {
  Attempt& ended = attempt(index);
  ended.step = Step::ended;
  ended.held = 0;
  ended.todo = 0;
  name(temporary_of(index)).unsynced = 0;  // nobody reads it again
}

void World::cut(int index) {
  for (int save = 0; save < kSaves; ++save) {
    Name& file = name(checkpoint_of(index, save));
    if (file.unsynced != 0) file.torn = 1;
    file.unsynced = 0;
  }
  end(index);
}

int attempt_number_of(const World& world, int checkpoint) {
  return checkpoint < kPast ? 1 : world.attempt((checkpoint - kPast) / kSaves).number;
}

int previous_of(const World& world, int checkpoint) {
  if (checkpoint < kPast) return checkpoint > 0 ? checkpoint - 1 : kNoFile;
  const int save = (checkpoint - kPast) % kSaves;
  return save > 0 ? checkpoint - 1 : world.attempt((checkpoint - kPast) / kSaves).start;
}

int step_of(const World& world, int checkpoint) {
  int step = 0;
  for (; checkpoint != kNoFile; checkpoint = previous_of(world, checkpoint)) ++step;
  return step;
}

bool is_in_history(const World& world, int checkpoint, int tip) {
  while (tip != kNoFile && tip != checkpoint) tip = previous_of(world, tip);
  return tip == checkpoint;
}

}  // namespace holdfast::test::fencing
