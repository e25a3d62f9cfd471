// A small volume of its own for a test: real ext4 or XFS on a loop device, to be cut off, filled, made
// read-only and mounted again. Needs root; where it cannot be had, why_not() says why and the test is
// skipped.
//
// Nothing is left behind, even when the test is killed: the image is a memory file, the loop device detaches
// itself when the volume is unmounted, and mounts live in a mount namespace of the process's own.
//
// Errors: std::runtime_error with what failed and the errno text.
// Threads: one thread per object; the first use in the process on the main thread, before it makes others
// (threads and children share the mount namespace that they are born in).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "support/subprocess.h"

namespace holdfast::test {

enum class VolumeKind { ext4, xfs };
const char* name_of(VolumeKind kind);

// What the file system does with what it has not written yet when its power is cut (FS_IOC_SHUTDOWN). After
// any of them it answers everything with EIO until it is mounted again.
enum class PowerCut : std::uint32_t {
  all_written = 0,  // files and log go to the device first
  log_written = 1,  // the log alone
  at_once = 2,      // nothing: what a real cut leaves
};

// Cuts the power of the volume that `path` lies on. Refuses what is not on a loop device.
void cut_power(const std::filesystem::path& path, PowerCut how = PowerCut::at_once);

struct LoopVolumeOptions {
  VolumeKind kind = VolumeKind::ext4;
  std::uint64_t bytes = 64 << 20;      // takes memory as it is written; XFS gets 320 MiB at least
  std::uint32_t sector = 512;          // of the device
  std::vector<std::string> mkfs = {};  // further options
  std::string mount = {};              // options of the first mount
};

class LoopVolume {
 public:
  // Empty when such volumes can be made here; otherwise the reason for people. Tries it once per kind.
  static std::string why_not(VolumeKind kind);

  explicit LoopVolume(LoopVolumeOptions options);
  ~LoopVolume();  // unmounts, whoever still uses it
  LoopVolume(const LoopVolume&) = delete;
  LoopVolume& operator=(const LoopVolume&) = delete;

  const std::filesystem::path& path() const { return point_.path(); }  // the mount point
  const std::string& device() const { return device_; }                // "/dev/loop3", while mounted
  std::uint64_t free_bytes() const;

  // Requires that it is not mounted. `options` as in fstab: "discard,data=journal"; "ro" too.
  void mount(const std::string& options = {});
  // Waits for the last user to let go, and for the device to be detached: what is in memory is forgotten.
  void unmount();
  // Of the mounted volume: "ro", "".
  void remount(const std::string& options);
  void cut(PowerCut how = PowerCut::at_once) { cut_power(path(), how); }

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

// A file that takes all but `left` bytes of a volume while it lives.
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
