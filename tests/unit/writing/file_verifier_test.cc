#include "holdfast/writing/file_verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "holdfast/format/file_plan.h"
#include "holdfast/format/image_writer.h"
#include "holdfast/staging/run_record.h"
#include "support/forwarding.h"
#include "support/run_disk.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

constexpr char kFive[] = "step-000000000005-a0001.h5";
constexpr char kSix[] = "step-000000000006-a0002.h5";

class FileVerifierTest : public testing::Test {
 public:
  FileVerifierTest() {
    volume.disk.open_directory(kRun, true);
    write(kFive, 5, 1);
    name = volume.path(kFive);
    file = volume.faults.open_file(name, OpenMode::read);
  }
  // A megabyte or more, as an attempt writes it.
  void write(const std::string& as, std::int64_t step, AttemptNumber attempt,
             std::int64_t elements = 250'000) {
    const auto plan = make_file_plan({{"model/w", DType::float32, {elements}}});
    Snapshot snapshot{plan->layout, make_image(*plan), {}, step};
    snapshot.attributes.set("step", step);
    RunRecord record;
    record.attempt = attempt;
    put_run_record(snapshot.attributes, record);
    const auto to = volume.disk.open_file(volume.path(as), OpenMode::create);
    write_image(*to, snapshot, *plan);
  }
  std::uint64_t bytes_read() const {
    std::uint64_t sum = 0;
    for (const Operation& operation : volume.faults.log()) {
      if (operation.kind == Op::read) sum += operation.length;
    }
    return sum;
  }

  RunDisk volume;
  std::string name;
  std::unique_ptr<File> file;
  FileVerifier verifier{2};
};

TEST_F(FileVerifierTest, SaysWhatTheFileIs) {
  for (const auto depth : {Verifier::Depth::head, Verifier::Depth::full}) {
    const Verdict verdict = verifier.inspect(*file, depth, false);
    EXPECT_EQ(verdict.kind, Verdict::Kind::good) << verdict.reason;
    EXPECT_EQ(verdict.step, 5);
    EXPECT_EQ(verdict.attempt, 1u);
    EXPECT_TRUE(verdict.ancestry.empty());
    EXPECT_TRUE(verdict.finite);
  }
}

// As the writer's: an interrupted read would count as a failed one.
TEST_F(FileVerifierTest, ItsThreadsTakeNoSignals) {
  write(kSix, 6, 2, 6'000'000);  // three pieces of 8 MiB, for two threads
  const auto large = volume.faults.open_file(volume.path(kSix), OpenMode::read);
  std::atomic<int> others{0};
  std::atomic<int> open{0};
  volume.faults.set_hook([&, test = std::this_thread::get_id()](const Operation& operation) {
    if (std::this_thread::get_id() != test) {
      sigset_t mask;
      pthread_sigmask(SIG_BLOCK, nullptr, &mask);
      open += sigismember(&mask, SIGTERM) == 1 ? 0 : 1;
      ++others;
    } else if (operation.length >= 1'000'000) {
      // Otherwise this thread may read all pieces by itself.
      EXPECT_TRUE(soon([&] { return others > 0; }));
    }
  });
  EXPECT_EQ(verifier.inspect(*large, Verifier::Depth::full, false).kind, Verdict::Kind::good);
  volume.faults.set_hook({});
  EXPECT_EQ(open, 0);
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGTERM), 0) << "the caller's own mask stays";
}

TEST_F(FileVerifierTest, AResumeReadsTheFileOnce) {
  volume.faults.clear_log();
  verifier.inspect(*file, Verifier::Depth::full, false);
  const std::uint64_t once = bytes_read();
  EXPECT_GT(once, 100'000u * 8);
  EXPECT_EQ(verifier.inspect(*file, Verifier::Depth::full, false).kind, Verdict::Kind::good);
  const auto loaded = verifier.load(*file);
  ASSERT_TRUE(std::holds_alternative<FileVerifier::Loaded>(loaded));
  EXPECT_LT(bytes_read(), 2 * once);  // header and index again, no tensors
}

// What a standby does for each newer checkpoint.
TEST_F(FileVerifierTest, TheNextStateTakesTheMemoryOfTheLastOneUnlessSomebodyHoldsIt) {
  const auto state_of = [&](const char* name) {
    const auto one = volume.faults.open_file(volume.path(name), OpenMode::read);
    verifier.inspect(*one, Verifier::Depth::full, false);
    auto kept = verifier.load(*one);
    return std::get<FileVerifier::Loaded>(std::move(kept)).snapshot;
  };
  write(kSix, 6, 2);
  std::shared_ptr<Snapshot> five = state_of(kFive);
  const std::byte* const memory = five->arena->bytes().data();
  std::shared_ptr<Snapshot> six = state_of(kSix);
  EXPECT_NE(six->arena->bytes().data(), memory) << "the fifth is still in use";
  five.reset();
  const std::byte* const next = six->arena->bytes().data();
  six.reset();
  five = state_of(kFive);
  EXPECT_EQ(five->arena->bytes().data(), next);
  EXPECT_EQ(five->step, 5);
  const auto fresh = std::get<FileVerifier::Loaded>(FileVerifier(2).load(*file)).snapshot;
  const auto here = five->arena->padded();
  const auto there = fresh->arena->padded();
  EXPECT_TRUE(std::equal(here.begin(), here.end(), there.begin(), there.end()))
      << "nothing of the sixth is left";
}

TEST_F(FileVerifierTest, LooksAgainWhenTheFileHasChanged) {
  verifier.inspect(*file, Verifier::Depth::full, false);
  volume.disk.flip_bit(name, 4096 + 10);
  EXPECT_EQ(verifier.inspect(*file, Verifier::Depth::full, false).kind, Verdict::Kind::damaged);
}

TEST_F(FileVerifierTest, NeverTakesOneFileForAnother) {
  write(kSix, 6, 2);
  const auto newer = volume.disk.open_file(volume.path(kSix), OpenMode::read);
  verifier.inspect(*newer, Verifier::Depth::full, false);
  EXPECT_EQ(std::get<FileVerifier::Loaded>(verifier.load(*file)).snapshot->step, 5);
  EXPECT_EQ(std::get<FileVerifier::Loaded>(verifier.load(*newer)).snapshot->step, 6);
}

// Looks whether a state is still held while another file is read.
class Watching final : public ForwardingFile {
 public:
  Watching(std::unique_ptr<File> file, std::weak_ptr<Snapshot> other, bool& held)
      : ForwardingFile(std::move(file)), other_(std::move(other)), held_(held) {}
  std::size_t read_at(std::span<std::byte> buffer, std::uint64_t offset) const override {
    if (buffer.size() > 100'000 && offset > 100'000 && !other_.expired()) held_ = true;
    return ForwardingFile::read_at(buffer, offset);
  }

 private:
  std::weak_ptr<Snapshot> other_;
  bool& held_;
};

TEST_F(FileVerifierTest, NeverHoldsTwoStates) {
  write(kSix, 6, 2);
  verifier.inspect(*file, Verifier::Depth::full, false);
  const std::weak_ptr<Snapshot> older = std::get<FileVerifier::Loaded>(verifier.load(*file)).snapshot;
  EXPECT_FALSE(older.expired());
  bool held = false;
  const Watching newer(volume.disk.open_file(volume.path(kSix), OpenMode::read), older, held);
  EXPECT_EQ(verifier.inspect(newer, Verifier::Depth::full, false).kind, Verdict::Kind::good);
  EXPECT_FALSE(held);
  EXPECT_TRUE(older.expired());
}

TEST_F(FileVerifierTest, AnUncachedLookIsAnotherLook) {
  verifier.inspect(*file, Verifier::Depth::full, false);
  volume.disk.flip_bit(name, volume.disk.get(name).size() - 1000);
  const Verdict verdict = verifier.inspect(*file, Verifier::Depth::full, true);
  EXPECT_EQ(verdict.kind, Verdict::Kind::damaged);
  EXPECT_NE(verdict.reason, "");
}

TEST_F(FileVerifierTest, KeepsNothingOnceToldTo) {
  verifier.stop_keeping();
  volume.faults.clear_log();
  verifier.inspect(*file, Verifier::Depth::full, false);
  const std::uint64_t once = bytes_read();
  verifier.inspect(*file, Verifier::Depth::full, false);
  EXPECT_EQ(bytes_read(), 2 * once);
}

TEST_F(FileVerifierTest, AFileOfNoRunIsNotBelieved) {
  const auto plan = make_file_plan({{"model/w", DType::float32, {3}}});
  Snapshot snapshot{plan->layout, make_image(*plan), {}, 7};
  snapshot.attributes.set("step", std::int64_t{7});
  const auto made = volume.disk.open_file("/vol/made.h5", OpenMode::create);
  write_image(*made, snapshot, *plan);
  const Verdict verdict = verifier.inspect(*made, Verifier::Depth::full, false);
  EXPECT_EQ(verdict.kind, Verdict::Kind::damaged);
  EXPECT_THAT(verdict.reason, HasSubstr("holds no record of a run"));
}

TEST_F(FileVerifierTest, WhatTheDeviceRefusesIsNoVerdict) {
  volume.faults.fail(Op::read, 2, EIO);
  EXPECT_THROW(verifier.inspect(*file, Verifier::Depth::full, false), IoError);
}

}}  // namespace holdfast::test
