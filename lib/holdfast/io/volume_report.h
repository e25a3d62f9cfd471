// Finds out what a volume supports by trying it, in a temporary folder inside the given directory. It never
// touches other files; a run that trains there only sees a busy disk.
//
// The probe writes its files as checkpoints are written, through io/file_system.h. It calls the kernel
// directly for what that interface hides (whether O_DIRECT, fallocate and renameat2 work, or their
// fallbacks), and for rmdir, which no run needs.
//
// Errors: IoError, except for a missing feature, which is a result. Error with ExitCode::interrupted if
// `go_on` returns false. Threads: call from one. It starts two that write and one that logs stalls, and joins
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"
#include "holdfast/io/mount_information.h"

namespace holdfast { inline namespace v0_2 {

struct ProbeOptions {
  std::uint64_t bytes = std::uint64_t{1} << 30;  // to write; large enough to outlast caches. At most free / 4
  Duration longest = std::chrono::seconds(10);   // limit for that, so that a slow volume costs no more
  int commits = 15;                              // small commits for the median; each costs an fsync
  // Called between operations and blocks. False ends the probe and removes its folder.
  std::function<bool()> go_on = {};
};

struct VolumeReport {
  std::string path;
  std::optional<MountEntry> mount;
  FileSystemKind kind;
  bool read_only = false;
  bool on_root = false;
  std::uint64_t bytes_in_all = 0;
  std::uint64_t bytes_free = 0;              // for this user
  std::optional<std::uint64_t> inodes_free;  // nullopt: the file system makes them as needed

  // The following are valid only if the volume is writable.
  struct DirectIo {
    bool works = false;
    std::uint32_t memory_alignment = 0;  // bytes, from statx; 0: unknown
    std::uint32_t offset_alignment = 0;
  };
  DirectIo direct_io;
  bool reserves_space = false;     // fallocate
  bool renames_exclusive = false;  // renameat2(NOREPLACE)
  bool hard_links = false;
  bool syncs_directories = false;

  struct WriteSpeed {
    std::uint64_t bytes = 0;
    Duration time{};  // includes fsync
  };
  std::optional<WriteSpeed> writing;
  struct CommitSpeed {
    int count = 0;
    Duration median{};
    Duration slowest{};
  };
  std::optional<CommitSpeed> committing;

  // True if checkpoints can be committed here.
  bool fit() const;
};

VolumeReport probe_volume(FileSystem& file_system, const std::filesystem::path& directory,
                          const ProbeOptions& options = {});

struct VolumeRemark {
  enum class Weight { good, note, warning };
  Weight weight = Weight::good;
  std::string text;  // the finding, and what it means for Holdfast
};
std::vector<VolumeRemark> explain(const VolumeReport& report);

// Estimated time of one save of `state_bytes`; nullopt if nothing was measured.
std::optional<Duration> estimate_save(const VolumeReport& report, std::uint64_t state_bytes);

}}  // namespace holdfast::v0_2
