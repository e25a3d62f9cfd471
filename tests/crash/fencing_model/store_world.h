// One state of the model of a store's claims (store_claims.h): what lies in the store, what is on the way there, and where
// each machine stands. Equal worlds have equal bytes.
//
// Threads: plain values.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "store_claims.h"

namespace holdfast::test::store_claims {

enum class Sent : std::uint8_t { no, on_the_way, there, deleted };

// What is sent arrives at any later time. So to look and to send are one step; to hear of what was sent and to
// look at once, too.
enum class Step : std::uint8_t {
  stand_by,        // if the end of the newest machine that began is there: as `claim`, at once
  claim,           // list claims and files, take the next number, send a claim, or a conditional write first
  take,            // the conditional write was answered: send a claim, or lose. Or give it up.
  list,            // the claim is there: who else has that number? Or give it up.
  fetch,           // delete lower claims; take the newest checkpoint, send a mark of it
  begin,           // the mark is there: the start counts as home if there is no higher claim
  upload,          // if there is no higher claim: send a copy
  look_after,      // the copy is there: it counts if there is no higher claim
  look_to_delete,  // choose the oldest, if there is no higher claim
  remove,
  tidy,
  record_end,  // if there is no higher claim: send the record of its end
  ended,
};

struct Claim {
  std::uint8_t number;
  Sent sent;
};

// A conditional write of a number. The store decides when it arrives.
enum class Write : std::uint8_t { none, on_the_way, accepted, refused };

struct Machine {
  Step step;
  std::uint8_t tries;
  std::uint8_t number;  // tried, then won
  std::uint8_t start;   // the checkpoint that it goes on from
  std::uint8_t told;    // saves that count as home
  std::uint8_t won;
  std::uint8_t fetched;
  std::uint8_t begun;
  Sent mark;             // of `start`
  std::uint8_t victim;   // to be deleted
  Write write;           // of `number`
  std::uint8_t taken;    // a number that was refused: another machine's
  Sent end;              // the record of it
  std::uint8_t at_hand;  // the checkpoint that a standby has read
};

struct World {
  std::uint16_t taken;                  // bit N: number N lies there, by a conditional write
  std::uint16_t late;                   // bit N: a write of number N was given up, and may still arrive
  std::array<Claim, kMachines> claims;  // of the try that is under way, or that won
  // Claims of tries that were given up or lost, sorted: whose they were is no difference between two worlds.
  std::array<Claim, kMachines * kTries> others;
  std::array<Sent, kFiles> files;
  std::array<Machine, kMachines> machines;
};
static_assert(std::has_unique_object_representations_v<World>);
static_assert(1 + kMachines * kTries < 16, "each try may take a number of its own");

constexpr int file_of(int machine, int save) { return kPast + machine * kSaves + save; }

inline const Machine& at(const World& world, int machine) {
  return world.machines[static_cast<std::size_t>(machine)];
}
inline bool is_there(const World& world, int file) {
  return world.files[static_cast<std::size_t>(file)] == Sent::there;
}

inline int number_of(const World& world, int file) {
  return file < kPast ? 1 : at(world, (file - kPast) / kSaves).number;
}
inline int previous_of(const World& world, int file) {
  if (file < kPast) return file > 0 ? file - 1 : kNoFile;
  const int save = (file - kPast) % kSaves;
  return save > 0 ? file - 1 : at(world, (file - kPast) / kSaves).start;
}
inline int step_of(const World& world, int file) {
  int step = 0;
  for (; file != kNoFile; file = previous_of(world, file)) ++step;
  return step;
}
inline bool in_history(const World& world, int file, int tip) {
  while (tip != kNoFile && tip != file) tip = previous_of(world, tip);
  return tip == file;
}

// The machine whose mark is the highest, of those whose checkpoint is there if that `counts`; -1: none.
inline int newest_mark(const World& world, bool counts) {
  int marked = -1;
  for (int machine = 0; machine < kMachines; ++machine) {
    const Machine& one = at(world, machine);
    if (one.mark != Sent::there || (counts && !is_there(world, one.start))) continue;
    if (marked < 0 || one.number > at(world, marked).number) marked = machine;
  }
  return marked;
}

// What a start chooses: the newest by (attempt, step); but what came after a later machine had begun, and is older
// than that machine, stands back.
inline int newest(const World& world, const StoreRule& rule) {
  const int marked = rule.marks_its_start ? newest_mark(world, true) : -1;
  const auto key = [&](int file) {
    return std::pair(rule.newest_by_attempt ? number_of(world, file) : 0, step_of(world, file));
  };
  const auto stands_back = [&](int file) {
    if (marked < 0 || number_of(world, file) >= at(world, marked).number) return false;
    return key(file) > key(at(world, marked).start);
  };
  int best = kNoFile;
  for (int file = 0; file < kFiles; ++file) {
    if (!is_there(world, file) || stands_back(file)) continue;
    if (best == kNoFile || key(file) > key(best)) best = file;
  }
  return best;
}

// does(machine, number) of each that is there; machine -1: of a try that is over.
template <class Does>
inline void each_claim(const World& world, Does does) {
  for (int machine = 0; machine < kMachines; ++machine) {
    const Claim& claim = world.claims[static_cast<std::size_t>(machine)];
    if (claim.sent == Sent::there) does(machine, claim.number);
  }
  for (const Claim& claim : world.others) {
    if (claim.sent == Sent::there) does(-1, claim.number);
  }
}

inline std::uint16_t bit_of(int number) { return static_cast<std::uint16_t>(1U << number); }
inline void write_arrives(World& world, int machine, bool honours) {
  Machine& own = world.machines[static_cast<std::size_t>(machine)];
  const std::uint16_t bit = bit_of(own.number);
  own.write = honours && (world.taken & bit) != 0 ? Write::refused : Write::accepted;
  world.taken |= bit;
}
inline void give_up_write(World& world, int machine) {
  Machine& own = world.machines[static_cast<std::size_t>(machine)];
  if (own.write == Write::on_the_way) world.late |= bit_of(own.number);
  own.write = Write::none;
}

inline void sort_others(World& world) {
  for (Claim& claim : world.others) {
    if (claim.sent == Sent::deleted) claim = {};
  }
  std::sort(world.others.begin(), world.others.end(), [](const Claim& a, const Claim& b) {
    return std::pair(a.number, a.sent) > std::pair(b.number, b.sent);
  });
}

inline void forget_claims_below(World& world, int number) {
  const auto forget = [&](Claim& claim) {
    if (claim.sent == Sent::there && claim.number < number) claim.sent = Sent::deleted;
  };
  std::for_each(world.claims.begin(), world.claims.end(), forget);
  std::for_each(world.others.begin(), world.others.end(), forget);
  world.taken &= static_cast<std::uint16_t>(~(bit_of(number) - 1U));
  sort_others(world);
}

inline void give_up_claim(World& world, int machine) {
  Claim& own = world.claims[static_cast<std::size_t>(machine)];
  world.others.back() = own;  // the last one is free: there are more places than tries
  own = {};
  sort_others(world);
}

inline bool superseded(const World& world, int machine) {
  const Machine& own = at(world, machine);
  bool listed = false;
  int highest = 0;
  each_claim(world, [&](int other, int number) {
    listed = listed || other == machine;
    highest = std::max(highest, number);
  });
  return highest > own.number || !listed;
}

inline StoreViolation win(const World& world, int machine) {
  const Machine& own = at(world, machine);
  if (own.number == 1) return StoreViolation::two_winners;
  for (int other = 0; other < kMachines; ++other) {
    const Machine& rival = at(world, other);
    if (other == machine || rival.won == 0) continue;
    if (rival.number == own.number) return StoreViolation::two_winners;
    if (rival.number > own.number) return StoreViolation::overtaken;
  }
  return StoreViolation::none;
}

// A copy of `machine` counts from now on.
inline StoreViolation told(const World& world, int machine) {
  const Machine& own = at(world, machine);
  const int file = file_of(machine, own.told - 1);
  for (int other = 0; other < kMachines; ++other) {
    const Machine& rival = at(world, other);
    if (rival.fetched == 0 || rival.number <= own.number) continue;
    if (!in_history(world, file, rival.start)) return StoreViolation::behind;
  }
  return StoreViolation::none;
}

// `machine` goes on from `start`, after it saw an end.
inline StoreViolation takes_over(const World& world, int machine) {
  const Machine& own = at(world, machine);
  for (int other = 0; other < kMachines; ++other) {
    const Machine& before = at(world, other);
    if (before.end != Sent::there || before.number >= own.number) continue;
    const bool sent_more = before.told < kSaves &&
                           world.files[static_cast<std::size_t>(file_of(other, before.told))] != Sent::no;
    const int saves = before.told + (sent_more ? 1 : 0);
    if (saves > 0 && !in_history(world, file_of(other, saves - 1), own.start)) return StoreViolation::older;
  }
  return StoreViolation::none;
}

inline std::uint64_t hash_of(const World& world) {
  std::uint64_t hash = sizeof world;
  const auto* bytes = reinterpret_cast<const char*>(&world);
  for (std::size_t at = 0; at < sizeof world; at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min<std::size_t>(8, sizeof world - at));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  hash *= 0xbf58476d1ce4e5b9;
  return hash ^ hash >> 32;
}

}  // namespace holdfast::test::store_claims
