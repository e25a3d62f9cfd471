#include "holdfast/io/mount_information.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace holdfast::test { namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr char kMounts[] =
    R"(22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard,errors=remount-ro
30 22 0:26 / /tmp rw,nosuid shared:9 - tmpfs tmpfs rw,size=1024k
36 22 98:0 /mnt1 /mnt/a\040volume ro,noatime master:1 propagate_from:2 - xfs /dev/nvme1n1 rw,attr2
40 22 0:50 / /mnt/ckpt rw,relatime - nfs4 server:/export rw,vers=4.2
41 40 0:51 / /mnt/ckpt rw,relatime - fuse.sshfs me@server:/x rw,user_id=0
a line that means nothing
42 22 0:52 / /mnt/ckpt2 rw -
43 22 0:53 / /mnt/ckpt3 rw - nfs
)";

TEST(MountInformation, IsReadLineByLine) {
  const auto mounts = parse_mountinfo(kMounts);
  ASSERT_THAT(mounts, SizeIs(5));
  EXPECT_EQ(mounts[2].mount_point, "/mnt/a volume");
  EXPECT_EQ(mounts[2].type, "xfs");
  EXPECT_EQ(mounts[2].source, "/dev/nvme1n1");
  EXPECT_TRUE(mounts[2].has("ro"));
  EXPECT_TRUE(mounts[2].has("attr2"));
  EXPECT_TRUE(mounts[0].has("discard"));
  EXPECT_FALSE(mounts[0].has("disc"));
}

TEST(MountInformation, ThePathsMountIsTheLongestAndTheLast) {
  const auto mounts = parse_mountinfo(kMounts);
  const auto at = [&](const char* path) {
    const auto found = mount_of(mounts, path);
    return found ? found->type : "none";
  };
  EXPECT_EQ(at("/home/me"), "ext4");
  EXPECT_EQ(at("/"), "ext4");
  EXPECT_EQ(at("/tmp"), "tmpfs");
  EXPECT_EQ(at("/tmpfiles"), "ext4");
  EXPECT_EQ(at("/mnt/a volume/run1"), "xfs");
  EXPECT_EQ(at("/mnt/ckpt/run1"), "fuse.sshfs") << "what is mounted over it hides the first";
}

TEST(MountInformation, NothingIsFoundInNothing) {
  EXPECT_THAT(parse_mountinfo(""), IsEmpty());
  EXPECT_FALSE(mount_of({}, "/").has_value());
  EXPECT_FALSE(mount_of("/no/such/place").has_value());
  EXPECT_TRUE(mount_of("/").has_value());
}

TEST(MountInformation, HostileTextIsLeftOut) {
  for (const std::string text : {"-", "- - - - - - - -", "\\", "1 2 3 4 \\0 rw - x y",
                                 "1 2 3 4 \\777 rw - x y", "1 2 3 4 \\04", "\n\n\n"}) {
    for (const MountEntry& mount : parse_mountinfo(text)) EXPECT_FALSE(mount.mount_point.empty());
  }
}

TEST(FileSystemKinds, EachSaysWhatItsNameTells) {
  EXPECT_EQ(kind_of_file_system(0xEF53).name, "ext4");
  EXPECT_EQ(kind_of_file_system(0xEF53).remark, "");
  EXPECT_TRUE(kind_of_file_system(0x6969).network);
  EXPECT_TRUE(kind_of_file_system(0x01021994).in_memory);
  EXPECT_EQ(kind_of_file_system(0x01021994).remark, "in memory; nothing survives a reboot");
  EXPECT_THAT(kind_of_file_system(0x794C7630).remark, HasSubstr("container"));
  for (const std::uint64_t magic : {0x6969u, 0xFF534D42u, 0xFE534D42u, 0x65735546u, 0x0BD00BD0u, 0x01021997u,
                                    0x01021994u, 0x794C7630u, 0x1234u}) {
    EXPECT_NE(kind_of_file_system(magic).remark, "") << magic;
  }
  EXPECT_EQ(kind_of_file_system(0x1234).name, "unknown (0x1234)");
  // The kernel's f_type is signed on some machines.
  EXPECT_EQ(kind_of_file_system(0xFFFFFFFFFF534D42u).name, "CIFS");
}

}}  // namespace holdfast::test
