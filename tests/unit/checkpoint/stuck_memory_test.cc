// Digests are made while the state is copied beside the training, and the writer believes them. A bit that
// flips in the image afterwards is found by a sample of each save, and by whoever reads the file.
#include <algorithm>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/snapshot/piece_digests.h"
#include "rig.h"
#include "support/memory_world.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

void flip_a_bit(std::span<std::byte> bytes) {
  if (!bytes.empty()) bytes[9] ^= std::byte{4};
}

// A copy beside the training; then a bit of `cell` flips.
class StuckCopy final : public LateCopy {
 public:
  StuckCopy(std::unique_ptr<LateCopy> inner, std::span<std::byte> cell)
      : inner_(std::move(inner)), cell_(cell) {}
  void run() noexcept override { inner_->run(); }
  void run_digesting(PieceDigests& digests) noexcept override {
    inner_->run_digesting(digests);
    flip_a_bit(cell_);
  }
  std::vector<std::string> changed() const override { return inner_->changed(); }
  std::vector<std::string> changed_samples() const override { return inner_->changed_samples(); }

 private:
  const std::unique_ptr<LateCopy> inner_;
  const std::span<std::byte> cell_;
};

// A copy that a device makes by itself: it has arrived when somebody waits for it. Then a bit of `cell` flips.
class ArrivingCopy final : public LateCopy {
 public:
  struct Part {
    std::vector<std::byte> bytes;
    std::span<std::byte> to;
  };
  ArrivingCopy(std::vector<Part> parts, std::span<std::byte> cell) : parts_(std::move(parts)), cell_(cell) {
    std::sort(parts_.begin(), parts_.end(),
              [](const Part& a, const Part& b) { return a.to.data() < b.to.data(); });
  }
  void run() noexcept override {}
  std::vector<std::string> changed() const override { return {}; }
  bool on_its_way() const noexcept override { return true; }
  bool independent() const noexcept override { return true; }
  void arrive() override {
    for (const Part& part : parts_) std::copy(part.bytes.begin(), part.bytes.end(), part.to.begin());
  }
  void arrive_digesting(PieceDigests& digests) override {
    PieceDigester stream(digests);
    for (const Part& part : parts_) stream.copy(part.bytes, part.to);
    flip_a_bit(cell_);
  }

 private:
  std::vector<Part> parts_;
  const std::span<std::byte> cell_;
};

class StuckSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  std::string stuck;       // the tensor of which a bit flips
  bool is_device = false;  // that copies by itself; of rank 1 a bit of the largest part flips
  int rank = 0;

  SourceTraits traits() const override {
    SourceTraits traits = MemorySource::traits();
    traits.on_device = is_device;
    return traits;
  }
  std::unique_ptr<LateCopy> copy(const ImageLayout& layout, std::span<std::byte> image, Part part) override {
    if (part == Part::independent) return arriving(layout, image);
    auto copy = MemorySource::copy(layout, image, part);
    if (!copy) return nullptr;
    const auto at = layout.find(stuck);
    return std::make_unique<StuckCopy>(std::move(copy),
                                       at ? layout.slot(*at, image) : std::span<std::byte>());
  }

 private:
  std::unique_ptr<LateCopy> arriving(const ImageLayout& layout, std::span<std::byte> image) {
    std::vector<std::byte> now(image.size());
    MemorySource::copy(layout, now, Part::all);
    std::vector<ArrivingCopy::Part> parts;
    parts.reserve(layout.tensors().size());
    std::span<std::byte> largest;
    for (std::size_t i = 0; i < layout.tensors().size(); ++i) {
      const ByteRange wanted = layout.wanted(i);
      const auto from = layout.slot(i, std::span(now)).subspan(wanted.begin, wanted.size());
      const auto to = layout.slot(i, image).subspan(wanted.begin, wanted.size());
      if (to.empty()) continue;
      parts.push_back({{from.begin(), from.end()}, to});
      if (to.size() > largest.size()) largest = to;
    }
    return std::make_unique<ArrivingCopy>(std::move(parts), rank == 1 ? largest : std::span<std::byte>());
  }
};

// A loop that announces its updates.
struct StuckRun {
  explicit StuckRun(const CheckpointerOptions& options)
      : checkpointer(source, options), resumed(checkpointer.resume()) {}
  SaveHandle step() {
    checkpointer.before_update();
    const StepReport report = source.train();
    return checkpointer.after_step(report).save;
  }
  // A save that runs beside the training, up to its end.
  SaveStatus save() {
    const SaveHandle save = step();
    source.wait_for_late_copy();
    checkpointer.before_update();
    error = save.wait() == SaveStatus::failed ? save.error() : "";
    return save.status();
  }
  StuckSource source;
  Checkpointer checkpointer;
  Resumed resumed;
  std::string error;
};

class StuckMemory : public testing::Test {
 protected:
  // The first copies of a run are made at once and compared. The next one runs beside the training.
  StuckMemory() {
    for (int i = 0; i < 2; ++i) EXPECT_EQ(run->save(), SaveStatus::durable);
  }
  void expect_newest(std::int64_t step) {
    run.reset();
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, step);
    EXPECT_EQ(next.state(), state_after(step));
  }
  void swap_all_weights() {
    for (std::size_t i = 0; i < 500; ++i) std::swap(run->source.weight(i), run->source.weight(999 - i));
  }

  Volume volume;
  CapturedLog log;
  std::unique_ptr<StuckRun> run = std::make_unique<StuckRun>(volume.options({SaveEvery::steps(1)}));
};

TEST_F(StuckMemory, WhatTheWriterIsHandedIsOfTheStagedBytesSoTheFileIsNeverRead) {
  run->source.stuck = "model/weight";
  EXPECT_EQ(run->save(), SaveStatus::durable) << "this save looks at other pieces";
  expect_newest(2);
  EXPECT_THAT(log.text(), HasSubstr("model/weight"));
}

TEST_F(StuckMemory, ASaveThatLooksAtThePieceFailsInstead) {
  EXPECT_EQ(run->save(), SaveStatus::durable);
  // Piece 4 of the fourth save, which is round 4: rounds begin with the attempt's number.
  run->source.stuck = "optimizer/momentum/weight";
  EXPECT_EQ(run->save(), SaveStatus::failed);
  EXPECT_THAT(run->error, HasSubstr("'optimizer/momentum/weight' changed in memory after it was staged"));
  run->source.stuck = "";
  EXPECT_EQ(run->save(), SaveStatus::durable);
  expect_newest(5);
}

TEST_F(StuckMemory, ACopyBesideTheTrainingIsComparedAtTheEndToo) {
  const SaveHandle save = run->step();
  run->source.wait_for_late_copy();
  swap_all_weights();
  const float first = run->source.weight(0);
  EXPECT_EQ(run->checkpointer.finish(), 0);
  EXPECT_EQ(save.status(), SaveStatus::overtaken);
  run.reset();
  EXPECT_THAT(log.text(), HasSubstr("model/weight changed between after_step and before_update"));
  Attempt next(volume.options());
  EXPECT_EQ(next.resumed.step, 3);
  EXPECT_EQ(next.source.weight(0), first) << "it was made again";
}

// Ranks vote at each step, so that the saves are 17 votes apart.
TEST(StuckMemoryOfRanks, SharedSavesLookAtAllPiecesInTurn) {
  constexpr std::int64_t kApart = 17;
  Volume volume;
  const CapturedLog log;
  MemoryWorld world(2);
  world.machines[1] = "machine-1";
  std::vector<SaveStatus> saves;
  std::string error;
  const auto live = [&](int rank) {
    FaultFileSystem view(volume.disk);
    FakeClock clock;
    StuckSource source({.elements = 30'000, .rank = rank});
    source.is_device = true;
    source.rank = rank;
    CheckpointerOptions options = volume.options({SaveEvery::steps(kApart)});
    options.ranks.channel = &world.rank(rank);
    options.start.seams.clock = &clock;
    options.start.seams.file_system = &view;
    if (rank == 0) options.mount.clear();
    Checkpointer checkpointer(source, options);
    checkpointer.resume();
    while (source.step() < kApart * (kApart + 1)) {
      clock.advance(2s);
      const StepReport report = source.train();
      const Decision decision = checkpointer.after_step(report);
      if (!decision.saved || rank != 0) continue;
      saves.push_back(decision.save.wait());
      if (saves.back() == SaveStatus::failed && error.empty()) error = decision.save.error();
    }
    EXPECT_EQ(checkpointer.finish(), 0);
  };
  std::thread other([&] { live(1); });
  live(0);
  other.join();
  EXPECT_GE(saves.size(), 17U);
  const auto found = std::find(saves.begin(), saves.end(), SaveStatus::failed) - saves.begin();
  EXPECT_GT(found, 0) << "the first looks at another piece";
  EXPECT_LT(found, 17);
  EXPECT_THAT(error, HasSubstr("rank 1 could not write its share: tensor"));
  EXPECT_THAT(error, HasSubstr("changed in memory after it was staged"));
}

}}  // namespace holdfast::test
