#include "holdfast/io/volume_report.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <mutex>
#include <thread>

#include "holdfast/base/error.h"
#include "holdfast/io/internal/stall_watch.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> texts(const VolumeReport& report) {
  std::vector<std::string> all;
  for (const VolumeRemark& remark : explain(report)) all.push_back(remark.text);
  return all;
}

VolumeReport healthy() {
  VolumeReport report;
  report.path = "/mnt/ckpt";
  report.kind = kind_of_file_system(0xEF53);
  report.mount = MountEntry{"/mnt/ckpt", "ext4", "/dev/nvme1n1", {"rw"}};
  report.bytes_in_all = 100'000'000'000;
  report.bytes_free = 50'000'000'000;
  report.inodes_free = 1'000'000;
  report.direct_io = {.works = true, .memory_alignment = 4, .offset_alignment = 512};
  report.reserves_space = report.renames_exclusive = report.hard_links = report.syncs_directories = true;
  report.writing = VolumeReport::WriteSpeed{.bytes = 1'000'000'000, .time = 2s};
  report.committing = VolumeReport::CommitSpeed{.count = 15, .median = 10ms, .slowest = 30ms};
  return report;
}

class VolumeProbe : public testing::Test {
 public:
  // On this machine's /tmp and, where it is another, its disk.
  static inline const ProbeOptions kQuick{.bytes = 32 << 20, .longest = 2s, .commits = 3};
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder.path())) found.push_back(entry.path().filename());
    return found;
  }
  TemporaryFolder folder;
};

TEST_F(VolumeProbe, MeasuresAndLeavesNothing) {
  write_text(folder.path() / "step-000000000010-a0001.h5", "mine");
  const VolumeReport report = probe_volume(FileSystem::real(), folder.path(), kQuick);
  EXPECT_TRUE(report.fit());
  EXPECT_GT(report.bytes_free, 0u);
  ASSERT_TRUE(report.writing && report.committing);
  EXPECT_GE(report.writing->bytes, 8u << 20);
  EXPECT_GT(report.writing->time, Duration::zero());
  EXPECT_EQ(report.committing->count, 3);
  EXPECT_LE(report.committing->median, report.committing->slowest);
  EXPECT_THAT(names(), testing::ElementsAre("step-000000000010-a0001.h5"));
  EXPECT_TRUE(report.mount.has_value());
}

TEST_F(VolumeProbe, OnTmpfsSaysThatNothingSurvives) {
  const fs::path memory = "/dev/shm";
  if (!fs::is_directory(memory) || access(memory.c_str(), W_OK) != 0) GTEST_SKIP() << "no /dev/shm";
  const TemporaryFolder place(memory);
  const VolumeReport report = probe_volume(FileSystem::real(), place.path(), kQuick);
  EXPECT_TRUE(report.kind.in_memory);
  EXPECT_THAT(texts(report), Contains(HasSubstr("nothing survives a reboot")));
  EXPECT_THAT(texts(report), Not(Contains(HasSubstr("survives a power cut"))));
}

TEST_F(VolumeProbe, AMissingFolderIsNotMade) {
  EXPECT_THROW(probe_volume(FileSystem::real(), folder.path() / "no", kQuick), IoError);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(VolumeProbe, InterruptedItTidiesUp) {
  for (const int at : {0, 1, 3, 6}) {
    int asked = 0;
    ProbeOptions options = kQuick;
    std::mutex mutex;  // two threads ask
    options.go_on = [&] {
      const std::lock_guard lock(mutex);
      return asked++ < at;
    };
    try {
      probe_volume(FileSystem::real(), folder.path(), options);
      ADD_FAILURE() << "went on";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::interrupted);
    }
    EXPECT_THAT(names(), IsEmpty());
  }
}

TEST_F(VolumeProbe, RemovesWhatADeadOneLeftAndNothingElse) {
  const fs::path dead = folder.path() / ".holdfast-probe-1";
  const fs::path alive = folder.path() / ".holdfast-probe-2";
  for (const fs::path& place : {dead, alive}) {
    fs::create_directory(place);
    write_text(place / "speed", "x");
  }
  write_text(folder.path() / ".holdfast-probe-3", "a file");
  const int held = open(alive.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(held, LOCK_EX | LOCK_NB), 0);
  probe_volume(FileSystem::real(), folder.path(), kQuick);
  close(held);
  EXPECT_THAT(names(), testing::UnorderedElementsAre(".holdfast-probe-2", ".holdfast-probe-3"));
}

TEST_F(VolumeProbe, AFailureOnTheWayTidiesUp) {
  class Failing final : public FileSystem {
   public:
    std::unique_ptr<Directory> open_directory(const fs::path& path, bool create) override {
      if (++opened > 0) return real().open_directory(path, create);
      return nullptr;
    }
    std::unique_ptr<File> open_file(const fs::path& path, OpenMode mode) override {
      return real().open_file(path, mode);
    }
    bool is_mount_point(const fs::path& path) const override { return real().is_mount_point(path); }
    bool on_root_file_system(const fs::path&) const override { throw IoError("stat", "/", EIO); }
    int opened = 0;
  } failing;
  EXPECT_THROW(probe_volume(failing, folder.path(), kQuick), IoError);
  EXPECT_THAT(names(), IsEmpty());
}

TEST(VolumeWords, AHealthyVolumeIsAllGood) {
  for (const VolumeRemark& remark : explain(healthy())) {
    EXPECT_EQ(remark.weight, VolumeRemark::Weight::good) << remark.text;
  }
  EXPECT_THAT(texts(healthy()), Contains(HasSubstr("500 MB/s")));
}

TEST(VolumeWords, EachLackSaysWhatIsDoneInstead) {
  const auto lacking = [](auto change) {
    VolumeReport report = healthy();
    change(report);
    return texts(report);
  };
  EXPECT_THAT(lacking([](auto& r) { r.direct_io.works = false; }), Contains(HasSubstr("page cache")));
  EXPECT_THAT(lacking([](auto& r) { r.direct_io.offset_alignment = 65536; }), Contains(HasSubstr("65.5 kB")));
  EXPECT_THAT(lacking([](auto& r) { r.reserves_space = false; }), Contains(HasSubstr("no fallocate")));
  EXPECT_THAT(lacking([](auto& r) { r.renames_exclusive = false; }),
              Contains(AllOf(HasSubstr("links the new name"), HasSubstr("as safe"))));
  EXPECT_THAT(lacking([](auto& r) { r.on_root = true; }), Contains(HasSubstr("root file system")));
  EXPECT_THAT(lacking([](auto& r) { r.mount->options = {"discard"}; }), Contains(HasSubstr("seconds")));
  EXPECT_THAT(lacking([](auto& r) { r.inodes_free = 5; }), Contains(HasSubstr("5 inodes")));
  EXPECT_THAT(lacking([](auto& r) { r.read_only = true; }), Contains(HasSubstr("read-only")));
}

TEST(VolumeWords, UnfitIsWhereNothingCanBeCommitted) {
  VolumeReport report = healthy();
  EXPECT_TRUE(report.fit());
  report.renames_exclusive = false;
  EXPECT_TRUE(report.fit());
  report.hard_links = false;
  EXPECT_FALSE(report.fit());
  report = healthy();
  report.syncs_directories = false;
  EXPECT_FALSE(report.fit());
  report = healthy();
  report.read_only = true;
  EXPECT_FALSE(report.fit());
}

TEST(VolumeEstimate, IsTheBytesAndOneCommit) {
  EXPECT_EQ(estimate_save(healthy(), 1'000'000'000), Duration(2s) + 10ms);
  EXPECT_EQ(estimate_save(healthy(), 0), Duration(10ms));
  EXPECT_TRUE(estimate_save(healthy(), UINT64_MAX).has_value());
  VolumeReport unmeasured = healthy();
  unmeasured.writing.reset();
  EXPECT_FALSE(estimate_save(unmeasured, 1).has_value());
}

TEST(StallWatch, SaysWhatItWaitsFor) {
  testing::internal::CaptureStderr();
  {
    internal::StallWatch watch(1ms);
    std::this_thread::sleep_for(20ms);  // it has spoken of the operation before
    watch.doing("the fsync of /mnt/ckpt");
    std::this_thread::sleep_for(200ms);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("waiting for the fsync of /mnt/ckpt ("));
}

TEST(StallWatch, IsSilentWhileThingsMove) {
  testing::internal::CaptureStderr();
  {
    internal::StallWatch watch(1h);
    watch.doing("a write");
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}}  // namespace holdfast::test
