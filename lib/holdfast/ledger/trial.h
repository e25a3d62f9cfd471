// A *trial*: a short run of a user's program, started by `holdfast check`. HOLDFAST_TRIAL names its folder.
// The command writes the orders there; the program's Checkpointer writes a line for every step, and one for
// every value of the state that has changed in it.
//
// Errors: UsageError for a folder without readable orders; Error when a line cannot be written.
// Threads: plain values and functions; one thread for each folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

struct TrialOrders {
  std::int64_t stop_at = 0;   // stops at this step, as if it were interrupted; 0: once it has seen enough
  std::int64_t save_at = -1;  // saves at this step, and waits until the checkpoint is durable; −1: never
  std::int64_t kill_at = -1;  // ends itself by SIGKILL after this step; −1: never
};

struct TrialStep {
  std::int64_t step = 0;
  std::string loss = {};         // its bits; "-" where the loop gives no loss
  std::int64_t epoch = 0;        // of the cursor of the data
  std::string state = {};        // digest of the state, in hexadecimal digits
  std::int64_t output = -1;      // bytes of standard output so far, where that is a file
  std::int64_t evaluations = 0;  // that this life has begun, and values that it has measured
  bool stops = false;            // the program was told to stop here
  auto operator<=>(const TrialStep&) const = default;
};

// A tensor or an attribute of the state that is new, gone or changed at `step`.
struct TrialValue {
  std::int64_t step = 0;
  std::string name = {};
  std::string form = {};   // "float32 [4, 4]", "attribute"; empty: it is gone
  std::string value = {};  // of a tensor the digest, of an attribute its text
};

// The run directory of a trial, which replaces the program's own. Its parent holds the program's side files
// and nothing of the trial's own.
std::filesystem::path trial_run(const std::filesystem::path& folder);
// Forgets the checkpoints and the side files of the trial before.
void begin_trial_anew(const std::filesystem::path& folder);

void write_orders(const std::filesystem::path& folder, const TrialOrders& orders);
TrialOrders read_orders(const std::filesystem::path& folder);

// Texts of values have neither tabs nor line ends. Call it before the step's own line.
void append_values(const std::filesystem::path& folder, std::span<const TrialValue> values);
void append_step(const std::filesystem::path& folder, const TrialStep& step);
// A last line that was cut off is left out.
std::vector<TrialStep> read_steps(const std::filesystem::path& folder);
std::vector<TrialValue> read_values(const std::filesystem::path& folder);
// Grows with every step; 0 before the first one.
std::uintmax_t bytes_of_steps(const std::filesystem::path& folder);

}}  // namespace holdfast::v0_2
