// Whatever one rank does or does not do: no half-world checkpoint, and the same reason on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <random>

#include "holdfast/ranks/internal/share_message.h"
#include "support/captured_log.h"
#include "support/gate.h"
#include "support/memory_world.h"
#include "support/shared_world.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;
using Outcome = SharedOutcome::Kind;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::size_t kSharedStride = 5;
#else
constexpr std::size_t kSharedStride = 1;
#endif

// Of what never comes.
constexpr Duration kPatience = std::chrono::milliseconds(100);

void expect_failed(const std::vector<SharedOutcome>& outcomes, const std::string& reason,
                   const std::set<int>& but = {}) {
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    if (but.contains(static_cast<int>(r))) continue;
    EXPECT_EQ(outcomes[r].kind, Outcome::failed) << "rank " << r << ": " << outcomes[r].checkpoint;
    EXPECT_THAT(outcomes[r].reason, HasSubstr(reason)) << "rank " << r;
  }
}

// The checkpoint of step 10 stands, and no other file.
void expect_only_the_first(const MemoryFileSystem& disk) {
  EXPECT_EQ(shared_names(disk, "step-"), (std::vector<std::string>{"step-000000000010-a0001.h5"}));
  EXPECT_EQ(judge_shared(disk, "step-000000000010-a0001.h5"), "good");
  EXPECT_TRUE(shared_names(disk, "tmp-").empty());
}

// Saves have the numbers of their votes, so any number may follow.
TEST(SharedWriteFailure, ATextStaysUntilNobodyCanWaitForIt) {
  MemoryWorld ranks(2);
  FakeClock clock;
  SharedWriter zero(ranks.rank(0), 1, clock), one(ranks.rank(1), 1);
  zero.decline(5, "the disk is full", 10);
  const auto told = [&] { return one.stand_aside(5, "", 10, {.begin_within = kPatience}).reason; };
  for (const std::uint64_t number : {13u, 20u, 21u, 40u}) zero.leave_out(9, number);
  EXPECT_THAT(told(), HasSubstr("the disk is full"));
  clock.advance(std::chrono::minutes(16));
  zero.leave_out(9, 41);
  EXPECT_THAT(told(), HasSubstr("no answer"));
  EXPECT_EQ(ranks.texts(), 3 + 1) << "the newest three saves of rank 0, and the answer of rank 1";
}

TEST(SharedWriteFailure, OfEveryCallOfEveryRank) {
  CapturedLog log;
  int failures = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (int nth = 1;; nth += static_cast<int>(kSharedStride)) {
      const int code = nth % 2 == 0 ? EIO : ENOSPC;
      MemoryFileSystem disk;
      SharedWorld world(disk, {});
      ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
      FaultFileSystem& faults = *world.faults[static_cast<std::size_t>(rank)];
      faults.clear_log();
      faults.fail_mutation(nth, code, {.short_write = nth % 3 == 0});
      const auto outcomes = world.save(20);
      if (faults.faults_fired() == 0) {
        EXPECT_GE(nth, 4);
        break;
      }
      SCOPED_TRACE("rank " + std::to_string(rank) + ", call " + std::to_string(nth));
      ++failures;
      for (const SharedOutcome& outcome : outcomes) ASSERT_EQ(outcome.kind, outcomes[0].kind);
      const std::string failed = "step-000000000020-a0001.h5";
      if (outcomes[0].kind == Outcome::committed) {
        EXPECT_EQ(judge_shared(disk, failed), "good");
      } else {
        if (rank != 0) {
          expect_failed(outcomes, "rank " + std::to_string(rank) + " could not write its share");
          expect_only_the_first(disk);
        }
        // A failure after the rename leaves a whole file that nobody was promised.
        if (disk.exists(std::string(kSharedRun) + "/" + failed)) {
          EXPECT_EQ(judge_shared(disk, failed), "good");
        }
        EXPECT_EQ(outcomes[1].reason, outcomes[2].reason);
        EXPECT_THAT(outcomes[1].reason, HasSubstr(code == EIO ? "Input/output" : "No space left"));
      }
      const auto next = world.save(30);
      EXPECT_EQ(next[2].kind, Outcome::committed) << next[2].reason;
    }
  }
  EXPECT_GT(failures, kSharedStride == 1 ? 15 : 3);
}

// The rank stops in front of its first, its second … call to the disk, for longer than anybody waits; then,
// with another attempt's checkpoint in place, it goes on.
TEST(SharedWriteFailure, WhoStopsInItsShareWritesIntoNoCheckpointEver) {
  CapturedLog log;
  int stops = 0;
  for (std::size_t nth = 0;; ++nth) {
    MemoryFileSystem disk;
    SharedWorld world(disk, {.store = {.keep = KeepLast{2}}});
    for (const std::int64_t step : {2, 4, 6, 8}) {
      ASSERT_EQ(world.save(step)[0].kind, Outcome::committed);
      world.store->apply_retention();
    }
    world.options.reports_within = kPatience;
    Gate gate;
    std::atomic<std::size_t> calls{0};
    std::atomic<bool> held{false};
    std::atomic<bool> reported{false};
    // Rank 0 gives up no sooner than the other has come to where it stops, or is through.
    world.faults[0]->set_hook([&](const Operation& operation) {
      if (operation.kind != Op::write || reported) return;
      EXPECT_TRUE(soon([&] { return held || reported; }));
    });
    world.faults[1]->set_hook([&](const Operation& operation) {
      if (operation.path.find("/tmp-") == std::string::npos || calls++ != nth) return;
      held = true;
      gate.pass();
    });
    world.mail.set_change([&](int rank, const std::string&, std::string text) {
      if (rank == 1) reported = true;
      return std::optional(std::move(text));
    });
    std::vector<SharedOutcome> outcomes(3);
    std::vector<std::thread> ranks;
    const auto all = world.whole(20);
    for (int r = 0; r < 3; ++r) {
      ranks.emplace_back([&, r] { outcomes[static_cast<std::size_t>(r)] = world.take_part(r, *all); });
    }
    ranks[0].join();
    ranks[2].join();
    if (!held) {
      ranks[1].join();
      break;
    }
    ++stops;
    SCOPED_TRACE("call " + std::to_string(nth));
    expect_failed({outcomes[0], outcomes[2]}, "rank 1 did not report its share");
    EXPECT_TRUE(shared_names(disk, "tmp-a0001-step-20").empty());

    // Attempt 2 commits the same step, and more.
    SharedWorld next(disk, {.store = {.keep = KeepLast{2}}});
    for (const std::int64_t step : {20, 30, 40}) {
      ASSERT_EQ(next.save(step)[0].kind, Outcome::committed);
      next.store->apply_retention();
    }
    std::map<std::string, std::vector<std::byte>> before;
    for (const std::string& name : shared_names(disk, "")) {
      if (name != "attempts") before[name] = disk.get(std::string(kSharedRun) + "/" + name);
    }
    gate.open();
    ranks[1].join();
    EXPECT_EQ(outcomes[1].kind, Outcome::failed);
    for (const auto& [name, bytes] : before) {
      EXPECT_TRUE(disk.get(std::string(kSharedRun) + "/" + name) == bytes) << name << " was written into";
      if (name.starts_with("step-")) {
        EXPECT_EQ(judge_shared(disk, name), "good") << name;
      }
    }
  }
  EXPECT_GE(stops, 4);
}

TEST(SharedWriteFailure, WhoStopsBeforeItsShareIsNamed) {
  CapturedLog log;
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  world.options.reports_within = kPatience;
  // Before: it never comes, and never tells.
  expect_failed(world.save(*world.whole(20), {1}), "rank 1 did not report its share", {1});
  expect_only_the_first(disk);
}

TEST(SharedWriteFailure, WhoStopsBehindItsShareIsNamed) {
  CapturedLog log;
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  world.mail.set_change([](int rank, const std::string&, std::string text) {
    return rank == 1 ? std::nullopt : std::optional(std::move(text));
  });
  world.options.reports_within = kPatience;
  expect_failed(world.save(20), "rank 1 did not report its share");
  expect_only_the_first(disk);
}

TEST(SharedWriteFailure, RankZeroThatDoesNotBeginFindsItsSaveFailed) {
  CapturedLog log;
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  world.options.begin_within = std::chrono::milliseconds(50);
  const auto all = world.whole(20);
  const auto others = world.save(*all, {0});
  expect_failed(others, "rank 0 did not begin to write", {0});
  // It wakes, and writes its share: the others have said that they do not.
  const auto late = world.take_part(0, *all);
  EXPECT_EQ(late.kind, Outcome::failed);
  EXPECT_THAT(late.reason, HasSubstr("rank 1 could not write its share: rank 0 did not begin"));
  expect_only_the_first(disk);
}

TEST(SharedWriteFailure, RankZeroThatFallsSilentBehindTheCommitLeavesAWholeFile) {
  CapturedLog log;
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  world.mail.set_change([](int, const std::string& name, std::string text) {
    return std::optional(name.ends_with("/end") ? std::string() : std::move(text));
  });
  const auto outcomes = world.save(20);
  EXPECT_EQ(outcomes[1].kind, Outcome::unknown);
  EXPECT_THAT(outcomes[1].reason, HasSubstr("did not say how the save of step 20 ended"));
  EXPECT_EQ(judge_shared(disk, "step-000000000020-a0001.h5"), "good");
}

// Texts that are nearly right, each with a digest that holds.
TEST(SharedWriteFailure, NonsenseIsNoReport) {
  CapturedLog log;
  using internal::ReportMessage;
  using internal::SaveTag;
  std::string last_report;
  const std::vector<std::function<std::string(std::string, const Share&, SaveTag)>> kinds{
      [](std::string, const Share&, SaveTag) { return std::string(); },
      [](std::string, const Share&, SaveTag) { return std::string("\0\xff\n\n\n", 5); },
      [](std::string, const Share&, SaveTag) { return std::string(1 << 20, 'f'); },
      [](std::string text, const Share&, SaveTag) { return text.substr(0, text.size() / 2); },
      [](std::string text, const Share&, SaveTag) { return text + "\n"; },
      [](std::string text, const Share&, SaveTag) {
        text[text.size() / 2] = text[text.size() / 2] == '0' ? '1' : '0';
        return text;
      },
      // Of the save before, of the same step.
      [&](std::string, const Share&, SaveTag) { return last_report; },
      // Of another rank, attempt, save, step.
      [](std::string, const Share& share, SaveTag tag) {
        return to_text(tag, 2, ReportMessage{{}, {}, std::vector<Digest>(share.pieces.size()), {}});
      },
      [](std::string, const Share& share, SaveTag tag) {
        ++tag.attempt;
        return to_text(tag, 1, ReportMessage{{}, {}, std::vector<Digest>(share.pieces.size()), {}});
      },
      // One digest too many, too few bytes.
      [](std::string, const Share& share, SaveTag tag) {
        return to_text(
            tag, 1,
            ReportMessage{
                {}, {}, std::vector<Digest>(share.pieces.size() + 1), std::vector<std::byte>(share.sent)});
      },
      [](std::string, const Share& share, SaveTag tag) {
        return to_text(
            tag, 1,
            ReportMessage{
                {}, {}, std::vector<Digest>(share.pieces.size()), std::vector<std::byte>(share.sent - 1)});
      },
  };
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  ASSERT_GT(world.shares().ranks[1].sent, 0u);
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  std::uint64_t number = 1;
  for (const auto& kind : kinds) {
    ++number;
    world.mail.set_change([&](int rank, const std::string&, std::string text) {
      if (rank != 1) return std::optional(std::move(text));
      std::string other = kind(text, world.shares().ranks[1], {1, number, 20});
      last_report = std::move(text);
      return std::optional(std::move(other));
    });
    expect_failed(world.save(20), "rank 1 sent another message than the report of this save");
    expect_only_the_first(disk);
  }
  world.mail.set_change({});
  EXPECT_EQ(world.save(20)[2].kind, Outcome::committed);
}

// A begin that names something else than a temporary file of this attempt.
TEST(SharedWriteFailure, NobodyWritesIntoAFileOfAnotherName) {
  CapturedLog log;
  MemoryFileSystem disk;
  SharedWorld world(disk, {});
  ASSERT_EQ(world.save(10)[0].kind, Outcome::committed);
  disk.put(std::string(kSharedRun) + "/tmp-a0002-step-20-1", "somebody else's");
  for (const std::string name : {"step-000000000010-a0001.h5", "tmp-a0002-step-20-1",
                                 "../run/step-000000000010-a0001.h5", "", "RUN_STATE.json"}) {
    world.mail.set_change([&](int rank, const std::string& message, std::string text) {
      if (rank != 0 || !message.ends_with("/first")) return std::optional(std::move(text));
      return std::optional(to_text(internal::SaveTag{1, world.writer(0).newest_save(), 20},
                                   internal::BeginMessage{world.shares().fingerprint, name}));
    });
    expect_failed(world.save(20),
                  "rank 1 could not write its share: rank 0 sent a message that does not begin this save");
    EXPECT_EQ(judge_shared(disk, "step-000000000010-a0001.h5"), "good");
  }
}

TEST(ShareMessage, WhatIsChangedAnywhereIsNothing) {
  using namespace internal;  // NOLINT(google-build-using-namespace)
  Share share;
  share.pieces = {0, 1, 2};
  share.sent = 5;
  const SaveTag tag{.attempt = 3, .number = 7, .step = 1200};
  ReportMessage message;
  message.digests.resize(3);
  message.digests[1].bytes[0] = std::byte{0xa5};
  message.not_finite = 12;
  message.sent = {std::byte{1}, std::byte{0}, std::byte{255}, std::byte{16}, std::byte{7}};
  const std::string text = to_text(tag, 4, message);
  const auto read = read_report(tag, 4, share, text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->digests, message.digests);
  EXPECT_EQ(read->not_finite, 12u);
  EXPECT_EQ(read->sent, message.sent);
  EXPECT_FALSE(read_report(tag, 5, share, text));
  EXPECT_FALSE(read_report({3, 8, 1200}, 4, share, text));
  EXPECT_FALSE(read_report({3, 7, 1201}, 4, share, text));
  EXPECT_FALSE(read_begin(tag, text));
  EXPECT_FALSE(read_end(tag, text));
  std::mt19937_64 random(1);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same every time
  for (int i = 0; i < 20000; ++i) {
    std::string changed = text;
    for (std::size_t n = 0; n <= random() % 3; ++n) {
      const std::size_t at = random() % changed.size();
      switch (random() % 4) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed.erase(at, 1 + random() % 40);
          break;
        case 2:
          changed.insert(at, 1 + random() % 5, static_cast<char>(random()));
          break;
        default:
          changed.resize(at);
      }
      if (changed.empty()) break;
    }
    ASSERT_EQ(read_report(tag, 4, share, changed).has_value(), changed == text);
  }
  message = {};
  message.failure = "write /x: No space left\non\x01 device";
  const auto failed = read_report(tag, 4, share, to_text(tag, 4, message));
  ASSERT_TRUE(failed);
  EXPECT_THAT(failed->failure, HasSubstr("No space left\\x0aon\\x01 device"));
}

// The power goes before every call of anybody that changes the disk: whatever is called a checkpoint then is
// one, and what anybody was told is there.
TEST(SharedWriteFailure, ThePowerGoesAtAnyTime) {
  CapturedLog log;
  struct Cut {
    MemoryFileSystem disk;
    std::int64_t acknowledged;
    std::string before;
  };
  std::vector<Cut> cuts;
  MemoryFileSystem disk;
  std::atomic<std::int64_t> acknowledged{-1};
  {
    SharedWorld world(disk, {.store = {.keep = KeepLast{2}}});
    std::mutex mutex;
    std::mt19937_64 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same every time
    std::size_t calls = 0;
    for (int r = 0; r < world.ranks(); ++r) {
      world.faults[static_cast<std::size_t>(r)]->set_hook([&, r](const Operation& operation) {
        if (!operation.mutating) return;
        const std::lock_guard lock(mutex);
        if (calls++ % kSharedStride != 0) return;
        const std::string before = "rank " + std::to_string(r) + ": " + operation.text();
        const std::int64_t known = acknowledged;
        cuts.push_back({disk.crash(), known, before});
        cuts.push_back({disk.copy(), known, before});
        std::set<std::string> open;
        for (std::size_t size = SIZE_MAX; size != open.size();) {
          size = open.size();
          for (const std::string& thing : disk.unsynced(open)) open.insert(thing);
        }
        for (int some = 0; some < 3 && !open.empty(); ++some) {
          std::set<std::string> kept;
          for (const std::string& thing : open) {
            if (random() % 2 == 0) kept.insert(thing);
          }
          cuts.push_back({disk.crash_keeping(kept), known, before});
        }
      });
    }
    world.mail.set_change([&](int rank, const std::string& name, std::string text) {
      if (rank == 0 && text.find("committed\n") != std::string::npos)
        acknowledged = 10 * std::stol(name.substr(5));
      return std::optional(std::move(text));
    });
    for (const std::int64_t step : {10, 20, 30}) {
      ASSERT_EQ(world.save(step)[0].kind, Outcome::committed);
      world.store->apply_retention();
    }
  }
  ASSERT_GT(cuts.size(), 100u / kSharedStride);
  for (Cut& cut : cuts) {
    SCOPED_TRACE("power lost before " + cut.before);
    FileVerifier verifier;
    CheckpointStore next(cut.disk, Clock::real(), {.directory = kSharedRun}, verifier);
    next.preflight();
    next.claim();
    const Selection found = next.recover();
    EXPECT_TRUE(found.skipped.empty()) << found.skipped[0].name << ": " << found.skipped[0].reason;
    EXPECT_GE(found.newest ? found.newest->step : -1, cut.acknowledged);
    for (const std::string& name : shared_names(cut.disk, "step-")) {
      EXPECT_EQ(judge_shared(cut.disk, name), "good") << name;
    }
    if (HasFailure()) return;
  }
}

}}  // namespace holdfast::test
