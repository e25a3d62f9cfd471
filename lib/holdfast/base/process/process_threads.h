// What the threads of a process do right now, by /proc, as text for people who ask why it hangs. Needs no
// tool. process_stacks.h adds the stacks of the program.
//
// Errors: none; the text says what could not be read, and what would help. Threads: any. Reading /proc may
// hang with a process that hangs in the kernel: use a thread that may be left behind (lookup.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

// Two lines for a thread at most: its name, state and CPU time, where it waits in the kernel, its system call
// and the file of the code that made it; then its stack in the kernel, where that may be read.
std::string threads_of(pid_t process);

// Threads of a process, the one that began it first. Empty: it is gone.
std::vector<pid_t> thread_ids(pid_t process);
// Its command line; empty: it is gone, or belongs to the kernel.
std::string command_of(pid_t process);
// 'R', 'S', 'D', 'T' (stopped) and so on, as in ps(1); 0: it is gone.
char state_of(pid_t process);
// What keeps this process from reading the stacks of another of the same user, and the remedy. Empty: nothing
// that is known.
std::string why_not_traced();

}}  // namespace holdfast::v0_2
