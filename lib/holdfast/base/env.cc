#include "holdfast/base/env.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {
// launch_environment() reads every variable of this list, so a variable that is missing here is never seen.

constexpr std::array kAll{kEnvLog,
                          kEnvLogFormat,
                          kEnvTermGrace,
                          kEnvStopSignals,
                          kEnvKubernetesHost,
                          kEnvNoticeFile,
                          kEnvSources,
                          kEnvRequireSource,
                          kEnvApproveEnd,
                          kEnvLocalRank,
                          kEnvOpenMpiLocalRank,
                          kEnvSlurmLocalId,
                          kEnvRank,
                          kEnvWorldSize,
                          kEnvLocalWorldSize,
                          kEnvMasterAddress,
                          kEnvMasterPort,
                          kEnvGlooInterface,
                          kEnvNcclMultiRank,
                          kEnvOmpThreads,
                          kEnvElasticRun,
                          kEnvElasticStore,
                          kEnvElasticErrorFile,
                          kEnvLaunchJob,
                          kEnvSilence,
                          kEnvLaunchSocket,
                          kEnvJobSecret,
                          kEnvOpenMpiRank,
                          kEnvOpenMpiSize,
                          kEnvOpenMpiLocalSize,
                          kEnvPmixNamespace,
                          kEnvMpichRank,
                          kEnvMpichSize,
                          kEnvMpichLocalRank,
                          kEnvMpichLocalSize,
                          kEnvSlurmStepTasks,
                          kEnvSlurmRank,
                          kEnvSlurmTasks,
                          kEnvSlurmNode,
                          kEnvSlurmTasksPerNode,
                          kEnvSlurmHosts,
                          kEnvSlurmJob,
                          kEnvSlurmStep,
                          kEnvSlurmJobEnd,
                          kEnvDeadlineSignal,
                          kEnvSlurmArrayJob,
                          kEnvSlurmArrayTask,
                          kEnvBatchArrayIndex,
                          kEnvJobCompletionIndex,
                          kEnvSkyPilotJobRank,
                          kEnvVisibleDevices,
                          kEnvSupervisor,
                          kEnvSupervisedSince,
                          kEnvSupervisedUptime,
                          kEnvMirrorHome,
                          kEnvStandby,
                          kEnvTakeoverAfter,
                          kEnvGiveUpUnsaved,
                          kEnvLateResults,
                          kEnvKernelCache,
                          kEnvCacheHome,
                          kEnvHome,
                          kEnvCheckStaging,
                          kEnvTrial,
                          kEnvNoColor,
                          kEnvTerm,
                          kEnvTmpDir};

// A wrong value ends the start. A grace period that is silently ignored would show only when the machine
// ends.
[[noreturn]] void refuse(const EnvVariable& variable, const std::string& value, const std::string& wanted) {
  throw UsageError("environment variable " + std::string(variable.name) + "=" + value + ": expected " +
                   wanted);
}

}  // namespace

std::span<const EnvVariable> env_variables() { return kAll; }

std::optional<std::string> env_text(const EnvVariable& variable) {
  const char* value = std::getenv(variable.name);
  // An empty variable counts as unset: scripts and container specifications clear variables that way.
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

std::optional<Duration> env_duration(const EnvVariable& variable) {
  const auto text = env_text(variable);
  if (!text) return std::nullopt;
  const auto duration = parse_duration(*text);
  if (!duration) refuse(variable, *text, "a duration with its unit, such as 25s or 2min");
  return duration;
}

std::optional<std::int64_t> env_int(const EnvVariable& variable, std::int64_t least, std::int64_t most) {
  const auto text = env_text(variable);
  if (!text) return std::nullopt;
  const auto value = parse_int(*text);
  if (!value || *value < least || *value > most) {
    refuse(variable, *text, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

std::optional<bool> env_flag(const EnvVariable& variable) {
  const auto text = env_text(variable);
  if (!text) return std::nullopt;
  const auto is = [&](const char* word) { return strcasecmp(text->c_str(), word) == 0; };
  if (is("1") || is("true") || is("yes") || is("on")) return true;
  if (is("0") || is("false") || is("no") || is("off")) return false;
  refuse(variable, *text, "1 or 0");
}

std::vector<std::string> environment_for_child(const std::map<std::string, std::string>& added,
                                               const std::vector<std::string>& without) {
  std::vector<std::string> settings;
  // A copy, never setenv(): other threads may call getenv() at this moment.
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool taken = std::find(without.begin(), without.end(), name) != without.end();
    // A name must appear once: which of two entries getenv() returns in the child is not defined.
    if (!taken && !added.contains(name)) settings.push_back(text);
  }
  for (const auto& [name, value] : added) settings.push_back(name + "=" + value);
  return settings;
}

}}  // namespace holdfast::v0_2
