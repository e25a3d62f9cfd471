// Every environment variable that Holdfast reads, in one place. No other file calls getenv. Variables of
// cloud providers are in their table (interruption/cloud_providers.h).
//
// A variable that is unset or empty counts as not given. A malformed value throws UsageError, which names the
// variable, the value and the expected form. Only the log has a silent default (configure_log() in log.h).
// Threads: readers may be called from any thread while no thread calls setenv.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"

namespace holdfast { inline namespace v0_2 {

struct EnvVariable {
  const char* name;
  const char* meaning;  // one line, for --help and docs/command_line.md
};

inline constexpr EnvVariable kEnvLog{"HOLDFAST_LOG",
                                     "what is logged: debug, info (default), warning, error, off"};
// See base/log.h.
inline constexpr EnvVariable kEnvLogFormat{
    "HOLDFAST_LOG_FORMAT",
    "text (default; with the time, unless standard error is a terminal) or json: one object a line"};
// From SIGTERM or SIGINT to the end of the process. It has priority over the program's own setting.
// interruption/term_grace.h lists the grace periods of platforms.
inline constexpr EnvVariable kEnvTermGrace{
    "HOLDFAST_TERM_GRACE",
    "time from SIGTERM to the process's end, e.g. 2min (default 25s, in a container 10s)"};
// See interruption/stop_signals.h.
inline constexpr EnvVariable kEnvStopSignals{
    "HOLDFAST_STOP_SIGNALS",
    "signals that mean stop beside TERM and INT, of HUP,USR1,USR2,XCPU (default HUP,USR2,XCPU)"};
// Kubernetes sets it in every pod.
inline constexpr EnvVariable kEnvKubernetesHost{"KUBERNETES_SERVICE_HOST",
                                                "set by Kubernetes: this is a container"};
// A second notice file, watched beside the program's own. interruption/notice_file.h has its format.
inline constexpr EnvVariable kEnvNoticeFile{
    "HOLDFAST_NOTICE_FILE", "file whose appearance announces an interruption (empty, or JSON; default none)"};
// interruption/sources.h lists the sources and the default.
inline constexpr EnvVariable kEnvSources{
    "HOLDFAST_SOURCES",
    "interruption sources, of signal,file,deadline,cloud and providers, such as ec2 (default "
    "signal,file,deadline,cloud); signals are heard in any case"};
// See interruption/required_sight.h.
inline constexpr EnvVariable kEnvRequireSource{"HOLDFAST_REQUIRE_SOURCE",
                                               "sources, such as ec2, without which no run starts: 75 while "
                                               "one is silent, 78 where there is none (default none)"};
// See interruption/azure_source.h.
inline constexpr EnvVariable kEnvApproveEnd{
    "HOLDFAST_APPROVE_END",
    "1: in the pause before an end that Azure announces, tell Azure that the machine may go (default 0)"};
// Launchers set the following. base/launch_environment.h says which launcher sets which. The first three also
// decide which process of a host polls a metadata service.
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
// NCCL's own. See docs/several_gpus.md.
inline constexpr EnvVariable kEnvNcclMultiRank{
    "NCCL_MULTI_RANK_GPU_ENABLE", "1: several ranks may share a GPU, for tests (needs NCCL 2.30; default 0)"};
inline constexpr EnvVariable kEnvOmpThreads{
    "OMP_NUM_THREADS", "threads of each process's computations (holdfast launch: cores / processes)"};
inline constexpr EnvVariable kEnvElasticRun{"TORCHELASTIC_RUN_ID", "torchrun's name for the job"};
inline constexpr EnvVariable kEnvElasticStore{
    "TORCHELASTIC_USE_AGENT_STORE", "True: torchrun itself keeps the store at MASTER_ADDR:MASTER_PORT"};
inline constexpr EnvVariable kEnvElasticErrorFile{
    "TORCHELASTIC_ERROR_FILE",
    "torchrun's file for why a process ended with an error: one sentence, in JSON"};
inline constexpr EnvVariable kEnvLaunchJob{"HOLDFAST_LAUNCH_JOB", "holdfast launch's name for the job"};
// It has priority over the program's own setting. Raise it where machines pause for longer without a notice.
// Cost: the ranks notice a lost rank that much later.
inline constexpr EnvVariable kEnvSilence{
    "HOLDFAST_SILENCE",
    "time without a sign of life after which a rank counts as lost, the same in all processes (default 6s)"};
inline constexpr EnvVariable kEnvLaunchSocket{
    "HOLDFAST_LAUNCH_SOCKET", "rank 0's socket that listens on MASTER_PORT, by holdfast launch"};
inline constexpr EnvVariable kEnvJobSecret{"HOLDFAST_JOB_SECRET",
                                           "of 0.1; has no effect, and rank 0 says so"};
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
    "SLURM_STEP_NUM_TASKS", "number of processes that srun has started; unset without srun"};
inline constexpr EnvVariable kEnvSlurmRank{"SLURM_PROCID", "number of this process, by srun"};
inline constexpr EnvVariable kEnvSlurmTasks{"SLURM_NTASKS",
                                            "tasks of the Slurm job: more than one without srun is logged"};
inline constexpr EnvVariable kEnvSlurmNode{"SLURM_NODEID", "number of this host in the job, by srun"};
inline constexpr EnvVariable kEnvSlurmTasksPerNode{"SLURM_STEP_TASKS_PER_NODE",
                                                   "processes of each host, such as 8(x3),4, by srun"};
inline constexpr EnvVariable kEnvSlurmHosts{"SLURM_STEP_NODELIST",
                                            "hosts of the step: rank 0's is the first, by srun"};
inline constexpr EnvVariable kEnvSlurmJob{"SLURM_JOB_ID", "number of the Slurm job"};
inline constexpr EnvVariable kEnvSlurmStep{"SLURM_STEP_ID", "number of the step in it"};
// Slurm sets it.
inline constexpr EnvVariable kEnvSlurmJobEnd{
    "SLURM_JOB_END_TIME", "end of the Slurm job, in seconds since 1970: announced ten minutes before"};
// See interruption/deadline_source.h.
inline constexpr EnvVariable kEnvDeadlineSignal{
    "HOLDFAST_DEADLINE_SIGNAL",
    "USR1@120: SIGUSR1 announces the end of this process in 120 s, as Slurm's --signal=B:USR1@120 does"};
inline constexpr EnvVariable kEnvSlurmArrayJob{"SLURM_ARRAY_JOB_ID", "number of the Slurm job's array"};
inline constexpr EnvVariable kEnvSlurmArrayTask{
    "SLURM_ARRAY_TASK_ID", "number of the Slurm job in its array; holdfast sweep takes that line"};
// The same of other engines. All of them count from 0.
inline constexpr EnvVariable kEnvBatchArrayIndex{"AWS_BATCH_JOB_ARRAY_INDEX",
                                                 "the same, by AWS Batch in an array job"};
inline constexpr EnvVariable kEnvJobCompletionIndex{"JOB_COMPLETION_INDEX",
                                                    "the same, by Kubernetes in an Indexed Job"};
inline constexpr EnvVariable kEnvSkyPilotJobRank{
    "SKYPILOT_JOB_RANK", "the same, by SkyPilot for several managed jobs of one file"};
inline constexpr EnvVariable kEnvVisibleDevices{
    "CUDA_VISIBLE_DEVICES",
    "GPUs or MIG slices that this process may use; a local holdfast sweep divides them among its runs"};
// `holdfast supervise` sets the next three for the command that it runs.
inline constexpr EnvVariable kEnvSupervisor{
    "HOLDFAST_SUPERVISOR",
    "holdfast supervise's name for this life of the command; stands in the run's claim"};
inline constexpr EnvVariable kEnvSupervisedSince{"HOLDFAST_SUPERVISED_SINCE",
                                                 "when holdfast supervise began, in seconds since 1970: "
                                                 "max_wall counts from there, for all lives together"};
inline constexpr EnvVariable kEnvSupervisedUptime{"HOLDFAST_SUPERVISED_UPTIME",
                                                  "the same as <seconds since the machine's start>/<boot "
                                                  "id>: counts on that start of the machine, whose wall "
                                                  "clock may be set"};
inline constexpr EnvVariable kEnvMirrorHome{
    "HOLDFAST_MIRROR_HOME",
    "the HOME of holdfast supervise --mirror. It has prepared the start in its run directory: "
    "there a trainer's own home option is ignored"};
// `holdfast supervise --standby` sets these two. See docs/standby.md.
inline constexpr EnvVariable kEnvStandby{
    "HOLDFAST_STANDBY",
    "1: this program stands by: its resume() claims nothing while another attempt holds the run (default 0)"};
inline constexpr EnvVariable kEnvTakeoverAfter{
    "HOLDFAST_TAKEOVER_AFTER",
    "how long the holder of the run gives no sign before a standby takes over (default: for ever)"};
// See WritingOptions::give_up_unsaved.
inline constexpr EnvVariable kEnvGiveUpUnsaved{"HOLDFAST_GIVE_UP_UNSAVED",
                                               "time after which a run whose saves fail ends with 74; 0s: "
                                               "never (default never; under holdfast supervise "
                                               "1h, if the reason cannot pass by itself)"};
// See train/trainer.h.
inline constexpr EnvVariable kEnvLateResults{
    "HOLDFAST_LATE_RESULTS",
    "1 or 0: learn a step's loss one step late, or at once (default: late if the model is on a GPU)"};
// Where compiled GPU kernels are kept. kernels/kernel_cache.h has the rules.
inline constexpr EnvVariable kEnvKernelCache{
    "HOLDFAST_KERNEL_CACHE",
    "folder where GPU kernels are kept beside the run, too, by holdfast supervise --directory"};
inline constexpr EnvVariable kEnvCacheHome{
    "XDG_CACHE_HOME", "folder of caches; GPU kernels are kept in holdfast/kernels (default ~/.cache)"};
inline constexpr EnvVariable kEnvHome{"HOME", "home folder, for the caches"};
// See Checkpointer::before_update(). Cost: a save copies the whole state in after_step(), and reads it once
// more.
inline constexpr EnvVariable kEnvCheckStaging{
    "HOLDFAST_CHECK_STAGING", "1: compare every staged snapshot with live memory (slow; default 0)"};
// `holdfast check` sets it for the program that it runs.
inline constexpr EnvVariable kEnvTrial{
    "HOLDFAST_TRIAL", "folder of a trial, by holdfast check; the program's own run directory is not used"};
// Conventions of terminals. NO_COLOR counts if it is not empty.
inline constexpr EnvVariable kEnvNoColor{"NO_COLOR", "any text: the tools print no colors"};
inline constexpr EnvVariable kEnvTerm{"TERM", "the terminal's kind; dumb: no colors"};
// Directory for the file plan's layout where the machine has no tmpfs.
inline constexpr EnvVariable kEnvTmpDir{"TMPDIR", "directory for small temporary files (default /tmp)"};

HOLDFAST_EXPORT std::span<const EnvVariable> env_variables();

HOLDFAST_EXPORT std::optional<std::string> env_text(const EnvVariable& variable);
HOLDFAST_EXPORT std::optional<Duration> env_duration(const EnvVariable& variable);  // "2min" (text.h)
HOLDFAST_EXPORT std::optional<std::int64_t> env_int(const EnvVariable& variable, std::int64_t least,
                                                    std::int64_t most);  // both bounds included
// Accepts 1/0, true/false, yes/no and on/off, in letters of either case.
HOLDFAST_EXPORT std::optional<bool> env_flag(const EnvVariable& variable);

// Environment of a child process, each entry as NAME=value: ours, minus `without`, plus `added`.
HOLDFAST_EXPORT std::vector<std::string> environment_for_child(
    const std::map<std::string, std::string>& added, const std::vector<std::string>& without = {});

}}  // namespace holdfast::v0_2
