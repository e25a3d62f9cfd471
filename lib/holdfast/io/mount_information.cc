#include "holdfast/io/mount_information.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

namespace holdfast { inline namespace v0_2 {
namespace {

// mountinfo writes blanks and backslashes in names as octal numbers: "\040".
std::string unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](std::size_t at) {
      return at < text.size() && text[at] >= '0' && text[at] <= '7' ? text[at] - '0' : -1;
    };
    if (text[i] == '\\' && digit(i + 1) >= 0 && digit(i + 1) < 4 && digit(i + 2) >= 0 && digit(i + 3) >= 0) {
      plain += static_cast<char>(digit(i + 1) * 64 + digit(i + 2) * 8 + digit(i + 3));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

void add_options(std::vector<std::string>& options, const std::string& list) {
  std::istringstream text(list);
  for (std::string option; std::getline(text, option, ',');) options.push_back(option);
}

struct Known {
  std::uint64_t magic;
  const char* name;
  bool network;
  bool in_memory;
  const char* remark;
};

constexpr const char* kOneAttachment =
    "a network file system: fsync is as durable as its server, and nothing but Holdfast's claims keeps two "
    "machines "
    "apart";

// From statfs(2) and the makers' sources, because <linux/magic.h> lacks ZFS, Lustre and GPFS.
constexpr std::array kKinds{
    // ext2 and ext3 have the same magic number.
    Known{0xEF53, "ext4", false, false, ""},
    Known{0x58465342, "XFS", false, false, ""},
    Known{0x9123683E, "btrfs", false, false,
          "copy on write: saves are slower than on ext4 or XFS, and space that was deleted returns late"},
    Known{0x2FC12FC1, "ZFS", false, false,
          "copy on write: space cannot be reserved, so a full volume shows while a save is written"},
    Known{0xF2F52010, "F2FS", false, false, ""},
    Known{0x4D44, "FAT", false, false,
          "files end at 4 GiB and there is no journal: use another file system for checkpoints"},
    Known{0x2011BAB0, "exFAT", false, false, "there is no journal: use another file system for checkpoints"},
    Known{0x01021994, "tmpfs", false, true, "in memory; nothing survives a reboot"},
    Known{0x858458F6, "ramfs", false, true, "in memory; nothing survives a reboot"},
    Known{0x794C7630, "overlay", false, false,
          "the layer of a container, which is thrown away with it: mount a volume for checkpoints"},
    Known{0x6969, "NFS", true, false, kOneAttachment},
    Known{0xFF534D42, "CIFS", true, false, kOneAttachment},
    Known{0xFE534D42, "SMB", true, false, kOneAttachment},
    Known{0x517B, "SMB", true, false, kOneAttachment},
    Known{0x01021997, "9p", true, false,
          "a folder of the host that is shared with this virtual machine: fsync is as durable as the host "
          "makes it"},
    Known{0x65735546, "FUSE", true, false,
          "a program serves this volume, often from the network or an object store: whether fsync keeps its "
          "word "
          "is up to that program"},
    Known{0x0BD00BD0, "Lustre", true, false,
          "a parallel network file system: fast for large files, and fsync is as durable as its servers"},
    Known{0x47504653, "GPFS", true, false,
          "a parallel network file system: fast for large files, and fsync is as durable as its servers"},
    Known{0x00C36400, "Ceph", true, false, kOneAttachment},
    Known{0x5346414F, "AFS", true, false,
          "a network file system that writes back when a file is closed: errors show late"},
};

}  // namespace

bool is_above(const std::filesystem::path& mount, const std::filesystem::path& path) {
  // lexically_relative("/a", "/ab") begins with "..", so names with a common beginning are no trap.
  const auto relative = path.lexically_relative(mount);
  return !relative.empty() && *relative.begin() != "..";
}

bool MountEntry::has(std::string_view option) const {
  return std::find(options.begin(), options.end(), option) != options.end();
}

// "36 35 98:0 /root /mnt rw,noatime master:1 - ext4 /dev/sda1 rw,discard"
std::vector<MountEntry> parse_mountinfo(std::string_view text) {
  std::vector<MountEntry> mounts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, mount_point, options, word, type, source, more;
    // A line that is too short is skipped: this text comes from a kernel that may be newer.
    if (!(words >> id >> parent >> device >> root >> mount_point >> options)) continue;
    // The fields before "-" are optional and of any number.
    while (words >> word && word != "-") {
    }
    if (!(words >> type >> source)) continue;
    words >> more;
    MountEntry entry{
        .mount_point = unescaped(mount_point), .type = type, .source = unescaped(source), .options = {}};
    add_options(entry.options, options);
    // Options of the mount and of the file system's super block; either may hold "discard" or "ro".
    add_options(entry.options, more);
    mounts.push_back(std::move(entry));
  }
  return mounts;
}

std::optional<MountEntry> mount_of(const std::vector<MountEntry>& mounts, const std::filesystem::path& path) {
  const MountEntry* found = nullptr;
  for (const MountEntry& mount : mounts) {
    if (!is_above(mount.mount_point, path)) continue;
    // Not only greater: a later mount on the same point covers the earlier one.
    if (found == nullptr || mount.mount_point.size() >= found->mount_point.size()) found = &mount;
  }
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::optional<MountEntry> mount_of(const std::filesystem::path& path) {
  std::ifstream file("/proc/self/mountinfo");
  std::stringstream text;
  text << file.rdbuf();
  // mountinfo has real paths, so links in `path` have to be resolved before the comparison.
  std::error_code error;
  const auto real = std::filesystem::canonical(path, error);
  return error ? std::nullopt : mount_of(parse_mountinfo(text.str()), real);
}

FileSystemKind kind_of_file_system(std::uint64_t magic) {
  for (const Known& known : kKinds) {
    // Some C libraries declare f_type signed. A magic number with the highest bit then has ones above it.
    if (known.magic == (magic & 0xFFFFFFFF)) {
      return {
          .name = known.name, .network = known.network, .in_memory = known.in_memory, .remark = known.remark};
    }
  }
  std::ostringstream name;
  name << "unknown (0x" << std::hex << magic << ")";
  return {.name = name.str(),
          .remark = "a file system that Holdfast has no experience with: rehearse before you trust it"};
}

}}  // namespace holdfast::v0_2
