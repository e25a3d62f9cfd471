// One rank of those that bench_read_once starts.
//
// Errors: those of ProcessGroup and Checkpointer. Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>

namespace holdfast::bench {

// Meets the other ranks, and tells the number of this process as the bench sees it. Then answers lines of
// standard input: "resume": resumes, and tells the step and the seconds; "save": trains a step and saves it.
void serve_rank(const std::filesystem::path& run, std::int64_t bytes);

}  // namespace holdfast::bench
