#include "support/loop_volume.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "support/soon.h"

namespace holdfast::test {
namespace {

// linux/fs.h has it from 6.10 on; ext4 and XFS had it before, under their own names.
constexpr unsigned long kShutdown = _IOR('X', 125, std::uint32_t);
constexpr unsigned kLoopMajor = 7;
constexpr std::uint64_t kSmallestXfs = 320 << 20;  // mkfs.xfs refuses less than 300 MB

[[noreturn]] void fail(const std::string& what, int code = errno) {
  throw std::runtime_error(what + ": " + std::strerror(code));
}

std::string program(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"}) {
    if (access((folder + name).c_str(), X_OK) == 0) return folder + name;
  }
  return {};
}

// So that nothing stays mounted when this process ends in any way.
void enter_own_namespace() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (unshare(CLONE_NEWNS) != 0) fail("no mount namespace of its own");
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) fail("mount --make-rprivate /");
  });
}

struct MountWords {
  unsigned long flags = 0;
  std::string data;
};

MountWords words_of(const std::string& options) {
  MountWords words;
  std::istringstream text(options);
  for (std::string word; std::getline(text, word, ',');) {
    if (word == "ro") {
      words.flags |= MS_RDONLY;
    } else {
      words.data += (words.data.empty() ? "" : ",") + word;
    }
  }
  return words;
}

std::string try_one(VolumeKind kind) {
  if (geteuid() != 0) return "not root, and only root may mount";
  if (access("/dev/loop-control", R_OK | W_OK) != 0) {
    return std::string("no loop devices (/dev/loop-control: ") + std::strerror(errno) + ")";
  }
  const std::string maker = std::string("mkfs.") + name_of(kind);
  if (program(maker).empty()) {
    return "no " + maker + " (package " + (kind == VolumeKind::xfs ? "xfsprogs" : "e2fsprogs") + ")";
  }
  try {
    LoopVolume volume({.kind = kind});
    volume.cut();
    volume.unmount();
    volume.mount();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

const char* name_of(VolumeKind kind) { return kind == VolumeKind::ext4 ? "ext4" : "xfs"; }

void cut_power(const std::filesystem::path& path, VolumeCut how) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open " + path.native());
  struct stat status {};
  auto flags = static_cast<std::uint32_t>(how);
  const bool on_loop = fstat(fd, &status) == 0 && major(status.st_dev) == kLoopMajor;
  const int code = !on_loop ? EXDEV : ioctl(fd, kShutdown, &flags) == 0 ? 0 : errno;
  close(fd);
  if (code != 0) fail("shutdown of the file system of " + path.native(), code);
}

std::string LoopVolume::why_not(VolumeKind kind) {
  static std::array<std::once_flag, 2> once;
  static std::array<std::string, 2> reasons;
  const auto at = static_cast<std::size_t>(kind);
  std::call_once(once.at(at), [&] { reasons.at(at) = try_one(kind); });
  return reasons.at(at);
}

LoopVolume::LoopVolume(LoopVolumeOptions options) : options_(std::move(options)) {
  enter_own_namespace();
  if (options_.kind == VolumeKind::xfs) options_.bytes = std::max(options_.bytes, kSmallestXfs);
  image_ = memfd_create("holdfast-test-volume", MFD_CLOEXEC);
  if (image_ < 0) fail("memfd_create");
  try {
    if (ftruncate(image_, static_cast<off_t>(options_.bytes)) != 0) fail("ftruncate of a volume's image");
    make_file_system();
    mount(options_.mount);
  } catch (...) {
    close(image_);
    throw;
  }
}

LoopVolume::~LoopVolume() {
  // Lazily: the device detaches itself when it is no longer used.
  if (mounted_) umount2(path().c_str(), MNT_DETACH);
  close(image_);
}

void LoopVolume::make_file_system() {
  std::vector<std::string> command = {program(std::string("mkfs.") + name_of(options_.kind)), "-q"};
  command.emplace_back(options_.kind == VolumeKind::ext4 ? "-F" : "-f");
  if (options_.sector != 512) {
    command.emplace_back(options_.kind == VolumeKind::ext4 ? "-b" : "-s");
    command.push_back((options_.kind == VolumeKind::ext4 ? "" : "size=") + std::to_string(options_.sector));
  }
  command.insert(command.end(), options_.mkfs.begin(), options_.mkfs.end());
  command.push_back("/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(image_));
  const Ended made = Subprocess(command).wait();
  if (made.exit_code != 0) throw std::runtime_error(command[0] + " failed: " + made.err);
}

int LoopVolume::attach() {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) fail("open /dev/loop-control");
  int device = -1;
  int code = 0;
  // Another process may take the free number first.
  for (int tries = 0; tries < 100 && device < 0; ++tries) {
    const int number = ioctl(control, LOOP_CTL_GET_FREE);
    device_ = "/dev/loop" + std::to_string(number);
    device = number < 0 ? -1 : open(device_.c_str(), O_RDWR | O_CLOEXEC);
    if (device < 0) {
      code = errno;
      break;
    }
    loop_config config{};
    config.fd = static_cast<std::uint32_t>(image_);
    config.block_size = options_.sector;
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    if (ioctl(device, LOOP_CONFIGURE, &config) == 0) break;
    code = errno;
    close(std::exchange(device, -1));
    if (code != EBUSY) break;
  }
  close(control);
  if (device < 0) fail("loop device " + device_, code);
  return device;
}

void LoopVolume::mount(const std::string& options) {
  const MountWords words = words_of(options);
  const int device = attach();
  const bool done =
      ::mount(device_.c_str(), path().c_str(), name_of(options_.kind), words.flags, words.data.c_str()) == 0;
  const int code = errno;
  close(device);
  if (!done) {
    fail("mount of " + std::string(name_of(options_.kind)) + " with options \"" + options + "\"", code);
  }
  mounted_ = true;
}

void LoopVolume::unmount() {
  if (!soon([&] { return umount2(path().c_str(), 0) == 0 || errno != EBUSY; })) fail("umount");
  mounted_ = false;
  if (!soon([&] { return !attached(); })) throw std::runtime_error(device_ + " stays attached");
}

bool LoopVolume::attached() const {
  struct stat image {};
  loop_info64 info{};
  const int device = open(device_.c_str(), O_RDONLY | O_CLOEXEC);
  // The number may belong to another volume by now.
  const bool ours = device >= 0 && ioctl(device, LOOP_GET_STATUS64, &info) == 0 &&
                    fstat(image_, &image) == 0 && info.lo_inode == image.st_ino;
  if (device >= 0) close(device);
  return ours;
}

void LoopVolume::remount(const std::string& options) {
  const MountWords words = words_of(options);
  if (::mount(nullptr, path().c_str(), nullptr, MS_REMOUNT | words.flags, words.data.c_str()) != 0) {
    fail("remount with options \"" + options + "\"");
  }
}

std::uint64_t LoopVolume::free_bytes() const {
  struct statvfs room {};
  if (statvfs(path().c_str(), &room) != 0) fail("statvfs " + path().native());
  return room.f_bavail * room.f_frsize;
}

Ballast::Ballast(const std::filesystem::path& folder, std::uint64_t left) : file_(folder / "ballast") {
  const int fd = open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) fail("create " + file_.native());
  // In shrinking pieces: no number tells exactly how much a file may take.
  std::uint64_t size = 0;
  for (std::uint64_t piece = 64 << 20; piece >= 1024; piece /= 2) {
    while (fallocate(fd, 0, static_cast<off_t>(size), static_cast<off_t>(piece)) == 0) size += piece;
  }
  if (left > 0 && ftruncate(fd, static_cast<off_t>(size - std::min(size, left))) != 0) fail("ftruncate");
  close(fd);
}

Ballast::~Ballast() {
  std::error_code ignored;
  std::filesystem::remove(file_, ignored);
}

}  // namespace holdfast::test
