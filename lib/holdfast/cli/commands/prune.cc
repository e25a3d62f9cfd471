#include "holdfast/store/prune.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/mirror/mirror_run.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/progress.h"
#include "holdfast/cli/output/table.h"
#include "holdfast/cli/supervise/supervise_options.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/mirror/rclone_home.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/retention_text.h"
#include "holdfast/writing/file_verifier.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

using Fate = RetentionReport::Fate;

struct PruneRequest {
  std::filesystem::path directory;
  std::string keep;
  bool dry_run = false;
  bool even_if_running = false;
  bool json = false;
  MirrorRequest home = {};  // its home: empty: none
};

// Equal texts mean equal files, because the index has digests of every byte.
std::string content_of(const CheckpointIndex& index) {
  std::string text = std::to_string(index.file_length) + " " + std::to_string(index.step);
  for (const IndexedTensor& tensor : index.tensors)
    text += " " + tensor.spec.name + " " + to_hex(tensor.digest);
  for (const auto& stretch : index.stretches) text += " " + to_hex(stretch.digest);
  for (const auto& [name, attribute] : index.attributes) text += " " + name + " " + to_text(attribute.value);
  return text;
}

// Shows progress. Does not read a file again after the claim that it verified before.
class PatientVerifier final : public Verifier {
 public:
  PatientVerifier() { heads_.stop_keeping(); }

  Verdict inspect(const File& file, Depth depth, bool uncached) override {
    Verdict verdict = heads_.inspect(file, Depth::head, uncached);
    for (const auto& [metric, values] : verdict.metrics)
      metrics_[metric].insert(values.begin(), values.end());
    if (depth == Depth::head || verdict.kind != Verdict::Kind::good) return verdict;
    const ReadMode mode = uncached ? ReadMode::uncached : ReadMode::once;
    const auto read = read_index(file, mode);
    const auto* const index = std::get_if<CheckpointIndex>(&read);
    if (index == nullptr) return rejected(std::get<Rejection>(read));
    const std::string content = content_of(*index);
    // An uncached look must read the device again.
    if (!uncached && whole_.contains(content)) return verdict;
    Progress progress("verifying step " + format_count(index->step), index->file_length);
    // hardware_concurrency() is 0 if it is not known.
    const int threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 2u, 8u));
    if (const auto rejection = verify_bytes(file, *index, mode, threads, progress.done())) {
      return rejected(*rejection);
    }
    whole_.insert(content);
    return verdict;
  }

  // Metrics of all files that were inspected.
  const Metrics& metrics() const { return metrics_; }

 private:
  static Verdict rejected(const Rejection& rejection) {
    const bool newer = rejection.kind == Rejection::Kind::newer_format;
    return {.kind = newer ? Verdict::Kind::newer_format : Verdict::Kind::damaged, .reason = rejection.reason};
  }

  FileVerifier heads_{1};
  std::set<std::string> whole_;
  Metrics metrics_;
};

std::string word_of(Fate fate) {
  if (fate == Fate::stays) return "stays";
  return fate == Fate::goes ? "goes" : "left alone";
}

// Refuses a metric that no checkpoint has: it is probably a typing error, and would delete the best file. A
// run may name a metric that it will measure later, but prune sees everything that will ever be there.
void check_metrics(const Retention& keep, const RetentionReport& plan, const Metrics& known) {
  const auto goes = [](const RetentionReport::File& file) { return file.id && file.fate == Fate::goes; };
  // If nothing would go, retention read no file, so no metric is known.
  if (std::none_of(plan.files.begin(), plan.files.end(), goes)) return;
  std::set<std::string> there;
  for (const RetentionReport::File& file : plan.files) {
    if (!file.id || file.fate == Fate::left_alone) continue;
    for (const auto& [metric, values] : known) {
      if (values.contains(file.id->step)) there.insert(metric);
    }
  }
  for (const KeepPolicy& policy : keep.policies()) {
    const auto* const best = std::get_if<KeepBest>(&policy);
    if (best == nullptr || there.contains(best->metric)) continue;
    std::string names;
    for (const std::string& name : there) names += (names.empty() ? "" : ", ") + name;
    throw UsageError("no checkpoint has metric " + best->metric + "; " +
                     (names.empty() ? "there is none at all" : "there are: " + names) +
                     "; nothing was changed");
  }
}

void print_plan(const PruneRequest& options, const RetentionReport& plan) {
  if (plan.files.empty()) {
    std::cout << "no checkpoints in " << shown(options.directory) << '\n';
    return;
  }
  const auto directory = open_run_directory(options.directory);
  using enum Table::Align;
  Table table({right, right, right, right, left, left, left});
  table.add({"STEP", "ATTEMPT", "SIZE", "AGE", "", "WHY", "NAME"});
  for (const RetentionReport::File& file : plan.files) {
    table.add({file.id ? format_count(file.id->step) : "-", file.id ? std::to_string(file.id->attempt) : "-",
               format_bytes(file.bytes), file.id ? age_of(examine(*directory, file.name, Depth::index)) : "-",
               word_of(file.fate), printable(file.reason, 400), file.name});
  }
  table.print(std::cout);
  // Before the deletions, so that the plan is on the screen if one of them fails.
  std::cout.flush();
}

Json json_of(const RetentionReport::File& file) {
  return {{"name", file.name},
          {"step", file.id ? Json(file.id->step) : Json(nullptr)},
          {"attempt", file.id ? Json(file.id->attempt) : Json(nullptr)},
          {"bytes", file.bytes},
          {"fate", word_of(file.fate)},
          {"reason", file.reason}};
}

void print_result(const PruneRequest& options, const PruneResult& result) {
  Json files = Json::array();
  for (const RetentionReport::File& file : result.report.files) files.push_back(json_of(file));
  print_json({{"schema", kJsonSchema},
              {"directory", options.directory.string()},
              {"dry_run", options.dry_run},
              {"attempt", result.attempt != 0 ? Json(result.attempt) : Json(nullptr)},
              {"files", files},
              {"bytes_that_go", result.report.bytes_that_go()}});
}

std::string summary_of(const RetentionReport& report) {
  std::int64_t files = 0;
  for (const RetentionReport::File& file : report.files) files += file.fate == Fate::goes ? 1 : 0;
  return format_count(files) + (files == 1 ? " file, " : " files, ") + format_bytes(report.bytes_that_go());
}

// A mirror deletes in a directory only after it has copied something there. The claim is recorded as this
// run's.
void prune_directory(const MirrorRequest& request) {
  FileVerifier verifier;
  verifier.stop_keeping();
  const auto run = open_run_directory(request.directory);
  const auto record = read_home_record(*run);
  if (!record) return;
  // The plan takes as long as the reading of two checkpoints. A machine that took HOME over meanwhile goes
  // on.
  const auto still_ours = [&](const RetentionReport&) {
    if (record->owns(highest_attempt(*open_run_directory(request.home)))) return;
    throw SupersededError(request.home +
                          ": another machine has just taken it over; nothing was deleted there");
  };
  const PruneResult done = prune(FileSystem::real(), Clock::real(), verifier,
                                 {.directory = request.home,
                                  .keep = KeepLast{request.home_keep},
                                  .even_if_running = true,
                                  .planned = still_ours});
  if (done.attempt == 0) return;
  update_home_record(*run, [&](const std::optional<HomeRecord>& told) {
    HomeRecord now = told ? *told : *record;
    now.add(done.attempt);
    return now;
  });
}

// Before anything goes here, the newest two are home and every byte of them is verified there. A dry run
// counts by names.
void prune_home(const PruneRequest& options) {
  MirrorRequest request = options.home;
  request.directory = options.directory;
  request.once = true;
  if (!options.dry_run) {
    // Until HOME is pruned: a mirror that began meanwhile would be superseded.
    MirrorRun run(request);
    if (run.mirror() != 0)
      throw Error("the newest checkpoints are not home yet; nothing was deleted", ExitCode::interrupted);
    if (!request.home.starts_with(kRclonePrefix)) prune_directory(request);
    if (!options.json)
      std::cout << "the newest checkpoints are home in " << printable(request.home, 400) << '\n';
    return;
  }
  Pace pace(Clock::real());
  FileVerifier verifier;
  const auto home = open_home({.place = request.home, .keep = request.home_keep, .mount = request.home_mount},
                              FileSystem::real(), verifier, pace);
  const std::vector<HomeFile> files = home->list();
  std::uint64_t bytes = 0;
  std::int64_t beyond = 0;
  for (std::size_t i = static_cast<std::size_t>(request.home_keep); i < files.size(); ++i) {
    bytes += files[i].bytes;
    ++beyond;
  }
  // With --json the report is the only output.
  if (options.json) return;
  std::cout << printable(request.home, 400) << " holds " << files.size()
            << " checkpoints; would delete at most " << format_count(beyond) << " there, "
            << format_bytes(bytes) << '\n';
}

int run_prune(const PruneRequest& options) {
  PatientVerifier verifier;
  const Retention keep = parse_retention(options.keep);
  const PruneResult result = prune(FileSystem::real(), Clock::real(), verifier,
                                   {.directory = options.directory,
                                    .keep = keep,
                                    .dry_run = options.dry_run,
                                    .even_if_running = options.even_if_running,
                                    .planned = [&](const RetentionReport& plan) {
                                      // First: a typing error must end the command before anything changes,
                                      // at HOME too.
                                      check_metrics(keep, plan, verifier.metrics());
                                      if (!options.home.home.empty()) prune_home(options);
                                      if (!options.json) print_plan(options, plan);
                                    }});
  if (options.json) {
    print_result(options, result);
    return 0;
  }
  const auto& files = result.report.files;
  const bool nothing =
      std::none_of(files.begin(), files.end(), [](const auto& file) { return file.fate == Fate::goes; });
  if (nothing) {
    std::cout << "nothing to delete; nothing was changed\n";
  } else if (options.dry_run) {
    std::cout << "would delete " << summary_of(result.report) << "; a dry run changes nothing\n";
  } else {
    std::cout << "deleted " << summary_of(result.report) << ", as attempt " << result.attempt << '\n';
  }
  return 0;
}

constexpr char kPruneFooter[] =
    R"(A file is kept if any policy keeps it. These are always kept: the newest two that verify (every byte is read), and
the newest one without NaN. Prune deletes only checkpoints from which the newest one was trained on, and files that
older attempts left half-written. It leaves every other file alone, and shows it.

With --home, DIR is a run directory with a mirror, and HOME its second place. First the newest two checkpoints are
brought home, if they are not, and read back there; HOME then keeps its newest --home-keep. Then DIR is pruned. A HOME
that is a directory can also be pruned by itself, as DIR, while no mirror uses it.

Prune claims the directory as an attempt of its own. A complete run stays complete; the next start resumes as usual.

Exit code: 0 done, or nothing to do; 2 unreadable, or refused (a run seems to be alive, nothing verifies, or a file
has a newer format); 64 wrong options.

Example:
  holdfast prune /mnt/ckpt/run1 --keep last=2,every=10000,best=test_accuracy:max --dry-run)";

}  // namespace

void add_prune(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<PruneRequest>();
  CLI::App* const command = app.add_subcommand(
      "prune", "Delete checkpoints that no policy keeps, in a directory where nobody trains");
  command->add_option("DIR", options->directory, "the run directory")->required();
  command
      ->add_option("--keep", options->keep,
                   "what to keep: last=N, every=STEPS, best=METRIC:min|max[:N], newer=TIME, separated by "
                   "commas; without last=N the newest 3 are kept as well")
      ->required()
      ->type_name("WHAT");
  command->add_flag("--dry-run", options->dry_run, "show what would be deleted; change nothing");
  command->add_flag(
      "--even-if-running", options->even_if_running,
      "prune even if an attempt seems to be running; that attempt loses the directory and ends with 76");
  command
      ->add_option("--home", options->home.home,
                   "also prune HOME, the second place of this run: a directory, or rclone:REMOTE:PATH")
      ->check(refuse_empty)
      ->type_name("HOME");
  add_home_keep(*command, options->home.home_keep);
  command->add_option("--home-mount", options->home.home_mount, "mount point of HOME's volume")
      ->check(refuse_empty)
      ->type_name("DIR");
  add_json(*command, options->json);
  command->footer(kPruneFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_prune(*options); }; });
}

}}  // namespace holdfast::v0_2
