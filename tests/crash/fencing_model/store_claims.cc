#include "store_claims.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "store_world.h"

namespace holdfast::test::store_claims {
namespace {

constexpr std::array kStepNames = {"stands by; sends a claim, or its number",
                                   "sends a claim, or its number",
                                   "sends a claim, or gives its number up",
                                   "lists after its claim, or gives it up",
                                   "fetches the newest checkpoint, and sends a mark of it",
                                   "looks, and begins: its start counts",
                                   "looks, and sends a copy",
                                   "looks after the copy",
                                   "looks before it deletes",
                                   "deletes the oldest",
                                   "deletes its claim",
                                   "looks, and sends the record of its end",
                                   "-"};

using Next = std::function<void(const World&, StoreViolation)>;

class Search {
 public:
  explicit Search(const StoreRequest& request)
      : request_(request), rule_(request.rule), slots_(1U << 16, kFree) {}
  StoreResult run();

 private:
  static constexpr std::uint32_t kNobody = UINT32_MAX;
  static constexpr std::uint32_t kFree = UINT32_MAX;
  struct Node {
    World world;
    std::uint32_t parent;
    std::uint8_t machine;
    Step step;
    bool arrival;
  };

  void expand(std::uint32_t node);
  void arrivals(std::uint32_t node, int machine);
  bool is_conditional(int machine) const { return machine < rule_.conditional; }
  // The ways in which the machine's next step may go; each world after it goes to `next`.
  void step(World world, int machine, const Next& next);
  bool is_standby(int machine) const {
    return machine < request_.machines && machine >= request_.machines - request_.standbys;
  }
  void stand_by(const World& world, int machine, const Next& next);
  StoreViolation early(const World& world) const;
  void send_claim(World world, int machine, StoreViolation violation, const Next& next);
  void list_after_claim(World world, int machine, bool sees_others, const Next& next);
  void claim_lost(World world, int machine, const Next& next) const;
  int oldest_superfluous(const World& world, int machine) const;
  StoreViolation check(const World& world);
  void visit(const World& world, std::uint32_t parent, int machine, Step step, bool arrival,
             StoreViolation violation);
  void grow();
  std::vector<std::string> trace_to(std::uint32_t node) const;

  const StoreRequest& request_;
  const StoreRule rule_;
  std::deque<Node> nodes_;
  std::vector<std::uint32_t> slots_;
  StoreResult result_;
};

StoreResult Search::run() {
  World first{};
  for (int file = 0; file < kPast; ++file) first.files[static_cast<std::size_t>(file)] = Sent::there;
  for (int machine = 0; machine < kMachines; ++machine) {
    Machine& one = first.machines[static_cast<std::size_t>(machine)];
    one.step = is_standby(machine) ? Step::stand_by : Step::claim;
    one.start = one.at_hand = kNoFile;
  }
  visit(first, kNobody, 0, Step::claim, false, StoreViolation::none);
  for (std::uint32_t node = 0; node < nodes_.size() && result_.violation == StoreViolation::none; ++node) {
    expand(node);
  }
  result_.states = nodes_.size();
  return std::move(result_);
}

void Search::expand(std::uint32_t node) {
  const World world = nodes_[node].world;
  // Those of a kind before their first step are all the same: one goes for all.
  std::array<bool, 4> unborn{};
  for (int machine = 0; machine < request_.machines; ++machine) {
    arrivals(node, machine);
    const Machine& one = at(world, machine);
    if (one.step == Step::ended) continue;
    bool& seen = unborn[(is_conditional(machine) ? 1U : 0U) + (is_standby(machine) ? 2U : 0U)];
    const bool is_unborn = (one.step == Step::claim || one.step == Step::stand_by) && one.tries == 0;
    if (is_unborn && one.at_hand == kNoFile && std::exchange(seen, true)) continue;
    step(world, machine, [&](const World& next, StoreViolation violation) {
      visit(next, node, machine, one.step, false, violation);
    });
  }
}

void Search::arrivals(std::uint32_t node, int machine) {
  const World world = nodes_[node].world;
  const auto arrive = [&](const std::function<void(World&)>& change, bool waited_for) {
    World next = world;
    change(next);
    result_.late += waited_for ? 0 : 1;
    visit(next, node, machine, Step::ended, true, StoreViolation::none);
  };
  const auto own = static_cast<std::size_t>(machine);
  if (at(world, machine).write == Write::on_the_way) {
    arrive([&](World& next) { write_arrives(next, machine, rule_.honours_conditions); }, true);
  }
  if (world.claims[own].sent == Sent::on_the_way) {
    arrive([&](World& next) { next.claims[own].sent = Sent::there; }, true);
  }
  for (int save = 0; save < request_.saves; ++save) {
    const auto file = static_cast<std::size_t>(file_of(machine, save));
    if (world.files[file] != Sent::on_the_way) continue;
    arrive([&](World& next) { next.files[file] = Sent::there; }, at(world, machine).step == Step::look_after);
  }
  if (at(world, machine).mark == Sent::on_the_way) {
    arrive([&](World& next) { next.machines[own].mark = Sent::there; },
           at(world, machine).step == Step::begin);
  }
  if (at(world, machine).end == Sent::on_the_way) {
    arrive([&](World& next) { next.machines[own].end = Sent::there; }, true);
  }
  if (machine != 0) return;
  for (int number = 1; number < 16; ++number) {
    if ((world.late & bit_of(number)) == 0) continue;
    arrive(
        [&](World& next) {
          next.late ^= bit_of(number);
          next.taken |= bit_of(number);
        },
        false);
  }
  for (std::size_t i = 0; i < world.others.size(); ++i) {
    if (world.others[i].sent != Sent::on_the_way) continue;
    arrive(
        [&](World& next) {
          next.others[i].sent = Sent::there;
          sort_others(next);
        },
        false);
  }
  for (std::size_t i = 0; request_.standbys > 0 && i < world.others.size(); ++i) {
    if (world.others[i].sent != Sent::there) continue;
    arrive(
        [&](World& next) {
          next.others[i].sent = Sent::deleted;
          sort_others(next);
        },
        true);
  }
}

int Search::oldest_superfluous(const World& world, int machine) const {
  const int tip = file_of(machine, at(world, machine).told - 1);
  int present = 0;
  int oldest = kNoFile;
  for (int file = tip; file != kNoFile; file = previous_of(world, file)) {
    if (!is_there(world, file)) continue;
    ++present;
    oldest = file;
  }
  return present > rule_.keeps ? oldest : kNoFile;
}

void Search::claim_lost(World world, int machine, const Next& next) const {
  Machine& own = world.machines[static_cast<std::size_t>(machine)];
  ++own.tries;
  own.number = rule_.next_try_takes_next_number ? 0 : own.number;
  own.step = is_standby(machine) && rule_.looks_again ? Step::stand_by : Step::claim;
  give_up_write(world, machine);
  give_up_claim(world, machine);
  if (own.tries == request_.tries) {  // what it knew is no difference between two worlds
    own = {};
    own.start = own.at_hand = kNoFile;
    own.step = Step::ended;
  }
  next(world, StoreViolation::none);
}

void Search::list_after_claim(World world, int machine, bool sees_others, const Next& next) {
  Machine& own = world.machines[static_cast<std::size_t>(machine)];
  bool listed = false;
  bool lost = false;
  each_claim(world, [&](int other, int number) {
    if (other == machine) {
      listed = true;
    } else if (rule_.lists_after_the_claim && sees_others) {
      lost = lost || (number == own.number && rule_.equal_number_loses) ||
             (number > own.number && rule_.higher_number_loses);
    }
  });
  if (lost || (!listed && rule_.own_claim_must_be_listed)) {
    result_.lost_claims += lost ? 1 : 0;
    return claim_lost(world, machine, next);
  }
  const StoreViolation violation = win(world, machine);
  own.won = 1;
  own.step = Step::fetch;
  next(world, violation);
}

// What it has at hand decides nothing if it fetches afterwards, so only the variant that does not keeps it in mind.
void Search::stand_by(const World& world, int machine, const Next& next) {
  const int holder = newest_mark(world, false);
  const bool ended = holder >= 0 && at(world, holder).end == Sent::there;
  if (ended || request_.silence || !rule_.waits_for_an_end) send_claim(world, machine, early(world), next);
  if (rule_.fetches_after_the_wait) return;
  World reads = world;
  reads.machines[static_cast<std::size_t>(machine)].at_hand = static_cast<std::uint8_t>(newest(world, rule_));
  next(reads, StoreViolation::none);
}

StoreViolation Search::early(const World& world) const {
  const int holder = newest_mark(world, false);
  const bool holds = holder >= 0 && at(world, holder).end != Sent::there;
  return holds && !request_.silence ? StoreViolation::early : StoreViolation::none;
}

void Search::send_claim(World world, int machine, StoreViolation violation, const Next& next) {
  Machine& own = world.machines[static_cast<std::size_t>(machine)];
  int highest = 0;
  each_claim(world, [&](int, int number) { highest = std::max(highest, number); });
  for (int file = 0; rule_.counts_files && file < kFiles; ++file) {
    if (is_there(world, file)) highest = std::max(highest, number_of(world, file));
  }
  const bool passes =
      is_standby(machine) ? rule_.standby_passes_taken_number : rule_.next_try_passes_taken_number;
  if (passes) highest = std::max<int>(highest, own.taken);
  if (own.tries == 0 || rule_.next_try_takes_next_number) {
    own.number = static_cast<std::uint8_t>(highest + 1);
  }
  if (is_conditional(machine)) {
    own.write = Write::on_the_way;
    own.step = Step::take;
  } else {
    world.claims[static_cast<std::size_t>(machine)] = {.number = own.number, .sent = Sent::on_the_way};
    own.step = Step::list;
  }
  next(world, violation);
}

void Search::step(World world, int machine, const Next& next) {
  Machine& own = world.machines[static_cast<std::size_t>(machine)];
  Claim& claim = world.claims[static_cast<std::size_t>(machine)];
  const auto go = [&](Step to) {
    own.step = to;
    next(world, StoreViolation::none);
  };
  switch (own.step) {
    case Step::stand_by:
      return stand_by(world, machine, next);
    case Step::claim:
      return send_claim(world, machine, is_standby(machine) ? early(world) : StoreViolation::none, next);
    case Step::take: {
      if (own.write == Write::refused) {
        ++result_.refused;
        own.taken = own.number;
        return claim_lost(world, machine, next);
      }
      if (own.write == Write::accepted && rule_.write_decides) {
        claim = {.number = own.number, .sent = Sent::there};
        own.write = Write::none;
        own.won = 1;
        own.step = Step::fetch;
        return next(world, win(world, machine));
      }
      // Accepted, or it gives the write up: the list alone decides then. Or it ends this try.
      World other = world;
      give_up_write(world, machine);
      claim = {.number = own.number, .sent = Sent::on_the_way};
      go(Step::list);
      return claim_lost(other, machine, next);
    }
    case Step::list:
      if (claim.sent != Sent::on_the_way || !rule_.own_claim_must_be_listed) {
        list_after_claim(world, machine, true, next);
        if (!rule_.lists_what_was_written) list_after_claim(world, machine, false, next);
      }
      // Or it gives the request up, which may have arrived, or arrive later.
      return claim_lost(world, machine, next);
    case Step::fetch:
      if (rule_.forgets_lower_claims) forget_claims_below(world, own.number);
      own.start = static_cast<std::uint8_t>(newest(world, rule_));
      if (!rule_.fetches_after_the_wait && own.at_hand != kNoFile) own.start = own.at_hand;
      own.fetched = 1;
      if (rule_.marks_its_start) own.mark = Sent::on_the_way;
      own.step = Step::begin;
      return next(world, is_standby(machine) ? takes_over(world, machine) : StoreViolation::none);
    case Step::begin:
      if (own.mark == Sent::on_the_way) return;
      if (superseded(world, machine)) return go(Step::ended);
      own.begun = 1;
      return go(Step::upload);
    case Step::upload:
      if (superseded(world, machine)) return go(Step::ended);
      world.files[static_cast<std::size_t>(file_of(machine, own.told))] = Sent::on_the_way;
      return go(Step::look_after);
    case Step::look_after:
      if (request_.standbys > 0 && !rule_.records_end_after_the_copy) {
        World ends = world;
        ends.machines[static_cast<std::size_t>(machine)].step = Step::record_end;
        next(ends, StoreViolation::none);
      }
      if (rule_.reads_back && !is_there(world, file_of(machine, own.told))) return;
      if (rule_.looks_after_the_copy && superseded(world, machine)) return go(Step::ended);
      ++own.told;
      own.step = Step::look_to_delete;
      return next(world, told(world, machine));
    case Step::look_to_delete: {
      const int victim = oldest_superfluous(world, machine);
      if (victim == kNoFile) {
        Step last = rule_.keeps_highest_claim ? Step::ended : Step::tidy;
        if (request_.standbys > 0) last = Step::record_end;
        if (own.told == request_.saves) return go(last);
        if (request_.standbys > 0) go(Step::record_end);
        return go(Step::upload);
      }
      if (rule_.looks_before_it_deletes && superseded(world, machine)) return go(Step::ended);
      own.victim = static_cast<std::uint8_t>(victim);
      return go(Step::remove);
    }
    case Step::remove:
      world.files[own.victim] = Sent::deleted;
      own.victim = 0;
      return go(Step::look_to_delete);
    case Step::tidy:
      claim.sent = Sent::deleted;
      return go(Step::ended);
    case Step::record_end:
      if (!superseded(world, machine)) own.end = Sent::on_the_way;
      return go(Step::ended);
    case Step::ended:
      return;
  }
}

// `lost` and `stuck` are properties of a world as it stands.
StoreViolation Search::check(const World& world) {
  const int tip = newest(world, rule_);
  if (!in_history(world, kPast - 1, tip)) return StoreViolation::lost;
  for (int machine = 0; machine < kMachines; ++machine) {
    const Machine& one = at(world, machine);
    if (one.begun != 0 && !in_history(world, one.start, tip)) return StoreViolation::lost;
    if (one.told > 0 && !in_history(world, file_of(machine, one.told - 1), tip)) return StoreViolation::lost;
  }
  // Alone with the store, whatever is there and with nothing else on the way: this try wins.
  for (int machine = 0; machine < request_.machines; ++machine) {
    const Step step_of_it = at(world, machine).step;
    if (step_of_it == Step::stand_by && early(world) != StoreViolation::none) continue;
    if (step_of_it == Step::stand_by && newest_mark(world, false) < 0) continue;
    if (step_of_it != Step::claim && step_of_it != Step::stand_by) continue;
    World alone = world;
    Machine& one = alone.machines[static_cast<std::size_t>(machine)];
    const auto follow = [&] {
      World after = alone;
      bool first = true;
      step(alone, machine, [&](const World& next, StoreViolation) {
        if (std::exchange(first, false)) after = next;
      });
      alone = after;
    };
    const std::uint64_t counted = result_.lost_claims;
    follow();
    // A number may be taken by a machine that died before its claim. Then the next one does.
    for (int more = 0; one.step == Step::take && more < kMachines * kTries; ++more) {
      write_arrives(alone, machine, rule_.honours_conditions);
      if (one.write == Write::refused) {
        one.taken = one.number;
        one.write = Write::none;
        one.step = is_standby(machine) ? Step::stand_by : Step::claim;
      }
      follow();
    }
    alone.claims[static_cast<std::size_t>(machine)].sent = Sent::there;
    follow();
    result_.lost_claims = counted;
    if (one.won == 0) return StoreViolation::stuck;
  }
  return StoreViolation::none;
}

void Search::visit(const World& world, std::uint32_t parent, int machine, Step step, bool arrival,
                   StoreViolation violation) {
  if (result_.violation != StoreViolation::none) return;
  ++result_.transitions;
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_of(world) & mask;
  for (; slots_[slot] != kFree; slot = (slot + 1) & mask) {
    if (violation == StoreViolation::none &&
        std::memcmp(&nodes_[slots_[slot]].world, &world, sizeof world) == 0)
      return;
  }
  slots_[slot] = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({world, parent, static_cast<std::uint8_t>(machine), step, arrival});
  for (const Machine& one : world.machines) {
    if (one.told < request_.saves) continue;
    ++result_.completed;
    break;
  }
  if (violation == StoreViolation::none) violation = check(world);
  if (violation != StoreViolation::none) {
    result_.violation = violation;
    result_.trace = trace_to(static_cast<std::uint32_t>(nodes_.size() - 1));
  }
  if (nodes_.size() * 2 > slots_.size()) grow();
}

void Search::grow() {
  slots_.assign(slots_.size() * 2, kFree);
  const std::size_t mask = slots_.size() - 1;
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    std::size_t slot = hash_of(nodes_[node].world) & mask;
    while (slots_[slot] != kFree) slot = (slot + 1) & mask;
    slots_[slot] = node;
  }
}

std::vector<std::string> Search::trace_to(std::uint32_t node) const {
  std::vector<std::string> trace;
  for (; nodes_[node].parent != kNobody; node = nodes_[node].parent) {
    const Node& one = nodes_[node];
    const Machine& after = at(one.world, one.machine);
    std::string line(1, static_cast<char>('A' + one.machine));
    line += one.arrival ? ": a request arrives"
                        : std::string(" ") + kStepNames[static_cast<std::size_t>(one.step)];
    line += " (number " + std::to_string(after.number) + (after.won != 0 ? ", won" : "") +
            (after.told != 0 ? ", told " + std::to_string(after.told) : "") +
            (after.step == Step::ended ? ", ended" : "") + ")";
    trace.push_back(line);
  }
  std::reverse(trace.begin(), trace.end());
  return trace;
}

}  // namespace

const char* name_of(StoreViolation violation) {
  static constexpr std::array kNames = {"none",
                                        "two winners: of one number",
                                        "overtaken: a machine wins below a number that has won",
                                        "behind: a copy counts after a newer machine fetched without it",
                                        "lost: what counted as home is not found again",
                                        "early: a standby claims where nobody's end is recorded",
                                        "older: a standby goes on from less than was saved",
                                        "stuck: alone with the store, and no claim is won"};
  return kNames[static_cast<std::size_t>(violation)];
}

StoreResult search(const StoreRequest& request) { return Search(request).run(); }

}  // namespace holdfast::test::store_claims
