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

constexpr unsigned kCalmFaults = 1U << several | 1U << evaluations | 1U << copies_beside_steps |
                                 1U << notice | 1U << guess | 1U << withdraw | 1U << outlive |
                                 1U << hibernate | 1U << stop | 1U << request | 1U << by_time |
                                 1U << by_device | 1U << automatic | 1U << mirror | 1U << write_limit |
                                 1U << late_results | 1U << best | 1U << on_save;

std::string promise_of(const std::string& broken) { return broken.substr(0, broken.find(':')); }

// Switches faults off, one at a time, as long as the same promise is broken.
unsigned shrunk(std::uint64_t seed, unsigned faults, const std::string& broken) {
  for (bool again = true; again;) {
    again = false;
    for (unsigned fault = 0; fault < kFaults; ++fault) {
      const unsigned without = faults & ~(1U << fault);
      if (without == faults || promise_of(SimulatedRun(seed, without).run()) != promise_of(broken)) continue;
      faults = without;
      again = true;
    }
  }
  return faults;
}

}  // namespace

unsigned faults_of(std::uint64_t seed) {
  const std::uint64_t percent = 15 + hash(seed, 99) % 40;  // some seeds have few faults, some many
  unsigned faults = 0;
  for (unsigned fault = 0; fault < kFaults; ++fault) {
    if (hash(seed, fault) % 100 < (fault < 3 ? 50 : percent)) faults |= 1U << fault;
  }
  if (hash(seed, 98) % 4 != 0) return faults;
  // Saves that fall due anyway would hide that a notice is not answered.
  auto calm = static_cast<unsigned>(hash(seed, 97)) & kCalmFaults;
  if (hash(seed, 96) % 4 != 0) calm &= ~(1U << by_time | 1U << automatic);
  if (hash(seed, 95) % 2 != 0) calm &= ~(1U << evaluations | 1U << best | 1U << on_save);
  return calm;
}

Search search_seeds(std::uint64_t first, std::uint64_t count) {
  Search search;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    ++search.seeds;
    const unsigned faults = faults_of(seed);
    const std::string broken = SimulatedRun(seed, faults).run();
    if (broken.empty()) continue;
    const unsigned least = shrunk(seed, faults, broken);
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
