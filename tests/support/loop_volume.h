// A small volume for a test: real ext4 or XFS on a loop device that a test can cut off, fill, make read-only
// and mount again. Needs root. If it is impossible here, why_not() has the reason and the test is skipped.
//
// Nothing remains, even if the test is killed: the image is a memory file, the loop device detaches itself at
// unmount, and mounts are in a private mount namespace.
//
// Errors: std::runtime_error with what failed and the errno text. Threads: one per object. The first use must
// be on the main thread before it starts others, because threads and children inherit the mount namespace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test {

enum class VolumeKind { ext4, xfs };
const char* name_of(VolumeKind kind);

// What the file system does with unwritten data when its power is cut (FS_IOC_SHUTDOWN). Afterwards it
// answers EIO until it is mounted again.
enum class VolumeCut : std::uint32_t {
  all_written = 0,  // writes files and log first
  log_written = 1,  // writes the log only
  at_once = 2,      // writes nothing, as a real power cut
};

// Cuts the power of the volume of `path`. Refuses volumes that are not on a loop device.
void cut_power(const std::filesystem::path& path, VolumeCut how = VolumeCut::at_once);

struct LoopVolumeOptions {
  VolumeKind kind = VolumeKind::ext4;
  std::uint64_t bytes = 64 << 20;      // uses memory as it is written; XFS gets at least 320 MiB
  std::uint32_t sector = 512;          // of the device
  std::vector<std::string> mkfs = {};  // further options
  std::string mount = {};              // options of the first mount
};

class LoopVolume {
 public:
  // Empty if such volumes are possible here, otherwise the reason. Tries it once per kind.
  static std::string why_not(VolumeKind kind);

  explicit LoopVolume(LoopVolumeOptions options);
  ~LoopVolume();  // unmounts, even if it is in use
  LoopVolume(const LoopVolume&) = delete;
  LoopVolume& operator=(const LoopVolume&) = delete;

  const std::filesystem::path& path() const { return point_.path(); }  // the mount point
  const std::string& device() const { return device_; }                // "/dev/loop3", while mounted
  std::uint64_t free_bytes() const;

  // Requires that it is not mounted. `options` as in fstab: "discard,data=journal", "ro".
  void mount(const std::string& options = {});
  // Waits for the last user and until the device is detached: the caches are then empty.
  void unmount();
  // Options for the mounted volume: "ro", "".
  void remount(const std::string& options);
  void cut(VolumeCut how = VolumeCut::at_once) { cut_power(path(), how); }

 private:
  void make_file_system();
  int attach();
  bool attached() const;

  LoopVolumeOptions options_;
  TemporaryFolder point_;
  int image_ = -1;
  std::string device_;
  bool mounted_ = false;
};

// A file that fills a volume up to `left` bytes while it lives.
class Ballast {
 public:
  explicit Ballast(const std::filesystem::path& folder, std::uint64_t left = 0);
  ~Ballast();
  Ballast(const Ballast&) = delete;
  Ballast& operator=(const Ballast&) = delete;

 private:
  std::filesystem::path file_;
};

}  // namespace holdfast::test
