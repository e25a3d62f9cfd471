#include "holdfast/base/env.h"

#include <array>
#include <cstdlib>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"

namespace holdfast::inline v1 {
namespace {

constexpr std::array kAll{kEnvLog,
                          kEnvTermGrace,
                          kEnvNoticeFile,
                          kEnvSources,
                          kEnvEc2Endpoint,
                          kEnvEc2Disabled,
                          kEnvGcpHost,
                          kEnvAzureEndpoint,
                          kEnvLocalRank,
                          kEnvOpenMpiLocalRank,
                          kEnvSlurmLocalId,
                          kEnvRank,
                          kEnvWorldSize,
                          kEnvLocalWorldSize,
                          kEnvMasterAddress,
                          kEnvMasterPort,
                          kEnvGlooInterface,
                          kEnvOmpThreads,
                          kEnvElasticRun,
                          kEnvElasticRestart,
                          kEnvElasticStore,
                          kEnvElasticErrorFile,
                          kEnvLaunchJob,
                          kEnvLaunchSocket,
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
                          kEnvCheckStaging,
                          kEnvTmpDir};

[[noreturn]] void refuse(const EnvVariable& variable, const std::string& value, const std::string& wanted) {
  throw UsageError("environment variable " + std::string(variable.name) + "=" + value + ": expected " +
                   wanted);
}

}  // namespace

std::span<const EnvVariable> env_variables() { return kAll; }

std::optional<std::string> env_text(const EnvVariable& variable) {
  const char* value = std::getenv(variable.name);
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
  if (*text == "1" || *text == "true" || *text == "yes" || *text == "on") return true;
  if (*text == "0" || *text == "false" || *text == "no" || *text == "off") return false;
  refuse(variable, *text, "1 or 0");
}

}  // namespace holdfast::inline v1
