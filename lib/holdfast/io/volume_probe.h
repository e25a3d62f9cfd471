// Checks a volume before a run trusts its checkpoints to it: is it mounted, and is it the intended one?
//
// Nothing here changes the volume.
// Errors: UsageError, IoError. Threads: free functions; thread-safe as far as their arguments are.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"

namespace holdfast { inline namespace v0_2 {

struct MountWaitOptions {
  // After a machine's start a volume may take minutes to attach. Each poll costs one system call.
  Duration limit = std::chrono::minutes(10);
  Duration poll = std::chrono::seconds(1);
  // Called before every sleep with the time waited so far. False ends the wait (an interruption).
  std::function<bool(Duration waited)> go_on = {};
};

enum class MountWait { mounted, timed_out, stopped };

// Blocks until `mount` is the root of a mounted file system. Logs at the start of the wait and every 30 s.
MountWait wait_for_mount(const FileSystem& file_system, Clock& clock, const std::filesystem::path& mount,
                         const MountWaitOptions& options = {});

// Throws UsageError unless `directory` lies beneath `mount`, as written and with links resolved. A run that
// waits for one volume and writes to another would be lost with the machine.
void check_beneath_mount(const std::filesystem::path& directory, const std::filesystem::path& mount);

// Throws IoError (ENODEV) if the volume at `mount` is gone. Also if `directory` was made while it was gone:
// it then lies on the volume that holds the mount point. A volume mounted deeper and a subvolume are
// accepted.
void check_on_mount(FileSystem& file_system, const Directory& directory, const std::filesystem::path& mount);

// A warning for people if `directory` lies on the root file system, which usually ends with the machine.
std::optional<std::string> root_file_system_warning(const FileSystem& file_system,
                                                    const std::filesystem::path& directory);

}}  // namespace holdfast::v0_2
