#include "holdfast/ledger/ledger_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "holdfast/ledger/ledger_lines.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kMostPauses = 1000;  // paused_until() walks all of them for each mark
// The year 2255 in Unix milliseconds. A few years more still fit into nanoseconds of 64 bits.
constexpr std::int64_t kFarthestWall = 9'000'000'000'000;

class Reader {
 public:
  explicit Reader(AttemptNumber attempt) { life_.attempt = attempt; }

  void take(std::string_view line) {
    // Losses are most of a ledger's bytes. loss_search.h reads them.
    // The name is the first member, so the prefix is enough to tell.
    if (line.starts_with(kLossesLine)) return;
    if (!understood(LedgerMembers(line))) ++life_.skipped_lines;
  }

  // What stood here may have changed where nobody read: a source sees again, and other saves are the newest.
  void cut() {
    for (auto& [name, source] : life_.sources) source.blind_now = Duration::zero();
    life_.commits.clear();
  }

  LedgerLife done() {
    if (!life_.started) return std::move(life_);
    auto& marks = life_.marks;
    // Lines of several threads may be out of order. Sorted and clamped, marks never fall.
    std::stable_sort(marks.begin(), marks.end(),
                     [](const LedgerMark& a, const LedgerMark& b) { return a.up < b.up; });
    // Each value at least as high as the one before, because time, steps and waiting only grow.
    LedgerMark least{.up = life_.start_up, .step = life_.start_step, .waited = Duration::zero()};
    for (LedgerMark& mark : marks) {
      mark.up = std::max(mark.up, least.up);
      mark.step = std::max(mark.step, least.step);
      mark.waited = std::max(mark.waited, least.waited);
      least = mark;
    }
    life_.last_step = marks.back().step;
    life_.last_up = std::max(life_.last_up, life_.start_up);
    return std::move(life_);
  }

 private:
  // False if the ledger never writes such a line.
  bool understood(const LedgerMembers& line) {
    const auto wall = wall_of(line);
    if (wall) life_.last_wall = std::max(life_.last_wall.value_or(*wall), *wall);
    const auto up = line.time("up_ms");
    if (!up || *up < Duration::zero()) return false;
    const std::string event = line.text("event");
    // Nothing but these three can stand before the start line.
    if (!life_.started && event != "start" && event != "notice" && event != "end") return false;
    if (event == "start") return start(line, *up);
    if (wall && *up >= life_.last_up) life_.last_sign = *wall;
    life_.last_up = std::max(life_.last_up, *up);
    if (event == "progress") return progress(line, *up);
    if (event == "commit") return commit(line, *up);
    if (event == "notice") return notice(line, *up);
    // A second pause without an end is a pause all the same; paused_until() counts overlaps once.
    if (event == "pause")
      return life_.pauses.size() < kMostPauses && (life_.pauses.push_back({*up, std::nullopt}), true);
    if (event == "go on") return go_on(*up);
    if (event == "stall") return stall(line, *up);
    if (event == "source") return source(line);
    if (event == "lost") {
      const auto count = line.integer("count");
      // Bounded, so that many hostile lines cannot overflow the sum.
      if (count && *count > 0) life_.lost_lines += std::min<std::int64_t>(*count, 1 << 30);
      return count.has_value();
    }
    if (event == "end") return end(line, *up);
    return true;  // an event of a later version
  }

  template <class Record>
  static bool room(const std::vector<Record>& records) {
    return records.size() < kMostLedgerRecords;
  }
  static std::optional<std::int64_t> step_of(const LedgerMembers& line) {
    const auto step = line.integer("step");
    return step && *step >= 0 && *step <= static_cast<std::int64_t>(kHighestNumber) ? step : std::nullopt;
  }

  static std::optional<WallTime> wall_of(const LedgerMembers& line) {
    const auto wall = line.integer("t");
    if (!wall || *wall < 0 || *wall > kFarthestWall) return std::nullopt;
    return WallTime(std::chrono::milliseconds(*wall));
  }

  bool start(const LedgerMembers& line, Duration up) {
    const auto step = step_of(line);
    const auto wall = wall_of(line);
    if (life_.started || !step || !wall) return false;
    life_.started = true;
    life_.start = *wall;
    life_.start_up = up;
    life_.start_step = *step;
    life_.from_attempt =
        static_cast<AttemptNumber>(std::max<std::int64_t>(line.integer("from_attempt").value_or(0), 0));
    life_.host = line.text("host");
    life_.boot = line.text("boot");
    life_.startup = std::max(line.time("startup_ms").value_or(up), Duration::zero());
    life_.last_up = std::max(life_.last_up, up);
    life_.marks.push_back({.up = up, .step = *step, .waited = {}});
    return true;
  }

  bool progress(const LedgerMembers& line, Duration up) {
    const auto step = step_of(line);
    if (!step || !room(life_.marks)) return false;
    life_.marks.push_back(
        {.up = up, .step = *step, .waited = line.time("waited_ms").value_or(Duration::zero())});
    return true;
  }

  bool commit(const LedgerMembers& line, Duration up) {
    const auto step = step_of(line);
    // A commit makes a mark, too.
    if (!step || !room(life_.commits) || !room(life_.marks)) return false;
    LedgerCommit commit{.step = *step, .up = up, .boundary = line.time("boundary_ms").value_or(up)};
    // A boundary cannot lie behind its own commit.
    commit.boundary = std::clamp(commit.boundary, life_.start_up, std::max(up, life_.start_up));
    commit.took = std::max(line.time("ms").value_or(Duration::zero()), Duration::zero());
    commit.blocked = std::max(line.time("blocked_ms").value_or(Duration::zero()), Duration::zero());
    commit.bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(line.integer("bytes").value_or(0), 0));
    life_.commits.push_back(commit);
    life_.durable_step = std::max(life_.durable_step, commit.step);
    // This save's copy took place after the boundary, so its wait does not belong to the steps before.
    const Duration waited = line.time("waited_ms").value_or(Duration::zero()) - commit.blocked;
    life_.marks.push_back(
        {.up = commit.boundary, .step = commit.step, .waited = std::max(waited, Duration::zero())});
    return true;
  }

  bool notice(const LedgerMembers& line, Duration up) {
    if (!room(life_.notices) || line.text("kind").empty()) return false;
    const auto since = std::chrono::duration_cast<WallTime::duration>(up - life_.start_up);
    life_.notices.push_back({.up = up,
                             .when = wall_of(line).value_or(life_.start + since),
                             .source = line.text("source"),
                             .kind = line.text("kind"),
                             .text = line.text("text"),
                             .left = line.time("left_ms"),
                             .hibernates = line.flag("hibernates")});
    return true;
  }

  bool go_on(Duration up) {
    if (life_.pauses.empty() || life_.pauses.back().to) return false;
    life_.pauses.back().to = std::max(up, life_.pauses.back().from);
    return true;
  }

  bool stall(const LedgerMembers& line, Duration up) {
    const auto took = line.time("ms");
    if (!took || *took < Duration::zero() || !room(life_.stalls)) return false;
    life_.stalls.push_back({.up = up, .took = *took, .what = line.text("what")});
    return true;
  }

  bool source(const LedgerMembers& line) {
    // A run has a handful. The bound is for hostile ledgers.
    constexpr std::size_t kMostSources = 100;
    const std::string name = line.text("name");
    if (name.empty() || (life_.sources.size() >= kMostSources && !life_.sources.contains(name))) return false;
    life_.sources[name] = {
        .polls = line.integer("polls").value_or(0),
        .failures = line.integer("failures").value_or(0),
        .blind = std::max(line.time("blind_ms").value_or(Duration::zero()), Duration::zero()),
        .blind_now = std::max(line.time("blind_now_ms").value_or(Duration::zero()), Duration::zero()),
        .why = line.text("why")};
    return true;
  }

  bool end(const LedgerMembers& line, Duration up) {
    LedgerLast last{.up = up, .phase = line.text("phase"), .reason = line.text("reason")};
    last.exit_code = line.integer("code").value_or(0);
    last.ending = std::clamp(line.time("ending_ms").value_or(Duration::zero()), Duration::zero(), up);
    last.most_risk = std::max(line.time("most_risk_ms").value_or(Duration::zero()), Duration::zero());
    if (life_.started && room(life_.marks)) {
      // Training ended before the last save, whose time `ending` is.
      life_.marks.push_back({.up = up - last.ending,
                             .step = step_of(line).value_or(life_.start_step),
                             .waited = line.time("waited_ms").value_or(Duration::zero())});
    }
    // A pause that lasts until the end has ended where the end begins.
    if (!life_.pauses.empty() && !life_.pauses.back().to) {
      life_.pauses.back().to = std::max(up - last.ending, life_.pauses.back().from);
    }
    life_.end = std::move(last);
    return true;
  }

  LedgerLife life_;
};

}  // namespace

Duration bounded_sum(Duration a, Duration b) {
  constexpr Duration kMost = std::chrono::hours(24 * 366 * 100);
  // Each part is bounded first, so that the sum cannot overflow.
  return std::min(std::min(a, kMost) + std::min(b, kMost), kMost);
}

Duration LedgerLife::paused_until(Duration up) const {
  Duration sum{};
  Duration counted{};  // overlapping pauses of a malformed ledger must not count twice
  for (const LedgerPause& pause : pauses) {
    const Duration from = std::max(pause.from, counted);
    const Duration to = std::min(pause.to.value_or(last_up), up);
    if (to <= from) continue;
    sum += to - from;
    counted = to;
  }
  return sum;
}

Duration LedgerLife::work_until(std::int64_t step) const {
  Duration before{};
  const LedgerMark* last = nullptr;
  for (const LedgerMark& mark : marks) {
    const Duration raw = mark.up - start_up - mark.waited - paused_until(mark.up);
    // The ledger may book a wait later than the steps that it delayed; the sum must not fall.
    const Duration work = std::max(raw, before);
    if (mark.step >= step) {
      // Between two marks the work is taken as even.
      if (last == nullptr || mark.step == last->step) return before;
      const double part = static_cast<double>(std::max<std::int64_t>(step - last->step, 0)) /
                          static_cast<double>(mark.step - last->step);
      const double between = std::chrono::duration<double>(work - before).count();
      return before + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(part * between));
    }
    before = work;
    last = &mark;
  }
  return before;
}

LedgerLife read_life(AttemptNumber attempt, const File& ledger, std::uint64_t most) {
  Reader reader(attempt);
  const std::int64_t too_long =
      LedgerLines(ledger, most)
          .each([&](std::string_view line) { reader.take(line); }, [&] { reader.cut(); });
  LedgerLife life = reader.done();
  life.skipped_lines += too_long;
  return life;
}

LedgerLife read_life(AttemptNumber attempt, Directory& run_directory, std::uint64_t most) {
  const auto ledger = run_directory.open(ledger_name(attempt), OpenMode::read);
  if (ledger) return read_life(attempt, *ledger, most);
  LedgerLife life;
  life.attempt = attempt;
  return life;
}

std::vector<LedgerLife> read_lives(Directory& run_directory, std::uint64_t most) {
  std::vector<AttemptNumber> attempts;
  for (const DirectoryEntry& entry : run_directory.list()) {
    const auto attempt = parse_ledger_name(entry.name);
    // A pipe of that name would block the reader.
    if (attempt && entry.kind == FileKind::regular) attempts.push_back(*attempt);
  }
  std::sort(attempts.begin(), attempts.end());
  std::vector<LedgerLife> lives;
  for (const AttemptNumber attempt : attempts) {
    const auto file = run_directory.open(ledger_name(attempt), OpenMode::read);
    if (file) lives.push_back(read_life(attempt, *file, most));
  }
  return lives;
}

std::vector<MachineLife> machine_lives(const std::vector<LedgerLife>& lives, const std::string& boot) {
  // Without an end line, or after being told to stop. Every other end is the program's own.
  const auto went_away = [](const LedgerLife& last) { return !last.end || last.end->phase == "interrupted"; };
  std::vector<MachineLife> machines;
  const LedgerLife* last = nullptr;
  for (const LedgerLife& life : lives) {
    if (!life.started) continue;
    // An equal boot means the same machine, which lived on between the two attempts.
    const bool same = last != nullptr && !life.boot.empty() && life.boot == last->boot;
    if (same) {
      // The time between the two attempts belongs to the machine's life too, as far as wall clocks tell.
      const Duration apart = std::max<Duration>(life.start - life.startup - last->start, Duration::zero());
      MachineLife& machine = machines.back();
      const Duration between = std::max(apart - (last->last_up - last->start_up), Duration::zero());
      machine.length = bounded_sum(machine.length, bounded_sum(between, life.length()));
    } else {
      if (last != nullptr) machines.back().ended = went_away(*last);
      machines.push_back({life.length(), false});
    }
    last = &life;
  }
  // The machine that runs now has not ended, whatever its last attempt says.
  if (last != nullptr && (boot.empty() || last->boot != boot)) machines.back().ended = went_away(*last);
  return machines;
}

}}  // namespace holdfast::v0_2
