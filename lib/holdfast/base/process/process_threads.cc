#include "holdfast/base/process/process_threads.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>
#include <utility>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A training on many cores has a few hundred; more say nothing new.
constexpr std::size_t kMostThreads = 512;
constexpr std::size_t kMostMappings = 20'000;
constexpr unsigned kCapabilityToTrace = 19;  // CAP_SYS_PTRACE

// The calls in which threads wait. Others appear by their number.
constexpr std::array<std::pair<long, const char*>, 24> kCalls{{{SYS_futex, "futex"},
                                                               {SYS_read, "read"},
                                                               {SYS_write, "write"},
                                                               {SYS_pread64, "pread64"},
                                                               {SYS_pwrite64, "pwrite64"},
                                                               {SYS_readv, "readv"},
                                                               {SYS_writev, "writev"},
                                                               {SYS_openat, "openat"},
                                                               {SYS_close, "close"},
                                                               {SYS_fsync, "fsync"},
                                                               {SYS_fdatasync, "fdatasync"},
                                                               {SYS_newfstatat, "newfstatat"},
                                                               {SYS_statx, "statx"},
                                                               {SYS_getdents64, "getdents64"},
                                                               {SYS_ioctl, "ioctl"},
                                                               {SYS_ppoll, "ppoll"},
                                                               {SYS_pselect6, "pselect6"},
                                                               {SYS_epoll_pwait, "epoll_pwait"},
                                                               {SYS_recvfrom, "recvfrom"},
                                                               {SYS_recvmsg, "recvmsg"},
                                                               {SYS_accept4, "accept4"},
                                                               {SYS_clock_nanosleep, "clock_nanosleep"},
                                                               {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
                                                               {SYS_wait4, "wait4"}}};

std::string call_name(std::int64_t number) {
#ifdef SYS_poll
  // Calls that newer architectures do not have.
  if (number == SYS_poll) return "poll";
  if (number == SYS_select) return "select";
  if (number == SYS_epoll_wait) return "epoll_wait";
#endif
  for (const auto& [known, name] : kCalls) {
    if (known == number) return name;
  }
  return "system call " + std::to_string(number);
}

struct ReadEntry {
  std::string text = {};
  int error = 0;
};

ReadEntry read_entry(const std::string& file) {
  // An ifstream hides the reason, which decides what the text says.
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  ReadEntry entry;
  std::ostringstream text;
  if (stream) text << stream.rdbuf();
  entry.text = std::move(text).str();
  if (entry.text.empty()) entry.error = errno;
  while (!entry.text.empty() && entry.text.back() == '\n') entry.text.pop_back();
  return entry;
}

std::string entry_of(pid_t process, const std::string& name) {
  return "/proc/" + std::to_string(process) + "/" + name;
}

// The files of the code of a process, by address.
class CodeFiles {
 public:
  explicit CodeFiles(pid_t process) {
    std::ifstream maps(entry_of(process, "maps"));
    // "7f00-7f10 r-xp 00001000 08:01 42   /lib/libc.so.6"
    for (std::string line; all_.size() < kMostMappings && std::getline(maps, line);) {
      std::istringstream words(line);
      std::string range;
      std::string rights;
      std::string offset;
      std::string skipped;
      std::string file;
      words >> range >> rights >> offset >> skipped >> skipped >> file;
      const auto dash = range.find('-');
      if (dash == std::string::npos || rights.find('x') == std::string::npos || file.empty()) continue;
      all_.push_back({.begin = hex(range.substr(0, dash)),
                      .end = hex(range.substr(dash + 1)),
                      .offset = hex(offset),
                      .file = file.substr(file.rfind('/') + 1)});
    }
  }
  // "libc.so.6+0x10a3": an address that addr2line takes.
  std::string at(const std::string& address) const {
    const std::uint64_t value = hex(address);
    for (const Mapping& one : all_) {
      if (value < one.begin || value >= one.end) continue;
      std::ostringstream text;
      text.imbue(std::locale::classic());
      text << one.file << "+0x" << std::hex << value - one.begin + one.offset;
      return text.str();
    }
    return {};
  }

 private:
  struct Mapping {
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t offset;
    std::string file;
  };
  static std::uint64_t hex(const std::string& text) {
    return std::strtoull(text.c_str(), nullptr, 16);  // NOLINT(cert-err34-c): the kernel wrote it
  }
  std::vector<Mapping> all_;
};

// "in futex, called at libc.so.6+0x8a1; "; empty: it runs, or is unknown.
std::string call_text(const std::string& entry, const CodeFiles& code) {
  // "202 0x7f01 0x80 … SP PC", or "running", or "-1 SP PC" for a thread that waits outside a call.
  std::istringstream words(entry);
  std::vector<std::string> word;
  for (std::string one; words >> one;) word.push_back(one);
  if (word.size() < 3) return {};
  const auto number = parse_int(word.front());
  const std::string from = code.at(word.back());
  std::string text =
      number && *number >= 0 ? ", in " + call_name(*number) : std::string(", in no system call");
  if (word.size() == 9) text += "(" + word[1] + ", " + word[2] + ", " + word[3] + ")";
  return text + (from.empty() ? "" : ", called at " + from);
}

// "futex_wait_queue < do_futex < …" of lines such as "[<0>] futex_wait_queue+0x5d/0x90".
std::string kernel_stack(const std::string& lines) {
  std::istringstream text(lines);
  std::string stack;
  for (std::string line; std::getline(text, line);) {
    const auto begin = line.find("] ");
    if (begin == std::string::npos) continue;
    if (!stack.empty()) stack += " < ";
    stack += line.substr(begin + 2, line.find('+', begin) - begin - 2);
  }
  return stack;
}

struct ThreadTimes {
  char state = 0;
  double cpu_seconds = 0;
};

ThreadTimes times_in(const std::string& stat) {
  // The name in parentheses may hold any byte.
  const auto name_ends = stat.rfind(')');
  if (name_ends == std::string::npos || name_ends + 2 >= stat.size()) return {};
  std::istringstream fields(stat.substr(name_ends + 2));
  fields.imbue(std::locale::classic());
  std::string field;
  ThreadTimes times;
  fields >> times.state;
  for (int i = 4; i < 14; ++i) fields >> field;
  std::uint64_t user = 0;
  std::uint64_t kernel = 0;
  fields >> user >> kernel;
  times.cpu_seconds = static_cast<double>(user + kernel) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return times;
}

bool may_trace_anything() {
  std::istringstream status(read_entry("/proc/self/status").text);
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    return (std::strtoull(line.c_str() + 7, nullptr, 16) >> kCapabilityToTrace & 1U) != 0;
  }
  return false;
}

}  // namespace

std::vector<pid_t> thread_ids(pid_t process) {
  std::vector<pid_t> ids;
  std::error_code gone;
  for (std::filesystem::directory_iterator at(entry_of(process, "task"), gone), end; !gone && at != end;
       at.increment(gone)) {
    if (const auto id = parse_int(at->path().filename().native())) ids.push_back(static_cast<pid_t>(*id));
  }
  // First the one that began the process: in most programs it trains.
  std::sort(ids.begin(), ids.end(), [process](pid_t one, pid_t other) {
    return std::pair(one != process, one) < std::pair(other != process, other);
  });
  return ids;
}

std::string threads_of(pid_t process) {
  const CodeFiles code(process);
  const std::vector<pid_t> ids = thread_ids(process);
  std::string text;
  int refused = 0;
  for (std::size_t i = 0; i < std::min(ids.size(), kMostThreads); ++i) {
    const std::string folder = "task/" + std::to_string(ids[i]) + "/";
    const ThreadTimes times = times_in(read_entry(entry_of(process, folder + "stat")).text);
    if (times.state == 0) continue;  // it has ended
    const std::string wait = read_entry(entry_of(process, folder + "wchan")).text;
    const ReadEntry call = read_entry(entry_of(process, folder + "syscall"));
    const ReadEntry stack = read_entry(entry_of(process, folder + "stack"));
    if (call.error != 0) refused = call.error;
    text += "thread " + std::to_string(ids[i]) + " " +
            printable(read_entry(entry_of(process, folder + "comm")).text) + ": " +
            (times.state == 'R' ? "runs" : std::string("state ") + times.state) + ", " +
            format_number(times.cpu_seconds) + " s of CPU";
    if (!wait.empty() && wait != "0") text += ", waits in " + printable(wait);
    text += call_text(call.text, code) + "\n";
    const std::string frames = kernel_stack(stack.text);
    if (!frames.empty()) text += "  kernel: " + printable(frames, 1000) + "\n";
  }
  if (ids.size() > kMostThreads) {
    text += std::to_string(ids.size() - kMostThreads) + " more threads are left out\n";
  }
  if (refused != 0) {
    const std::string why = why_not_traced();
    text += std::string("its system calls cannot be read: ") + std::strerror(refused) +
            (why.empty() ? "" : "; " + why) + "\n";
  }
  return text;
}

std::string command_of(pid_t process) {
  std::string text = read_entry(entry_of(process, "cmdline")).text;
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return printable(text, 1000);
}

char state_of(pid_t process) { return times_in(read_entry(entry_of(process, "stat")).text).state; }

std::string why_not_traced() {
  if (may_trace_anything()) return {};
  const std::string scope = read_entry("/proc/sys/kernel/yama/ptrace_scope").text;
  if (!scope.empty() && scope != "0") {
    return "kernel.yama.ptrace_scope is " + scope +
           ": let the command be the trainer itself (exec in a script), give the container SYS_PTRACE, or "
           "set "
           "it to 0 (sysctl)";
  }
  return "run as the trainer's user, or give the container the capability SYS_PTRACE";
}

}}  // namespace holdfast::v0_2
