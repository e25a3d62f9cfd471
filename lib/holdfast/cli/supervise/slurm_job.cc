#include "holdfast/cli/supervise/slurm_job.h"

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/cli/supervise/end_hook.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

std::optional<std::int64_t> number(const EnvVariable& variable) {
  return env_int(variable, 0, std::numeric_limits<std::int64_t>::max());
}

// $job is set before. While a job ends, `JobState=COMPLETING` hides why: a time limit leaves its reason, a
// preemption its time (else PreemptTime=None). A job that Slurm has requeued shows neither.
constexpr char kRequeue[] = R"sh(
state=$(scontrol show job --oneliner "$job") || exit 1
case $state in
  *JobState=PENDING*) ;;
  *JobState=RUNNING*|*JobState=TIMEOUT*|*Reason=TimeLimit*|*' PreemptTime='[0-9]*) exec scontrol requeue "$job" ;;
esac
echo "holdfast: Slurm job $job is not requeued: Slurm says that it no longer runs (cancelled, or already requeued)" >&2
)sh";

}  // namespace

SlurmJob this_slurm_job() {
  const auto job = number(kEnvSlurmJob);
  if (!job) {
    throw UsageError("--requeue-slurm needs a Slurm batch job, and " + std::string(kEnvSlurmJob.name) +
                     " is not set: leave the option out, or start this by sbatch");
  }
  // scontrol names one task of an array by both numbers.
  const auto array = number(kEnvSlurmArrayJob);
  const auto task = number(kEnvSlurmArrayTask);
  if (array && task) return {std::to_string(*array) + "_" + std::to_string(*task)};
  return {std::to_string(*job)};
}

bool requeue(const SlurmJob& job, const HookContext& context, SignalInbox& inbox) {
  // Below Slurm's KillWait of 30 s, after which it kills this process as well.
  const EndHookOptions options{.limit = 20s, .longest_delay = 5s};
  if (run_end_hook("job=" + job.name + kRequeue, context, options, inbox)) {
    log_info("asked Slurm about job {}: it continues there, unless somebody cancelled it", job.name);
    return true;
  }
  log_error(
      "Slurm job {} could not be requeued; the run is safe: submit it again, or ask the administrator for "
      "RequeueExit=75",
      job.name);
  return false;
}

}}  // namespace holdfast::v0_2
