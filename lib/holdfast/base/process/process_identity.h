// Names one process of this machine. The system reuses process numbers, and each PID namespace (a container)
// counts for itself. So three values name a process: its number, its start time and its PID namespace.
//
//   const ProcessIdentity trainer = own_process();          // the trainer records it
//   if (is_running(trainer)) ...                            // another process asks later
//
// Values from another machine, or from an earlier boot, mean nothing: compare boot_id() first.
// Errors: none; an unknown value is 0, which names no process. Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast { inline namespace v0_2 {

struct ProcessIdentity {
  std::int64_t pid = 0;
  std::uint64_t started = 0;        // clock ticks after boot, as in /proc/<pid>/stat
  std::uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid
};

// Start time of a process in our PID namespace. 0 if there is none, or if it is a zombie.
std::uint64_t start_of_process(std::int64_t pid);
std::uint64_t start_of_process(const std::string& entry);  // of /proc: a number, or "self"
ProcessIdentity own_process();
// True only if exactly this process runs in our PID namespace. False if that is uncertain.
bool is_running(const ProcessIdentity& process);
// Sends `signal` to exactly this process. False if it does not run, is uncertain, or may not be signalled.
bool signal_process(const ProcessIdentity& process, int signal);

}}  // namespace holdfast::v0_2
