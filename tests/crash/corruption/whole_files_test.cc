// Files that are whole but in the wrong place, of another run or another format, and more than one that is
// damaged.
#include <gtest/gtest.h>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/header.h"
#include "lane.h"

namespace holdfast::test::corruption { namespace {

const Known& file_at(std::size_t i) { return history().files()[i]; }
std::string place(const std::string& name) { return std::string(kRun) + "/" + name; }
std::string holds(std::int64_t step, int attempt) {
  return "is not what its name says: it holds step " + std::to_string(step) + " of attempt " +
         std::to_string(attempt);
}

std::vector<std::byte> flipped(const Known& file, std::uint64_t byte) {
  std::vector<std::byte> bytes = file.bytes;
  bytes[byte] ^= std::byte{4};
  return bytes;
}

// With a tensor that is not what it was.
std::vector<std::byte> damaged(const Known& file) { return flipped(file, file.index.tensors[0].offset + 1); }

std::vector<std::byte> of_format(const Known& file, std::uint32_t version, std::uint32_t lowest_reader) {
  std::vector<std::byte> bytes = file.bytes;
  auto header = std::get<internal::Header>(internal::read_header(bytes, bytes.size()));
  header.format_version = version;
  header.lowest_reader = lowest_reader;
  internal::write_header(bytes, header);
  return bytes;
}

TEST(WholeFiles, TwoSwappedFilesAreBothRejected) {
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = a + 1; b < 4; ++b) {
      MemoryFileSystem disk = history().disk();
      disk.put(place(file_at(a).name), file_at(b).bytes);
      disk.put(place(file_at(b).name), file_at(a).bytes);
      // The newest that is in its place; what lies below is not looked at.
      Expected expected;
      for (std::size_t i = 0; i < 4 && expected.step == 0; ++i) {
        if (i != a && i != b) {
          expected.step = file_at(i).step;
        } else {
          const Known& content = file_at(i == a ? b : a);
          expected.named.push_back({.file = file_at(i).name,
                                    .texts = {holds(content.step, content.step > 4 ? 2 : 1)},
                                    .moved = false});
        }
      }
      lane().goes_on(file_at(a).name + " and " + file_at(b).name + " swapped", disk, expected);
    }
  }
}

TEST(WholeFiles, AnOldFileUnderANewName) {
  for (const std::string name : {"step-000000000012-a0002.h5", "step-000000000008-a0003.h5",
                                 "step-000000000012-a0007.h5", "step-000000000004-a0002.h5"}) {
    for (std::size_t i = 0; i < 4; ++i) {
      MemoryFileSystem disk = history().disk();
      disk.put(place(name), file_at(i).bytes);
      Expected expected{.step = file_at(0).step, .named = {}};
      if (name != "step-000000000004-a0002.h5") {  // that one is not the newest, and nobody asks it
        expected.named = {{name, {holds(file_at(i).step, i < 2 ? 2 : 1)}, false}};
      }
      lane().goes_on(file_at(i).name + " as " + name, disk, expected);
    }
  }
  // And in the place of the newest.
  MemoryFileSystem disk = history().disk();
  disk.put(place(file_at(0).name), file_at(3).bytes);
  lane().goes_on("the oldest in the place of the newest", disk,
                 {.step = file_at(1).step, .named = {{file_at(0).name, {holds(2, 1)}, false}}});
}

// Whole, and rightly named: it decides, and is refused where it does not fit. Nothing is stepped past,
// because a file of the user's is never taken for damage.
TEST(WholeFiles, AFileOfAnotherRun) {
  const History smaller({.elements = 7});
  const History faster({.learning_rate = 0.2});
  for (const std::string& name : {file_at(0).name, std::string("step-000000000020-a0009.h5")}) {
    MemoryFileSystem disk = history().disk();
    const bool misnamed = name != file_at(0).name;
    disk.put(place(name), smaller.newest().bytes);
    if (misnamed) {
      lane().goes_on("another model's under a newer name", disk,
                     {.step = 8, .named = {{name, {holds(8, 2)}, false}}});
      continue;
    }
    lane().refused("another model's", disk, {"tensor model/weight"});
    disk.put(place(name), faster.newest().bytes);
    lane().refused("one with other options", disk, {"options.learning_rate"});
  }
}

TEST(WholeFiles, DamageOfTheNewestTwoAndThree) {
  for (const std::uint64_t byte : {std::uint64_t{40}, std::uint64_t{5000}, file_at(0).index.tensors[0].offset,
                                   file_at(0).bytes.size() - 1}) {
    MemoryFileSystem disk = history().disk();
    Expected expected;
    for (std::size_t i = 0; i < 3; ++i) {
      const std::vector<std::byte> bytes = flipped(file_at(i), byte);
      disk.put(place(file_at(i).name), bytes);
      expected.named.push_back({file_at(i).name, reasons(file_at(i), bytes)});
      expected.step = file_at(i + 1).step;
      lane().goes_on("byte " + std::to_string(byte) + " of the newest " + std::to_string(i + 1), disk,
                     expected);
    }
  }
}

TEST(WholeFiles, AllDamagedIsRefusedAndEachIsNamed) {
  MemoryFileSystem disk = history().disk();
  std::vector<std::string> texts = {"--allow-fresh"};
  const auto damage = [&](std::size_t i, std::span<const std::byte> bytes) {
    disk.put(place(file_at(i).name), bytes);
    texts.push_back(file_at(i).name + ": ");
    for (const std::string& text : reasons(file_at(i), bytes)) texts.push_back(text);
  };
  damage(0, flipped(file_at(0), 0));
  damage(1, std::span(file_at(1).bytes).first(5000));
  damage(2, damaged(file_at(2)));
  damage(3, flipped(file_at(3), kFormatVersionAt));
  lane().refused("all are damaged", disk, texts);

  // Starting over is the user's word; nothing is deleted or moved by it.
  Volume volume;
  volume.disk = disk.copy();
  CheckpointerOptions options = volume.options({SaveEvery::steps(1)});
  options.start.allow_fresh = true;
  options.keep = KeepLast{2};
  std::string wrong;
  {
    Attempt attempt(options);
    if (!attempt.resumed.fresh) wrong += "it did not start over\n";
    attempt.train_to(kSteps);
    if (attempt.checkpointer.finish() != 0) wrong += "it did not complete\n";
    if (attempt.state() != history().straight()) wrong += "it came to another state\n";
  }
  for (const Known& file : history().files()) {
    if (!volume.disk.exists(place(file.name)) ||
        volume.disk.get(place(file.name)) != disk.get(place(file.name))) {
      wrong += file.name + " is gone or was changed\n";
    }
  }
  lane().judged("all are damaged, and --allow-fresh", wrong);
}

// Missing, empty, and set aside: what was held once is not forgotten.
TEST(WholeFiles, AllEmptyOrGone) {
  MemoryFileSystem disk = history().disk();
  for (const Known& file : history().files()) disk.put(place(file.name), std::string_view());
  lane().refused("all are empty", disk,
                 {file_at(0).name + ": the file has 0 bytes", file_at(3).name + ": the file has 0 bytes"});
  MemoryFileSystem emptied = history().disk();
  const auto directory = emptied.open_directory(kRun, false);
  for (const Known& file : history().files()) directory->unlink(file.name);
  lane().refused("all are gone, and the state tells of them", emptied, {"records step 8 as committed"});
  emptied.put(place(file_at(0).name + ".damaged"), std::string_view());
  lane().refused("one is there, set aside", emptied, {file_at(0).name + ".damaged"});
}

TEST(WholeFiles, ANewerFormatIsNeverSteppedPast) {
  MemoryFileSystem disk = history().disk();
  disk.put(place(file_at(0).name), of_format(file_at(0), 2, 2));
  lane().refused("of format 2", disk, {file_at(0).name, "needs a reader of format 2", "--resume-from"});
  // Whatever else is wrong with it: only its header may be understood.
  std::vector<std::byte> torn = of_format(file_at(0), 9, 3);
  torn.resize(kHeaderSize);
  disk.put(place(file_at(0).name), torn);
  lane().refused("of format 9, and cut", disk, {file_at(0).name, "needs a reader of format 3"});
  // Nor when what lies above it is damaged.
  disk.put(place(file_at(0).name), damaged(file_at(0)));
  disk.put(place(file_at(1).name), of_format(file_at(1), 2, 2));
  lane().refused("of format 2 beneath a damaged one", disk, {file_at(1).name, "needs a reader of format 2"});
  // Beneath a good one it is the business of nobody.
  disk.put(place(file_at(0).name), file_at(0).bytes);
  lane().goes_on("of format 2 beneath a good one", disk, {.step = 8, .named = {}});
  // A newer minor that this reader understands.
  disk.put(place(file_at(1).name), of_format(file_at(1), 2, 1));
  disk.put(place(file_at(0).name), damaged(file_at(0)));
  lane().goes_on("of format 2 for readers of 1", disk,
                 {.step = 6, .named = {{file_at(0).name, reasons(file_at(0), damaged(file_at(0)))}}});
}

// The digest stands before the version: a flipped bit in it is damage, and never "newer".
TEST(WholeFiles, AFlippedBitInTheVersionIsDamage) {
  for (std::size_t bit = 0; bit < 64; ++bit) {  // format version and lowest reader
    const std::size_t at = kFormatVersionAt + bit / 8;
    MemoryFileSystem disk = history().disk();
    std::vector<std::byte> bytes = file_at(0).bytes;
    bytes[at] ^= std::byte{static_cast<unsigned char>(1U << bit % 8)};
    disk.put(place(file_at(0).name), bytes);
    lane().goes_on("bit " + std::to_string(bit) + " of the versions", disk,
                   {.step = 6, .named = {{file_at(0).name, {"header: digest differs"}}}});
    std::vector<std::byte> newer = of_format(file_at(0), 2, 2);
    newer[at] ^= std::byte{static_cast<unsigned char>(1U << bit % 8)};
    disk.put(place(file_at(0).name), newer);
    lane().goes_on("bit " + std::to_string(bit) + " of newer versions", disk,
                   {.step = 6, .named = {{file_at(0).name, {"header: digest differs"}}}});
  }
}

TEST(WholeFiles, OlderDamageIsFoundWhenItIsNeeded) {
  for (std::size_t i = 1; i < 4; ++i) {
    MemoryFileSystem disk = history().disk();
    disk.put(place(file_at(i).name), damaged(file_at(i)));
    lane().goes_on(file_at(i).name + " is damaged, and not the newest", disk, {.step = 8, .named = {}});
    // A start that is chosen is never replaced by another one.
    Volume volume;
    volume.disk = disk.copy();
    CheckpointerOptions options = volume.options();
    options.start.resume_from = std::to_string(file_at(i).step);
    MemorySource source;
    std::string wrong = "it started";
    try {
      Checkpointer(source, options).resume();
    } catch (const RefusedError& error) {
      wrong = std::string(error.what()).find("tensor ") == std::string::npos ? error.what() : "";
    }
    lane().judged("--resume-from " + options.start.resume_from, wrong, wrong == "it started");
  }
}

}}  // namespace holdfast::test::corruption
