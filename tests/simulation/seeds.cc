#include "seeds.h"

#include "shrinking.h"
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
    const Shrunk least =
        shrunk(faults, kFaults, broken, [&](Faults without) { return SimulatedRun(seed, without).run(); });
    search.broken =
        least.line(seed, kFaults, [](unsigned fault) { return name_of(static_cast<Fault>(fault)); });
    return search;
  }
  return search;
}

}  // namespace holdfast::simulation
