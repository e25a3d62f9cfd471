#include "holdfast/io/volume_report.h"

#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/io/internal/probe_folder.h"
#include "holdfast/io/internal/stall_watch.h"
#include "holdfast/io/internal/volume_capabilities.h"
#include "holdfast/io/internal/volume_speed.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint64_t kLeast = 16 << 20;  // bytes; a smaller write would measure caches

}  // namespace

// What a commit cannot do without: a durable name before the acknowledgement, and a name that replaces no
// other checkpoint (store/commit.h, rule 2). Everything else has a fallback.
bool VolumeReport::fit() const {
  return !read_only && syncs_directories && (renames_exclusive || hard_links);
}

VolumeReport probe_volume(FileSystem& file_system, const std::filesystem::path& directory,
                          const ProbeOptions& options) {
  internal::StallWatch watch;
  // The watch names a dead volume in time, because the calls below may block for ever on one.
  watch.doing("an answer from " + directory.native());
  const auto parent = file_system.open_directory(directory, false);
  // Never created: probing a mount point whose volume is missing would measure the root disk.
  if (!parent) throw IoError("open", directory.native(), ENOENT, "is the volume mounted?");
  VolumeReport report;
  internal::look_at_volume(file_system, directory, report);
  // A read-only volume can still be resumed from, so its report ends here without an error.
  if (report.read_only) return report;

  internal::require_going_on(options);
  // Before the own folder is made, so that leftovers of killed probes do not count as used space.
  internal::remove_dead_probes(*parent, directory);
  internal::ProbeFolder folder(*parent, directory);
  watch.doing("the first calls in " + folder.path_of("."));
  internal::try_calls(folder, report);
  if (!report.fit()) return report;

  // At most a quarter of the free space: a run may be saving there at the same time.
  const std::uint64_t bytes = std::min(options.bytes, report.bytes_free / 4);
  if (bytes >= kLeast) report.writing = internal::measure_writing(folder, bytes, options, watch);
  report.committing = internal::measure_commits(folder, options, watch);
  watch.doing("the removal of " + folder.path_of("."));
  return report;
}

std::optional<Duration> estimate_save(const VolumeReport& report, std::uint64_t state_bytes) {
  if (!report.writing || !report.committing || report.writing->bytes == 0) return std::nullopt;
  const double seconds = std::chrono::duration<double>(report.writing->time).count() *
                         static_cast<double>(state_bytes) / static_cast<double>(report.writing->bytes);
  // Keeps the sum below within 64-bit nanoseconds.
  constexpr double kLongest = 1e9;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::min(seconds, kLongest))) +
         report.committing->median;
}

}}  // namespace holdfast::v0_2
