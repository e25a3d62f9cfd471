#include "seeds.h"

#include "simulated_run.h"

namespace holdfast::simulation {
namespace {

std::uint64_t hash(std::uint64_t seed, std::uint64_t what) {
  std::uint64_t z = seed * 0xbf58476d1ce4e5b9ULL + what * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 31)) * 0x94d049bb133111ebULL;
  z = (z ^ (z >> 29)) * 0xbf58476d1ce4e5b9ULL;
  return z ^ (z >> 32);
}

constexpr Faults kCalmFaults = bit(several) | bit(evaluations) | bit(copies_beside_steps) | bit(notice) |
                               bit(guess) | bit(withdraw) | bit(outlive) | bit(hibernate) | bit(stop) |
                               bit(request) | bit(by_time) | bit(by_device) | bit(automatic) | bit(mirror) |
                               bit(write_limit) | bit(best) | bit(on_save) | bit(standby);

std::string promise_of(const std::string& broken) { return broken.substr(0, broken.find(':')); }

// Switches faults off, one at a time, as long as the same promise is broken.
Faults shrunk(std::uint64_t seed, Faults faults, const std::string& broken) {
  for (bool again = true; again;) {
    again = false;
    for (unsigned fault = 0; fault < kFaults; ++fault) {
      const Faults without = faults & ~bit(static_cast<Fault>(fault));
      if (without == faults || promise_of(SimulatedRun(seed, without).run()) != promise_of(broken)) continue;
      faults = without;
      again = true;
    }
  }
  return faults;
}

}  // namespace

Faults faults_of(std::uint64_t seed) {
  const std::uint64_t percent = 15 + hash(seed, 99) % 40;  // some seeds have few faults, some many
  Faults faults = 0;
  for (unsigned fault = 0; fault < kFaults; ++fault) {
    if (hash(seed, fault) % 100 < (fault < 3 ? 50 : percent)) faults |= bit(static_cast<Fault>(fault));
  }
  if (hash(seed, 98) % 4 != 0) return faults;
  // Saves that fall due anyway would hide that a notice is not answered.
  auto calm = hash(seed, 97) & kCalmFaults;
  if (hash(seed, 96) % 4 != 0) calm &= ~(bit(by_time) | bit(automatic));
  if (hash(seed, 95) % 2 != 0) calm &= ~(bit(evaluations) | bit(best) | bit(on_save));
  return calm;
}

Search search_seeds(std::uint64_t first, std::uint64_t count, std::uint64_t stride) {
  Search search;
  for (std::uint64_t seed = first; search.seeds < count; seed += stride) {
    ++search.seeds;
    const Faults faults = faults_of(seed);
    const std::string broken = SimulatedRun(seed, faults).run();
    if (broken.empty()) continue;
    const Faults least = shrunk(seed, faults, broken);
    search.broken = SimulatedRun(seed, least).run() + " (HOLDFAST_TEST_SEED=" + std::to_string(seed) + ":" +
                    std::to_string(least) + " repeats it; faults:";
    for (unsigned fault = 0; fault < kFaults; ++fault) {
      if ((least >> fault & 1U) != 0) search.broken += std::string(" ") + name_of(static_cast<Fault>(fault));
    }
    search.broken += ")";
    return search;
  }
  return search;
}

}  // namespace holdfast::simulation
