#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/durations.h"
#include "holdfast/cli/report/status_report.h"
#include "holdfast/cli/run/run_view.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct HealthRequest {
  std::filesystem::path directory;
  std::string blind_after = "1min";
  std::string silent_after = "10min";
};

int nobody(const std::string& why) {
  std::cout << "nobody trains here: " << why << '\n';
  return static_cast<int>(ExitCode::not_running);
}

int run_health(const HealthRequest& options) {
  const Duration blind_after = duration_of("--blind-after", options.blind_after);
  const Duration silent_after = duration_of("--silent-after", options.silent_after);
  // An unreadable directory is an error, not an empty run.
  const RunView run = look_at_run(options.directory);
  if (run.newest.attempt == 0) return nobody("no attempt has begun");
  const std::string attempt = "attempt " + std::to_string(run.newest.attempt);
  if (run.ended()) return nobody(attempt + " has ended; holdfast ls shows how");
  if (!run.life.last_wall && !run.progress) return nobody(attempt + " has not begun to train yet");
  // By what it has written last, because the process may be on another machine.
  const auto age = std::chrono::duration_cast<Duration>(run.now - run.last_sign().value_or(WallTime()));
  if (age > silent_after) {
    return nobody(attempt + " has written nothing for " + format_duration(age) + "; it hangs, or died");
  }
  bool blind = false;
  for (const auto& [name, source] : run.life.sources) {
    // A source is blind now and then, for a request that got no answer. Only a long time is news.
    if (source.blind_now < blind_after) continue;
    blind = true;
    std::cout << attempt << " is blind: its interruption source " << printable(name, 40)
              << " has not seen for " << format_duration(source.blind_now)
              << (source.why.empty() ? "" : " (" + printable(source.why, 400) + ")") << '\n';
  }
  const nlohmann::ordered_json status = status_report(run, {});
  const bool unsaved = status.at("verdict") == "unsaved";
  if (unsaved) {
    std::cout << attempt << " is unsaved: " << printable(status.at("reason").get<std::string>(), 600) << '\n';
  }
  if (blind || unsaved) return static_cast<int>(ExitCode::difference);
  std::cout << attempt << " trains, at step " << format_count(run.life.last_step);
  for (const auto& [name, source] : run.life.sources) std::cout << ", " << printable(name, 40) << " sees";
  std::cout << '\n';
  return 0;
}

constexpr char kHealthFooter[] = R"(Of a run with several ranks, the sources are those of rank 0's host.

`holdfast status` tells whether the run itself is well; this command asks whether an end would lose work: whether the
run would hear of it, and whether its saves succeed.

Exit code: 0 trains, sees and saves; 1 trains, and a source is blind or its saves fail; 2 the directory cannot be read;
3 nobody trains there: no attempt has begun to train, the newest has ended, or it is silent.

Example:
  holdfast health /mnt/ckpt/run1 --blind-after 2min || alert)";

}  // namespace

void add_health(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<HealthRequest>();
  CLI::App* const command =
      app.add_subcommand("health", "Tell whether a run trains, and whether it would survive an interruption");
  command->add_option("DIR", options->directory, "the run directory")->required();
  add_time(*command, "--blind-after", options->blind_after,
           "a source that got no answer for this long counts as blind; the ledger records it every 10 s");
  add_time(*command, "--silent-after", options->silent_after,
           "a run whose ledger has had no new line for this long counts as not training; it writes none "
           "while it writes a checkpoint");
  command->footer(kHealthFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_health(*options); }; });
}

}}  // namespace holdfast::v0_2
