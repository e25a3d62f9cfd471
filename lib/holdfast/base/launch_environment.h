// Which process of how many this is, from the variables that launchers set: torchrun (and `holdfast launch`),
// Open MPI, MPICH, Slurm's srun, and pods. A process that nobody launched is a world of one.
//
// One launcher's variables win as a whole; nothing is filled in from another's. They are recognised in this
// order, the innermost first, because one is often started by another (torchrun in each task of an srun,
// mpirun in an allocation):
//
//   torchrun    RANK and LOCAL_RANK         also WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT
//   Open MPI    OMPI_COMM_WORLD_RANK        …_SIZE, …_LOCAL_RANK, …_LOCAL_SIZE
//   MPICH       MPI_LOCALRANKID             PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS
//   srun        SLURM_STEP_NUM_TASKS        SLURM_PROCID, SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE
//   pod         RANK without LOCAL_RANK     WORLD_SIZE, MASTER_ADDR, MASTER_PORT: one process a pod
//
// PMI_RANK alone is MPICH's only where there is no srun, whose plug-in sets it as well. A batch script that
// srun did not start has SLURM_PROCID=0, too, and is a world of one.
//
// Where the ranks meet: MASTER_ADDR and MASTER_PORT, whoever set them; they are no rank's variables. Without
// them, srun's tasks meet on the step's first host at a port made of the job's number, and ranks that all run
// on one host meet on 127.0.0.1; a torchrun or a pod without them is an error.
//
// Errors: UsageError with the variable, its value and the remedy: for a missing one, a rank outside its
// world, numbers that contradict each other, RANK's companions without RANK. launch_of is pure;
// launch_environment reads what is set. Threads: any, as long as nobody calls setenv.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace holdfast::inline v1 {

enum class Launcher { none, torchrun, open_mpi, mpich, slurm, pod };
const char* name_of(Launcher launcher);  // "torchrun", "Open MPI" …; "no launcher"

inline constexpr std::uint16_t kDefaultMasterPort = 29500;  // as torch has it

struct LaunchEnvironment {
  Launcher launcher = Launcher::none;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;                   // among the processes of this host
  std::optional<int> local_world_size;  // how many those are; where the launcher tells
  std::string master_address;           // a name or an address; empty in a world of one
  std::uint16_t master_port = 0;        // 0: none is needed
  // The same text in all ranks of this start, and another in other jobs; empty where the launcher has none.
  // It tells two jobs apart that meet at one port.
  std::string job = {};
  // torchrun: its agent keeps the store that the ranks meet at, also while it restarts them; `restart` counts
  // those.
  bool agent_keeps_store = false;
  int restart = 0;
  // `holdfast launch`: a socket that listens on master_port, for rank 0 to take over. Nobody else can get
  // that port.
  std::optional<int> listening_socket;
  // What looks like a mistake and is none for certain; for the log. Empty mostly.
  std::string remark = {};

  bool one_host() const { return world_size == 1 || local_world_size == world_size; }
};

using Variables = std::map<std::string, std::string, std::less<>>;

LaunchEnvironment launch_of(const Variables& variables);
LaunchEnvironment launch_environment();

// The first host of a list as Slurm writes it: "gpu007" of "gpu[007-012,020],login1". nullopt: not such a
// list.
std::optional<std::string> first_host(std::string_view list);
// How many tasks the host number `node` has in "2(x3),1". nullopt: not such a list, or no such host.
std::optional<int> tasks_on_node(std::string_view list, int node);

}  // namespace holdfast::inline v1
