#include "step.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace holdfast::test::fencing {
namespace {

constexpr int kNoNumber = 16;  // above all

// The attempt whose step it is, with what every step needs.
class Program {
 public:
  Program(World& world, int index, int way, const Rule& rule, const Lives& lives)
      : world_(world), index_(index), way_(way), rule_(rule), lives_(lives), self_(world.attempt(index)) {}

  Violation run();

 private:
  void go(Step step) { self_.step = step; }
  void end() { world_.end(index_); }
  void to_do(int bit) { self_.todo = static_cast<std::uint8_t>(self_.todo | 1U << bit); }
  int temporary() const { return temporary_of(index_); }
  int own_checkpoint() const { return checkpoint_of(index_, self_.saves); }

  int highest_in_run() const;
  int highest_claim(bool that_counts) const;
  const Attempt* holder(int below) const;
  void after_last_save();
  Violation supersede();
  Violation look(Step next);
  void list();
  Violation rename();
  Violation acknowledge();
  Violation replace_state();
  Violation unlink_next(Step more, Step finished);
  void stand_by();
  void await_end();
  bool claims_what_it_saw() const { return self_.standby != 0 && rule_.claims_what_it_saw; }
  void stand_by_again();
  Violation create_claim();
  void forget_list();
  void sweep_list();
  void retention_list();
  void after_recovery();
  bool seen_without(int checkpoint, const Attempt& newer) const;

  World& world_;
  const int index_;
  const int way_;
  const Rule& rule_;
  const Lives& lives_;
  Attempt& self_;
};

int Program::highest_in_run() const {
  int highest = 0;
  for (int file = 0; file < kCheckpoints; ++file) {
    if (world_.present(file)) highest = std::max(highest, attempt_number_of(world_, file));
  }
  for (int i = 0; i < kAttempts; ++i) {
    if (world_.present(temporary_of(i)) || world_.present(state_temporary_of(i))) {
      highest = std::max<int>(highest, world_.attempt(i).number);
    }
  }
  return highest;
}

int Program::highest_claim(bool that_counts) const {
  int highest = 0;
  for (int i = 0; i < kAttempts; ++i) {
    const Name& claim = world_.name(claim_of(i));
    if (!is_present(claim)) continue;
    if (that_counts && rule_.counts != Counts::being_there && claim.marked == 0) continue;
    highest = std::max<int>(highest, world_.attempt(i).number);
  }
  return highest;
}

// Whose claim is the highest of those below that number; nullptr: nobody's.
const Attempt* Program::holder(int below) const {
  const Attempt* holder = nullptr;
  for (int i = 0; i < kAttempts; ++i) {
    const Attempt& attempt = world_.attempt(i);
    if (!world_.present(claim_of(i)) || attempt.number >= below) continue;
    if (holder == nullptr || attempt.number > holder->number) holder = &attempt;
  }
  return holder;
}

// What it has at hand decides nothing if it lists again, so only the variant that does not keeps it in mind.
void Program::stand_by() {
  if (way_ != 0) {
    self_.at_hand = static_cast<std::uint8_t>(newest(world_, is_present));
    return;
  }
  const int highest = std::max(highest_in_run(), highest_claim(false));
  self_.number = static_cast<std::uint8_t>(1 + highest) & 0xfU;
  go(Step::await_end);
}

void Program::await_end() {
  const Attempt* const holds = holder(kNoNumber);
  const bool ended = holds != nullptr && holds->said_end != 0;
  if (ended || way_ != 0 || !rule_.waits_for_an_end) return go(Step::list_run);
  stand_by_again();
}

void Program::stand_by_again() {
  self_.number = 0;
  go(Step::stand_by);
}

// Only a newer claim may end an attempt: otherwise the highest could end as well, and nobody is left.
Violation Program::supersede() {
  const bool rightly = highest_claim(false) > self_.number;
  const bool temporary_left = world_.present(temporary());
  end();
  if (temporary_left) go(Step::remove_abandoned);
  return rightly ? Violation::none : Violation::stuck;
}

Violation Program::look(Step next) {
  const bool looks =
      rule_.looks == Looks::every_time || (rule_.looks == Looks::once && self_.step == Step::look_after_list);
  const bool own_claim = world_.present(claim_of(index_));
  if (looks && (highest_claim(true) > self_.number || !own_claim)) return supersede();
  go(next);
  return Violation::none;
}

Violation Program::create_claim() {
  const auto takes_it = [&](int i) {
    return world_.present(claim_of(i)) && world_.attempt(i).number == self_.number;
  };
  bool taken = false;
  for (int i = 0; i < kAttempts; ++i) taken = taken || takes_it(i);
  if (taken && rule_.exclusive_claim) {
    self_.number = 0;
    go(claims_what_it_saw() ? Step::stand_by : Step::list_run);
    return Violation::none;
  }
  const Attempt* const before = holder(self_.number);
  const bool early = self_.standby != 0 && !lives_.silence && before != nullptr && before->said_end == 0;
  world_.add(claim_of(index_), index_);
  go(rule_.sync_claim ? Step::sync_claim : Step::sync_parent);
  return early ? Violation::early : Violation::none;
}

void Program::forget_list() {
  self_.todo = 0;
  for (int i = 0; i < kAttempts; ++i) {
    if (world_.present(claim_of(i)) && world_.attempt(i).number < self_.number) to_do(i);
  }
  if (self_.todo != 0) return go(Step::forget_look);
  after_recovery();
}

void Program::sweep_list() {
  self_.todo = 0;
  for (int i = 0; i < kAttempts; ++i) {
    if (i == index_ || world_.attempt(i).number >= self_.number) continue;
    if (world_.present(temporary_of(i))) to_do(i);
    if (world_.present(state_temporary_of(i))) to_do(kAttempts + i);
  }
  go(self_.todo != 0 ? Step::sweep_look_again : Step::sweep_sync);
}

Violation Program::unlink_next(Step more, Step finished) {
  const int next = __builtin_ctz(self_.todo);
  self_.todo &= static_cast<std::uint8_t>(self_.todo - 1U);
  const bool tidying = self_.step == Step::retention_unlink;
  int name = next;
  if (self_.step == Step::sweep_unlink) {
    name = next < kAttempts ? temporary_of(next) : state_temporary_of(next - kAttempts);
  } else if (self_.step == Step::forget_unlink) {
    name = claim_of(next);
  }
  if (world_.present(name)) world_.remove(name, index_);
  go(self_.todo != 0 ? more : finished);
  if (!tidying) return Violation::none;  // by its name a file of an older attempt
  for (int i = 0; i < kAttempts; ++i) {
    const Attempt& other = world_.attempt(i);
    if (i == index_ || other.number <= self_.number) continue;
    const bool wrote = name >= kPast && (name - kPast) / kSaves == i;
    const bool began_with = other.listed != 0 && other.start == name && other.chose == 0;
    if (wrote || began_with) return Violation::touched;
  }
  return Violation::none;
}

// With the sweep where the rule has it, nothing is renamed by older attempts from here on.
void Program::list() {
  const bool at_hand = !rule_.lists_after_the_wait && self_.at_hand != kNoFile;
  int found = at_hand ? self_.at_hand : newest(world_, is_present);
  self_.chose = way_ != 0 ? 1 : 0;
  if (self_.chose != 0) found = previous_of(world_, found);
  self_.start = static_cast<std::uint8_t>(found) & 0xfU;
  self_.listed = 1;
  go(Step::verify);
  // A power cut took what the preflight saw: this start ends with 74, and the next one is fresh.
  if (found == kNoFile && self_.held != 0) end();
}

void Program::after_recovery() {
  if (rule_.counts == Counts::marked_after_recovery) {
    world_.name(claim_of(index_)).marked = 1;
  }
  self_.recovered = 1;
  self_.held = 0;
  go(Step::state_look);
}

Violation Program::replace_state() {
  if (!world_.present(state_temporary_of(index_))) return supersede();
  world_.remove(state_temporary_of(index_), index_);
  const int before = world_.run_state.owner;
  world_.run_state.owner = static_cast<std::uint8_t>(1 + index_) & 3U;
  world_.run_state.by = world_.run_state.open() ? world_.run_state.owner : 0U;
  go(self_.saves == 0 ? Step::create_temporary : Step::retention_list);
  const bool newer = before != 0 && world_.attempt(before - 1).number > self_.number;
  return newer ? Violation::touched : Violation::none;
}

bool Program::seen_without(int checkpoint, const Attempt& newer) const {
  return newer.number > self_.number && newer.listed != 0 && !is_in_history(world_, checkpoint, newer.start);
}

Violation Program::rename() {
  if (!world_.present(temporary())) return supersede();
  const int file = own_checkpoint();
  const auto same_name = [&](int other) {
    return other != file && world_.present(other) &&
           attempt_number_of(world_, other) == attempt_number_of(world_, file) &&
           step_of(world_, other) == step_of(world_, file);
  };
  bool taken = false;
  for (int other = 0; other < kCheckpoints; ++other) taken = taken || same_name(other);
  if (taken) {  // never over another file
    world_.remove(temporary(), index_);
    go(Step::sync_directory);
    return Violation::none;
  }
  world_.add(file, index_);
  world_.name(file).unsynced = world_.name(temporary()).unsynced;
  if (rule_.rename_in_one) world_.remove(temporary(), index_);
  if (!rule_.rename_in_one) {
    go(Step::unlink_temporary);
  } else {
    go(rule_.sync_rename ? Step::sync_directory : Step::look_after_rename);
  }
  const auto stray = [&](const Attempt& other) { return seen_without(file, other); };
  return std::any_of(world_.attempts.begin(), world_.attempts.end(), stray) ? Violation::stray
                                                                            : Violation::none;
}

Violation Program::acknowledge() {
  const int file = own_checkpoint();
  const auto behind = [&](const Attempt& other) { return seen_without(file, other); };
  const bool broken = std::any_of(world_.attempts.begin(), world_.attempts.end(), behind);
  self_.saves = (self_.saves + 1U) & 3U;
  go(Step::state_look);
  return broken ? Violation::behind : Violation::none;
}

void Program::after_last_save() {
  end();
  if (lives_.standbys > 0) go(Step::look_before_end);
}

// keep 2: what is neither among the newest two of the own history nor newer than what was acknowledged.
void Program::retention_list() {
  const int tip = checkpoint_of(index_, self_.saves - 1);
  self_.todo = 0;
  int kept = 0;
  for (int file = tip; file != kNoFile; file = previous_of(world_, file)) {
    if (world_.present(file) && kept++ >= 2) to_do(file);
  }
  if (self_.todo != 0) return go(Step::retention_look);
  if (self_.saves < lives_.saves) return go(Step::create_temporary);
  after_last_save();
}

Violation Program::run() {
  switch (self_.step) {
    case Step::stand_by:
      stand_by();
      break;
    case Step::await_end:
      await_end();
      break;
    case Step::preflight:
      self_.held = newest(world_, is_present) != kNoFile ? 1 : 0;
      go(Step::list_run);
      break;
    case Step::list_run:
      if (claims_what_it_saw()) {
        if (highest_in_run() >= self_.number)
          stand_by_again();
        else
          go(Step::list_attempts);
        break;
      }
      self_.number = static_cast<std::uint8_t>(highest_in_run()) & 0xfU;
      go(Step::list_attempts);
      break;
    case Step::list_attempts:
      if (claims_what_it_saw()) {
        if (highest_claim(false) >= self_.number)
          stand_by_again();
        else
          go(Step::create_claim);
        break;
      }
      self_.number = static_cast<std::uint8_t>(1 + std::max<int>(self_.number, highest_claim(false))) & 0xfU;
      go(Step::create_claim);
      break;
    case Step::create_claim:
      return create_claim();
    case Step::sync_claim:
      world_.sync_attempts();
      go(Step::sync_parent);
      break;
    case Step::sync_parent:
      world_.sync_run();
      go(rule_.sweep == Sweep::before_the_list ? Step::sweep_look : Step::list);
      break;
    case Step::sweep_look:
      return look(Step::sweep_list);
    case Step::sweep_list:
      sweep_list();
      break;
    case Step::sweep_look_again:
      return look(Step::sweep_unlink);
    case Step::sweep_unlink:
      return unlink_next(Step::sweep_look_again, Step::sweep_sync);
    case Step::sweep_sync:
      if (rule_.sync_sweep) world_.sync_run();
      go(rule_.sweep == Sweep::before_the_list ? Step::list : Step::look_after_list);
      break;
    case Step::list:
      list();
      break;
    case Step::verify:
      // Gone in between: the list is stale.
      if (self_.start != kNoFile && !world_.present(self_.start)) {
        go(Step::list);
        if (self_.chose != 0) end();  // 78
      } else {
        go(rule_.sweep == Sweep::after_the_list ? Step::sweep_look : Step::look_after_list);
      }
      break;
    case Step::look_after_list: {
      const Violation violation = look(Step::forget_list);
      if (self_.step == Step::forget_list && !rule_.forgets_claims) after_recovery();
      return violation;
    }
    case Step::forget_list:
      forget_list();
      break;
    case Step::forget_look:
      return look(Step::forget_unlink);
    case Step::forget_unlink: {
      const Violation violation = unlink_next(Step::forget_look, Step::state_look);
      if (self_.step == Step::state_look) after_recovery();
      return violation;
    }
    case Step::state_look:
      return look(Step::state_create);
    case Step::state_create:
      world_.add(state_temporary_of(index_), index_);
      go(Step::state_look_again);
      break;
    case Step::state_look_again:
      return look(Step::state_rename);
    case Step::state_rename:
      return replace_state();
    case Step::create_temporary:
      if (way_ != 0) {
        go(Step::look_before_end);
        break;
      }
      world_.add(temporary(), index_);
      world_.name(temporary()).unsynced = rule_.sync_file ? 0 : 1;
      go(Step::read_back);
      break;
    case Step::read_back:
      if (!world_.present(temporary())) return supersede();
      if (rule_.look_before_rename)
        go(Step::look_before_rename);
      else
        go(Step::rename);
      break;
    case Step::look_before_rename:
      return look(Step::rename);
    case Step::rename:
      return rename();
    case Step::unlink_temporary:
      if (world_.present(temporary())) world_.remove(temporary(), index_);
      go(rule_.sync_rename ? Step::sync_directory : Step::look_after_rename);
      break;
    case Step::sync_directory:
      world_.sync_run();
      if (rule_.counts == Counts::marked_at_first_commit)
        go(Step::mark);
      else
        go(rule_.look_after_rename ? Step::look_after_rename : Step::acknowledge);
      break;
    case Step::mark:
      world_.name(claim_of(index_)).marked = 1;
      go(rule_.look_after_rename ? Step::look_after_rename : Step::acknowledge);
      break;
    case Step::look_after_rename: {
      const Violation violation = look(Step::acknowledge);
      // A branch makes it matter when exactly: with the look that finds no claim.
      if (violation == Violation::none && self_.step == Step::acknowledge && lives_.choices)
        return acknowledge();
      return violation;
    }
    case Step::acknowledge:
      return acknowledge();
    case Step::retention_list:
      retention_list();
      break;
    case Step::retention_look:
      return look(Step::retention_unlink);
    case Step::retention_unlink: {
      const Violation violation = unlink_next(Step::retention_look, Step::create_temporary);
      if (self_.step == Step::create_temporary && self_.saves == lives_.saves) after_last_save();
      return violation;
    }
    case Step::look_before_end:
      return look(Step::record_end);
    case Step::record_end:
      self_.said_end = 1;
      end();
      break;
    case Step::remove_abandoned:
      if (world_.present(temporary())) world_.remove(temporary(), index_);
      end();
      break;
    case Step::ended:
      break;
  }
  return Violation::none;
}

bool is_in_attempts(Step step) {
  switch (step) {
    case Step::await_end:
    case Step::list_attempts:
    case Step::create_claim:
    case Step::sweep_look:
    case Step::sweep_look_again:
    case Step::look_after_list:
    case Step::forget_list:
    case Step::forget_look:
    case Step::forget_unlink:
    case Step::state_look:
    case Step::state_look_again:
    case Step::mark:
    case Step::look_before_rename:
    case Step::look_after_rename:
    case Step::retention_look:
    case Step::look_before_end:
    case Step::record_end:
      return true;
    default:
      return false;
  }
}

bool is_in_run(Step step) { return !is_in_attempts(step) && step != Step::acknowledge; }

}  // namespace

int ways(const World& world, int attempt, const Rule& rule, const Lives& lives) {
  switch (world.attempt(attempt).step) {
    case Step::stand_by:
      return rule.lists_after_the_wait ? 1 : 2;
    case Step::await_end:
      return lives.silence ? 2 : 1;
    case Step::create_temporary:
      return lives.standbys > 0 ? 2 : 1;
    case Step::list: {
      const int found = newest(world, is_present);
      return lives.choices && found != kNoFile && previous_of(world, found) != kNoFile ? 2 : 1;
    }
    default:
      return 1;
  }
}

Violation take_step(World& world, int attempt, int way, const Rule& rule, const Lives& lives) {
  if (rule.seen_is_durable) {
    const Step step = world.attempt(attempt).step;
    if (is_in_attempts(step) || step == Step::stand_by) world.see_attempts(attempt);
    if (is_in_run(step)) world.see_run(attempt);
  }
  return Program(world, attempt, way, rule, lives).run();
}

const char* name_of(Step step) {
  static constexpr std::array kNamesOfSteps = {"stand_by",
                                               "await_end",
                                               "preflight",
                                               "list_run",
                                               "list_attempts",
                                               "create_claim",
                                               "sync_claim",
                                               "sync_parent",
                                               "sweep_look",
                                               "sweep_list",
                                               "sweep_look_again",
                                               "sweep_unlink",
                                               "sweep_sync",
                                               "list",
                                               "verify",
                                               "look_after_list",
                                               "forget_list",
                                               "forget_look",
                                               "forget_unlink",
                                               "state_look",
                                               "state_create",
                                               "state_look_again",
                                               "state_rename",
                                               "create_temporary",
                                               "read_back",
                                               "look_before_rename",
                                               "rename",
                                               "unlink_temporary",
                                               "sync_directory",
                                               "mark",
                                               "look_after_rename",
                                               "acknowledge",
                                               "retention_list",
                                               "retention_look",
                                               "retention_unlink",
                                               "look_before_end",
                                               "record_end",
                                               "remove_abandoned",
                                               "ended"};
  return kNamesOfSteps[static_cast<std::size_t>(step)];
}

}  // namespace holdfast::test::fencing
