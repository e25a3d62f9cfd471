#include "holdfast/store/stall_evidence.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/process/gpu_processes.h"
#include "holdfast/base/process/process_stacks.h"
#include "holdfast/base/process/process_threads.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"
#include "holdfast/base/thread/lookup.h"
#include "holdfast/base/utf8.h"
#include "holdfast/io/file_system.h"
#include "holdfast/store/names.h"
#include "holdfast/store/run_progress.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

// Shares of the limit, together below 1: the tools, what comes after them, and two tries to write.
constexpr double kForTools = 0.6;
constexpr double kForReading = 0.7;
constexpr double kForWriting = 0.14;

Duration share_of(Duration limit, double share) {
  return std::chrono::duration_cast<Duration>(limit * share);
}

constexpr std::size_t kMostProcesses = 64;
constexpr std::uint64_t kLedgerEnd = 8 << 10;  // the lines of the last minutes
// One process of many must not take the room of the others.
constexpr std::size_t kMostOfStacks = kMostStallBytes / 2;
constexpr std::size_t kMostOfThreads = kMostStallBytes / 4;

// False: it hangs. What it does goes on, on its thread.
template <class Result>
bool await(const std::optional<Lookup<Result>>& looking, SteadyTime end,
           const std::function<void()>& meanwhile) {
  while (looking && !looking->ready() && Clock::real().now() < end) meanwhile();
  return looking && looking->ready();
}

// Empty if no thread can be made.
template <class Result>
std::optional<Lookup<Result>> begin_lookup(std::function<Result()> read) {
  try {
    return std::optional<Lookup<Result>>(std::in_place, std::move(read));
  } catch (const std::system_error&) {
    return std::nullopt;
  }
}

void cut_at(std::string& text, std::size_t most) {
  constexpr char kMark[] = "\n(cut)\n";
  if (text.size() <= most) return;
  const bool marked = most >= sizeof kMark;
  text.resize(marked ? most - sizeof kMark : most);
  if (marked) text += kMark;
}

// What the run itself has said: the record of its rank 0, and the end of its ledger.
std::string last_words_of(const std::filesystem::path& directory, AttemptNumber attempt) {
  std::string text;
  try {
    const auto run = FileSystem::real().open_directory(directory, false);
    const auto attempts = run ? run->open_directory(kAttemptsDirectory, false) : nullptr;
    if (!attempts) return "the run directory is gone\n";
    const auto read_end = [&](Directory& in, const std::string& name, std::uint64_t most) {
      const auto file = in.open(name, OpenMode::read);
      if (!file) return name + ": there is none\n";
      const std::uint64_t size = file->size();
      const std::uint64_t from = size - std::min(size, most);
      std::string end(size - from, '\0');
      end.resize(file->read_at(std::as_writable_bytes(std::span(end)), from));
      // The record is filled up with blanks.
      for (auto at = end.find("  "); at != std::string::npos; at = end.find("  ")) {
        end.erase(at, end.find_first_not_of(' ', at) - at);
      }
      return "-- " + name + "\n" + terminal_text(end) + "\n";
    };
    text += read_end(*attempts, progress_name(attempt), kProgressBytes);
    text += read_end(*run, ledger_name(attempt), kLedgerEnd);
  } catch (const std::exception& error) {
    text += std::string(what_of(error)) + "\n";
  }
  return text;
}

// Those of many threads first: a trainer has more than the shells around it.
std::vector<pid_t> by_threads(const std::vector<pid_t>& processes) {
  std::vector<std::pair<std::size_t, pid_t>> counted;
  counted.reserve(processes.size());
  for (const pid_t process : processes) counted.emplace_back(thread_ids(process).size(), process);
  std::stable_sort(counted.begin(), counted.end(),
                   [](const auto& one, const auto& other) { return one.first > other.first; });
  std::vector<pid_t> sorted;
  for (const auto& [threads, process] : counted) {
    if (threads > 0 && sorted.size() < kMostProcesses) sorted.push_back(process);
  }
  return sorted;
}

std::string variable_of(pid_t process, const std::string& name) {
  std::ifstream environment("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  for (std::string entry; std::getline(environment, entry, '\0');) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return {};
}

// Asks c10d for the record of its collectives (Flight Recorder), which it writes into a file of its own. It
// listens at this pipe only where the variable is set. Empty: it does not listen.
std::string ask_flight_recorder(pid_t process) {
  const std::string stem = variable_of(process, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE");
  const std::string rank = variable_of(process, "RANK");
  if (stem.empty() || rank.empty()) return {};
  // Fails at once where nobody reads.
  const int to = open((stem + rank + ".pipe").c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (to < 0) return {};
  const bool asked = write(to, "1", 1) == 1;
  close(to);
  if (!asked) return {};
  std::string file = variable_of(process, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE");
  // c10d's default.
  if (file.empty()) file = "/tmp/nccl_trace_rank_";
  return "c10d was asked for its Flight Recorder, and writes it to " + printable(file + rank, 4096) + "\n";
}

std::string describe_processes(const std::vector<pid_t>& all, SteadyTime end) {
  const std::vector<pid_t> processes = by_threads(all);
  std::string text;
  if (processes.size() < all.size()) {
    text += std::to_string(all.size() - processes.size()) + " processes have ended, or are left out\n";
  }
  if (processes.empty()) return text;
  // Before a tool stops them.
  std::vector<std::string> threads;
  threads.reserve(processes.size());
  for (const pid_t process : processes) {
    // This process is about to end, and c10d would not have the time.
    const std::string asked = process == getpid() ? "" : ask_flight_recorder(process);
    threads.push_back(asked + threads_of(process));
  }
  const std::vector<std::string> stacks = stacks_of(processes, end, kMostOfStacks / processes.size());
  for (std::size_t i = 0; i < processes.size(); ++i) {
    text += "\n== process " + std::to_string(processes[i]) + ": " + command_of(processes[i]) + "\n";
    cut_at(threads[i], kMostOfThreads / processes.size());
    text += threads[i] + "-- stacks\n" + terminal_text(stacks[i]);
  }
  return text;
}

// Appends; why it could not, or nothing.
std::string append(const std::filesystem::path& file, std::string text, int flags) {
  const int to = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | flags, 0644);
  if (to < 0) return std::strerror(errno);
  struct stat status {};
  fstat(to, &status);
  const auto there = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  cut_at(text, kMostStallBytes - std::min(there, kMostStallBytes));
  std::string why;
  for (std::size_t at = 0; at < text.size() && why.empty();) {
    const ssize_t written = write(to, text.data() + at, text.size() - at);
    if (written > 0) at += static_cast<std::size_t>(written);
    if (written < 0 && errno != EINTR) why = std::strerror(errno);
  }
  if (close(to) != 0 && why.empty()) why = std::strerror(errno);
  return why;
}

// Why it could not, or nothing.
std::string append_in_time(const std::filesystem::path& file, const std::string& text, int flags,
                           Duration limit, const std::function<void()>& meanwhile) {
  auto writing = begin_lookup<std::string>([file, text, flags] { return append(file, text, flags); });
  if (!writing) return "no thread can be made";
  if (!await(writing, Clock::real().now() + limit, meanwhile)) return "it does not answer";
  return writing->take();
}

}  // namespace

// By the names of links alone: the volume may hang.
void find_run(Stall& stall) {
  namespace fs = std::filesystem;
  for (const pid_t process : stall.processes) {
    std::error_code closed;
    for (fs::directory_iterator at("/proc/" + std::to_string(process) + "/fd", closed), end;
         !closed && at != end; at.increment(closed)) {
      std::error_code unreadable;
      const fs::path file = fs::read_symlink(at->path(), unreadable);
      if (unreadable) continue;
      if (const auto attempt = parse_ledger_name(file.filename().native())) {
        stall.directory = file.parent_path();
        stall.attempt = *attempt;
        return;
      }
    }
  }
}

void keep_stall_evidence(const Stall& stall, const std::function<void()>& meanwhile, Duration limit) {
  const SteadyTime began = Clock::real().now();
  const bool known = !stall.directory.empty() && stall.attempt != 0;
  auto said = known ? begin_lookup<std::string>([directory = stall.directory, attempt = stall.attempt] {
    return last_words_of(directory, attempt);
  })
                    : std::nullopt;
  auto gpus = begin_lookup<std::string>([] { return gpu_processes(); });
  auto processes =
      begin_lookup<std::string>([all = stall.processes, end = began + share_of(limit, kForTools)] {
        return describe_processes(all, end);
      });
  const auto part = [&](const char* name, std::optional<Lookup<std::string>>& looking) {
    const bool answered = await(looking, began + share_of(limit, kForReading), meanwhile);
    return std::string("\n= ") + name + "\n" + (answered ? looking->take() : "it does not answer\n");
  };
  std::string text = "= " + stall.by + " ends this training: " + stall.why + "\n" +
                     format_utc(Clock::real().wall_now()) + " on " + host_name() +
                     (stall.attempt != 0 ? ", attempt " + std::to_string(stall.attempt) : "") + "\n";
  if (!stall.details.empty()) text += "\n= the ranks\n" + stall.details;
  if (known) text += part("the last records of the run", said);
  text += part("GPUs", gpus);
  text += part("processes", processes) + "\n";
  const Duration to_write = share_of(limit, kForWriting);
  std::string why = "the run directory is not known";
  if (known) {
    const std::filesystem::path file = stall.directory / kAttemptsDirectory / stall_name(stall.attempt);
    why = append_in_time(file, text, 0, to_write, meanwhile);
    if (why.empty()) return log_info("evidence of the stall is in {}", printable(file.native(), 4096));
    why = printable(file.native(), 4096) + ": " + why;
  }
  const std::filesystem::path instead = std::filesystem::path(env_text(kEnvTmpDir).value_or("/tmp")) /
                                        ("holdfast-stall-" + std::to_string(getpid()) + "-" +
                                         std::to_string(began.time_since_epoch().count()) + ".txt");
  // A new file alone: others may write to this folder, too.
  const std::string worse = append_in_time(instead, text, O_EXCL, to_write, meanwhile);
  if (worse.empty())
    return log_warning("evidence of the stall is in {} ({})", printable(instead.native()), why);
  log_warning("evidence of the stall is lost: {}; {}: {}", why, printable(instead.native()), worse);
}

}}  // namespace holdfast::v0_2
