#include "holdfast/writing/async_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <thread>

#include "holdfast/format/file_plan.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/file_verifier.h"
#include "support/captured_log.h"
#include "support/fault_file_system.h"
#include "support/gate.h"
#include "support/ledger_lines.h"
#include "support/memory_source.h"
#include "support/run_disk.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// One tensor of one element type; enough for a writer.
class Writer : public testing::Test {
 public:
  Writer() { open_attempt(); }

  void open_attempt() {
    writer.reset();
    StoreOptions options;
    options.directory = kRun;
    store = std::make_unique<CheckpointStore>(volume.faults, volume.clock, options, verifier);
    store->preflight();
    attempt = store->claim();
    store->recover();
    writer = std::make_unique<AsyncWriter>(*store, volume.clock, *losses, run(),
                                           AsyncWriterOptions{.ledger_interval = 5ms, .claim_interval = 0s});
  }

  RunState run() const {
    RunState state;
    state.attempt = attempt;
    return state;
  }

  template <class T>
  WriteRequest request(std::int64_t step, DType dtype, std::vector<T> values, bool finite = true) {
    const auto elements = static_cast<std::int64_t>(values.size() * sizeof(T) / size_of(dtype));
    const auto plan = make_file_plan({{"model/w", dtype, {elements}}});
    auto snapshot = std::make_shared<Snapshot>();
    snapshot->layout = plan->layout;
    snapshot->arena = make_image(*plan);
    const auto bytes = std::as_bytes(std::span(values));
    std::copy(bytes.begin(), bytes.end(), plan->layout->slot(0, snapshot->arena->bytes()).begin());
    snapshot->step = step;
    snapshot->attributes.set("step", step);
    RunRecord record;
    record.attempt = attempt;
    record.finite = finite;
    put_run_record(snapshot->attributes, record);
    return {snapshot, plan, record.ancestry};
  }
  WriteRequest request(std::int64_t step) {
    return request(step, DType::float32, std::vector<float>{1, 2, static_cast<float>(step)});
  }

  // The writer's thread waits at its next fsync of a file.
  void hold_at_sync(Gate& gate) {
    volume.faults.set_hook([&](const Operation& operation) {
      if (operation.kind == Op::sync_file && operation.path.find("step-") != std::string::npos) gate.pass();
    });
  }

  RunDisk volume;
  FileVerifier verifier{1};
  std::unique_ptr<LossRing> losses = std::make_unique<LossRing>();
  std::unique_ptr<CheckpointStore> store;
  AttemptNumber attempt = 0;
  std::unique_ptr<AsyncWriter> writer;
};

struct CountedRests final : SaveListener {
  void save_ends(const SaveHandle::Shared& /*save*/, Outcome outcome) noexcept override { ended = outcome; }
  void writer_rests() noexcept override { ++rests; }
  void writer_superseded() noexcept override {}
  std::atomic<Outcome> ended{Outcome::durable};
  std::atomic<int> rests{0};
};

// Who waits for the writer to rest would otherwise wait for ever.
TEST_F(Writer, RestsAfterASaveThatCameWhileItFoundANewerAttempt) {
  const CapturedLog log;
  CountedRests listener;
  writer.reset();
  writer = std::make_unique<AsyncWriter>(
      *store, volume.clock, *losses, run(),
      AsyncWriterOptions{.ledger_interval = 5ms, .claim_interval = 0s, .listener = &listener});
  Gate gate;
  volume.faults.set_hook([&](const Operation& operation) {
    if (operation.kind == Op::list && operation.path.find("attempts") != std::string::npos) gate.pass();
  });
  gate.await_arrival();
  const SaveHandle save = writer->submit(request(1));
  CheckpointStore newer(volume.disk, volume.clock, {.directory = kRun}, verifier);
  newer.preflight();
  newer.claim();
  gate.open();
  EXPECT_EQ(save.wait(), SaveStatus::failed);
  EXPECT_TRUE(soon([&] { return listener.rests == 1; }));
  EXPECT_EQ(listener.ended, SaveListener::Outcome::superseded);
  writer.reset();
  volume.faults.set_hook(nullptr);
}

TEST(SaveHandle, OnNothingHasFailed) {
  const SaveHandle nothing;
  EXPECT_EQ(nothing.status(), SaveStatus::failed);
  EXPECT_EQ(nothing.wait(), SaveStatus::failed);
  EXPECT_EQ(nothing.wait_for(0s), SaveStatus::failed);
  EXPECT_EQ(nothing.error(), "no save");
  EXPECT_EQ(nothing.checkpoint(), "");
  EXPECT_EQ(nothing.step(), -1);
}

// A signal's handler on this thread would end an fsync on a FUSE mount with EINTR, which counts as a failure.
TEST_F(Writer, ItsThreadTakesNoSignals) {
  std::atomic<int> open{0};
  volume.faults.set_hook([&, test = std::this_thread::get_id()](const Operation&) {
    if (std::this_thread::get_id() == test) return;
    sigset_t mask;
    pthread_sigmask(SIG_BLOCK, nullptr, &mask);
    for (const int signal : {SIGTERM, SIGUSR1, SIGCHLD}) open += sigismember(&mask, signal) == 1 ? 0 : 1;
  });
  EXPECT_EQ(writer->submit(request(1)).wait(), SaveStatus::durable);
  writer->stop();
  EXPECT_EQ(open, 0);
}

TEST_F(Writer, DurableOnlyAfterTheCommit) {
  Gate gate;
  hold_at_sync(gate);
  const SaveHandle handle = writer->submit(request(5));
  gate.await_arrival();
  EXPECT_EQ(handle.status(), SaveStatus::staged);
  EXPECT_EQ(handle.wait_for(1ms), std::nullopt);
  EXPECT_EQ(writer->last_acknowledged().step, -1);
  EXPECT_FALSE(writer->wait_idle(1ms));
  gate.open();
  EXPECT_EQ(handle.wait(), SaveStatus::durable);
  EXPECT_EQ(handle.checkpoint(), "step-000000000005-a0001.h5");
  EXPECT_EQ(writer->last_acknowledged().step, 5);
  EXPECT_EQ(writer->last_acknowledged().checkpoint, handle.checkpoint());
  EXPECT_EQ(volume.disk.crash().names(kRun), volume.disk.crash().names(kRun));
  EXPECT_TRUE(volume.disk.crash().exists(volume.path(handle.checkpoint())));
}

TEST_F(Writer, TheNewestWins) {
  Gate gate;
  hold_at_sync(gate);
  const SaveHandle first = writer->submit(request(1));
  gate.await_arrival();
  const SaveHandle second = writer->submit(request(2));
  const SaveHandle third = writer->submit(request(3));
  EXPECT_EQ(second.status(), SaveStatus::overtaken);
  EXPECT_EQ(second.error(), "");
  EXPECT_EQ(third.status(), SaveStatus::staged);
  gate.open();
  EXPECT_EQ(third.wait(), SaveStatus::durable);
  EXPECT_EQ(first.wait(), SaveStatus::durable);
  EXPECT_EQ(volume.checkpoints(),
            (std::vector<std::string>{"step-000000000001-a0001.h5", "step-000000000003-a0001.h5"}));
}

TEST_F(Writer, AFailureStaysInItsHandleAndEndsWithTheNextAcknowledgement) {
  volume.faults.fail(Op::sync_file, 1, EIO);
  CapturedLog log;
  const SaveHandle bad = writer->submit(request(1));
  EXPECT_EQ(bad.wait(), SaveStatus::failed);
  EXPECT_THAT(bad.error(), HasSubstr("save of step 1 failed: "));
  EXPECT_THAT(bad.error(), HasSubstr("EIO"));
  EXPECT_EQ(writer->failure(), bad.error());
  EXPECT_TRUE(writer->failing());
  const SaveHandle good = writer->submit(request(2));
  EXPECT_EQ(good.wait(), SaveStatus::durable);
  EXPECT_EQ(writer->failure(), std::nullopt);
  EXPECT_FALSE(writer->failing());
  EXPECT_EQ(bad.status(), SaveStatus::failed);
  writer->stop();
  const std::string text = log.text();
  EXPECT_THAT(text, HasSubstr("warning: save of step 1 failed"));
  EXPECT_THAT(text, HasSubstr("saving works again: step 2"));
}

TEST_F(Writer, ExceptionsOfAnyKindStayOnTheThread) {
  CapturedLog log;
  volume.faults.set_hook([](const Operation& operation) {
    if (operation.kind == Op::reserve) throw 42;
  });
  const SaveHandle handle = writer->submit(request(1));
  EXPECT_EQ(handle.wait(), SaveStatus::failed);
  EXPECT_THAT(handle.error(), HasSubstr("unknown type"));
}

TEST_F(Writer, ANewerAttemptSupersedesForGood) {
  ASSERT_EQ(writer->submit(request(1)).wait(), SaveStatus::durable);
  // Deaf to rivals between commits, so that it is the commit that finds out.
  writer = std::make_unique<AsyncWriter>(*store, volume.clock, *losses, run(),
                                         AsyncWriterOptions{.claim_interval = 1h});
  FileVerifier other_verifier{1};
  StoreOptions options;
  options.directory = kRun;
  CheckpointStore rival(volume.disk, volume.clock, options, other_verifier);
  rival.preflight();
  rival.claim();
  rival.recover();

  CapturedLog log;
  const auto before = volume.disk.names(kRun);
  const SaveHandle late = writer->submit(request(2));
  EXPECT_EQ(late.wait(), SaveStatus::failed);
  EXPECT_TRUE(writer->superseded());
  EXPECT_THAT(writer->superseded_reason(), HasSubstr("2"));
  EXPECT_EQ(writer->submit(request(3)).wait(), SaveStatus::failed);
  losses->push(3, 1.0);
  volume.faults.clear_log();
  writer->stop();
  EXPECT_EQ(volume.disk.names(kRun), before);
  EXPECT_EQ(volume.faults.mutation_count(), 0);  // not even its ledger
}

TEST_F(Writer, NoticesARivalWhileIdle) {
  CapturedLog log;
  FileVerifier other_verifier{1};
  StoreOptions options;
  options.directory = kRun;
  CheckpointStore rival(volume.disk, volume.clock, options, other_verifier);
  rival.preflight();
  rival.claim();
  for (int i = 0; i < 2000 && !writer->superseded(); ++i) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(writer->superseded());
}

TEST_F(Writer, StoppingFinishesTheWriteInFlightAndDropsTheWaitingOne) {
  Gate gate;
  hold_at_sync(gate);
  const SaveHandle first = writer->submit(request(1));
  gate.await_arrival();
  const SaveHandle second = writer->submit(request(2));
  std::thread opener([&] {
    second.wait();
    gate.open();
  });
  writer->stop();
  opener.join();
  EXPECT_EQ(first.status(), SaveStatus::durable);
  EXPECT_EQ(second.status(), SaveStatus::failed);
  EXPECT_EQ(writer->submit(request(3)).status(), SaveStatus::failed);
}

TEST_F(Writer, LossesReachTheLedgerWhileIdleAndAtTheEnd) {
  losses->push(1, 0.5);
  for (int i = 0; i < 2000 && ledger_lines(volume.disk, kRun, attempt).empty(); ++i)
    std::this_thread::sleep_for(1ms);
  losses->push(2, 0.25);
  writer->stop();
  EXPECT_EQ(losses_in(ledger_lines(volume.disk, kRun, attempt)),
            (std::map<std::int64_t, double>{{1, 0.5}, {2, 0.25}}));
}

TEST_F(Writer, RunStateFollowsTheAcknowledgement) {
  ASSERT_EQ(writer->submit(request(9)).wait(), SaveStatus::durable);
  writer->stop();
  const auto directory = volume.disk.open_directory(kRun, false);
  const auto state = read_run_state(*directory);
  ASSERT_TRUE(state);
  EXPECT_EQ(state->phase, RunPhase::running);
  EXPECT_EQ(state->durable_step, 9);
  EXPECT_EQ(state->checkpoint, "step-000000000009-a0001.h5");
}

TEST_F(Writer, FailingHousekeepingCostsNoAcknowledgement) {
  CapturedLog log;
  volume.faults.fail(Op::rename_over, 1, ENOSPC, {.for_ever = true});
  EXPECT_EQ(writer->submit(request(1)).wait(), SaveStatus::durable);
  EXPECT_EQ(writer->submit(request(2)).wait(), SaveStatus::durable);
  writer->stop();
  EXPECT_EQ(writer->failure(), std::nullopt);
}

struct FiniteCase {
  DType dtype;
  std::uint64_t bits;
  bool finite;
};

class Finite : public Writer, public testing::WithParamInterface<FiniteCase> {};

TEST_P(Finite, IsDecidedByEveryElement) {
  const auto [dtype, bits, finite] = GetParam();
  const std::size_t size = std::min<std::size_t>(size_of(dtype), 8);
  for (const std::size_t at : {0u, 1u, 16u, 70u, 99u}) {
    std::vector<std::byte> bytes(100 * size_of(dtype));
    std::memcpy(bytes.data() + at * size_of(dtype), &bits, size);
    const SaveHandle handle = writer->submit(request(static_cast<std::int64_t>(at) + 1, dtype, bytes));
    ASSERT_EQ(handle.wait(), SaveStatus::durable) << handle.error();
    const auto file = volume.disk.open_file(volume.path(handle.checkpoint()), OpenMode::read);
    EXPECT_EQ(verifier.inspect(*file, Verifier::Depth::head, false).finite, finite) << at;
  }
}

constexpr FiniteCase kFiniteCases[] = {
    {DType::float32, 0x7f7fffff, true},
    {DType::float32, 0x7f800000, false},
    {DType::float32, 0xff800000, false},
    {DType::float32, 0x7f800001, false},
    {DType::float64, 0xffefffffffffffff, true},
    {DType::float64, 0x7ff0000000000000, false},
    {DType::float64, 0xfff8000000000000, false},
    {DType::float16, 0xfbff, true},
    {DType::float16, 0x7c00, false},
    {DType::bfloat16, 0x7f7f, true},
    {DType::bfloat16, 0xff80, false},
    {DType::complex64, 0x7fc0000000000000, false},
    {DType::complex128, 0x7ff0000000000000, false},
    {DType::float8_e5m2, 0x7b, true},
    {DType::float8_e5m2, 0xfc, false},
    {DType::float8_e4m3fn, 0x7e, true},
    {DType::float8_e4m3fn, 0xff, false},
    {DType::int32, 0x7fffffff, true},
    {DType::uint64, 0x7ff8000000000000, true},
    {DType::uint8, 0xff, true},
};
INSTANTIATE_TEST_SUITE_P(Types, Finite, testing::ValuesIn(kFiniteCases));

TEST_F(Writer, WhatTheRecordSaysOfTheLossCounts) {
  const SaveHandle handle = writer->submit(request(1, DType::float32, std::vector<float>{1}, false));
  ASSERT_EQ(handle.wait(), SaveStatus::durable);
  const auto file = volume.disk.open_file(volume.path(handle.checkpoint()), OpenMode::read);
  EXPECT_FALSE(verifier.inspect(*file, Verifier::Depth::head, false).finite);
}

// For the thread sanitizer: submissions, queries and losses from several threads against a disk that fails
// now and then.
TEST_F(Writer, RacedOnPurpose) {
  CapturedLog log;
  volume.faults.fail(Op::sync_file, 3, EIO);
  volume.faults.fail(Op::write, 12, ENOSPC);
  std::vector<WriteRequest> requests;
  for (std::int64_t step = 1; step <= 60; ++step) requests.push_back(request(step));
  std::mutex mutex;
  std::vector<SaveHandle> handles;
  std::thread observer([&] {
    for (int i = 0; i < 200; ++i) {
      writer->failure();
      writer->last_acknowledged();
      writer->superseded_reason();
      writer->wait_idle(10us);
      const std::lock_guard lock(mutex);
      for (const SaveHandle& handle : handles) handle.status();
    }
  });
  std::thread trainer([&] {
    for (std::int64_t step = 1; step <= 20'000; ++step) losses->push(step, 1.0);
  });
  for (WriteRequest& one : requests) {
    const SaveHandle handle = writer->submit(std::move(one));
    if (handle.step() % 7 == 0) handle.wait();
    const std::lock_guard lock(mutex);
    handles.push_back(handle);
  }
  trainer.join();
  observer.join();
  EXPECT_EQ(handles.back().wait(), SaveStatus::durable);
  for (const SaveHandle& handle : handles) EXPECT_NE(handle.wait(), SaveStatus::staged);
  EXPECT_EQ(writer->last_acknowledged().step, 60);
}

}}  // namespace holdfast::test
