#include "support/changing_call.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <system_error>

namespace holdfast::test {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kFilteredArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kFilteredArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "which architecture is this?"
#endif
constexpr std::uint32_t kOtherNumbers = 0x40000000;  // x32 calls count from here on

enum class About {
  descriptor,        // argument `at` is one
  close,             // of a descriptor; counts when it was opened for writing
  control,           // ioctl; counts when it shares blocks between files
  path,              // argument `at`, relative to the working directory
  in_directory,      // argument `at` is a directory's descriptor, the next one a path
  open_how,          // the same, with the flags in memory
  two_paths,         // arguments 0 and 1
  two_in_directory,  // arguments 0 to 3
  mapping,           // of a descriptor opened for writing
  hidden,            // wherever it leads
};

struct Rule {
  long number;
  const char* name;
  About about;
  int at = 0;
  // Concerns us only with one of these bits in that argument.
  int flags_at = -1;
  std::uint32_t flags = 0;
};

constexpr std::uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;

#define HOLDFAST_CALL(name) SYS_##name, #name
constexpr Rule kRules[] = {
    {HOLDFAST_CALL(openat), About::in_directory, 0, 2, kWriting},
    {HOLDFAST_CALL(openat2), About::open_how},
    {HOLDFAST_CALL(write), About::descriptor},
    {HOLDFAST_CALL(pwrite64), About::descriptor},
    {HOLDFAST_CALL(writev), About::descriptor},
    {HOLDFAST_CALL(pwritev), About::descriptor},
    {HOLDFAST_CALL(pwritev2), About::descriptor},
    {HOLDFAST_CALL(sendfile), About::descriptor},
    {HOLDFAST_CALL(splice), About::descriptor, 2},
    {HOLDFAST_CALL(copy_file_range), About::descriptor, 2},
    {HOLDFAST_CALL(ioctl), About::control},
    {HOLDFAST_CALL(fsync), About::descriptor},
    {HOLDFAST_CALL(fdatasync), About::descriptor},
    {HOLDFAST_CALL(sync_file_range), About::descriptor},
    {HOLDFAST_CALL(syncfs), About::descriptor},
    {HOLDFAST_CALL(ftruncate), About::descriptor},
    {HOLDFAST_CALL(fallocate), About::descriptor},
    {HOLDFAST_CALL(fchmod), About::descriptor},
    {HOLDFAST_CALL(fchown), About::descriptor},
    {HOLDFAST_CALL(fsetxattr), About::descriptor},
    {HOLDFAST_CALL(fremovexattr), About::descriptor},
    {HOLDFAST_CALL(close), About::close},
    {HOLDFAST_CALL(truncate), About::path},
    {HOLDFAST_CALL(setxattr), About::path},
    {HOLDFAST_CALL(lsetxattr), About::path},
    {HOLDFAST_CALL(removexattr), About::path},
    {HOLDFAST_CALL(lremovexattr), About::path},
    {HOLDFAST_CALL(mkdirat), About::in_directory},
    {HOLDFAST_CALL(mknodat), About::in_directory},
    {HOLDFAST_CALL(unlinkat), About::in_directory},
    {HOLDFAST_CALL(fchmodat), About::in_directory},
    {452, "fchmodat2", About::in_directory},  // newer than some headers
    {HOLDFAST_CALL(fchownat), About::in_directory},
    {HOLDFAST_CALL(utimensat), About::in_directory},
    {HOLDFAST_CALL(symlinkat), About::in_directory, 1},
    {HOLDFAST_CALL(linkat), About::two_in_directory},
    {HOLDFAST_CALL(renameat2), About::two_in_directory},
    {HOLDFAST_CALL(renameat), About::two_in_directory},
    {HOLDFAST_CALL(mmap), About::mapping, 4, 3, MAP_SHARED},
    {HOLDFAST_CALL(io_uring_setup), About::hidden},
    {HOLDFAST_CALL(open_by_handle_at), About::hidden},
#if defined(__x86_64__)
    {HOLDFAST_CALL(open), About::path, 0, 1, kWriting},
    {HOLDFAST_CALL(creat), About::path},
    {HOLDFAST_CALL(mkdir), About::path},
    {HOLDFAST_CALL(mknod), About::path},
    {HOLDFAST_CALL(rmdir), About::path},
    {HOLDFAST_CALL(unlink), About::path},
    {HOLDFAST_CALL(chmod), About::path},
    {HOLDFAST_CALL(chown), About::path},
    {HOLDFAST_CALL(lchown), About::path},
    {HOLDFAST_CALL(utime), About::path},
    {HOLDFAST_CALL(utimes), About::path},
    {HOLDFAST_CALL(futimesat), About::in_directory},
    {HOLDFAST_CALL(symlink), About::path, 1},
    {HOLDFAST_CALL(link), About::two_paths},
    {HOLDFAST_CALL(rename), About::two_paths},
#endif
};
#undef HOLDFAST_CALL

std::string link_text(const std::string& link) {
  std::array<char, 4096> text{};
  const ssize_t length = ::readlink(link.c_str(), text.data(), text.size());
  return length < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(length));
}

std::string process(pid_t thread, const std::string& what) {
  return "/proc/" + std::to_string(thread) + "/" + what;
}

std::string path_of(pid_t thread, int descriptor) {
  return link_text(descriptor == AT_FDCWD ? process(thread, "cwd")
                                          : process(thread, "fd/" + std::to_string(descriptor)));
}

bool opened_for_writing(pid_t thread, int descriptor) {
  std::ifstream in(process(thread, "fdinfo/" + std::to_string(descriptor)));
  for (std::string word; in >> word;) {
    if (word != "flags:") continue;
    unsigned flags = 0;
    in >> std::oct >> flags;
    return (flags & O_ACCMODE) != O_RDONLY;
  }
  return false;
}

// As far as the other process has memory there.
std::string bytes_at(pid_t thread, std::uint64_t address, std::size_t count) {
  std::string bytes(count, '\0');
  const iovec here{bytes.data(), count};
  const iovec there{reinterpret_cast<void*>(address), count};  // NOLINT(performance-no-int-to-ptr)
  const ssize_t got = ::process_vm_readv(thread, &here, 1, &there, 1, 0);
  bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return bytes;
}

std::string string_at(pid_t thread, std::uint64_t address) {
  constexpr std::uint64_t kPage = 4096;  // what follows the string's page may not be there
  std::string text;
  while (address != 0 && text.size() < PATH_MAX) {
    const std::string piece = bytes_at(thread, address, kPage - address % kPage);
    const auto end = piece.find('\0');
    text.append(piece, 0, end);
    if (end != std::string::npos || piece.empty()) break;
    address += piece.size();
  }
  return text;
}

// The last name itself may be a link: most of these calls are about the link.
std::string resolved(pid_t thread, int directory, const std::string& path) {
  std::filesystem::path full(path);
  if (full.is_relative()) full = std::filesystem::path(path_of(thread, directory)) / full;
  full = full.lexically_normal();
  if (!full.has_filename()) full = full.parent_path();
  std::error_code failed;
  const auto parent = std::filesystem::weakly_canonical(full.parent_path(), failed);
  return failed ? full.native() : (parent / full.filename()).native();
}

class Reader {
 public:
  Reader(pid_t thread, const std::array<std::uint64_t, 6>& arguments)
      : thread_(thread), arguments_(arguments) {}

  int number(int at) const { return static_cast<int>(arguments_.at(static_cast<std::size_t>(at))); }
  std::string descriptor(int at) const { return path_of(thread_, number(at)); }
  bool for_writing(int at) const { return opened_for_writing(thread_, number(at)); }
  std::string path(int at) const { return resolved(thread_, AT_FDCWD, text(at)); }
  // utimensat() and the like take no path for the descriptor itself.
  std::string in_directory(int at) const {
    const std::string name = text(at + 1);
    return name.empty() ? descriptor(at) : resolved(thread_, number(at), name);
  }
  std::uint64_t how_flags(int at) const {
    const std::string how = bytes_at(thread_, arguments_.at(static_cast<std::size_t>(at)), sizeof(__u64));
    std::uint64_t flags = 0;
    if (how.size() == sizeof flags) std::memcpy(&flags, how.data(), sizeof flags);
    return flags;
  }

 private:
  std::string text(int at) const { return string_at(thread_, arguments_.at(static_cast<std::size_t>(at))); }

  pid_t thread_;
  const std::array<std::uint64_t, 6>& arguments_;
};

bool beneath(const std::string& path, const std::string& folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

bool shares_blocks(int request) { return ((request >> 8) & 0xff) == 0x94; }  // FICLONE and its family

}  // namespace

std::string ChangingCall::text() const {
  return name + " " + path + (to.empty() ? "" : " -> " + to) + (hidden ? " (hidden)" : "");
}

std::vector<sock_filter> changing_calls_filter() {
  const auto low_word = [](int argument) {
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the low word of an argument lies elsewhere"
#endif
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8u * static_cast<unsigned>(argument));
  };
  std::vector<sock_filter> code;
  const auto load = [&](std::uint32_t at) { code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at)); };
  const auto give = [&](std::uint32_t answer) { code.push_back(BPF_STMT(BPF_RET | BPF_K, answer)); };
  load(offsetof(seccomp_data, arch));
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kFilteredArchitecture, 1, 0));
  give(SECCOMP_RET_TRACE);
  load(offsetof(seccomp_data, nr));
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kOtherNumbers, 0, 1));
  give(SECCOMP_RET_TRACE);
  for (const Rule& rule : kRules) {
    const auto number = static_cast<std::uint32_t>(rule.number);
    if (rule.flags == 0) {
      code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1));
      give(SECCOMP_RET_TRACE);
      continue;
    }
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 4));
    load(low_word(rule.flags_at));
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, rule.flags, 0, 1));
    give(SECCOMP_RET_TRACE);
    give(SECCOMP_RET_ALLOW);
  }
  give(SECCOMP_RET_ALLOW);
  return code;
}

std::optional<ChangingCall> changing_call(pid_t thread, bool foreign, std::uint64_t number,
                                          const std::array<std::uint64_t, 6>& arguments,
                                          const std::filesystem::path& folder) {
  if (foreign || number >= kOtherNumbers) {
    return ChangingCall{"call " + std::to_string(number) + " of another architecture", "?", {}, thread, true};
  }
  const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& candidate) {
    return static_cast<std::uint64_t>(candidate.number) == number;
  });
  if (rule == std::end(kRules)) return std::nullopt;
  const Reader read(thread, arguments);
  if (rule->flags != 0 && (static_cast<std::uint32_t>(read.number(rule->flags_at)) & rule->flags) == 0) {
    return std::nullopt;
  }
  ChangingCall call{rule->name, {}, {}, thread, false};
  bool counts = true;
  switch (rule->about) {
    case About::descriptor:
      call.path = read.descriptor(rule->at);
      break;
    case About::close:
      call.path = read.descriptor(rule->at);
      counts = beneath(call.path, folder) && read.for_writing(rule->at);
      break;
    case About::control:
      call.path = read.descriptor(rule->at);
      counts = shares_blocks(read.number(1));
      break;
    case About::path:
      call.path = read.path(rule->at);
      break;
    case About::open_how:
      counts = (read.how_flags(2) & kWriting) != 0;
      call.path = read.in_directory(rule->at);
      break;
    case About::in_directory:
      call.path = read.in_directory(rule->at);
      break;
    case About::two_paths:
      call.path = read.path(0);
      call.to = read.path(1);
      break;
    case About::two_in_directory:
      call.path = read.in_directory(0);
      call.to = read.in_directory(2);
      break;
    case About::mapping:
      call.path = read.descriptor(rule->at);
      call.hidden = true;
      counts = beneath(call.path, folder) && read.for_writing(rule->at);
      break;
    case About::hidden:
      return ChangingCall{rule->name, "?", {}, thread, true};
  }
  if (!counts || (!beneath(call.path, folder) && !beneath(call.to, folder))) return std::nullopt;
  return call;
}

}  // namespace holdfast::test
