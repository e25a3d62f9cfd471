// What handles and callbacks say of a save, from the step boundary to the acknowledgement.
#include <atomic>
#include <csignal>
#include <thread>

#include "holdfast/format/reader.h"
#include "slow_disk.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

// "durable 2 step-000000000002-a0001.h5", in order of arrival.
class Diary {
 public:
  OnSave listener() {
    return [this](const SaveEvent& event) {
      EXPECT_NE(event.status, SaveStatus::staging);
      std::string line;
      if (event.status == SaveStatus::staged) line = "staged";
      if (event.status == SaveStatus::durable) line = "durable";
      if (event.status == SaveStatus::overtaken) line = "overtaken";
      if (event.status == SaveStatus::failed) line = "failed";
      line += ' ' + std::to_string(event.step);
      if (event.status == SaveStatus::durable) line += ' ' + std::string(event.checkpoint);
      EXPECT_EQ(event.error.empty(), event.status != SaveStatus::failed);
      EXPECT_EQ(event.checkpoint.empty(), event.status != SaveStatus::durable);
      EXPECT_EQ(event.figures.bytes > 0, event.status == SaveStatus::durable);
      lines_.push_back(line);  // one call at a time
    };
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

CheckpointerOptions with_listener(Volume& volume, OnSave listener, std::vector<SaveEvery> every = {}) {
  auto options = volume.options(std::move(every));
  options.writing.on_save = std::move(listener);
  return options;
}

TEST(Save, WhereTheAttemptBeganIsTheCheckpointItBeganFrom) {
  Volume volume;
  std::string checkpoint;
  {
    Attempt first(volume.options());
    const SaveHandle none = first.checkpointer.save();
    EXPECT_EQ(none.status(), SaveStatus::failed);
    EXPECT_THAT(none.error(), HasSubstr("before the first step"));
    first.train_to(3);
    EXPECT_EQ(first.checkpointer.finish(), 0);
    checkpoint = first.checkpointer.last_durable().checkpoint;
  }
  Attempt second(volume.options());
  const SaveHandle start = second.checkpointer.save();
  EXPECT_EQ(start.status(), SaveStatus::durable) << start.error();
  EXPECT_EQ(start.step(), 3);
  EXPECT_EQ(start.checkpoint(), checkpoint);
  EXPECT_EQ(second.checkpointer.figures().durable, 0) << "no save of this attempt";
}

TEST(Save, ALateOneIsStagingUntilTheUpdate) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(2)}));
  for (int i = 0; i < 2; ++i) {
    run.checkpointer.before_update();
    run.step();
  }
  ASSERT_TRUE(run.decision.saved);
  const SaveHandle save = run.decision.save;
  EXPECT_EQ(save.step(), 2);
  EXPECT_EQ(save.status(), SaveStatus::staging);
  // Here nobody would ever end it.
  EXPECT_EQ(save.wait(), SaveStatus::staging);
  EXPECT_EQ(save.wait_staged(), SaveStatus::staging);
  EXPECT_EQ(save.wait_for(1h), SaveStatus::staging);
  SaveStatus seen_elsewhere{};
  std::thread other([&] { seen_elsewhere = save.wait_staged(); });
  run.checkpointer.before_update();
  other.join();
  EXPECT_TRUE(seen_elsewhere == SaveStatus::staged || seen_elsewhere == SaveStatus::durable);
  EXPECT_EQ(save.wait(), SaveStatus::durable);
  EXPECT_EQ(save.wait_staged(), SaveStatus::durable);
}

TEST(Save, AWholeCopyIsStagedAtOnce) {
  Volume volume;
  Attempt run(volume.options({SaveEvery::steps(2)}));
  SlowDisk disk(volume);
  run.step();
  EXPECT_EQ(run.decision.save.status(), SaveStatus::failed) << "no save, a handle on nothing";
  run.step();
  EXPECT_EQ(run.decision.save.status(), SaveStatus::staged);
  EXPECT_EQ(run.decision.save.wait_staged(), SaveStatus::staged);
  EXPECT_EQ(run.decision.save.wait_for(1ms), std::nullopt);
  disk.finish();
  EXPECT_EQ(run.decision.save.wait(), SaveStatus::durable);
}

TEST(Save, ADroppedLateOneIsOvertaken) {
  Volume volume;
  CapturedLog log;
  Diary diary;
  {
    Attempt run(with_listener(volume, diary.listener(), {SaveEvery::steps(2)}));
    for (int i = 0; i < 2; ++i) {
      run.checkpointer.before_update();
      run.step();
    }
    const SaveHandle late = run.decision.save;
    const SaveHandle asked = run.checkpointer.save();
    EXPECT_EQ(asked.wait(), SaveStatus::durable);
    EXPECT_EQ(late.status(), SaveStatus::durable) << "one step, one state";
    for (int i = 0; i < 2; ++i) {
      run.checkpointer.before_update();
      run.step();
    }
    const SaveHandle unannounced = run.decision.save;
    run.step();
    EXPECT_EQ(unannounced.status(), SaveStatus::overtaken);
    EXPECT_TRUE(run.decision.saved);
    EXPECT_EQ(run.decision.save.wait(), SaveStatus::durable);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_THAT(diary.lines(), ElementsAre("staged 2", "durable 2 step-000000000002-a0001.h5", "overtaken 4",
                                         "staged 5", "durable 5 step-000000000005-a0001.h5"));
}

TEST(Save, OneThatIsNeverStagedFailsWithTheRun) {
  Volume volume;
  SaveHandle save;
  {
    Attempt run(volume.options({SaveEvery::steps(2)}));
    for (int i = 0; i < 2; ++i) {
      run.checkpointer.before_update();
      run.step();
    }
    save = run.decision.save;
  }  // without finish(), as where an exception ends the loop
  EXPECT_EQ(save.wait(), SaveStatus::failed);
  EXPECT_THAT(save.error(), HasSubstr("before it was staged"));
}

TEST(Save, TheProgramIsToldOfEveryOne) {
  Volume volume;
  CapturedLog log;
  Diary diary;
  std::atomic<bool> broken{false};
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind != Op::sync_file || operation.path.find("step-") == std::string::npos) return;
    if (broken.exchange(false)) throw IoError("fsync", operation.path, EIO);
  });
  {
    Attempt run(with_listener(volume, diary.listener(), {SaveEvery::steps(2)}));
    const auto train = [&] {
      run.step();
      if (run.step().saved) run.decision.save.wait();
    };
    train();
    broken = true;
    train();
    run.source.on_copy = [] { throw std::runtime_error("device lost"); };
    train();
    EXPECT_EQ(run.decision.save.status(), SaveStatus::failed);
    EXPECT_THAT(run.decision.save.error(), HasSubstr("device lost"));
    run.source.on_copy = nullptr;
    run.step();
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  EXPECT_THAT(diary.lines(),
              ElementsAre("staged 2", "durable 2 step-000000000002-a0001.h5", "staged 4", "failed 4",
                          "failed 6", "staged 7", "durable 7 step-000000000007-a0001.h5"));
}

TEST(Save, ACallbackMayAskForMoreOrForTheEnd) {
  Volume volume;
  Attempt* attempt = nullptr;
  const auto listener = [&](const SaveEvent& event) {
    if (event.status != SaveStatus::durable) return;
    EXPECT_GT(attempt->checkpointer.figures().durable, 0);
    event.step < 4 ? attempt->checkpointer.request_save() : attempt->checkpointer.request_stop("enough");
  };
  Attempt run(with_listener(volume, listener, {SaveEvery::steps(2)}));
  attempt = &run;
  run.train_to(100);
  EXPECT_EQ(run.checkpointer.stop_reason(), "enough");
  EXPECT_EQ(run.checkpointer.finish(), 75);
}

TEST(Save, ACallbackThatThrowsLosesNothingAndIsNamedOnce) {
  Volume volume;
  CapturedLog log;
  {
    Attempt run(with_listener(volume,
                              [](const SaveEvent& event) {
                                if (event.step == 4) throw 42;
                                throw std::runtime_error("no network");
                              },
                              {SaveEvery::steps(2)}));
    run.train_to(6);
    EXPECT_EQ(run.checkpointer.last_durable().step, 6);
    EXPECT_EQ(run.decision.failure, std::nullopt);
    EXPECT_EQ(run.checkpointer.finish(), 0);
  }
  const std::string said = log.text();
  EXPECT_THAT(said, HasSubstr("on_save threw (no network)"));
  EXPECT_EQ(said.find("on_save threw"), said.rfind("on_save threw"));
}

TEST(Save, NothingIsToldAfterTheEndNotEvenOfAWriteThatHung) {
  Volume volume;
  CapturedLog log;
  Diary diary;
  Gate gate;
  SaveHandle save;
  {
    auto options = with_listener(volume, diary.listener());
    options.notices.hear_signals = true;
    options.notices.term_grace = std::chrono::seconds(25);
    Attempt run(options);
    run.step();
    volume.faults.set_hook([&](const Operation& operation) {
      if (operation.kind == Op::sync_file) gate.pass();
    });
    save = run.checkpointer.save();
    gate.await_arrival();
    std::raise(SIGTERM);
    while (!run.checkpointer.tick()) std::this_thread::sleep_for(1ms);
    volume.clock.advance(330s);  // the end has passed before the wait, and so counts as a guess
    EXPECT_EQ(run.checkpointer.finish(), 74);
  }
  gate.open();
  EXPECT_EQ(save.wait(), SaveStatus::durable);
  while (volume.disk.open_handles() > 0) std::this_thread::sleep_for(1ms);
  EXPECT_THAT(diary.lines(), ElementsAre("staged 1"));
}

// For the thread sanitizer: saves of every fate, callbacks, and whoever looks at handles and figures.
TEST(Save, RacedOnPurpose) {
  Volume volume;
  CapturedLog log;
  Diary diary;
  auto options = with_listener(volume, diary.listener(), {SaveEvery::steps(1)});
  options.writing.second_image = true;
  volume.faults.fail(Op::sync_file, 5, EIO);
  {
    Attempt run(options);
    std::mutex mutex;
    SaveHandle newest;
    bool over = false;
    std::thread observer([&] {
      while (true) {
        SaveHandle one;
        {
          const std::lock_guard lock(mutex);
          if (over) return;
          one = newest;
        }
        one.wait_for(100us);
        one.figures();
        run.checkpointer.figures();
        EXPECT_TRUE(one.status() != SaveStatus::durable || !one.checkpoint().empty());
      }
    });
    for (int i = 1; i <= 200; ++i) {
      if (i % 50 != 0) {
        run.checkpointer.before_update();
      } else {
        run.source.wait_for_late_copy();
      }
      run.step();
      if (i % 9 == 0) run.checkpointer.save();
      const std::lock_guard lock(mutex);
      if (run.decision.saved) newest = run.decision.save;
    }
    EXPECT_EQ(run.checkpointer.finish(), 0);
    {
      const std::lock_guard lock(mutex);
      over = true;
    }
    observer.join();
    EXPECT_EQ(run.checkpointer.last_durable().step, 200);
  }
  EXPECT_THAT(diary.lines().back(), HasSubstr("durable 200"));
}

// A command that on_save starts inherits the mask of the thread that runs it.
TEST(Save, OnSaveRunsWithTheProgramsSignals) {
  Volume volume;
  std::atomic<int> calls = 0;
  auto options = with_listener(volume, [&](const SaveEvent&) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    EXPECT_EQ(sigismember(&mask, SIGTERM), 0);
    ++calls;
  });
  Attempt run(options);
  run.train_to(2);
  run.checkpointer.save().wait();
  EXPECT_EQ(run.checkpointer.finish(), 0);
  EXPECT_GT(calls, 0);
}

// Its checkpoint's name would be taken by the state that it left, and the new one never written.
TEST(Save, OfAStepThatComesAgainIsRefused) {
  Volume volume;
  auto options = volume.options();
  options.keep = KeepLast{9};
  Attempt run(options);
  run.train_to(2);
  run.checkpointer.save().wait();
  run.train_to(3);
  ASSERT_EQ(run.checkpointer.save().wait(), SaveStatus::durable);
  const auto file =
      volume.disk.open_directory(kRun, false)->open(volume.checkpoints().front(), OpenMode::read);
  const auto index = std::get<CheckpointIndex>(read_index(*file));
  run.source.load(*std::get<std::shared_ptr<Snapshot>>(read_snapshot(*file, index)), {});
  ASSERT_EQ(run.source.step(), 2);
  EXPECT_THROW(run.step(), UsageError);
}

}}  // namespace holdfast::test
