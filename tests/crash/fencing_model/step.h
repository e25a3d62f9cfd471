// The program of an attempt, one file-system operation a step, in the order of the store. Which function each
// step stands for:
//
//   stand_by, await_end       StandbyWait::look: the highest attempt, then whether its end is recorded
//   preflight                 CheckpointStore::preflight: checks, read-only, what could be refused
//   list_run, list_attempts   Attempt::Attempt, highest_attempt()
//   create_claim              Attempt::Attempt, open(…, OpenMode::create)
//   sync_claim, sync_parent   Attempt::Attempt, attempts.sync() and directory_.sync()
//   sweep_…                   internal::sweep_temporaries: look, list, (look, unlink)…, sync
//   list, verify              Recovery::newest_good: candidates_in(), then examine() of the newest
//   look_after_list           CheckpointStore::recover, attempt->check_not_superseded()
//   forget_…                  internal::forget_old_attempts, the claims: list, (look, unlink)…; then the user
//                             is told where he is
//   state_…                   internal::write_state, replace_file() of RUN_STATE.json
//   create_temporary          Committer::write_temporary, with the writes and the fsync of the file
//   read_back                 Committer::read_back
//   look_before_rename        Committer::commit, the first attempt_.check_not_superseded()
//   rename                    Committer::publish, Directory::rename_new
//   unlink_temporary          the same, its second half where it is link+unlink
//   sync_directory            Committer::commit, directory_.sync()
//   look_after_rename         Committer::commit, the second attempt_.check_not_superseded()
//   acknowledge               AsyncWriter::acknowledged: from here on the user may rely on it
//   retention_…               Housekeeper::delete_superfluous: list, (look, unlink)…
//   look_before_end,          internal::write_state of the end, as interrupted, where a standby is to go on
//     record_end
//   remove_abandoned          Committer::remove_abandoned, of an attempt that was superseded
//
// What no other attempt can see is no step of its own: signing the claim, writing and syncing a temporary
// file. `mark` is in no function: it belongs to variants.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "properties.h"
#include "rule.h"
#include "world.h"

namespace holdfast::test::fencing {

enum class Step : std::uint8_t {
  stand_by,
  await_end,
  preflight,
  list_run,
  list_attempts,
  create_claim,
  sync_claim,
  sync_parent,
  sweep_look,
  sweep_list,
  sweep_look_again,
  sweep_unlink,
  sweep_sync,
  list,
  verify,
  look_after_list,
  forget_list,
  forget_look,
  forget_unlink,
  state_look,
  state_create,
  state_look_again,
  state_rename,
  create_temporary,
  read_back,
  look_before_rename,
  rename,
  unlink_temporary,
  sync_directory,
  mark,
  look_after_rename,
  acknowledge,
  retention_list,
  retention_look,
  retention_unlink,
  look_before_end,
  record_end,
  remove_abandoned,
  ended,  // complete, superseded, given up or dead: what it did stays, and that is all
};
const char* name_of(Step step);
constexpr bool is_end(Step step) { return step == Step::ended; }

// One that stands by might as well not have begun.
constexpr bool is_unborn(Step step) { return step == Step::preflight || step == Step::stand_by; }
// How many ways on there are: 2 where a start can be chosen, where an attempt can be interrupted, where a
// standby reads ahead or may take silence for an end.
int ways(const World& world, int attempt, const Rule& rule, const Lives& lives);
// Lets `attempt` do its next step, in one of those ways. Requires that it has not ended.
Violation take_step(World& world, int attempt, int way, const Rule& rule, const Lives& lives);

}  // namespace holdfast::test::fencing
