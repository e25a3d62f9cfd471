// One copy of a checkpoint, by the mirror and by its peers, in turns.
#include <algorithm>
#include <cerrno>

#include "../shared/median.h"
#include "disk.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/format/reader.h"
#include "parts.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

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
  const Disk disk(options.directory, options.bytes);
  const bool rclone = options.rclone && rclone_is_there();
  if (!rclone) report.leave_out("rclone", options.rclone ? "it is not installed" : "--no-rclone was given");
  const std::string store = "rclone::local:" + disk.home();
  for (const double limit : options.limits) {
    report.section("one copy of " + format_bytes(fs::file_size(disk.file())) + ", " + name_of(limit));
    std::vector<Measured> ours;
    std::vector<Measured> cp;
    std::vector<Measured> ours_by_rclone;
    std::vector<Measured> rclone_alone;
    std::vector<double> rclone_and_back;
    std::vector<Measured> once;
    for (int i = 0; i < options.repetitions; ++i) {
      cp.push_back(disk.copied(limit));
      ours.push_back(disk.mirror(disk.home(), limit));
      once.push_back(MeasuredRun({self(), "--child-verify", disk.file().native()}, disk.log()).wait());
      if (!rclone) continue;
      rclone_alone.push_back(disk.rclone_alone(limit));
      rclone_and_back.push_back(rclone_alone.back().seconds + disk.rclone_reads_back().seconds);
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
    if (!rclone) continue;
    rows("store", ours_by_rclone, "rclone copyto alone", rclone_alone);
    const double seconds = median(seconds_of(ours_by_rclone));
    report.add({.key = "copy.verified." + key_of(limit),
                .what = "… its speed against rclone copyto, then rclone cat of the copy",
                .value = median(rclone_and_back) / seconds,
                .unit = "times",
                .samples = rclone_and_back,
                .note = format_log("{:.2f} s", {median(rclone_and_back)})});
  }
}

void measure_memory(const Options& options, Report& report) {
  const Disk disk(options.directory, options.large);
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

}  // namespace holdfast::bench
