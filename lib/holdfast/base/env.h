// Every environment variable that Holdfast reads, in one place. Nothing else calls getenv.
//
// A variable that is unset or empty means "not given". A value that cannot be understood is a UsageError that
// names the variable, the value and what would be right: never a silent default.
// Threads: readers may be called from any thread as long as nobody calls setenv.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "holdfast/base/clock.h"

namespace holdfast::inline v1 {

struct EnvVariable {
  const char* name;
  const char* meaning;  // one line, for --help and the README
};

// What is logged: debug, info (default), warning, error or off.
inline constexpr EnvVariable kEnvLog{"HOLDFAST_LOG",
                                     "what is logged: debug, info (default), warning, error, off"};
// From SIGTERM or SIGINT to the end of the process. Beats the program's own setting.
inline constexpr EnvVariable kEnvTermGrace{
    "HOLDFAST_TERM_GRACE", "time from SIGTERM to the process's end, e.g. 25s (default) or 2min"};
// Another notice file to watch, beside the program's own; interruption/notice_file.h says what may be in it.
inline constexpr EnvVariable kEnvNoticeFile{
    "HOLDFAST_NOTICE_FILE", "file whose appearance announces an interruption (empty, or JSON; default none)"};
// Which interruption sources there are; interruption/sources.h says what by default.
inline constexpr EnvVariable kEnvSources{
    "HOLDFAST_SOURCES",
    "interruption sources, of signal,file,deadline,cloud,ec2,gcp,azure (default signal,file,deadline,cloud)"};
// Other addresses of the metadata services, by the names that the providers' own tools know where they have
// one. Each also says which provider this machine belongs to.
inline constexpr EnvVariable kEnvEc2Endpoint{
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    "address of EC2's metadata service (default http://169.254.169.254 on EC2's machines)"};
inline constexpr EnvVariable kEnvEc2Disabled{"AWS_EC2_METADATA_DISABLED",
                                             "true: never ask EC2's metadata service (default false)"};
inline constexpr EnvVariable kEnvGcpHost{
    "GCE_METADATA_HOST", "host[:port] of Google's metadata server (default 169.254.169.254 on its machines)"};
inline constexpr EnvVariable kEnvAzureEndpoint{
    "HOLDFAST_AZURE_METADATA_ENDPOINT",
    "address of Azure's metadata service (default http://169.254.169.254 on its machines)"};
// Set by launchers; base/launch_environment.h says whose count. The first three also decide which process of
// a host asks a metadata service.
inline constexpr EnvVariable kEnvLocalRank{
    "LOCAL_RANK", "number of this process on its host, by torchrun; not 0: asks no metadata service"};
inline constexpr EnvVariable kEnvOpenMpiLocalRank{"OMPI_COMM_WORLD_LOCAL_RANK",
                                                  "the same, by Open MPI, where LOCAL_RANK is not set"};
inline constexpr EnvVariable kEnvSlurmLocalId{"SLURM_LOCALID", "the same, by Slurm, where neither is set"};
inline constexpr EnvVariable kEnvRank{"RANK",
                                      "number of this process, by torchrun; without LOCAL_RANK by a pod"};
inline constexpr EnvVariable kEnvWorldSize{"WORLD_SIZE", "how many processes train together, beside RANK"};
inline constexpr EnvVariable kEnvLocalWorldSize{"LOCAL_WORLD_SIZE", "how many of them are on this host"};
inline constexpr EnvVariable kEnvMasterAddress{"MASTER_ADDR",
                                               "host of rank 0, where the processes meet (any launcher)"};
inline constexpr EnvVariable kEnvMasterPort{"MASTER_PORT", "port there, 1 to 65535 (any launcher)"};
inline constexpr EnvVariable kEnvGlooInterface{
    "GLOO_SOCKET_IFNAME", "network interface that Gloo uses (default: the one towards MASTER_ADDR)"};
inline constexpr EnvVariable kEnvOmpThreads{
    "OMP_NUM_THREADS", "threads of each process's computations (holdfast launch: cores / processes)"};
inline constexpr EnvVariable kEnvElasticRun{"TORCHELASTIC_RUN_ID", "torchrun's name for the job"};
inline constexpr EnvVariable kEnvElasticRestart{"TORCHELASTIC_RESTART_COUNT",
                                                "how often torchrun has restarted its processes"};
inline constexpr EnvVariable kEnvElasticStore{
    "TORCHELASTIC_USE_AGENT_STORE", "True: torchrun itself keeps the store at MASTER_ADDR:MASTER_PORT"};
inline constexpr EnvVariable kEnvElasticErrorFile{
    "TORCHELASTIC_ERROR_FILE",
    "torchrun's file for why a process ended with an error: one sentence, in JSON"};
inline constexpr EnvVariable kEnvLaunchJob{"HOLDFAST_LAUNCH_JOB", "holdfast launch's name for the job"};
inline constexpr EnvVariable kEnvLaunchSocket{
    "HOLDFAST_LAUNCH_SOCKET", "rank 0's socket that listens on MASTER_PORT, by holdfast launch"};
inline constexpr EnvVariable kEnvOpenMpiRank{"OMPI_COMM_WORLD_RANK", "number of this process, by Open MPI"};
inline constexpr EnvVariable kEnvOpenMpiSize{"OMPI_COMM_WORLD_SIZE", "how many there are, by Open MPI"};
inline constexpr EnvVariable kEnvOpenMpiLocalSize{"OMPI_COMM_WORLD_LOCAL_SIZE",
                                                  "how many of them are on this host, by Open MPI"};
inline constexpr EnvVariable kEnvPmixNamespace{"PMIX_NAMESPACE", "Open MPI's name for the job"};
inline constexpr EnvVariable kEnvMpichRank{"PMI_RANK", "number of this process, by MPICH"};
inline constexpr EnvVariable kEnvMpichSize{"PMI_SIZE", "how many there are, by MPICH"};
inline constexpr EnvVariable kEnvMpichLocalRank{"MPI_LOCALRANKID",
                                                "number of this process on its host, by MPICH"};
inline constexpr EnvVariable kEnvMpichLocalSize{"MPI_LOCALNRANKS", "how many are on this host, by MPICH"};
inline constexpr EnvVariable kEnvSlurmStepTasks{
    "SLURM_STEP_NUM_TASKS", "how many processes srun has started; it alone says that srun did"};
inline constexpr EnvVariable kEnvSlurmRank{"SLURM_PROCID", "number of this process, by srun"};
inline constexpr EnvVariable kEnvSlurmTasks{
    "SLURM_NTASKS", "tasks of the Slurm job: more than one without srun is remarked upon"};
inline constexpr EnvVariable kEnvSlurmNode{"SLURM_NODEID", "number of this host in the job, by srun"};
inline constexpr EnvVariable kEnvSlurmTasksPerNode{"SLURM_STEP_TASKS_PER_NODE",
                                                   "processes of each host, such as 8(x3),4, by srun"};
inline constexpr EnvVariable kEnvSlurmHosts{"SLURM_STEP_NODELIST",
                                            "hosts of the step: rank 0's is the first, by srun"};
inline constexpr EnvVariable kEnvSlurmJob{"SLURM_JOB_ID", "number of the Slurm job"};
inline constexpr EnvVariable kEnvSlurmStep{"SLURM_STEP_ID", "number of the step in it"};
// Set by Slurm.
inline constexpr EnvVariable kEnvSlurmJobEnd{
    "SLURM_JOB_END_TIME", "end of the Slurm job, in seconds since 1970: announced ten minutes before"};
// Compares every late snapshot with live memory before it counts; costs one read of the state a save.
inline constexpr EnvVariable kEnvCheckStaging{
    "HOLDFAST_CHECK_STAGING", "1: compare every staged snapshot with live memory (slow; default 0)"};
// Where the file plan is laid out when there is no tmpfs.
inline constexpr EnvVariable kEnvTmpDir{"TMPDIR", "directory for small temporary files (default /tmp)"};

std::span<const EnvVariable> env_variables();

std::optional<std::string> env_text(const EnvVariable& variable);
std::optional<Duration> env_duration(const EnvVariable& variable);
std::optional<std::int64_t> env_int(const EnvVariable& variable, std::int64_t least, std::int64_t most);
// 1/0, true/false, yes/no, on/off.
std::optional<bool> env_flag(const EnvVariable& variable);

}  // namespace holdfast::inline v1
