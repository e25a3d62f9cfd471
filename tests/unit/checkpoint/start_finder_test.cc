// Where a run can start: what the user chose, what the directory holds, and that looking changes nothing.
#include "holdfast/checkpoint/internal/start/start_finder.h"

#include <cerrno>

#include "rig.h"

namespace holdfast::test { namespace {

using internal::Start;
using internal::StartFinder;
using testing::HasSubstr;

constexpr char kThree[] = "step-000000000003-a0001.h5";
constexpr char kElsewhere[] = "/vol/other/kept.h5";

class StartFinderTest : public testing::Test {
 protected:
  // A run directory with a checkpoint of step 3, and a copy of it elsewhere.
  StartFinderTest() {
    {
      Attempt first(volume.options());
      first.train_to(3);
      EXPECT_EQ(first.checkpointer.finish(), 0);
    }
    const auto bytes = volume.disk.get(volume.path(kThree));
    volume.disk.open_directory("/vol/other", true);
    volume.disk.put(kElsewhere, bytes);
    volume.faults.clear_log();
  }
  StartFinder& find(const std::string& resume_from = {}) {
    options.start.resume_from = resume_from;
    finder.reset();
    run.reset();
    return finder.emplace(run.emplace(source, options));
  }
  Start candidate(const std::string& resume_from = {}) {
    StartFinder& here = find(resume_from);
    const auto store = here.open_store();
    return here.candidate(*store, store->preflight());
  }
  // The candidate after the file has become something else between the selection and its use.
  template <class Change>
  Start candidate_after(const Change& change) {
    StartFinder& here = find();
    const auto store = here.open_store();
    const Selection found = store->preflight();
    EXPECT_TRUE(found.newest);
    run->verifier.stop_keeping();
    change();
    return here.candidate(*store, found);
  }
  template <class Work>
  static void expect_refused(const Work& work, const std::string& why) {
    try {
      work();
      ADD_FAILURE() << "not refused";
    } catch (const RefusedError& error) {
      EXPECT_THAT(error.what(), HasSubstr(why));
    }
  }

  Volume volume;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  MemorySource source;
  std::optional<internal::Run> run;
  std::optional<StartFinder> finder;
};

TEST_F(StartFinderTest, TakesTheNewestAndChangesNothing) {
  const Start start = candidate();
  EXPECT_FALSE(start.fresh);
  EXPECT_FALSE(start.outside);
  EXPECT_EQ(start.step, 3);
  EXPECT_EQ(start.name, kThree);
  EXPECT_EQ(start.record.attempt, 1U);
  ASSERT_TRUE(start.snapshot);
  EXPECT_EQ(start.snapshot->step, 3);
  EXPECT_NO_THROW(finder->check(start));
  EXPECT_EQ(volume.faults.mutation_count(), 0);
  EXPECT_EQ(source.loads, 0) << "nothing is loaded yet";
}

TEST_F(StartFinderTest, AnEmptyDirectoryIsAFreshStart) {
  options.directory = "/vol/none";
  const Start start = candidate();
  EXPECT_TRUE(start.fresh);
  EXPECT_EQ(start.name, "");
  EXPECT_FALSE(volume.disk.exists("/vol/none"));
}

TEST_F(StartFinderTest, AFileInTheRunDirectoryIsOneOfTheRun) {
  for (const std::string& chosen : {std::string("3"), std::string(kThree), volume.path(kThree)}) {
    const Start start = candidate(chosen);
    EXPECT_FALSE(start.outside) << chosen;
    EXPECT_EQ(start.name, kThree) << chosen;
    EXPECT_EQ(start.record.attempt, 1U) << chosen;
    EXPECT_TRUE(finder->outside().empty()) << chosen;
  }
}

TEST_F(StartFinderTest, AFileElsewhereBringsNoLineageOfThisDirectory) {
  const Start start = candidate(kElsewhere);
  EXPECT_TRUE(start.outside);
  EXPECT_EQ(finder->outside(), kElsewhere);
  EXPECT_EQ(start.step, 3);
  EXPECT_EQ(start.name, kElsewhere);
  EXPECT_EQ(start.record.attempt, 0U);
  EXPECT_TRUE(start.record.ancestry.empty());
}

TEST_F(StartFinderTest, AChoiceThatCannotBeIsNamed) {
  EXPECT_THROW(candidate("-1"), UsageError);
  expect_refused([&] { candidate("/vol/other/none.h5"); }, "resume_from /vol/other/none.h5: no such file");
  // In an empty run directory: otherwise its intact copy of the same file has been read already.
  options.directory = "/vol/none";
  volume.disk.flip_bit(kElsewhere, volume.disk.get(kElsewhere).size() - 1000);
  expect_refused([&] { candidate(kElsewhere); }, std::string("resume_from ") + kElsewhere);
}

// A fault of the disk is not the user's mistake.
TEST_F(StartFinderTest, AChosenFileThatTheDiskRefusesIsNoRefusal) {
  volume.faults.set_hook([](const Operation& operation) {
    if (operation.kind == Op::open_read && operation.path == kElsewhere) {
      throw IoError("open", operation.path, EIO);
    }
  });
  expect_unreadable([&] { candidate(kElsewhere); }, EIO, kElsewhere);
}

TEST_F(StartFinderTest, AFileThatVanishesMeanwhileIsAnError) {
  expect_unreadable(
      [&] { candidate_after([&] { volume.disk.open_directory(kRun, false)->unlink(kThree); }); }, ENOENT,
      "vanished");
}

TEST_F(StartFinderTest, AFileThatIsDamagedMeanwhileIsAnError) {
  expect_unreadable(
      [&] {
        candidate_after([&] {
          volume.disk.flip_bit(volume.path(kThree), volume.disk.get(volume.path(kThree)).size() - 1000);
        });
      },
      EIO, "it was whole a moment ago");
}

TEST_F(StartFinderTest, AnotherFileUnderTheSameNameIsAnError) {
  Volume other;
  {
    Attempt run(other.options());
    run.train_to(4);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  const auto four = other.disk.get(other.path("step-000000000004-a0001.h5"));
  expect_unreadable([&] { candidate_after([&] { volume.disk.put(volume.path(kThree), four); }); }, EIO,
                    "now holds step 4");
}

TEST_F(StartFinderTest, AStateWithOtherOptionsIsRefused) {
  const Start start = candidate();
  MemorySource other({.learning_rate = 0.2});
  internal::Run its_run(other, options);
  StartFinder its_finder(its_run);
  EXPECT_THROW(its_finder.check(start), RefusedError);
}

TEST_F(StartFinderTest, AFreshStartAfterTheFirstUpdateIsAMistake) {
  source.advance(source.train());
  EXPECT_THROW(find().start_fresh(), UsageError);
}

TEST_F(StartFinderTest, WeightsComeFromAFileOfWeightsAlone) {
  volume.disk.put("/vol/other/text", "these are no weights at all, but a letter to the editor");
  options.start.init_from = "/vol/other/text";
  expect_refused([&] { find().start_fresh(); }, "neither a Holdfast checkpoint");
  options.start.init_from = "/vol/other/none";
  expect_refused([&] { find().start_fresh(); }, "init_from /vol/other/none: no such file");
  EXPECT_EQ(source.weight_loads, 0);
  options.start.init_from = kElsewhere;
  find().start_fresh();
  EXPECT_EQ(source.weight_loads, 1);
  EXPECT_EQ(source.loads, 0);
}

TEST_F(StartFinderTest, ReadsAheadOnlyWhatCanBeForeseen) {
  const auto reads_ahead = [&](const std::string& resume_from) {
    volume.faults.clear_log();
    find(resume_from).read_ahead();
    finder->end_reading_ahead();
    return volume.faults.count(Op::read) > 0;
  };
  EXPECT_TRUE(reads_ahead(""));
  EXPECT_FALSE(reads_ahead("3"));
  volume.disk.unmount("/vol");
  EXPECT_FALSE(reads_ahead("")) << "an empty mount point";
  EXPECT_EQ(volume.faults.mutation_count(), 0);
}

}}  // namespace holdfast::test
