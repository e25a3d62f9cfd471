// Bytes that change while they are looked at: between the verification and the load, between any two reads.
// What is loaded is what was hashed, so a start either has the right state or says that it has none.
#include <gtest/gtest.h>

#include <cerrno>
#include <functional>
#include <mutex>

#include "holdfast/base/error.h"
#include "holdfast/format/layout.h"
#include "lane.h"

namespace holdfast::test::corruption { namespace {

const Known& newest() { return history().newest(); }
const Known& previous() { return history().files()[1]; }
std::string place() { return std::string(kRun) + "/" + newest().name; }

struct Change {
  std::string what;
  std::vector<std::byte> bytes;
};

std::vector<std::byte> flipped(std::uint64_t byte) {
  std::vector<std::byte> bytes = newest().bytes;
  bytes[byte] ^= std::byte{64};
  return bytes;
}

// The newest with [begin, end) of the previous one.
std::vector<std::byte> mixed(std::uint64_t begin, std::uint64_t end) {
  std::vector<std::byte> bytes = newest().bytes;
  std::copy(previous().bytes.begin() + static_cast<std::ptrdiff_t>(begin),
            previous().bytes.begin() + static_cast<std::ptrdiff_t>(end),
            bytes.begin() + static_cast<std::ptrdiff_t>(begin));
  return bytes;
}

std::vector<Change> changes() {
  const std::uint64_t sealed = newest().index.user_block;
  const std::uint64_t size = newest().bytes.size();
  std::vector<Change> all = {{"a bit of the header", flipped(70)},
                             {"a bit of the index", flipped(kHeaderSize + 30)},
                             {"a bit of the metadata", flipped(newest().index.stretches[0].offset)},
                             {"the whole previous file", previous().bytes},
                             {"header and index of the previous file", mixed(0, sealed)},
                             {"everything else of the previous file", mixed(sealed, size)},
                             {"one byte less", {newest().bytes.begin(), newest().bytes.end() - 1}},
                             {"the header alone", {newest().bytes.begin(), newest().bytes.begin() + 4096}},
                             {"nothing", {}}};
  for (const IndexedTensor& tensor : newest().index.tensors)
    all.push_back({"a bit of " + tensor.spec.name, flipped(tensor.offset)});
  return all;
}

// Changes the file just before the n-th read of it; takes it back before the one after it when it was the
// memory, not the disk.
class Saboteur {
 public:
  Saboteur(Volume& volume, const Change& change, int at, bool takes_back)
      : volume_(volume), change_(change), at_(at), takes_back_(takes_back) {
    volume_.faults.set_hook([this](const Operation& operation) { before(operation); });
  }
  ~Saboteur() { volume_.faults.set_hook(nullptr); }
  Saboteur(const Saboteur&) = delete;
  Saboteur& operator=(const Saboteur&) = delete;
  bool acted() const { return reads_ >= at_; }
  void stop() {
    volume_.faults.set_hook(nullptr);
    if (takes_back_) volume_.disk.put(place(), newest().bytes);
  }

 private:
  void before(const Operation& operation) {
    if (operation.kind != Op::read || operation.path != place()) return;
    const std::lock_guard lock(mutex_);
    if (++reads_ == at_) volume_.disk.put(place(), change_.bytes);
    if (reads_ == at_ + 1 && takes_back_) volume_.disk.put(place(), newest().bytes);
  }

  Volume& volume_;
  const Change& change_;
  const int at_;
  const bool takes_back_;
  std::mutex mutex_;
  int reads_ = 0;
};

// To the end from there; empty when all is right.
std::string goes_on(Attempt& attempt, const std::vector<std::int64_t>& steps) {
  if (std::find(steps.begin(), steps.end(), attempt.resumed.step) == steps.end())
    return "started at step " + std::to_string(attempt.resumed.step);
  const Known& from = attempt.resumed.step == newest().step ? newest() : previous();
  if (attempt.state() != from.state) return "wrong bytes were loaded";
  for (const Skipped& skipped : attempt.resumed.skipped) {
    if (skipped.name != newest().name || skipped.reason.empty()) return "skipped " + skipped.name;
  }
  if (from.step != newest().step && attempt.resumed.skipped.empty()) return "nothing was named";
  attempt.train_to(kSteps);
  if (attempt.checkpointer.finish() != 0) return "the run did not complete";
  return attempt.state() == history().straight() ? "" : "the run came to another state";
}

// One start under sabotage and, where it ends with 74, the next one. False: the n-th read never came.
bool sabotage(const Change& change, int at, bool takes_back) {
  Volume volume;
  volume.disk = history().disk();
  Saboteur saboteur(volume, change, at, takes_back);
  // A fault of the memory is not the file's.
  std::vector<std::int64_t> steps = {newest().step};
  if (!takes_back) steps.push_back(previous().step);
  std::string wrong;
  bool acted = false;
  try {
    Attempt attempt(volume.options());
    acted = saboteur.acted();
    saboteur.stop();
    wrong = goes_on(attempt, steps);
  } catch (const IoError& error) {
    acted = saboteur.acted();
    saboteur.stop();
    if (std::string(error.what()).find(newest().name) == std::string::npos) wrong = error.what();
    if (takes_back) wrong += std::string("a fault of the memory ended the start: ") + error.what();
    Attempt next(volume.options());
    wrong += goes_on(next, steps);
  }
  if (!acted) return false;
  lane().judged(change.what + " before read " + std::to_string(at) + (takes_back ? ", for one read" : ""),
                wrong, wrong.find("wrong bytes") != std::string::npos);
  return true;
}

TEST(ChangingBytes, BeforeEveryRead) {
  for (const Change& change : changes()) {
    int reads = 0;
    while (sabotage(change, reads + 1, false)) ++reads;
    EXPECT_GE(reads, 6) << change.what;  // two looks and two loads
  }
}

TEST(ChangingBytes, ForOneReadAlone) {
  for (const Change& change : changes()) {
    if (change.bytes.size() != newest().bytes.size()) continue;  // a file's length is no page of memory
    int reads = 0;
    while (sabotage(change, reads + 1, true)) ++reads;
    EXPECT_GE(reads, 6) << change.what;
  }
}

// A file rots behind the run that wrote it or began with it. The run does not need it, and its end is sound;
// what retention left is enough for the next start to find a good one beneath, even when the newest is gone
// as well.
TEST(ChangingBytes, WhileTheRunGoesOn) {
  constexpr std::int64_t kLast = 14;
  const std::string straight = state_after(kLast);
  for (std::int64_t rots_after = 8; rots_after < kLast; ++rots_after) {
    for (std::int64_t rots = 8; rots <= rots_after; ++rots) {
      Volume volume;
      volume.disk = history().disk();
      CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
      std::string wrong;
      std::string rotten;
      {
        Attempt attempt(options);
        attempt.train_to(rots_after);
        attempt.checkpointer.save().wait();
        rotten = volume.path("step-" + std::string(rots < 10 ? "00000000000" : "0000000000") +
                             std::to_string(rots) + (rots == 8 ? "-a0002.h5" : "-a0003.h5"));
        try {
          volume.disk.flip_bit(rotten, volume.disk.get(rotten).size() - 1000);
        } catch (const IoError& error) {
          if (error.code() != ENOENT) throw;
          continue;  // retention took it, which works beside the training
        }
        attempt.train_to(kLast);
        if (attempt.checkpointer.finish() != 0) wrong = "the run did not complete";
        if (attempt.state() != straight) wrong = "the run came to another state";
      }
      MemoryFileSystem after = volume.disk.copy();
      {
        Attempt next(options);
        if (next.resumed.step != kLast && rots != kLast) wrong += "the next start is not at the end";
      }
      volume.disk = std::move(after);
      const std::string own = volume.path("step-000000000014-a0003.h5");
      volume.disk.flip_bit(own, volume.disk.get(own).size() - 1000);
      Attempt beneath(options);
      const std::int64_t second = rots == kLast - 1 ? kLast - 2 : kLast - 1;
      if (beneath.resumed.step != second)
        wrong += "beneath it is step " + std::to_string(beneath.resumed.step);
      if (beneath.state() != state_after(second)) wrong += "wrong bytes were loaded";
      lane().judged(rotten + " rots after step " + std::to_string(rots_after), wrong);
    }
  }
}

}}  // namespace holdfast::test::corruption
