#include "holdfast/cli/supervise/predecessor.h"

#include <random>
#include <string>

#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Parses "4711.123456.<random>/2/": the supervisor's process. The PID namespace is not in it; the trainer's
// is used.
std::optional<ProcessIdentity> supervisor_in(const std::string& name, std::uint64_t pid_namespace) {
  const std::size_t pid_ends = name.find('.');
  const std::size_t start_ends = pid_ends == std::string::npos ? pid_ends : name.find('.', pid_ends + 1);
  if (start_ends == std::string::npos) return std::nullopt;
  const auto pid = parse_int(name.substr(0, pid_ends));
  const auto started = parse_int(name.substr(pid_ends + 1, start_ends - pid_ends - 1));
  if (!pid || !started || *pid <= 0 || *started <= 0) return std::nullopt;
  return ProcessIdentity{
      .pid = *pid, .started = static_cast<std::uint64_t>(*started), .pid_namespace = pid_namespace};
}

}  // namespace

std::optional<ProcessIdentity> orphaned_trainer(const RunNews& news) {
  if (news.attempts.empty()) return std::nullopt;
  const Claimant& claimant = news.attempts.front().claimant;
  // A process number means something only within one boot of one machine.
  if (claimant.boot_id.empty() || claimant.boot_id != boot_id()) return std::nullopt;
  const auto supervisor = supervisor_in(claimant.supervisor, claimant.process.pid_namespace);
  // A claim without a supervisor's name is that of a trainer that nobody supervises.
  if (!supervisor || is_running(*supervisor) || !is_running(claimant.process)) return std::nullopt;
  return claimant.process;
}

std::string new_supervisor_name() {
  const ProcessIdentity own = own_process();
  // Two containers may give the same number and start time to their supervisors.
  std::random_device random;
  std::string text = std::to_string(own.pid) + "." + std::to_string(own.started) + ".";
  for (int i = 0; i < 4; ++i) {
    std::uint32_t bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) text += "0123456789abcdef"[bits & 15];
  }
  return text;
}

}}  // namespace holdfast::v0_2
