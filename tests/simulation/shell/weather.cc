#include "weather.h"

#include <algorithm>
#include <cerrno>

namespace holdfast::simulation {
namespace {

using test::Op;

std::uint64_t hash(std::uint64_t seed, std::uint64_t what) {
  return Chance(seed, 1000 + what).draw(1ULL << 62);
}

constexpr ShellFaults kCalm =
    bit(ShellFault::several) | bit(ShellFault::preemptions) | bit(ShellFault::by_priority) |
    bit(ShellFault::spurious) | bit(ShellFault::announces_updates) | bit(ShellFault::evaluations) |
    bit(ShellFault::second_image) | bit(ShellFault::write_limit) | bit(ShellFault::by_steps) |
    bit(ShellFault::by_time) | bit(ShellFault::automatic) | bit(ShellFault::saves) |
    bit(ShellFault::requests) | bit(ShellFault::calls_back) | bit(ShellFault::best) | bit(ShellFault::stop) |
    bit(ShellFault::notice) | bit(ShellFault::guess) | bit(ShellFault::withdraw) |
    bit(ShellFault::hibernate) | bit(ShellFault::several_notices) | bit(ShellFault::other_policy) |
    bit(ShellFault::blind_ranks) | bit(ShellFault::expects_end) | bit(ShellFault::kill) |
    bit(ShellFault::power) | bit(ShellFault::fast_steps) | bit(ShellFault::unshared) |
    bit(ShellFault::reads_ahead) | bit(ShellFault::peeks) | bit(ShellFault::asks);

}  // namespace

const char* name_of(ShellFault fault) {
#define HOLDFAST_NAME(name) #name,
  static constexpr std::array kNames{HOLDFAST_SHELL_FAULTS(HOLDFAST_NAME)};
  return kNames[static_cast<unsigned>(fault)];
}
const char* name_of(ShellPromise promise) {
  static constexpr std::array kNames{HOLDFAST_SHELL_PROMISES(HOLDFAST_NAME)};
#undef HOLDFAST_NAME
  return kNames[static_cast<unsigned>(promise)];
}

ShellFaults shell_faults_of(std::uint64_t seed) {
  const std::uint64_t percent = 10 + hash(seed, 99) % 45;
  ShellFaults faults = 0;
  for (unsigned fault = 0; fault < kShellFaults; ++fault) {
    if (hash(seed, fault) % 100 < (fault < 2 ? 50 : percent)) faults |= ShellFaults{1} << fault;
  }
  if (hash(seed, 98) % 4 != 0) return faults;
  faults = (faults | hash(seed, 97)) & kCalm;
  // Saves that fall due anyway, and ends that are announced, would hide what is not answered.
  if (hash(seed, 96) % 2 != 0) {
    faults &= ~(bit(ShellFault::by_time) | bit(ShellFault::by_steps) | bit(ShellFault::automatic) |
                bit(ShellFault::saves) | bit(ShellFault::best) | bit(ShellFault::calls_back));
  }
  const auto others = bit(ShellFault::stop) | bit(ShellFault::guess) | bit(ShellFault::withdraw) |
                      bit(ShellFault::hibernate) | bit(ShellFault::several_notices) | bit(ShellFault::kill) |
                      bit(ShellFault::fast_steps) | bit(ShellFault::notice);
  switch (hash(seed, 95) % 5) {
    case 0:
      return (faults & ~others) | bit(ShellFault::requests);
    case 1:
      return (faults & ~others) | bit(ShellFault::notice);
    case 2:
      return (faults & ~others) | bit(ShellFault::notice) | bit(ShellFault::withdraw);
    case 3:
      return (faults | bit(ShellFault::stop)) & ~bit(ShellFault::notice);
    default:
      return faults;
  }
}

bool is_calm(ShellFaults faults) { return (faults & ~kCalm) == 0; }

void Weather::at(const test::Operation& operation, test::FaultFileSystem& view) {
  Fibers& fibers = *Fibers::current();
  const bool syncs = operation.kind == Op::sync_file || operation.kind == Op::sync_directory;
  Duration takes = syncs ? sync : operation.mutating ? sync / 20 : sync / 500;
  if (operation.kind == Op::write || operation.kind == Op::read) {
    takes +=
        Duration(static_cast<std::int64_t>(static_cast<double>(operation.length) / bytes_a_second * 1e9));
  }
  if (uneven && chance_.one_in(30)) takes = takes * 20 + std::chrono::milliseconds(500);
  if (takes > std::chrono::microseconds(100)) fibers.sleep(takes);
  if (hangs.on(fibers.now())) {
    ++hung;
    fibers.sleep_until(hangs.until);
  }
  if (full.on(fibers.now()) && (operation.kind == Op::write || operation.kind == Op::reserve)) {
    ++failures;
    view.fail(operation.kind, 1, ENOSPC);
  } else if (fails.on(fibers.now()) && (operation.mutating || reads_fail) && chance_.one_in(3)) {
    ++failures;
    view.fail_any(1, chance_.one_in(2) ? EIO : ESTALE,
                  {.short_write = chance_.one_in(2), .after = operation.mutating && chance_.one_in(4)});
  }
}

}  // namespace holdfast::simulation
