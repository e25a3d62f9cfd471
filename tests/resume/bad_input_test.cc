// What can be wrong with the volume, the directory and the files: each has its exit code and one clear line,
// and nothing that is good gets lost.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <span>

#include "holdfast/format/layout.h"
#include "holdfast/snapshot/digest.h"
#include "resume/example_run.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string read_bytes(const fs::path& file) { return read_text(file); }

void flip_byte(const fs::path& file, std::uint64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(offset));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(offset));
  stream.put(static_cast<char>(byte ^ 0x10));
}

// Every regular file below `folder` with its content.
std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().string()] = read_bytes(entry.path());
  }
  return files;
}

class SmallDisk {  // a tmpfs of its own; only root can mount one
 public:
  explicit SmallDisk(const std::string& size) {
    mounted_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const fs::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

std::vector<std::string> in_directory(const fs::path& directory, std::vector<std::string> more) {
  std::vector<std::string> words = {program("resnet50_cifar10"), "--checkpoint-dir", directory.string(),
                                    "--no-eval"};
  for (const auto& word : small(std::move(more))) words.push_back(word);
  return words;
}

TEST(Directory, ThatIsAFile) {
  const TemporaryFolder folder;
  write_text(folder.path() / "file", "x");
  const Ended ended = Subprocess(in_directory(folder.path() / "file", {"--steps", "2"})).wait();
  EXPECT_EQ(ended.exit_code, 74) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr((folder.path() / "file").string()));
  EXPECT_EQ(ended.out, "");
}

TEST(Directory, ThatCannotBeWritten) {
  // A folder below /proc refuses even root.
  const Ended ended = Subprocess(in_directory("/proc/self/run", {"--steps", "2"})).wait();
  EXPECT_EQ(ended.exit_code, 74) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("/proc/self"));
  EXPECT_EQ(ended.out, "");
}

TEST(Directory, OnAFullDiskTheRunEndsWith74AndTheOlderCheckpointStands) {
  const SmallDisk disk("12M");
  if (!disk.mounted()) GTEST_SKIP() << "needs root, to mount a small tmpfs";
  const fs::path directory = disk.path() / "run";
  ASSERT_EQ(Subprocess(in_directory(directory, {"--steps", "3"})).wait().exit_code, 0);
  const auto before = contents(directory);
  {
    std::ofstream filler(disk.path() / "filler", std::ios::binary);
    const std::string block(64 << 10, 'x');
    while (filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  const Ended full = Subprocess(in_directory(directory, {"--steps", "9", "--every", "2steps"})).wait();
  EXPECT_EQ(full.exit_code, 74) << full.err;
  EXPECT_THAT(full.err, HasSubstr("No space left on device"));
  EXPECT_EQ(full.out, "") << "success is never claimed before the acknowledgement";
  for (const auto& [file, bytes] : before) {
    if (file.ends_with(".h5")) {
      EXPECT_EQ(read_bytes(file), bytes) << file;
    }
  }
  fs::remove(disk.path() / "filler");
  const Ended again = Subprocess(in_directory(directory, {"--steps", "9"})).wait();
  EXPECT_EQ(again.exit_code, 0) << again.err;
}

TEST(Directory, OnAMissingMountIsWaitedForAndNeverMade) {
  const TemporaryFolder folder;
  const fs::path mount = folder.path() / "volume";
  fs::create_directory(mount);
  Subprocess process(in_directory(mount / "run", {"--steps", "2", "--mount", mount.string()}));
  ASSERT_TRUE(process.wait_until([&] { return process.err().find(mount.string()) != std::string::npos; }));
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(process.running());
  EXPECT_TRUE(fs::is_empty(mount)) << "nothing is written to the disk below the mount";
  if (::mount("tmpfs", mount.c_str(), "tmpfs", 0, "size=64M") == 0) {
    const Ended ended = process.wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(fs::exists(mount / "run"));
    ::umount2(mount.c_str(), MNT_DETACH);
  } else {
    process.send(SIGTERM);
    EXPECT_NE(process.wait().exit_code, 0);
  }
}

TEST(Directory, OutsideTheMountIsAUsageError) {
  const TemporaryFolder folder;
  const Ended ended =
      Subprocess(in_directory(folder.path() / "run", {"--steps", "2", "--mount", "/proc"})).wait();
  EXPECT_EQ(ended.exit_code, 64) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("/proc"));
}

TEST(TwoRuns, TheOlderStopsWith76AndLeavesTheNewersFilesAlone) {
  const ExampleRun run(small({"--steps", "100000", "--every", "5steps", "--no-eval"}));
  auto older = run.start();
  ASSERT_TRUE(older->wait_until([&] { return !run.checkpoints().empty(); }));
  std::vector<std::string> command = run.command();
  command[4] = (run.directory().parent_path() / "newer.jsonl").string();
  Subprocess newer(command, {{"OMP_NUM_THREADS", "1"}});
  const Ended ended = older->wait(20s);
  EXPECT_EQ(ended.exit_code, 76) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_THAT(ended.err, HasSubstr("attempt 2"));
  EXPECT_TRUE(newer.wait_until([&] {
    for (const auto& file : run.checkpoints()) {
      if (file.string().find("-a0002") != std::string::npos) return true;
    }
    return false;
  }));
  newer.send(SIGTERM);
  const Ended last = newer.wait();
  EXPECT_EQ(last.exit_code, 75) << last.err;
  const std::string checkpoint = value_of(last.last_line(), "checkpoint=");
  EXPECT_THAT(checkpoint, HasSubstr("-a0002"));
  EXPECT_EQ(Subprocess({program("holdfast"), "verify", run.directory().string()}).wait().exit_code, 0);
}

TEST(TwoRuns, AnotherModelIsRefusedBeforeItClaimsAndTheFirstGoesOn) {
  const ExampleRun run(small({"--steps", "100000", "--every", "5steps", "--no-eval"}));
  auto first = run.start();
  ASSERT_TRUE(first->wait_until([&] { return !run.checkpoints().empty(); }));
  const Ended other = Subprocess(in_directory(run.directory(), {"--width", "4", "--steps", "9"})).wait();
  EXPECT_EQ(other.exit_code, 64) << "--width twice";
  auto words = in_directory(run.directory(), {"--steps", "9"});
  *(std::find(words.begin(), words.end(), "--width") + 1) = "4";
  const Ended refused = Subprocess(words).wait();
  EXPECT_EQ(refused.exit_code, 78) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("model/"));
  const std::int64_t lines = run.steps_logged();
  EXPECT_TRUE(first->wait_until([&] { return run.steps_logged() > lines + 20; })) << "it goes on";
  first->send(SIGTERM);
  EXPECT_EQ(first->wait().exit_code, 75);
}

// Each damages a copy of a run of ten steps.
class Damaged : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    begun_ = std::make_unique<ExampleRun>(small({"--every", "4steps", "--no-eval"}));
    EXPECT_EQ(begun_->finish({"--steps", "10", "--keep", "9"}).exit_code, 0);
    straight_ = std::make_unique<ExampleRun>(small({"--no-eval"}));
    end_ = straight_->finish({"--steps", "14"});
    EXPECT_EQ(end_.exit_code, 0) << end_.err;
  }
  static void TearDownTestSuite() {
    begun_.reset();
    straight_.reset();
  }
  Damaged() : run_(small({"--every", "4steps", "--no-eval"})) {
    run_.go_on_from(*begun_);
    EXPECT_GE(run_.checkpoints().size(), 2U);
    newest_ = run_.checkpoints().back();
  }
  // The next life begins at an older file, says why, and ends as if nothing had been.
  void expect_stepped_past() {
    const Ended ended = run_.finish({"--steps", "14"});
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(newest_.filename().string()));
    EXPECT_EQ(ended.last_line(), end_.last_line());
    EXPECT_EQ(read_losses(run_.metrics()).by_step, read_losses(straight_->metrics()).by_step);
    EXPECT_FALSE(fs::exists(newest_)) << "set aside after the first acknowledged commit";
    EXPECT_TRUE(fs::exists(newest_.string() + ".damaged"));
  }
  static inline std::unique_ptr<ExampleRun> begun_;
  static inline std::unique_ptr<ExampleRun> straight_;
  static inline Ended end_;  // of the straight one
  ExampleRun run_;
  fs::path newest_;
};

TEST_F(Damaged, AFlippedByteInATensor) {
  flip_byte(newest_, fs::file_size(newest_) / 2);
  expect_stepped_past();
}

TEST_F(Damaged, AFlippedByteInTheHeader) {
  flip_byte(newest_, 9);
  expect_stepped_past();
}

TEST_F(Damaged, ATruncatedFile) {
  fs::resize_file(newest_, fs::file_size(newest_) - 1);
  expect_stepped_past();
}

TEST_F(Damaged, AnEmptyFile) {
  fs::resize_file(newest_, 0);
  expect_stepped_past();
}

TEST_F(Damaged, WhereNothingVerifiesAFreshStartNeedsToBeAskedFor) {
  for (const auto& file : run_.checkpoints()) flip_byte(file, fs::file_size(file) / 2);
  const auto before = run_.checkpoints();
  const Ended refused = run_.finish({"--steps", "14"});
  EXPECT_EQ(refused.exit_code, 78) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("--allow-fresh"));
  EXPECT_EQ(run_.checkpoints(), before);
  const Ended fresh = run_.finish({"--steps", "14", "--allow-fresh"});
  ASSERT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_EQ(fresh.last_line(), end_.last_line());
}

TEST_F(Damaged, AFileOfANewerFormatEndsWith78AndNothingIsTouched) {
  // A header that holds, of a version that needs a newer reader.
  std::string bytes = read_bytes(newest_);
  bytes[kFormatVersionAt] = static_cast<char>(kFormatVersion + 1);
  bytes[kLowestReaderAt] = static_cast<char>(kFormatVersion + 1);
  bytes.replace(kHeaderDigestAt, sizeof(Digest), sizeof(Digest), '\0');
  const Digest digest = digest_of(std::as_bytes(std::span(bytes).first(kHeaderSize)));
  std::memcpy(bytes.data() + kHeaderDigestAt, &digest, sizeof digest);
  write_text(newest_, bytes);
  const auto before = contents(run_.directory());
  const Ended ended = run_.finish({"--steps", "14"});
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr(newest_.filename().string()));
  EXPECT_THAT(ended.err, HasSubstr("newer"));
  EXPECT_EQ(contents(run_.directory()), before);
}

TEST(Data, ACorruptPictureFileIsNamedWithItsOffset) {
  const TemporaryFolder folder;
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::ofstream(folder.path() / (std::string(name) + ".bin"), std::ios::binary)
        << std::string(std::size_t{10'000} * 3073, '\x03');
  }
  flip_byte(folder.path() / "data_batch_4.bin", 3073 * 17);  // label 19
  const TemporaryFolder run;
  std::vector<std::string> words = {program("resnet50_cifar10"),
                                    "--checkpoint-dir",
                                    (run.path() / "r").string(),
                                    "--data",
                                    folder.path().string(),
                                    "--width",
                                    "2",
                                    "--steps",
                                    "1"};
  Ended ended = Subprocess(words).wait();
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("data_batch_4.bin"));
  EXPECT_THAT(ended.err, HasSubstr(std::to_string(3073 * 17)));
  fs::remove(folder.path() / "data_batch_2.bin");
  ended = Subprocess(words).wait();
  EXPECT_EQ(ended.exit_code, 78) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("data_batch_2.bin"));
}

}}  // namespace holdfast::test
