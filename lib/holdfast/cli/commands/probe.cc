#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <csignal>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/io/volume_report.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;
using Weight = VolumeRemark::Weight;

constexpr Duration kSpotNotice = std::chrono::minutes(2);  // how long before its end EC2 announces it

struct ProbeRequest {
  std::filesystem::path directory;
  std::string size = "1GiB";
  std::string state;
  bool json = false;
};

std::atomic<int> interrupted{0};
// A signal handler must not wait for a lock.
static_assert(std::atomic<int>::is_always_lock_free);

// The first signal asks the probe to remove its folder; a second one ends it at once, because a volume may
// hang.
void note_signal(int signal) {
  interrupted = signal;
  std::signal(signal, SIG_DFL);  // NOLINT(bugprone-signal-handler): async-signal-safe in POSIX
}

std::uint64_t size_of(const std::string& option, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes || *bytes == 0) {
    throw UsageError(option + " '" + printable(text) + "': a size like 2GB, 512MiB or 1.5TB is needed");
  }
  return *bytes;
}

const char* word_of(Weight weight) {
  if (weight == Weight::good) return "ok";
  return weight == Weight::note ? "note" : "warning";
}

std::string estimate_text(const VolumeReport& report, std::uint64_t state) {
  const auto save = estimate_save(report, state);
  if (!save) return "a save of " + format_bytes(state) + ": unknown, because nothing was measured";
  // A save may be too fast for the clock, and then the division would fail.
  const auto count = static_cast<std::int64_t>(kSpotNotice / std::max<Duration>(*save, Duration(1)));
  std::string text = "a save of " + format_bytes(state) + " takes about " + format_duration(*save) + "; ";
  if (count == 0)
    return text + "a notice of two minutes is NOT enough for one: count on the regular saves alone";
  return text + "a notice of two minutes is enough for " + format_count(count) +
         (count == 1 ? " save" : " saves");
}

Json json_of(const VolumeReport& report) {
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  Json json{{"path", printable(report.path, 4096)},
            {"fit", report.fit()},
            {"kind", report.kind.name},
            {"network", report.kind.network},
            {"in_memory", report.kind.in_memory},
            {"read_only", report.read_only},
            {"root_file_system", report.on_root},
            {"bytes", report.bytes_in_all},
            {"bytes_free", report.bytes_free},
            {"inodes_free", report.inodes_free ? Json(*report.inodes_free) : Json(nullptr)}};
  if (report.mount) {
    json["mount"] = {{"point", printable(report.mount->mount_point, 4096)},
                     {"type", report.mount->type},
                     {"source", printable(report.mount->source, 4096)},
                     {"discard", report.mount->has("discard")}};
  }
  if (!report.read_only) {
    json["direct_io"] = {{"works", report.direct_io.works},
                         {"memory_alignment", report.direct_io.memory_alignment},
                         {"offset_alignment", report.direct_io.offset_alignment}};
    json["fallocate"] = report.reserves_space;
    json["rename_noreplace"] = report.renames_exclusive;
    json["hard_links"] = report.hard_links;
    json["directory_fsync"] = report.syncs_directories;
  }
  if (report.writing) {
    json["writing"] = {{"bytes", report.writing->bytes}, {"seconds", seconds(report.writing->time)}};
  }
  if (report.committing) {
    json["committing"] = {{"count", report.committing->count},
                          {"median_seconds", seconds(report.committing->median)},
                          {"slowest_seconds", seconds(report.committing->slowest)}};
  }
  Json remarks = Json::array();
  for (const VolumeRemark& remark : explain(report)) {
    remarks.push_back({{"weight", word_of(remark.weight)}, {"text", printable(remark.text, 4096)}});
  }
  json["remarks"] = remarks;
  return json;
}

void print_text(const VolumeReport& report, std::uint64_t state) {
  std::cout << printable(report.path, 4096) << "\n\n";
  for (const VolumeRemark& remark : explain(report)) {
    const std::string word = word_of(remark.weight);
    std::cout << word << std::string(9 - word.size(), ' ') << printable(remark.text, 4096) << '\n';
  }
  std::cout << '\n';
  if (state > 0) std::cout << estimate_text(report, state) << '\n';
  std::cout << (report.fit() ? "checkpoints can be committed here" : "checkpoints can NOT be committed here")
            << '\n';
}

int run_probe(const ProbeRequest& options) {
  const std::uint64_t bytes = size_of("--size", options.size);
  const std::uint64_t state = options.state.empty() ? 0 : size_of("--state", options.state);
  // Handlers, because the default action would leave the probe's folder behind on the volume.
  std::signal(SIGINT, note_signal);
  std::signal(SIGTERM, note_signal);
  try {
    const VolumeReport report = probe_volume(FileSystem::real(), options.directory,
                                             {.bytes = bytes, .go_on = [] { return interrupted == 0; }});
    if (options.json) {
      Json json = json_of(report);
      if (const auto save = estimate_save(report, state); save && state > 0) {
        json["estimate"] = {{"state_bytes", state},
                            {"save_seconds", std::chrono::duration<double>(*save).count()},
                            {"saves_in_two_minutes", kSpotNotice / std::max<Duration>(*save, Duration(1))}};
      }
      print_json(json);
    } else {
      print_text(report, state);
    }
    // Slow is not unfit: only what a commit cannot do without decides the exit code.
    return static_cast<int>(report.fit() ? ExitCode::complete : ExitCode::difference);
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::interrupted) throw;
    // The folder is gone, so end as the signal would have.
    std::signal(interrupted, SIG_DFL);
    // Returns only if the caller of this program has blocked the signal.
    std::raise(interrupted);
    throw;
  }
}

constexpr char kProbeFooter[] =
    R"(Writes into a new folder below DIR (.holdfast-probe-<pid>) and removes it at the end, also after Ctrl-C. It does not
touch other files. A run that trains there shares the disk with the probe meanwhile.

Exit code: 0 checkpoints can be committed there, 1 they cannot, 2 unreadable, 64 wrong options.

Example:
  holdfast probe /mnt/ckpt --state 2GB)";

}  // namespace

void add_probe(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ProbeRequest>();
  CLI::App* const command =
      app.add_subcommand("probe", "Test what a volume guarantees, and how Holdfast will use it");
  command->add_option("DIR", options->directory, "a folder on the volume, such as a run directory")
      ->required();
  command
      ->add_option("--size", options->size,
                   "most bytes to write for the speed test; never more than a quarter of the free space, "
                   "never longer than 10 s plus one fsync")
      ->type_name("BYTES")
      ->capture_default_str();
  command
      ->add_option("--state", options->state, "size of a training state; prints how long a save of it takes")
      ->type_name("BYTES");
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer(kProbeFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_probe(*options); }; });
}

}}  // namespace holdfast::v0_2
