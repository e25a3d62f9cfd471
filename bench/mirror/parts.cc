#include "parts.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "../shared/median.h"
#include "../shared/temporary_folder.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/cli/chart.h"
#include "holdfast/format/reader.h"
#include "holdfast/planning/interval_planner.h"
#include "measured_run.h"
#include "paced_file_system.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

std::string program(const char* name) { return fs::read_symlink("/proc/self/exe").parent_path() / name; }
std::string self() { return fs::read_symlink("/proc/self/exe"); }

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", value);
  return text;
}
std::string name_of(double limit) { return limit > 0 ? number(limit) + " MB/s" : "no limit"; }
std::string key_of(double limit) { return limit > 0 ? number(limit) : "unlimited"; }

// A folder with the run directory of a trainer that has saved once.
class Disk {
 public:
  Disk(const Options& options, std::uint64_t bytes) : folder_(options.directory) {
    Words words = {self(), "--child-train",   run(), "--child-state", std::to_string(bytes), "--child-every",
                   "0.01", "--child-seconds", "0.02"};
    MeasuredRun(words, log()).wait();
    for (const auto& entry : fs::directory_iterator(run())) {
      if (entry.path().extension() == ".h5") file_ = std::max(file_, entry.path());
    }
    if (file_.empty()) throw Error("the trainer saved nothing in " + run());
    // One checkpoint: what is measured is one copy.
    for (const auto& entry : fs::directory_iterator(run())) {
      if (entry.path().extension() == ".h5" && entry.path() != file_) fs::remove(entry.path());
    }
  }

  using Words = std::vector<std::string>;
  fs::path file() const { return file_; }
  std::string run() const { return folder_.path() / "run"; }
  std::string home() const { return folder_.path() / "home"; }
  std::string log() const { return folder_.path() / "log"; }
  void settle() const {
    std::error_code none;
    fs::remove_all(home(), none);
    fs::remove(fs::path(run()) / "HOME_STATE.json", none);
    fs::create_directories(home());
    const int descriptor = open(home().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    syncfs(descriptor);
    close(descriptor);
  }
  Measured mirror(const std::string& place, double limit) const {
    settle();
    Words words = {program("holdfast"), "mirror", run(), "--to", place, "--once"};
    if (limit > 0) words.insert(words.end(), {"--limit", number(limit)});
    return MeasuredRun(words, log()).wait();
  }
  Measured rclone_alone(double limit) const {
    settle();
    Words words = {"rclone", "copyto", "--ignore-times", "--no-traverse"};
    if (limit > 0) words.insert(words.end(), {"--bwlimit", number(limit * 1e6 / 1024)});
    words.insert(words.end(), {file_.native(), home() + "/" + file_.filename().native()});
    return MeasuredRun(words, log()).wait();
  }
  // cp, and all that makes it durable; slow where the destination is.
  Measured copied(double limit) const {
    settle();
    const auto begin = std::chrono::steady_clock::now();
    const std::string to = home() + "/" + file_.filename().native();
    const int in = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
    const int out = open((to + ".part").c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (in < 0 || out < 0) throw IoError("open", to, errno);
    WritePace pace(limit);
    std::vector<char> buffer(1 << 20);
    for (ssize_t got = 0; (got = read(in, buffer.data(), buffer.size())) > 0;) {
      if (write(out, buffer.data(), static_cast<std::size_t>(got)) != got) throw IoError("write", to, errno);
      pace.spend(static_cast<std::uint64_t>(got));
    }
    if (fsync(out) != 0) throw IoError("fsync", to, errno);
    close(in);
    close(out);
    fs::rename(to + ".part", to);
    const int folder = open(home().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fsync(folder);
    close(folder);
    return {.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
  }
  // The source leaves the page cache, which a peer would read it from.
  void drop_source() const {
    const int in = open(file_.c_str(), O_RDONLY | O_CLOEXEC);
    posix_fadvise(in, 0, 0, POSIX_FADV_DONTNEED);
    close(in);
  }

 private:
  TemporaryFolder folder_;
  fs::path file_;
};

bool rclone_is_there() { return std::system("rclone version >/dev/null 2>&1") == 0; }

std::vector<double> seconds_of(const std::vector<Measured>& all) {
  std::vector<double> values;
  for (const Measured& one : all) values.push_back(one.seconds);
  return values;
}
std::vector<double> processor_of(const std::vector<Measured>& all) {
  std::vector<double> values;
  for (const Measured& one : all) values.push_back(one.processor_seconds);
  return values;
}

nlohmann::json trained(const Disk::Words& more, const std::string& log) {
  Disk::Words words = {self()};
  words.insert(words.end(), more.begin(), more.end());
  MeasuredRun(words, log).wait();
  std::ifstream lines(log);
  std::string last;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{")) last = line;
  }
  return nlohmann::json::parse(last);
}

}  // namespace

std::string Row::verdict() const {
  if (!at_least && !at_most) return "";
  const bool met = (!at_least || value >= *at_least) && (!at_most || value <= *at_most);
  char goal[32];
  std::snprintf(goal, sizeof goal, "%s %g", at_least ? ">=" : "<=", at_least ? *at_least : *at_most);
  return std::string(met ? "met" : "missed") + " (goal " + goal + ")";
}

void Report::section(const std::string& title) { std::printf("\n%s\n", title.c_str()); }

void Report::add(Row row) {
  std::printf("  %-66s %9.4g %-26s %s%s\n", row.what.c_str(), row.value, row.unit.c_str(),
              row.verdict().c_str(), row.note.empty() ? "" : ("  " + row.note).c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

void Report::leave_out(const std::string& what, const std::string& why) {
  std::printf("  left out: %s: %s\n", what.c_str(), why.c_str());
  left_out_.emplace_back(what, why);
}

nlohmann::ordered_json Report::json() const {
  nlohmann::ordered_json all;
  all["rows"] = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json one = {
        {"key", row.key}, {"what", row.what}, {"value", row.value}, {"unit", row.unit}};
    if (row.at_least) one["at_least"] = *row.at_least;
    if (row.at_most) one["at_most"] = *row.at_most;
    if (!row.samples.empty()) one["samples"] = row.samples;
    if (!row.note.empty()) one["note"] = row.note;
    all["rows"].push_back(std::move(one));
  }
  all["left_out"] = nlohmann::ordered_json::object();
  for (const auto& [what, why] : left_out_) all["left_out"][what] = why;
  return all;
}

int verify_once(const std::string& path) {
  const auto file = FileSystem::real().open_file(path, OpenMode::read);
  if (!file) throw IoError("open", path, ENOENT);
  const auto read = read_index(*file, ReadMode::uncached);
  const auto* const index = std::get_if<CheckpointIndex>(&read);
  if (index == nullptr || verify_bytes(*file, *index, ReadMode::uncached, 2))
    throw Error(path + " is damaged");
  return 0;
}

void measure_copies(const Options& options, Report& report) {
  const Disk disk(options, options.bytes);
  const bool rclone = options.rclone && rclone_is_there();
  if (!rclone) report.leave_out("rclone", options.rclone ? "it is not installed" : "--no-rclone was given");
  const std::string store = "rclone::local:" + disk.home();
  for (const double limit : options.limits) {
    report.section("one copy of " + format_bytes(fs::file_size(disk.file())) + ", " + name_of(limit));
    std::vector<Measured> ours;
    std::vector<Measured> cp;
    std::vector<Measured> ours_by_rclone;
    std::vector<Measured> rclone_alone;
    std::vector<Measured> once;
    for (int i = 0; i < options.repetitions; ++i) {
      disk.drop_source();
      cp.push_back(disk.copied(limit));
      disk.drop_source();
      ours.push_back(disk.mirror(disk.home(), limit));
      once.push_back(MeasuredRun({self(), "--child-verify", disk.file().native()}, disk.log()).wait());
      if (!rclone) continue;
      disk.drop_source();
      rclone_alone.push_back(disk.rclone_alone(limit));
      disk.drop_source();
      ours_by_rclone.push_back(disk.mirror(store, limit));
    }
    const double hashed = std::max(median(processor_of(once)), 1e-3);
    const auto rows = [&](const std::string& home, const std::vector<Measured>& mine, const char* peer,
                          const std::vector<Measured>& theirs) {
      const double seconds = median(seconds_of(mine));
      report.add({.key = "copy." + home + "." + key_of(limit),
                  .what = "mirror to " + home + ": speed against " + peer,
                  .value = median(seconds_of(theirs)) / seconds,
                  .unit = "times",
                  .at_least = limit > 0 ? std::optional(0.9) : std::nullopt,
                  .samples = seconds_of(mine),
                  .note = format_log("{:.2f} s", {seconds})});
      report.add({.key = "processor." + home + "." + key_of(limit),
                  .what = "… its processor time against reading and hashing once",
                  .value = median(processor_of(mine)) / hashed,
                  .unit = "times",
                  .at_most = 1.2,
                  .samples = processor_of(mine),
                  .note = format_log("{:.0f} ms", {median(processor_of(mine)) * 1e3})});
      double peak = 0;
      for (const Measured& one : mine) peak = std::max(peak, one.peak_megabytes);
      report.add({.key = "memory." + home + "." + key_of(limit),
                  .what = "… its peak memory",
                  .value = peak,
                  .unit = "MB",
                  .at_most = 64});
    };
    rows("directory", ours, "cp + fsync", cp);
    if (rclone) rows("store", ours_by_rclone, "rclone copyto alone", rclone_alone);
  }
}

void measure_memory(const Options& options, Report& report) {
  const Disk disk(options, options.large);
  report.section("one copy of " + format_bytes(fs::file_size(disk.file())));
  const Measured once = MeasuredRun({self(), "--child-verify", disk.file().native()}, disk.log()).wait();
  const auto row = [&](const char* home, const Measured& measured) {
    report.add(
        {.key = std::string("processor.large.") + home,
         .what = std::string("mirror to ") + home + ": processor time against reading and hashing once",
         .value = measured.processor_seconds / std::max(once.processor_seconds, 1e-3),
         .unit = "times",
         .at_most = 1.2,
         .note = format_log("{:.0f} ms and {:.0f} ms",
                            {measured.processor_seconds * 1e3, once.processor_seconds * 1e3})});
    report.add({.key = std::string("memory.large.") + home,
                .what = "… its peak memory",
                .value = measured.peak_megabytes,
                .unit = "MB",
                .at_most = 64,
                .note = format_log("{:.1f} s", {measured.seconds})});
  };
  row("directory", disk.mirror(disk.home(), 0));
  if (options.rclone && rclone_is_there()) row("store", disk.mirror("rclone::local:" + disk.home(), 0));
}

// A window with one copy in it, and one without, in turns. All cores compute.
void measure_training(const Options& options, Report& report) {
  const Disk disk(options, options.bytes);
  const auto cores = std::max(1U, std::thread::hardware_concurrency());
  const std::string log = disk.log();
  const auto window = [&](const std::string& run, double every) {
    Disk::Words words = {"--child-train",   run,
                         "--child-seconds", std::to_string(options.window),
                         "--child-threads", std::to_string(cores)};
    if (!run.empty()) {
      words.insert(words.end(),
                   {"--child-state", std::to_string(options.bytes), "--child-every", std::to_string(every)});
    }
    return trained(words, log + ".train");
  };
  report.section("training beside a copy of " + format_bytes(fs::file_size(disk.file())) + ", " +
                 std::to_string(cores) + " cores computing");
  std::vector<double> lost;
  std::vector<double> processor;
  for (int i = 0; i < options.pairs; ++i) {
    std::vector<double> rates(2);
    for (const int with : {i % 2, 1 - i % 2}) {
      disk.settle();
      std::optional<MeasuredRun> mirror;
      if (with == 1) {
        mirror.emplace(Disk::Words{program("holdfast"), "mirror", disk.run(), "--to", disk.home(), "--once"},
                       log);
      }
      const auto result = window("", 0);
      rates[static_cast<std::size_t>(with)] = result["steps"].get<double>() / result["seconds"].get<double>();
      if (mirror) processor.push_back(mirror->wait().processor_seconds);
    }
    lost.push_back((1 - rates[1] / rates[0]) * options.window / 60 * 100);
  }
  report.add({.key = "training.lost",
              .what = "training lost at one copy a minute, by counted steps",
              .value = median(lost),
              .unit = "%",
              .at_most = 0.5,
              .samples = lost,
              .note = format_log("windows of {:g} s", {options.window})});
  report.add({.key = "training.processor",
              .what = "the mirror's processor time at one copy a minute, of all cores",
              .value = median(processor) / 60 / cores * 100,
              .unit = "%",
              .at_most = 0.5,
              .samples = processor});

  // How long a save blocks the training, with a mirror beside it and without, in turns.
  std::vector<double> alone;
  std::vector<double> beside;
  for (int i = 0; i < std::max(1, options.pairs / 2); ++i) {
    for (const int with : {i % 2, 1 - i % 2}) {
      const std::string run = fs::path(disk.run()).parent_path() / "saves";
      fs::remove_all(run);
      fs::remove_all(disk.home());
      std::optional<MeasuredRun> mirror;
      if (with == 1) {
        mirror.emplace(Disk::Words{program("holdfast"), "mirror", run, "--to", disk.home()}, log);
      }
      const auto result = window(run, options.window / 6);
      for (const auto& one : result["blocked_seconds"])
        (with == 1 ? beside : alone).push_back(one.get<double>());
      if (mirror) mirror->stop();
    }
  }
  report.add({.key = "training.blocked",
              .what = "a save blocks the training, with a mirror against without",
              .value = median(beside) / median(alone),
              .unit = "times",
              .at_most = 1.1,
              .samples = beside,
              .note = format_log("{:.1f} ms and {:.1f} ms", {median(beside) * 1e3, median(alone) * 1e3})});
}

namespace {

constexpr double kQuickWrite = 1e9;  // bytes a second, of the quick disk in the model

// Seconds at risk of a run whose machine vanishes at any moment: the mean age of the newest state there.
struct Model {
  double every = 0;  // between two saves
  double one_tier = 0;
  double here = 0;  // two tiers: if the disk survives
  double home = 0;  // if it does not
};

// The save interval is the planner's, with the hazard of public traces and a stall of 50 ms (docs/figures.md).
Model model_of(double bytes, double limit) {
  const auto planned = [](double write) {
    const auto seconds = [](double value) { return Duration(static_cast<std::int64_t>(value * 1e9)); };
    const Duration interval =
        plan_interval({.stall = seconds(0.05), .write = seconds(write)}, hazard_of({}), {});
    return std::chrono::duration<double>(interval).count();
  };
  const double slow = bytes / (limit * 1e6);
  const double quick = bytes / kQuickWrite;
  const double every = planned(quick);
  // The newest state counts `latency` after it was staged; the next one `period` later.
  const auto age = [](double latency, double period) { return latency + period / 2; };
  const double read_back = bytes / kQuickWrite;
  return {.every = every,
          .one_tier = age(slow, planned(slow)),
          .here = age(quick, every),
          .home = age(quick + slow + read_back, std::max(every, slow + read_back))};
}

}  // namespace

void measure_gain(const Options& options, Report& report) {
  const auto run = [&](double limit, bool two_tiers, double every) {
    const TemporaryFolder folder(options.directory);
    const std::string run = folder.path() / "run";
    fs::create_directory(run);
    std::optional<MeasuredRun> mirror;
    if (two_tiers) {
      mirror.emplace(Disk::Words{program("holdfast"), "mirror", run, "--to", folder.path() / "home",
                                 "--limit", number(limit)},
                     folder.path() / "mirror.log");
    }
    Disk::Words words = {"--child-train",   run,
                         "--child-state",   std::to_string(options.large),
                         "--child-every",   std::to_string(every),
                         "--child-seconds", std::to_string(options.gain)};
    if (!two_tiers) words.insert(words.end(), {"--child-limit", number(limit)});
    const auto result = trained(words, folder.path() / "train.log");
    if (mirror) mirror->stop();
    return result;
  };
  for (const double limit : options.limits) {
    if (limit <= 0) continue;
    const double bytes = static_cast<double>(options.large);
    report.section("seconds at risk, a state of " + format_bytes(options.large) + ", a safe volume of " +
                   name_of(limit));
    const Model model = model_of(bytes, limit);
    const std::string key = "gain." + key_of(limit);
    report.add(
        {.key = key + ".model.one", .what = "model: one slow tier", .value = model.one_tier, .unit = "s"});
    report.add({.key = key + ".model.here",
                .what = "model: two tiers, the quick disk survives",
                .value = model.here,
                .unit = "s"});
    report.add({.key = key + ".model.home",
                .what = "model: two tiers, the machine vanishes",
                .value = model.home,
                .unit = "s"});
    if (options.gain <= 0) {
      report.leave_out(key + ".measured", "--gain-seconds 0 was given");
      continue;
    }
    // As often as each volume can: one write after the other.
    const double slow = bytes / (limit * 1e6);
    const auto one = run(limit, false, std::max(1.0, 4 * slow));
    const auto two = run(limit, true, std::max(1.0, options.gain / 20));
    const auto measured = [&](const char* which, const char* what, const nlohmann::json& age) {
      if (age.is_null()) {
        report.leave_out(key + ".measured." + which,
                         "no copy was finished in " + number(options.gain) + " s");
        return;
      }
      report.add({.key = key + ".measured." + which,
                  .what = std::string("measured: ") + what,
                  .value = age["mean_seconds"].get<double>(),
                  .unit = "s",
                  .note = format_log("at worst {:.1f} s", {age["worst_seconds"].get<double>()})});
    };
    measured("one", "one slow tier", one["at_risk_here"]);
    measured("here", "two tiers, the quick disk survives", two["at_risk_here"]);
    measured("home", "two tiers, the machine vanishes", two["at_risk_home"]);
  }
}

std::string chart_of_gain(const Options& options, const Report& report) {
  BarChart chart;
  chart.title = "Seconds at risk: how old the newest safe state is, on average";
  chart.subtitle = "a state of " + format_bytes(options.large) + "; shorter is better";
  chart.nothing = "nothing was measured";
  for (const double limit : options.limits) {
    if (limit <= 0) continue;
    BarGroup group;
    group.title = "a safe volume of " + name_of(limit);
    for (const Row& row : report.rows()) {
      if (!row.key.starts_with("gain." + key_of(limit) + ".")) continue;
      const char* const classes = row.key.ends_with(".one")    ? "second-fill"
                                  : row.key.ends_with(".home") ? "third-fill"
                                                               : "first-fill";
      group.bars.push_back({.name = row.what,
                            .length = row.value,
                            .value = format_log("{:.1f} s", {row.value}),
                            .classes = classes});
      group.full = std::max(group.full, row.value);
    }
    if (!group.bars.empty()) chart.groups.push_back(std::move(group));
  }
  return bar_chart(chart).document();
}

}  // namespace holdfast::bench
