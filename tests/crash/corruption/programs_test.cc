// The same on a real disk, with programs: the training driver over a damaged directory, and what `holdfast
// verify`, `ls` and `show` say of it.
#include <gtest/gtest.h>

#include <filesystem>

#include "holdfast/format/layout.h"
#include "holdfast/format/reader.h"
#include "lane.h"
#include "support/subprocess.h"

namespace holdfast::test::corruption { namespace {

namespace fs = std::filesystem;

constexpr char kNewest[] = "step-000000000008-a0001.h5";
constexpr char kPrevious[] = "step-000000000006-a0001.h5";

Ended drive(const fs::path& directory, std::int64_t steps) {
  return Subprocess({HOLDFAST_DRIVER, directory.native(), std::to_string(steps), "every=2", "wait"},
                    {{"HOLDFAST_LOG", "warning"}})
      .wait();
}

Ended holdfast(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
  return Subprocess(std::move(arguments)).wait();
}

std::string state_in(const Ended& ended) {
  const std::string line = ended.last_line();
  const auto at = line.find("state=");
  return at == std::string::npos ? line : line.substr(at + 6, 32);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Damage {
  std::string what;
  std::string damaged;        // contents of the newest file
  std::string reason;         // that is said of it
  bool in_the_index = false;  // seen without reading everything
};

std::string flipped(std::string bytes, std::uint64_t at) {
  bytes[at] = static_cast<char>(bytes[at] ^ 8);
  return bytes;
}

std::vector<Damage> damages(const fs::path& run) {
  const std::string good = read_text(run / kNewest);
  const std::string older = read_text(run / kPrevious);
  const auto file = FileSystem::real().open_file(run / kNewest, OpenMode::read);
  const auto index = std::get<CheckpointIndex>(read_index(*file));
  const IndexedTensor& tensor = index.tensors.front();
  std::string zeroed = good;
  zeroed.replace(4096, 4096, 4096, '\0');
  std::string stale = good;
  stale.replace(tensor.offset / 512 * 512, 512, older, tensor.offset / 512 * 512, 512);
  return {{"a bit of a tensor", flipped(good, tensor.offset), "tensor " + tensor.spec.name},
          {"a bit of the HDF5 metadata", flipped(good, index.user_block), "HDF5 metadata"},
          {"a stale sector", stale, "differ"},
          {"a bit of the version", flipped(good, kFormatVersionAt), "header: digest differs", true},
          {"a bit of the magic number", flipped(good, 3), "not a Holdfast checkpoint", true},
          {"a zeroed block of the index", zeroed, "index: digest differs", true},
          {"cut", good.substr(0, good.size() - 4000), "fewer than were sealed", true},
          {"empty", "", "the file has 0 bytes", true},
          {"one byte more", good + "x", "1 more than were sealed", true},
          {"an older file", older, "step 6", true}};
}

// What is wrong; empty when everything is as it should be.
std::string judge(const fs::path& run, const Damage& damage, const std::string& straight) {
  std::string wrong;
  const auto expect = [&](bool right, const std::string& what, const Ended& ended) {
    if (!right) wrong += what + ": " + std::to_string(ended.exit_code) + "\n" + ended.out + ended.err;
  };
  const Ended verify = holdfast({"verify", run.native()});
  expect(verify.exit_code == 1 && contains(verify.out, damage.reason), "verify", verify);
  const Ended ls = holdfast({"ls", run.native()});
  expect(ls.exit_code == 0 && contains(ls.out, damage.in_the_index ? damage.reason : kNewest), "ls", ls);
  const Ended thorough = holdfast({"ls", "--verify", run.native()});
  expect(thorough.exit_code == 0 && contains(thorough.out, damage.reason), "ls --verify", thorough);
  const Ended show = holdfast({"show", (run / kNewest).native()});
  expect(show.signal == 0 && (!damage.in_the_index || show.exit_code != 0 || damage.what == "an older file"),
         "show", show);
  // None of them has changed anything: the run finds it as they did.
  expect(read_text(run / kNewest) == damage.damaged, "the file is not what it was", show);

  const Ended driven = drive(run, 11);
  expect(driven.exit_code == 0 && contains(driven.out, "started step=6"), "the run", driven);
  expect(contains(driven.err, kNewest) && contains(driven.err, damage.reason), "it was not named", driven);
  expect(state_in(driven) == straight, "another state", driven);
  return wrong;
}

TEST(Programs, OverADamagedDirectory) {
  const TemporaryFolder folder;
  const fs::path good = folder.path() / "good";
  ASSERT_EQ(drive(good, 8).exit_code, 0);
  const std::string straight = state_in(drive(folder.path() / "straight", 11));
  ASSERT_EQ(holdfast({"verify", good.native()}).exit_code, 0);
  for (const Damage& damage : damages(good)) {
    const fs::path run = folder.path() / "run";
    fs::remove_all(run);
    fs::copy(good, run, fs::copy_options::recursive);
    write_text(run / kNewest, damage.damaged);
    lane().judged(damage.what + ", on the real disk", judge(run, damage, straight));
  }
}

TEST(Programs, RefuseARunWhoseCheckpointsAreAllDamaged) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  ASSERT_EQ(drive(run, 8).exit_code, 0);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename();
    if (!name.ends_with(".h5")) continue;
    names.push_back(name);
    write_text(entry.path(), flipped(read_text(entry.path()), 4100));
  }
  ASSERT_GE(names.size(), 3U);
  const Ended driven = drive(run, 11);
  std::string wrong = driven.exit_code == 78 ? "" : "exit code " + std::to_string(driven.exit_code);
  for (const std::string& name : names) {
    if (!contains(driven.err, name + ": index: digest differs"))
      wrong += name + " is not named: " + driven.err;
    if (!fs::exists(run / name)) wrong += name + " is gone";
  }
  lane().judged("all are damaged, on the real disk", wrong);
}

}}  // namespace holdfast::test::corruption
