#include "holdfast/base/launch_environment.h"

#include <algorithm>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Far above any real job; it keeps sums of such numbers within an int.
constexpr int kMostRanks = 1'000'000;

// On one line, because the value may hold any byte.
std::string shown(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char letter) { return letter < 0x20 || letter == 0x7f; }, '?');
  return text;
}

class Reading {
 public:
  explicit Reading(const Variables& variables) : variables_(variables) {}

  bool has(const EnvVariable& variable) const { return !text(variable).empty(); }
  std::string text(const EnvVariable& variable) const {
    const auto found = variables_.find(variable.name);
    return found == variables_.end() ? "" : found->second;
  }
  std::string setting(const EnvVariable& variable) const {
    return variable.name + ("=" + shown(text(variable)));
  }
  std::optional<int> number(const EnvVariable& variable, int least, int most) const {
    if (!has(variable)) return std::nullopt;
    const auto value = parse_int(text(variable));
    if (value && *value >= least && *value <= most) return static_cast<int>(*value);
    throw UsageError("environment variable " + setting(variable) + ": expected a whole number from " +
                     std::to_string(least) + " to " + std::to_string(most));
  }

 private:
  const Variables& variables_;
};

// The variables of one launcher.
struct Names {
  Launcher launcher;
  const EnvVariable& rank;
  const EnvVariable& world_size;
  // Kubernetes and plain MASTER_ADDR starts have one process in each pod.
  const EnvVariable* local_rank;  // null: one process a host
  const EnvVariable* local_world_size;
};

constexpr Names kTorchrun{Launcher::torchrun, kEnvRank, kEnvWorldSize, &kEnvLocalRank, &kEnvLocalWorldSize};
constexpr Names kPod{Launcher::pod, kEnvRank, kEnvWorldSize, nullptr, nullptr};
constexpr Names kOpenMpi{Launcher::open_mpi, kEnvOpenMpiRank, kEnvOpenMpiSize, &kEnvOpenMpiLocalRank,
                         &kEnvOpenMpiLocalSize};
constexpr Names kMpich{Launcher::mpich, kEnvMpichRank, kEnvMpichSize, &kEnvMpichLocalRank,
                       &kEnvMpichLocalSize};
// No local count for Slurm: it tells one list for all hosts, which place_slurm_tasks() reads.
constexpr Names kSlurm{Launcher::slurm, kEnvSlurmRank, kEnvSlurmStepTasks, &kEnvSlurmLocalId, nullptr};

const Names* launcher_in(const Reading& reading) {
  // The order is the one of docs/several_gpus.md. PMI_RANK alone means MPICH only outside srun, whose PMI
  // plug-in sets it too.
  // Both variables, because RANK alone is the convention for one process in each pod.
  if (reading.has(kEnvRank) && reading.has(kEnvLocalRank)) return &kTorchrun;
  if (reading.has(kEnvOpenMpiRank) || reading.has(kEnvOpenMpiSize)) return &kOpenMpi;
  const bool step = reading.has(kEnvSlurmStepTasks);
  if (reading.has(kEnvMpichLocalRank) || (reading.has(kEnvMpichRank) && !step)) return &kMpich;
  if (step) return &kSlurm;
  if (reading.has(kEnvRank)) return &kPod;
  return nullptr;
}

int required(const Reading& reading, const Names& names, const EnvVariable& variable, int least) {
  if (const auto value = reading.number(variable, least, kMostRanks)) return *value;
  // Names a variable that the user can find, so that a leftover of an earlier start is easy to spot.
  const EnvVariable& seen = reading.has(names.rank) ? names.rank : names.world_size;
  throw UsageError("environment variable " + std::string(variable.name) + " is not set, but " +
                   reading.setting(reading.has(seen) ? seen : *names.local_rank) +
                   " is: " + name_of(names.launcher) +
                   " sets both; start all processes with it, or unset what is left of another start");
}

void place(const Reading& reading, const Names& names, LaunchEnvironment& out) {
  out.launcher = names.launcher;
  out.rank = required(reading, names, names.rank, 0);
  out.world_size = required(reading, names, names.world_size, 1);
  out.local_rank = names.local_rank != nullptr ? required(reading, names, *names.local_rank, 0) : 0;
  if (names.launcher == Launcher::pod) out.local_world_size = 1;
  if (names.local_world_size != nullptr) {
    out.local_world_size = reading.number(*names.local_world_size, 1, kMostRanks);
  }
  const auto contradict = [&](const EnvVariable& number, const EnvVariable& count) {
    throw UsageError("environment variables " + reading.setting(number) + " and " + reading.setting(count) +
                     " contradict each other: numbers count from 0 to one less; are they of one start?");
  };
  if (out.rank >= out.world_size) contradict(names.rank, names.world_size);
  if (names.local_rank == nullptr) return;
  // A process with local rank n follows n processes of its host, so its rank is at least n.
  if (out.local_rank > out.rank) contradict(*names.local_rank, names.rank);
  if (out.local_world_size && *out.local_world_size > out.world_size) {
    contradict(*names.local_world_size, names.world_size);
  }
  if (out.local_world_size && out.local_rank >= *out.local_world_size) {
    contradict(*names.local_rank, *names.local_world_size);
  }
}

void place_slurm_tasks(const Reading& reading, LaunchEnvironment& out) {
  const auto node = reading.number(kEnvSlurmNode, 0, kMostRanks);
  const auto tasks = node ? tasks_on_node(reading.text(kEnvSlurmTasksPerNode), *node) : std::nullopt;
  // A heterogeneous job numbers its nodes per component. The count is then unknown.
  if (tasks && out.local_rank < *tasks && *tasks <= out.world_size) out.local_world_size = *tasks;
}

// Consecutive jobs get different ports, below the range of ephemeral ports (from 32768 on Linux).
std::uint16_t slurm_port(const Reading& reading) {
  const auto job = parse_int(reading.text(kEnvSlurmJob));
  const auto step = parse_int(reading.text(kEnvSlurmStep));
  if (!job || *job < 0) return kDefaultMasterPort;
  // The factor keeps the first 13 steps of consecutive jobs apart.
  const std::uint64_t number =
      static_cast<std::uint64_t>(*job) * 13 + static_cast<std::uint64_t>(step.value_or(0));
  return static_cast<std::uint16_t>(20'000 + number % 9'000);
}

void meet(const Reading& reading, LaunchEnvironment& out) {
  if (out.world_size == 1) return;  // a cluster may set MASTER_PORT=tcp://… for a service of that name
  out.master_address = reading.text(kEnvMasterAddress);
  out.master_port = static_cast<std::uint16_t>(reading.number(kEnvMasterPort, 1, 65'535).value_or(0));
  const bool tells = out.launcher == Launcher::torchrun || out.launcher == Launcher::pod;
  const auto missing = [&](const EnvVariable& variable, const char* remedy) {
    throw UsageError("environment variable " + std::string(variable.name) + " is not set, and " +
                     std::to_string(out.world_size) + " processes (" + name_of(out.launcher) +
                     ") have to meet: " + remedy);
  };
  // torchrun and pods always tell the address, so a missing one is an error there and no reason to guess.
  if (out.master_address.empty() && !tells && out.one_host()) out.master_address = "127.0.0.1";
  if (out.master_address.empty() && out.launcher == Launcher::slurm) {
    out.master_address = first_host(reading.text(kEnvSlurmHosts)).value_or("");
  }
  if (out.master_address.empty()) {
    missing(kEnvMasterAddress, "set it to the host of rank 0, the same for all of them");
  }
  // A port of 0 means that none was named; the range above excludes it.
  if (out.master_port != 0) return;
  if (tells) missing(kEnvMasterPort, "set it to a free port of rank 0's host, the same for all of them");
  out.master_port = out.launcher == Launcher::slurm ? slurm_port(reading) : kDefaultMasterPort;
}

void name_job(const Reading& reading, LaunchEnvironment& out) {
  switch (out.launcher) {
    case Launcher::torchrun:
      out.job = reading.text(kEnvLaunchJob);
      if (!out.job.empty()) {
        // Descriptors 0 to 2 are the standard streams, so a smaller number cannot be a socket.
        out.listening_socket = reading.number(kEnvLaunchSocket, 3, kMostRanks);
        return;
      }
      out.job = reading.text(kEnvElasticRun);
      if (out.job == "none") out.job.clear();  // torchrun's default
      out.agent_keeps_store = reading.text(kEnvElasticStore) == "True";
      return;
    case Launcher::open_mpi:
      out.job = reading.text(kEnvPmixNamespace);
      return;
    case Launcher::slurm:
      // With the step, because two sruns of one allocation are two starts with the same job number.
      if (reading.has(kEnvSlurmJob)) out.job = reading.text(kEnvSlurmJob) + "." + reading.text(kEnvSlurmStep);
      return;
    case Launcher::mpich:
    case Launcher::pod:
    case Launcher::none:
      return;
  }
}

// No launcher. Variables that are left from a start by hand would silently train alone: refuse them.
LaunchEnvironment alone(const Reading& reading) {
  // LOCAL_RANK=0 alone is already a launcher's mark; WORLD_SIZE=1 is a habit of single processes.
  for (const auto& [variable, least] : {std::pair{kEnvLocalRank, 0}, std::pair{kEnvWorldSize, 2}}) {
    if (reading.number(variable, 0, kMostRanks).value_or(-1) >= least) {
      throw UsageError(
          "environment variable RANK is not set, but " + reading.setting(variable) +
          " is: start the processes with a launcher (holdfast launch, torchrun, srun, mpirun), or unset " +
          variable.name);
    }
  }
  LaunchEnvironment out;
  // A warning and no refusal: one process in a large allocation is a legitimate way to train.
  if (parse_int(reading.text(kEnvSlurmTasks)).value_or(1) > 1) {
    out.remark = "this Slurm job has " + reading.text(kEnvSlurmTasks) +
                 " tasks, and this process was not started by srun: it trains alone";
  }
  return out;
}

}  // namespace

const char* name_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::none:
      return "no launcher";
    case Launcher::torchrun:
      return "torchrun";
    case Launcher::open_mpi:
      return "Open MPI";
    case Launcher::mpich:
      return "MPICH";
    case Launcher::slurm:
      return "srun";
    case Launcher::pod:
      return "a pod";
  }
  return "no launcher";
}

std::optional<std::string> first_host(std::string_view list) {
  const auto end = list.find_first_of(",[");
  const std::string_view head = list.substr(0, end);
  if (end == std::string_view::npos || list[end] == ',') {
    return head.empty() ? std::nullopt : std::optional(std::string(head));
  }
  // "gpu[007-012,020]-ib": the first number with its zeros, then the text after the bracket.
  const auto close = list.find(']', end);
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view inside = list.substr(end + 1, close - end - 1);
  const std::string_view number = inside.substr(0, inside.find_first_of(",-"));
  const std::string_view rest = list.substr(close + 1);
  const std::string_view tail = rest.substr(0, rest.find(','));
  const auto digits = [](std::string_view text) {
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  // A name with two brackets ("r[0-3]n[0-15]") continues in the same way.
  if (!digits(number)) return std::nullopt;
  if (tail.find('[') != std::string_view::npos) {
    const auto inner = first_host(rest);
    if (!inner) return std::nullopt;
    return std::string(head) + std::string(number) + *inner;
  }
  return std::string(head) + std::string(number) + std::string(tail);
}

std::optional<int> tasks_on_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    // "2(x3),1" means: three hosts with two tasks each, then one host with one task.
    const auto bracket = item.find("(x");
    const auto tasks = parse_int(item.substr(0, bracket));
    std::optional<std::int64_t> hosts = 1;
    if (bracket != std::string_view::npos) {
      if (!item.ends_with(')')) return std::nullopt;
      hosts = parse_int(item.substr(bracket + 2, item.size() - bracket - 3));
    }
    if (!tasks || !hosts || *tasks < 1 || *tasks > kMostRanks || *hosts < 1) return std::nullopt;
    if (node < *hosts) return static_cast<int>(*tasks);
    node -= static_cast<int>(std::min<std::int64_t>(*hosts, kMostRanks));
  }
  return std::nullopt;
}

LaunchEnvironment launch_of(const Variables& variables) {
  const Reading reading(variables);
  const Names* names = launcher_in(reading);
  if (names == nullptr) return alone(reading);
  LaunchEnvironment out;
  place(reading, *names, out);
  if (out.launcher == Launcher::slurm) place_slurm_tasks(reading, out);
  meet(reading, out);
  name_job(reading, out);
  return out;
}

LaunchEnvironment launch_environment() {
  Variables variables;
  for (const EnvVariable& variable : env_variables()) {
    if (const auto text = env_text(variable)) variables[variable.name] = *text;
  }
  return launch_of(variables);
}

}}  // namespace holdfast::v0_2
