// Operations of a run's life fail, in every way there is, and afterwards the disk is judged: nothing
// acknowledged is lost (over a power cut, too), the failure is told, nothing is claimed that is not so,
// training goes on, and the next run ends where an uninterrupted one does.
//
// By day a sample, whose strides are odd to take turns with both kinds of files.
//
//   HOLDFAST_NIGHTLY=1   nothing is thinned
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "faults/broken_file_system.h"
#include "faults/checkpointer_level.h"
#include "faults/store_level.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "support/nightly.h"

namespace holdfast::test { namespace {

using namespace faults;

// Images of a megabyte would come from the system and go back to it thousands of times.
void keep_memory() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

// Under a sanitizer, which is there for other things, a fraction.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlower = 19;
#else
constexpr int kSlower = 1;
#endif

void expect_kept(const Tally& tally, const char* note) {
  std::printf("faults: %s (%s)\n", tally.text().c_str(), note);
  EXPECT_EQ(tally.fired, tally.planned);
  EXPECT_EQ(tally.lost + tally.false_success + tally.unreported + tally.stuck, 0);
}

TEST(Faults, OfTheStore) {
  set_log_level(LogLevel::off);
  keep_memory();
  const int others = (nightly() ? 1 : 5) * kSlower;
  Tally tally;
  StoreLevel fresh(false);
  explore(fresh, "an empty volume", {kSlower, others, others}, tally);
  StoreLevel later(true);
  explore(later, "a directory with a past", {kSlower, others, others}, tally);
  expect_kept(tally, nightly()
                         ? "the store with opaque files, 8 errnos and short writes at every operation"
                         : "the store with opaque files, EIO and short writes at every operation, the other "
                           "errnos at every 5th");
  EXPECT_GT(tally.planned, 1000 / kSlower);
}

TEST(Faults, OfTheCheckpointer) {
  keep_memory();
  set_log_level(LogLevel::info);
  const int full = nightly() ? 1 : 3 * kSlower;
  const int no_space = nightly() ? 1 : 13 * kSlower;
  const int others = nightly() ? 1 : 41 * kSlower;
  Tally tally;
  CheckpointerLevel fresh(false);
  explore(fresh, "an empty volume", {full, no_space, others}, tally);
  CheckpointerLevel later(true);
  explore(later, "a directory with a past", {full, no_space, others}, tally);
  expect_kept(tally, nightly() ? "the Checkpointer, 8 errnos and short writes at every operation"
                               : "the Checkpointer, EIO and short writes at every 3rd operation, ENOSPC at "
                                 "every 13th, the other errnos at every 41st");
  EXPECT_GT(tally.planned, 400 / kSlower);
}

// The disk that the lane believes in: after a failed fsync the data is gone, whatever the next one says.
TEST(Faults, ASecondSyncSucceedsAndTheDataIsGone) {
  MemoryFileSystem disk;
  FaultFileSystem files(disk);
  const auto file = files.open_directory("/run", true)->open("a", OpenMode::create);
  file->write_at(std::as_bytes(std::span("data")), 0);
  files.fail(Op::sync_file, 1, EIO);
  EXPECT_THROW(file->sync(), IoError);
  EXPECT_NO_THROW(file->sync());
  const std::vector<std::byte> zeros(5);
  EXPECT_EQ(disk.get("/run/a"), zeros);
  files.open_directory("/run", false)->sync();
  EXPECT_EQ(disk.crash().get("/run/a"), zeros);
}

// And the lane itself: bugs planted between the store and that disk.
TEST(Faults, PlantedBugsAreSeen) {
  set_log_level(LogLevel::off);
  const auto nth = [](Op kind) {
    StoreLevel level(false);
    const auto log = level.run(std::nullopt, 0).log;
    const auto found = std::find_if(log.begin(), log.end(), [&](const Operation& operation) {
      return operation.kind == kind && operation.path.find("step-") != std::string::npos;
    });
    return Fault{.nth = static_cast<int>(found - log.begin()) + 1, .code = EIO};
  };
  const auto under = [](Bug bug, const std::optional<Fault>& fault) {
    StoreLevel level(false, [bug](FileSystem& files) { return with_bug(files, bug); });
    return level.run(fault, 0);
  };
  EXPECT_FALSE(under(Bug::syncs_again, nth(Op::sync_file)).false_success.empty());
  EXPECT_FALSE(under(Bug::never_syncs, std::nullopt).false_success.empty());
  EXPECT_FALSE(under(Bug::never_syncs, std::nullopt).stuck.empty());
  EXPECT_FALSE(under(Bug::forgets_directories, std::nullopt).lost.empty());
  EXPECT_FALSE(under(Bug::swallows_failures, nth(Op::close)).unreported.empty());
  EXPECT_TRUE(under(Bug::swallows_failures, std::nullopt).kept());
}

}}  // namespace holdfast::test
