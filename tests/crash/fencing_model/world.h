// One state of the world in the model of the fencing rule (store/commit.h, rule 6): the names in a run
// directory, what of them a power cut would leave, and how far every attempt has come.
//
// Names. Each is there or not, now and on the device; a difference is an operation that no fsync covered yet,
// and it knows whose it was. A power cut may take back any subset of the open operations, in no order: also
// half of a rename. On one machine it ends all attempts. On a volume that several machines share, it ends one
// and spares the others; there, what another has seen is durable (a server that answers after the disk, a
// lock that is handed over after a flush).
//
// Content. A checkpoint grew from the file that its attempt began with, and from the attempt's earlier ones:
// that is all the content there is. Damage comes from a missing fsync alone.
//
// Left out: `attempts/<n>.state.json` and the ledger (names that nobody else writes), but for an end that is
// recorded there, which a standby waits for; and moving damaged files aside (for others the same as
// retention's unlink). A power cut may take the record of an end: then a standby waits, as for one that died.
//
// Threads: plain values. Every bit of a World counts: equal worlds have equal bytes.
#pragma once

#include <array>
#include <cstdint>
#include <type_traits>

namespace holdfast::test::fencing {

inline constexpr int kAttempts = 3;
inline constexpr int kSaves = 2;  // at most, of each attempt

// Of names, in World::names. The checkpoints come first, so a checkpoint's index is a bit in Attempt::todo.
inline constexpr int kPast = 2;  // checkpoints of attempt 1, which is over before the model begins
constexpr int checkpoint_of(int attempt, int save) { return kPast + attempt * kSaves + save; }
inline constexpr int kCheckpoints = kPast + kAttempts * kSaves;
constexpr int claim_of(int attempt) { return kCheckpoints + attempt; }
constexpr int temporary_of(int attempt) { return kCheckpoints + kAttempts + attempt; }
constexpr int state_temporary_of(int attempt) { return kCheckpoints + 2 * kAttempts + attempt; }
inline constexpr int kNames = kCheckpoints + 3 * kAttempts;
inline constexpr int kRunState = kNames;  // as a bit in what a power cut takes back
inline constexpr int kNoFile = 0xf;       // where a checkpoint's index could stand

struct Name {
  std::uint8_t present : 1;
  std::uint8_t durable : 1;   // there after a power cut
  std::uint8_t by : 2;        // whose operation is open: 1 + index; 0 when none is
  std::uint8_t unsynced : 1;  // its bytes were not fsynced
  std::uint8_t torn : 1;      // and a power cut took them
  std::uint8_t marked : 1;    // of claims, where a variant writes into them
  std::uint8_t spare : 1;
  bool open() const { return present != durable; }
};

// RUN_STATE.json: whose it is. 0: attempt 1's, or none.
struct RunStateName {
  std::uint8_t owner : 2;  // 1 + index
  std::uint8_t durable : 2;
  std::uint8_t by : 2;
  std::uint8_t spare : 2;
  bool open() const { return owner != durable; }
};

enum class Step : std::uint8_t;

struct Attempt {
  Step step;
  std::uint8_t number : 4;     // 0 before it listed
  std::uint8_t start : 4;      // the checkpoint that it grew from, or kNoFile
  std::uint8_t saves : 2;      // acknowledged
  std::uint8_t listed : 1;     // its recovery has chosen `start`
  std::uint8_t recovered : 1;  // and has told the user so
  std::uint8_t held : 1;       // its preflight saw a checkpoint
  std::uint8_t chose : 1;      // an older start than the newest: a new branch
  std::uint8_t standby : 1;
  std::uint8_t said_end : 1;  // its state says that it was interrupted
  std::uint8_t todo;          // names still to be unlinked
  std::uint8_t at_hand;       // the checkpoint that a standby has read, or kNoFile
};

struct World {
  std::array<Name, kNames> names;
  RunStateName run_state;
  std::array<Attempt, kAttempts> attempts;

  bool present(int name) const { return names[static_cast<std::size_t>(name)].present != 0; }
  Name& name(int index) { return names[static_cast<std::size_t>(index)]; }
  const Name& name(int index) const { return names[static_cast<std::size_t>(index)]; }
  Attempt& attempt(int index) { return attempts[static_cast<std::size_t>(index)]; }
  const Attempt& attempt(int index) const { return attempts[static_cast<std::size_t>(index)]; }

  // Each is one operation of `attempt`.
  void add(int name, int attempt) { change(name, true, attempt); }
  void remove(int name, int attempt) { change(name, false, attempt); }
  void sync_run();
  void sync_attempts();
  // Where what was seen is durable: `attempt` sees what others did.
  void see_run(int attempt);
  void see_attempts(int attempt);
  // No more steps, for whatever reason.
  void end(int attempt);
  // A machine loses power: `attempt` ends, and the open operations `lost` are taken back (a bit for each
  // name, and kRunState). Bytes without an fsync are gone.
  void cut(int attempt);
  void take_back(unsigned lost);
  // What such a cut could take back.
  unsigned open_operations(int attempt) const;

 private:
  void change(int name, bool present, int attempt);
  void settle(int name);
  void settle_run_state();
};
static_assert(std::has_unique_object_representations_v<World>);

// With a past: attempt 1 left two checkpoints. Otherwise an empty directory.
World beginning(bool with_a_past, int first_standby = 0, int standbys = 0);

// What a checkpoint's name and content say.
int attempt_number_of(const World& world, int checkpoint);
int step_of(const World& world, int checkpoint);
// The one that it grew from; kNoFile: none.
int previous_of(const World& world, int checkpoint);
// Whether `checkpoint` is `tip`, or one that it grew from.
bool is_in_history(const World& world, int checkpoint, int tip);
inline bool is_present(const Name& name) { return name.present != 0; }
// The newest by (attempt, step) that verifies, among those that `there` says yes to; kNoFile: none.
template <class There>
int newest(const World& world, There there) {
  int best = kNoFile;
  for (int file = 0; file < kCheckpoints; ++file) {
    if (!there(world.name(file)) || world.name(file).torn != 0) continue;
    if (best == kNoFile || attempt_number_of(world, file) > attempt_number_of(world, best) ||
        (attempt_number_of(world, file) == attempt_number_of(world, best) &&
         step_of(world, file) > step_of(world, best))) {
      best = file;
    }
  }
  return best;
}

}  // namespace holdfast::test::fencing
