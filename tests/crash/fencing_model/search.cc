#include "search.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

namespace holdfast::test::fencing {
namespace {

// What leads from one state to the next: a step, or a death and what the power cut takes with it.
struct Action {
  static constexpr std::uint32_t kStep = 0;
  static constexpr std::uint32_t kDeath = 1;
  static constexpr std::uint32_t kCut = 2;
  std::uint32_t attempt : 2;
  std::uint32_t kind : 2;
  std::uint32_t lost : kNames + 1;
};

struct Node {
  World world;
  std::uint32_t parent;
  Action action;
};

std::uint64_t hash_of(const World& world) {
  std::uint64_t hash = sizeof world;
  const auto* bytes = reinterpret_cast<const char*>(&world);
  for (std::size_t at = 0; at < sizeof world; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, sizeof world - at));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  hash *= 0xbf58476d1ce4e5b9;
  return hash ^ hash >> 32;
}

std::string text_of(int name) {
  const auto numbered = [](const char* what, int attempt) {
    return std::string(what) + " of " + static_cast<char>('A' + attempt);
  };
  if (name == kRunState) return "RUN_STATE";
  if (name >= state_temporary_of(0))
    return numbered("RUN_STATE's temporary file", name - state_temporary_of(0));
  if (name >= temporary_of(0)) return numbered("temporary file", name - temporary_of(0));
  if (name >= claim_of(0)) return numbered("claim", name - claim_of(0));
  if (name >= kPast) return numbered("checkpoint", (name - kPast) / kSaves);
  return "checkpoint of the past";
}

class Search {
 public:
  explicit Search(const Request& request) : request_(request), slots_(1U << 16, kFree) {}

  Result run();

 private:
  static constexpr std::uint32_t kNobody = UINT32_MAX;
  static constexpr std::uint64_t kFree = UINT64_MAX;

  // False when the state is known. A violation ends the search.
  bool visit(const World& world, std::uint32_t parent, Action action, Violation violation);
  void grow();
  void expand(std::uint32_t at);
  void kill(const World& world, std::uint32_t at, int attempt);
  void cut(const World& world, std::uint32_t at, int first, int last);
  std::vector<std::string> trace_to(std::uint32_t at) const;

  const Request& request_;
  std::deque<Node> nodes_;
  std::vector<std::uint64_t> slots_;  // the upper half of a state's hash, and its node
  Result result_;
};

Result Search::run() {
  visit(beginning(request_.with_a_past, request_.attempts - request_.lives.standbys, request_.lives.standbys),
        kNobody, {}, Violation::none);
  std::uint32_t next = 0;
  while (next < nodes_.size() && nodes_.size() < request_.most && result_.violation == Violation::none) {
    expand(next++);
  }
  result_.states = nodes_.size();
  result_.exhausted = next == nodes_.size();
  return std::move(result_);
}

bool Search::visit(const World& world, std::uint32_t parent, Action action, Violation violation) {
  if (result_.violation != Violation::none) return false;
  if (request_.only != Violation::none && violation != request_.only) violation = Violation::none;
  ++result_.transitions;
  const std::uint64_t hash = hash_of(world);
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash & mask;
  for (; slots_[slot] != kFree; slot = (slot + 1) & mask) {
    if (slots_[slot] >> 32U != hash >> 32U || violation != Violation::none) continue;
    const World& known = nodes_[static_cast<std::uint32_t>(slots_[slot])].world;
    if (std::memcmp(&known, &world, sizeof world) == 0) return false;
  }
  slots_[slot] = (hash >> 32U << 32U) | nodes_.size();
  nodes_.push_back({world, parent, action});
  const auto is_done = [&](const Attempt& attempt) {
    return attempt.saves == request_.lives.saves && is_end(attempt.step);
  };
  if (std::any_of(world.attempts.begin(), world.attempts.end(), is_done)) ++result_.completed;
  if (violation == Violation::none)
    violation = check(world, request_.with_a_past, request_.rule, request_.lives);
  if (violation != Violation::none && (request_.only == Violation::none || violation == request_.only)) {
    result_.violation = violation;
    result_.trace = trace_to(static_cast<std::uint32_t>(nodes_.size() - 1));
  }
  if (nodes_.size() * 2 > slots_.size()) grow();
  return true;
}

void Search::grow() {
  slots_.assign(slots_.size() * 2, kFree);
  const std::size_t mask = slots_.size() - 1;
  for (std::uint32_t i = 0; i < nodes_.size(); ++i) {
    const std::uint64_t hash = hash_of(nodes_[i].world);
    std::size_t slot = hash & mask;
    while (slots_[slot] != kFree) slot = (slot + 1) & mask;
    slots_[slot] = (hash >> 32U << 32U) | i;
  }
}

void Search::expand(std::uint32_t at) {
  const World world = nodes_[at].world;
  // Those before their first step are all the same: one goes for all. So are those that stand by.
  bool unborn = false;
  bool standby = false;
  for (int i = 0; i < request_.attempts; ++i) {
    const Step step = world.attempt(i).step;
    if (step == Step::preflight && std::exchange(unborn, true)) continue;
    const bool waits = step == Step::stand_by && world.attempt(i).at_hand == kNoFile;
    if (waits && std::exchange(standby, true)) continue;
    for (int way = 0; !is_end(step) && way < ways(world, i, request_.rule, request_.lives); ++way) {
      World next = world;
      const Violation violation = take_step(next, i, way, request_.rule, request_.lives);
      visit(next, at, {.attempt = static_cast<std::uint32_t>(i) & 3U, .kind = Action::kStep, .lost = 0},
            violation);
    }
    kill(world, at, i);
    if (request_.power == Power::machines_of_own) cut(world, at, i, i);
  }
  if (request_.power == Power::one_machine) cut(world, at, 0, kAttempts - 1);
}

// One that dies before its claim has changed nothing: it might as well not have begun.
void Search::kill(const World& world, std::uint32_t at, int attempt) {
  const Step step = world.attempt(attempt).step;
  if (is_end(step) || step <= Step::create_claim) return;
  World next = world;
  next.end(attempt);
  visit(next, at, {.attempt = static_cast<std::uint32_t>(attempt) & 3U, .kind = Action::kDeath, .lost = 0},
        Violation::none);
}

// Also where all have ended: what they did may still be in the memory of their machine.
void Search::cut(const World& world, std::uint32_t at, int first, int last) {
  World dead = world;
  unsigned open = 0;
  for (int i = first; i <= last; ++i) {
    open |= world.open_operations(i);
    if (!is_unborn(world.attempt(i).step)) dead.cut(i);
  }
  for (unsigned lost = open; lost != 0; lost = (lost - 1) & open) {
    World next = dead;
    next.take_back(lost);
    visit(next, at,
          {.attempt = static_cast<std::uint32_t>(first) & 3U,
           .kind = Action::kCut,
           .lost = lost & ((2U << static_cast<unsigned>(kNames)) - 1)},
          Violation::none);
  }
}

std::vector<std::string> Search::trace_to(std::uint32_t at) const {
  std::vector<std::string> lines;
  for (; nodes_[at].parent != kNobody; at = nodes_[at].parent) {
    const Node& node = nodes_[at];
    const World& before = nodes_[node.parent].world;
    const Attempt& attempt = node.world.attempt(node.action.attempt);
    std::string line = std::string("process ") + static_cast<char>('A' + node.action.attempt);
    if (attempt.number != 0) line += " (attempt " + std::to_string(attempt.number) + ")";
    if (node.action.kind == Action::kDeath) {
      line += ": dies";
    } else if (node.action.kind == Action::kCut) {
      line = request_.power == Power::one_machine ? "power cut for all" : line + ": power cut";
      line += ", taken back:";
      for (int name = 0; name <= kNames; ++name) {
        if ((node.action.lost >> name & 1U) != 0) line += " " + text_of(name);
      }
    } else {
      line += std::string(": ") + name_of(before.attempt(node.action.attempt).step);
      if (is_end(attempt.step)) line += ", ends";
    }
    lines.push_back(line);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace

Result search(const Request& request) { return Search(request).run(); }

}  // namespace holdfast::test::fencing
