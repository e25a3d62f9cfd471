// The trainer of bench_handover, as a child of this program: steps of fixed arithmetic, weights with
// momentum, and the real Checkpointer. It saves when it is asked to, and when it is told to stop.
//
// Errors: as the Checkpointer. Threads: one for each process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace holdfast::bench {

struct TrainerOptions {
  std::filesystem::path directory = {};  // the run directory
  std::filesystem::path told = {};       // the file for what it tells
  std::uint64_t state = 0;               // bytes
  int threads = 1;                       // that compute
};

// What a trainer has told, each thing with its moment on the machine's steady clock. The last one of a name.
struct Told {
  double at = 0;  // seconds
  std::int64_t value = 0;
};
std::optional<Told> last_told(const std::filesystem::path& file, const std::string& name);

inline constexpr char kResumed[] = "resumed";    // the step
inline constexpr char kStepped[] = "stepped";    // after resume(): one step is made
inline constexpr char kBoundary[] = "boundary";  // the step boundary at which it stopped
inline constexpr char kEnded[] = "ended";        // finish() has returned this code
inline constexpr char kSteps[] = "steps";        // four times a second: by all threads
inline constexpr char kSaves[] = "saves";        // all that were asked for are durable

// A save is asked for with this file beside that of `told`.
std::filesystem::path request_beside(const std::filesystem::path& told);

// Returns the exit code. Ends by itself when the folder of `told` is gone, so that nothing stays behind.
int train(const TrainerOptions& options);

}  // namespace holdfast::bench
