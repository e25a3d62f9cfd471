#include "holdfast/ledger/ledger.h"

#include <algorithm>
#include <cstring>

#include "holdfast/base/log.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::int64_t unix_milliseconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

std::string_view word_of(NoticeKind kind) {
  switch (kind) {
    case NoticeKind::checkpoint_now:
      return "checkpoint";
    case NoticeKind::stop:
      return "stop";
    case NoticeKind::deadline:
      return "deadline";
    case NoticeKind::at_risk:
      return "at-risk";
    case NoticeKind::withdrawn:
      return "withdrawn";
    case NoticeKind::thawed:
      return "thawed";
  }
  return "unknown";
}

Ledger::Ledger(const Clock& clock)
    : clock_(clock),
      began_(clock.now()),
      slots_(std::make_unique<std::array<Slot, kCapacity>>()),
      last_sample_(began_) {
  // A slot whose turn equals a producer's number is free for it. Relaxed: no other thread has this object
  // yet.
  for (std::uint64_t i = 0; i < kCapacity; ++i) (*slots_)[i].turn.store(i, std::memory_order_relaxed);
}

LedgerLine Ledger::stamped(std::string_view event) const noexcept { return stamped(event, clock_.now()); }

LedgerLine Ledger::stamped(std::string_view event, SteadyTime when) const noexcept {
  LedgerLine line(event);
  // Counted back from now, because a steady time has no wall time of its own.
  const auto ago = std::chrono::duration_cast<WallTime::duration>(clock_.now() - when);
  line.number("t", unix_milliseconds(clock_.wall_now() - ago)).milliseconds("up_ms", when - began_);
  return line;
}

// A bounded queue for several producers: each takes a number, and the slot's `turn` says whose turn it is. A
// turn behind the number means that the ring is full.
bool Ledger::note(LedgerLine& line) noexcept {
  const std::string_view text = line.done();
  // Relaxed: the slot's turn decides; this is only the first guess.
  std::uint64_t at = written_.load(std::memory_order_relaxed);
  while (true) {
    Slot& slot = (*slots_)[at % kCapacity];
    // Acquire: the writer must have read the slot before a producer overwrites it.
    const std::uint64_t turn = slot.turn.load(std::memory_order_acquire);
    if (turn == at) {
      // A failed exchange has loaded the new number into `at`.
      if (!written_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
      slot.length = static_cast<std::uint32_t>(text.copy(slot.text.data(), slot.text.size()));
      // Release: a thread that sees this turn sees the whole line.
      slot.turn.store(at + 1, std::memory_order_release);
      return true;
    }
    if (turn < at) {
      // Never waits: a training thread must not stand still for a log.
      dropped_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    at = written_.load(std::memory_order_relaxed);
  }
}

void Ledger::notice(const Notice& notice) noexcept {
  const SteadyTime seen = notice.seen.value_or(clock_.now());
  LedgerLine line = stamped("notice", seen);
  line.text("source", notice.source).text("kind", word_of(notice.kind));
  if (notice.deadline) line.milliseconds("left_ms", *notice.deadline - seen);
  if (notice.hibernates) line.flag("hibernates", true);
  line.text("text", notice.text);
  note(line);
}

void Ledger::pause(std::int64_t step, std::string_view why) noexcept {
  // Relaxed: the heartbeat reads it, and may tell of the pause one beat later.
  pausing_.store(true, std::memory_order_relaxed);
  note(stamped("pause").number("step", step).text("why", why));
}

void Ledger::go_on(std::int64_t step, std::string_view why) noexcept {
  pausing_.store(false, std::memory_order_relaxed);
  note(stamped("go on").number("step", step).text("why", why));
}

void Ledger::stall(std::string_view what, Duration took) noexcept {
  note(stamped("stall").milliseconds("ms", took).text("what", what));
}

void Ledger::drain(const Write& write) {
  // Nothing is understood that stands before it.
  if (!start_.empty()) {
    write(start_);
    start_.clear();
  }
  std::string text;
  // Stops at a slot whose producer has taken a number but has not finished: its line keeps its place.
  while (true) {
    Slot& slot = (*slots_)[read_ % kCapacity];
    if (slot.turn.load(std::memory_order_acquire) != read_ + 1) break;
    text.assign(slot.text.data(), slot.length);
    // Before the slot is given back: if this throws, the line is written at the next drain.
    write(text);
    // One round ahead: the slot belongs to the producer of that number.
    slot.turn.store(read_ + kCapacity, std::memory_order_release);
    ++read_;
  }
  // The gap is told in the file itself, so that a reader knows that lines are missing.
  if (const std::int64_t dropped = this->dropped(); dropped != dropped_told_) {
    write(std::string(stamped("lost").number("count", dropped - dropped_told_).done()));
    if (dropped_told_ == 0)
      log_warning("the ledger is incomplete: events came faster than it could write them");
    dropped_told_ = dropped;
  }
  if (sample_ && clock_.now() - last_sample_ >= kProgressInterval) sample(write);
}

void Ledger::sample(const Write& write) {
  last_sample_ = clock_.now();
  const Sample now = sample_();
  LedgerLine line = stamped("progress");
  line.number("step", now.step)
      .milliseconds("waited_ms", now.figures.blocked)
      .milliseconds("risk_ms", now.figures.risk_time);
  if (!now.phase.empty()) line.text("phase", now.phase);
  write(std::string(line.done()));
  tell_sources(now.sources, write, false);
}

void Ledger::tell_sources(const std::vector<SourceReport>& sources, const Write& write, bool last) {
  for (const SourceReport& source : sources) {
    const auto told = std::find_if(told_.begin(), told_.end(),
                                   [&](const SourceReport& other) { return other.name == source.name; });
    const Duration before = told == told_.end() ? Duration::zero() : told->figures.blind;
    const SourceFigures& now = source.figures;
    // A source that never polls, such as signals, has no sight to lose.
    if (now.polls == 0) continue;
    const bool sees_again = told != told_.end() && told->figures.blind_now > now.blind_now;
    // A line a poll would fill the ledger, so a source gets one only when something about its sight changed.
    const bool worth_it = last || told == told_.end() || sees_again || now.blind - before >= kBlindGrowth;
    if (!worth_it) continue;
    LedgerLine line = stamped("source");
    line.text("name", source.name)
        .number("polls", now.polls)
        .number("failures", now.failures)
        .milliseconds("blind_ms", now.blind);
    if (now.blind_now > Duration::zero())
      line.milliseconds("blind_now_ms", now.blind_now).text("why", now.why);
    write(std::string(line.done()));
    if (told == told_.end()) {
      told_.push_back(source);
    } else {
      *told = source;
    }
  }
}

void Ledger::start(const LedgerStart& start) {
  start_ = std::string(stamped("start")
                           .number("attempt", start.attempt)
                           .number("step", start.step)
                           .number("from_attempt", start.from_attempt)
                           .milliseconds("startup_ms", start.startup)
                           .milliseconds("resume_ms", start.resume)
                           .text("boot", start.boot)
                           .text("host", start.host)
                           .done());
}

void Ledger::end(const LedgerEnd& end, const Write& write) {
  // Everything that was noted before the end stands before it.
  drain(write);
  const Sample last = sample_ ? sample_() : Sample{};
  tell_sources(last.sources, write, true);
  LedgerLine line = stamped("end");
  line.text("phase", word_of(end.phase))
      .number("code", static_cast<std::int64_t>(end.exit_code))
      .number("step", end.step)
      .number("durable_step", end.durable_step);
  if (sample_) {
    const RunFigures& figures = last.figures;
    line.milliseconds("waited_ms", figures.blocked)
        .milliseconds("ending_ms", figures.ending)
        .milliseconds("most_risk_ms", figures.most_risk_time)
        .number("saves", figures.durable)
        .number("failed", figures.failed)
        .number("bytes", figures.bytes);
    if (figures.beside) line.milliseconds("beside_ms", figures.beside->lost);
  }
  line.text("reason", end.reason);
  write(std::string(line.done()));
}

std::string Ledger::commit_members(SteadyTime boundary, Duration waited) const {
  LedgerLine line = stamped("commit");
  line.milliseconds("boundary_ms", boundary - began_).milliseconds("waited_ms", waited);
  const std::string_view text = line.done();
  // Without event and braces, because the writer puts these members into a line of its own.
  constexpr std::string_view kHead = R"({"event":"commit")";
  return std::string(text.substr(kHead.size(), text.size() - kHead.size() - 1));
}

}}  // namespace holdfast::v0_2
