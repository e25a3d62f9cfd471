// Finds this process's rank and the world size in the variables that launchers set: torchrun (and
// `holdfast launch`), Open MPI, MPICH, Slurm's srun, pods. A process without a launcher is a world of one.
//
// The variables of one launcher count as a whole; other launchers' variables never fill gaps. The innermost
// launcher wins, because one launcher often starts another. docs/several_gpus.md#what-launchers-set lists the
// variables, their order, and how the ranks find each other.
//
// Errors: UsageError names the variable, its value and the remedy: for a missing variable, a rank outside its
// world, contradictory numbers, or WORLD_SIZE without RANK.
// Threads: launch_of() is pure. launch_environment() may be called while no thread calls setenv.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

enum class Launcher { none, torchrun, open_mpi, mpich, slurm, pod };
HOLDFAST_EXPORT const char* name_of(Launcher launcher);  // "torchrun", "Open MPI" …; "no launcher"

inline constexpr std::uint16_t kDefaultMasterPort = 29500;  // torch's default

struct LaunchEnvironment {
  Launcher launcher = Launcher::none;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;                   // this process's number on its host
  std::optional<int> local_world_size;  // processes on this host; empty if the launcher does not tell
  std::string master_address;           // host name or address; empty in a world of one
  std::uint16_t master_port = 0;        // 0: none is needed
  // A text that all ranks of one start share and no other job has. It detects two jobs that use
  // one port. Empty if the launcher provides none.
  std::string job = {};
  // torchrun: its agent hosts the store where the ranks meet, and keeps it when it restarts them.
  bool agent_keeps_store = false;
  // `holdfast launch`: a socket that already listens on master_port. Rank 0 takes it over, so no other
  // process can take the port.
  std::optional<int> listening_socket;
  // A likely mistake in the environment, for the log. Usually empty.
  std::string remark = {};

  bool one_host() const { return world_size == 1 || local_world_size == world_size; }
};

using Variables = std::map<std::string, std::string, std::less<>>;

HOLDFAST_EXPORT LaunchEnvironment launch_of(const Variables& variables);
HOLDFAST_EXPORT LaunchEnvironment launch_environment();

// The first host of a Slurm host list: "gpu007" of "gpu[007-012,020],login1". nullopt if it is malformed.
HOLDFAST_EXPORT std::optional<std::string> first_host(std::string_view list);
// Tasks on host number `node` in a list such as "2(x3),1". nullopt if `list` is malformed or has no such
// host.
HOLDFAST_EXPORT std::optional<int> tasks_on_node(std::string_view list, int node);

}}  // namespace holdfast::v0_2
