#include "holdfast/ledger/trial.h"

#include <fstream>
#include <locale>
#include <sstream>

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::filesystem::path orders_file(const std::filesystem::path& folder) { return folder / "orders"; }
std::filesystem::path steps_file(const std::filesystem::path& folder) { return folder / "steps"; }
std::filesystem::path values_file(const std::filesystem::path& folder) { return folder / "values"; }

}  // namespace

std::filesystem::path trial_run(const std::filesystem::path& folder) { return folder / "trial" / "run"; }

void begin_trial_anew(const std::filesystem::path& folder) {
  const auto beside = trial_run(folder).parent_path();
  std::filesystem::remove_all(beside);
  std::filesystem::create_directories(beside);
}

void write_orders(const std::filesystem::path& folder, const TrialOrders& orders) {
  // Steps of an earlier trial in the same folder would be taken for this one's.
  std::filesystem::remove(steps_file(folder));
  std::filesystem::remove(values_file(folder));
  std::ofstream file(orders_file(folder));
  file.imbue(std::locale::classic());
  file << orders.stop_at << ' ' << orders.save_at << ' ' << orders.kill_at << '\n';
  if (!file.flush()) throw Error("cannot write the orders of a trial in " + folder.string());
}

TrialOrders read_orders(const std::filesystem::path& folder) {
  std::ifstream file(orders_file(folder));
  // A locale of the program may group digits; the command line has none.
  file.imbue(std::locale::classic());
  TrialOrders orders;
  if (!(file >> orders.stop_at >> orders.save_at >> orders.kill_at)) {
    throw UsageError("HOLDFAST_TRIAL names " + folder.string() +
                     ", which has no orders: only `holdfast check` sets it; unset it");
  }
  return orders;
}

void append_values(const std::filesystem::path& folder, std::span<const TrialValue> values) {
  std::ofstream file(values_file(folder), std::ios::app);
  file.imbue(std::locale::classic());
  for (const TrialValue& value : values) {
    file << value.step << '\t' << value.name << '\t' << value.form << '\t' << value.value << '\n';
  }
  if (!file.flush()) throw Error("cannot write the values of a trial in " + folder.string());
}

void append_step(const std::filesystem::path& folder, const TrialStep& step) {
  // Opened for each step: the trial ends by SIGKILL, and each line must be in the file by then.
  std::ofstream file(steps_file(folder), std::ios::app);
  file.imbue(std::locale::classic());
  file << step.step << ' ' << step.loss << ' ' << step.epoch << ' ' << step.state << ' ' << step.output << ' '
       << step.evaluations << ' ' << step.stops << '\n';
  if (!file.flush()) throw Error("cannot write the steps of a trial in " + folder.string());
}

std::vector<TrialStep> read_steps(const std::filesystem::path& folder) {
  std::ifstream file(steps_file(folder));
  std::vector<TrialStep> steps;
  std::string line;
  // A line without its end was torn by the kill.
  while (std::getline(file, line) && !file.eof()) {
    std::istringstream words(line);
    TrialStep step;
    if (!(words >> step.step >> step.loss >> step.epoch >> step.state >> step.output >> step.evaluations >>
          step.stops)) {
      break;
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

std::vector<TrialValue> read_values(const std::filesystem::path& folder) {
  std::ifstream file(values_file(folder));
  std::vector<TrialValue> values;
  std::string line;
  while (std::getline(file, line) && !file.eof()) {
    std::istringstream words(line);
    TrialValue value;
    if (!(words >> value.step) || words.get() != '\t') break;
    std::getline(words, value.name, '\t');
    std::getline(words, value.form, '\t');
    std::getline(words, value.value);
    values.push_back(std::move(value));
  }
  return values;
}

std::uintmax_t bytes_of_steps(const std::filesystem::path& folder) {
  std::error_code missing;
  const std::uintmax_t bytes = std::filesystem::file_size(steps_file(folder), missing);
  // No file means that no step has ended yet.
  return missing ? 0 : bytes;
}

}}  // namespace holdfast::v0_2
