#include "holdfast/base/process/process_identity.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The inode behind this link names the namespace. stat() follows the link, so st_ino is the namespace's own.
std::uint64_t own_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::uint64_t>(status.st_ino) : 0;
}

}  // namespace

std::uint64_t start_of_process(std::int64_t pid) { return start_of_process(std::to_string(pid)); }

std::uint64_t start_of_process(const std::string& entry) {
  std::string text;
  std::getline(std::ifstream("/proc/" + entry + "/stat"), text);
  // Field 2 is a name in parentheses that may hold any byte, so count from its end. Field 22 is the start.
  const std::size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string state;
  fields >> state;
  // A zombie (Z) or dead process (X) holds its number, but runs no code any more.
  if (state == "Z" || state == "X") return 0;
  std::string field;
  for (int i = 4; i <= 22; ++i) fields >> field;
  // Not >> into a number: where the program's locale groups digits by spaces, that takes the next field, too.
  return static_cast<std::uint64_t>(parse_int(field).value_or(0));
}

ProcessIdentity own_process() {
  const std::int64_t pid = getpid();
  return {.pid = pid, .started = start_of_process(pid), .pid_namespace = own_namespace()};
}

bool is_running(const ProcessIdentity& process) {
  // Zero stands for an unknown value, and two unknown values must not be taken for the same process.
  if (process.pid <= 0 || process.started == 0 || process.pid_namespace == 0) return false;
  return process.pid_namespace == own_namespace() && start_of_process(process.pid) == process.started;
}

// The descriptor names one process for good. Its number cannot pass to another between the check and the
// signal.
bool signal_process(const ProcessIdentity& process, int signal) {
  if (process.pid <= 0) return false;
  // By system call, because glibc has wrappers only since 2.36. The kernel has both calls since 5.3.
  const auto held = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0U));
  if (held < 0) return false;
  // Checked while the descriptor is held: if the number was reused before, the start time differs.
  const bool sent = is_running(process) && syscall(SYS_pidfd_send_signal, held, signal, nullptr, 0U) == 0;
  close(held);
  return sent;
}

}}  // namespace holdfast::v0_2
