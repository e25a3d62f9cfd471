#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/commands/doctor_checks.h"
#include "holdfast/cli/output/json_output.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

struct DoctorRequest {
  std::filesystem::path directory;
  std::filesystem::path libtorch;
  bool json = false;
};

const char* word_of(Finding::Verdict verdict) {
  if (verdict == Finding::Verdict::ok) return "ok";
  return verdict == Finding::Verdict::warning ? "warning" : "failed";
}

// A check never ends the others: what it cannot find out is a finding of its own.
std::vector<Finding> examine(const DoctorRequest& options) {
  std::vector<Finding> all;
  const auto add = [&](std::vector<Finding> some) {
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  };
  if (!options.libtorch.empty()) add(check_libtorch(options.libtorch));
  add(check_gpus(options.libtorch));
  add(check_libraries());
  add(check_metadata_service(Clock::real()));
  add(check_clock());
  add(check_limits());
  add(check_signals());
  add(check_grace());
  if (!options.directory.empty()) add(check_volume(options.directory));
  return all;
}

int run_doctor(const DoctorRequest& options) {
  const std::vector<Finding> findings = examine(options);
  const auto count = [&](Finding::Verdict verdict) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& one) { return one.verdict == verdict; });
  };
  const auto failed = count(Finding::Verdict::failed);
  if (options.json) {
    Json list = Json::array();
    // printable(), because texts come from drivers, services and files: a control character must reach no
    // terminal through them.
    for (const Finding& one : findings) {
      list.push_back({{"verdict", word_of(one.verdict)},
                      {"what", one.what},
                      {"text", printable(one.text, 4096)},
                      {"remedy", printable(one.remedy, 4096)}});
    }
    print_json({{"findings", list}, {"warnings", count(Finding::Verdict::warning)}, {"failed", failed}});
  } else {
    for (const Finding& one : findings) {
      const std::string word = word_of(one.verdict);
      std::cout << word << std::string(9 - word.size(), ' ') << one.what << ": " << printable(one.text, 4096)
                << '\n';
      if (!one.remedy.empty())
        std::cout << std::string(9, ' ') << "-> " << printable(one.remedy, 4096) << '\n';
    }
  }
  // Warnings do not fail: a machine whose clock nothing synchronises, or without NCCL, can train.
  return static_cast<int>(failed == 0 ? ExitCode::complete : ExitCode::difference);
}

constexpr char kDoctorFooter[] =
    R"(Each line is ok, a warning, or failed; the line below a warning says what to do. Changes nothing, but for a temporary
folder in DIR, which it removes.

Exit code: 0 nothing failed, 1 something failed, 64 wrong options.

Example:
  holdfast doctor --directory /mnt/ckpt/run1)";

}  // namespace

void add_doctor(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<DoctorRequest>();
  CLI::App* const command =
      app.add_subcommand("doctor", "Check this machine: driver, GPUs, libraries, notices, limits, volume");
  command
      ->add_option("--directory", options->directory,
                   "test the volume of this directory, too, as `holdfast probe` does (64 MiB)")
      ->type_name("DIR");
  command
      ->add_option("--libtorch", options->libtorch,
                   "look at the LibTorch in this folder, too (.deps/libtorch-2.11.0)")
      ->type_name("DIR");
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer(kDoctorFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_doctor(*options); }; });
}

}}  // namespace holdfast::v0_2
