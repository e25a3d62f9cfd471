#include "holdfast/interruption/term_grace.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

#include "holdfast/base/env.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Parts of a control group's path. Outside containers process 1 is in / or /init.scope.
constexpr std::array<std::string_view, 7> kContainerGroups{"docker", "kubepods", "containerd", "libpod",
                                                           "crio",   "/lxc",     "garden"};

}  // namespace

bool in_a_container(const std::filesystem::path& system_root) {
  // Kubernetes sets this variable in every container.
  if (env_text(kEnvKubernetesHost)) return true;
  for (const char* const mark : {".dockerenv", "run/.containerenv"}) {
    std::error_code unreadable;
    if (std::filesystem::exists(system_root / mark, unreadable)) return true;
  }
  // Control groups of version 1 and older runtimes name themselves there.
  std::ifstream file(system_root / "proc/1/cgroup");
  const std::string groups{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return std::any_of(kContainerGroups.begin(), kContainerGroups.end(),
                     [&](std::string_view name) { return groups.find(name) != std::string::npos; });
}

TermGrace term_grace(std::optional<Duration> by_program, const std::filesystem::path& system_root) {
  // The environment wins over the program: it belongs to the place, and the program to all places.
  const auto by_environment = env_duration(kEnvTermGrace);
  if (const auto named = by_environment ? by_environment : by_program) {
    // torchrun sends SIGKILL 30 s after it has passed SIGTERM on, and has no option for that.
    const bool cut = *named > kDefaultTermGrace && env_text(kEnvElasticRun);
    return {.time = cut ? kDefaultTermGrace : *named, .guessed = false, .cut = cut};
  }
  return {.time = in_a_container(system_root) ? kContainerTermGrace : kDefaultTermGrace, .guessed = true};
}

}}  // namespace holdfast::v0_2
