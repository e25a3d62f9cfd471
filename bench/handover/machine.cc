#include "machine.h"

#include <signal.h>

#include <chrono>
#include <thread>
#include <vector>

#include "../shared/process_times.h"
#include "../shared/seconds.h"
#include "holdfast/base/error.h"
#include "holdfast/cli/child/attended_child.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kPatience{5};

std::vector<std::string> command_of(const MachineOptions& options) {
  const fs::path self = fs::read_symlink("/proc/self/exe");
  std::vector<std::string> words = {(self.parent_path() / "holdfast").string(), "supervise", "--directory",
                                    options.directory.string()};
  if (options.standby) words.emplace_back("--standby");
  if (!options.home.empty()) words.insert(words.end(), {"--mirror", options.home.string()});
  words.insert(words.end(),
               {"--", self.string(), "--train", options.directory.string(), "--told", options.told.string(),
                "--state", std::to_string(options.state), "--threads", std::to_string(options.threads)});
  return words;
}

}  // namespace

Machine::Machine(const MachineOptions& options)
    : options_(options), process_(command_of(options), {{"HOLDFAST_SOURCES", "signal"}}) {}

Told Machine::wait_for(const std::string& name, const std::function<bool(const Told&)>& is) {
  std::optional<Told> told;
  const auto there = [&] {
    told = last_told(options_.told, name);
    return told && (!is || is(*told));
  };
  if (!process_.wait_until(there, kPatience)) fail("did not come to '" + name + "'");
  return *told;
}

void Machine::wait_until_warm() {
  const auto warm = [&] {
    const auto sign = standby_sign_from_json(test::read_text(options_.directory / "standby.json"));
    return sign && !sign->checkpoint.empty();
  };
  if (!process_.wait_until(warm, kPatience)) fail("had no checkpoint at hand");
}

void Machine::save() {
  const auto before = last_told(options_.told, kSaves);
  test::write_text(request_beside(options_.told), "");
  wait_for(kSaves, [&](const Told& told) { return !before || told.value > before->value; });
}

double Machine::rate(double seconds) {
  const auto newer_than = [&](const std::optional<Told>& before) {
    return wait_for(kSteps, [&](const Told& told) { return !before || told.at > before->at; });
  };
  const Told first = newer_than(last_told(options_.told, kSteps));
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const Told last = newer_than(last_told(options_.told, kSteps));
  return static_cast<double>(last.value - first.value) / (last.at - first.at);
}

double Machine::tell_to_stop() {
  const double at = now();
  process_.send(SIGTERM);
  return at;
}

void Machine::finish() {
  if (process_.wait(kPatience).exit_code != 75) fail("did not end with 75");
}

double Machine::processor_seconds() const {
  double sum = 0;
  for (const pid_t process : with_descendants({process_.pid()})) sum += times_of(process).own;
  return sum;
}

void Machine::fail(const std::string& what) {
  throw Error(std::string(options_.standby ? "the standby " : "the holder ") + what + ": " + process_.err());
}

}  // namespace holdfast::bench
