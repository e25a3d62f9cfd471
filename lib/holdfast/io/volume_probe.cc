#include "holdfast/io/volume_probe.h"

#include <algorithm>
#include <cerrno>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/io/mount_information.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A mount may take minutes; a line in between shows that the start is alive.
constexpr Duration kSayAgain = std::chrono::seconds(30);

// Links are followed as far as the path exists, because text alone would accept a link that leads
// elsewhere.
std::filesystem::path resolved(const std::filesystem::path& path) {
  std::error_code error;
  auto real = std::filesystem::weakly_canonical(path, error);
  return error ? std::filesystem::absolute(path).lexically_normal() : real;
}

// nullopt: we may not open the directory that holds the mount point. Then we made nothing there either.
std::optional<std::uint64_t> device_of(FileSystem& file_system, const std::filesystem::path& path) {
  try {
    const auto directory = file_system.open_directory(path, false);
    return directory ? std::optional(directory->own_status().device) : std::nullopt;
  } catch (const IoError& error) {
    if (error.code() != EACCES) throw;
    return std::nullopt;
  }
}

}  // namespace

MountWait wait_for_mount(const FileSystem& file_system, Clock& clock, const std::filesystem::path& mount,
                         const MountWaitOptions& options) {
  const SteadyTime start = clock.now();
  std::optional<SteadyTime> said;
  while (!file_system.is_mount_point(mount)) {
    const SteadyTime now = clock.now();
    // Asks at least once, even with a limit of zero.
    const Duration waited = now - start;
    if (waited >= options.limit) return MountWait::timed_out;
    if (options.go_on && !options.go_on(waited)) return MountWait::stopped;
    if (!said || now - *said >= kSayAgain) {
      log_info("waiting for {} to be mounted ({} left)", mount, format_duration(options.limit - waited));
      said = now;
    }
    clock.sleep_for(std::min(options.poll, options.limit - waited));
  }
  if (said) log_info("{} is mounted", mount);
  return MountWait::mounted;
}

void check_beneath_mount(const std::filesystem::path& directory, const std::filesystem::path& mount) {
  if (is_above(resolved(mount), resolved(directory))) return;
  throw UsageError("the checkpoint directory " + directory.native() + " does not lie on the mount " +
                   mount.native() + ": choose a directory beneath it");
}

void check_on_mount(FileSystem& file_system, const Directory& directory, const std::filesystem::path& mount) {
  const std::uint64_t device = directory.own_status().device;
  const std::filesystem::path point = resolved(mount);
  // On the device of the mount point's parent and not on that of the mount: the directory was created while
  // the volume was gone.
  const bool elsewhere = device_of(file_system, point) != device;
  if (file_system.is_mount_point(mount) &&
      !(elsewhere && device_of(file_system, point.parent_path()) == device)) {
    return;
  }
  throw IoError("mount", mount.native(), ENODEV,
                "the volume went away during the start; attach it and start again");
}

std::optional<std::string> root_file_system_warning(const FileSystem& file_system,
                                                    const std::filesystem::path& directory) {
  if (!file_system.on_root_file_system(directory)) return std::nullopt;
  return directory.native() +
         " lies on the root file system, which may go with this machine: use a volume, and name its mount "
         "point "
         "(CheckpointerOptions::mount)";
}

}}  // namespace holdfast::v0_2
