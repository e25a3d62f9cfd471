// The parts of a Checkpointer over a run in memory, without the Checkpointer: a test calls each of them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "holdfast/checkpoint/internal/engine.h"
#include "recording_partners.h"
#include "rig.h"

namespace holdfast::test {

using namespace std::chrono_literals;
using internal::BegunSave;
using internal::Staged;
using internal::Waiting;

class EngineTest : public testing::Test {
 protected:
  explicit EngineTest(MemorySource::Options state = {}) : source(state) {}
  ~EngineTest() override { end(); }

  // The parts, before the claim.
  void make() { engine.emplace(run.emplace(source, options), partners); }
  // From here on there is a writer.
  void start() {
    make();
    engine->start.claim(1, {});
    partners.calls();
  }
  void end() {
    engine.reset();
    run.reset();
  }

  // As before_update().
  void announce() {
    engine->boundary.update_begins();
    if (engine->late.open()) engine->late.close();
  }
  // The training comes to its next boundary, and nothing is decided there.
  void step(bool announced = false) {
    engine->boundary.leave();
    if (announced) announce();
    clock.advance(2s);
    engine->boundary.arrive(source.train());
    run->time.step(clock.now(), run->writer->activity());
    run->book->boundary(source.step());
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }
  // A save of this boundary, handed to the writer.
  SaveHandle submit(bool asked_for = false) {
    const BegunSave save = engine->saves.begin(asked_for);
    engine->saves.submit(engine->saves.stage_all(), save, {});
    return engine->saves.newest();
  }
  // The same, and it is durable.
  void save() { EXPECT_EQ(submit().wait(), SaveStatus::durable); }
  // As save(), the program's call.
  SaveHandle save_now() {
    const Waiting waiting(run->time);
    return engine->boundary_saves.save_now(waiting);
  }

  void stop(const std::string& why = "SIGTERM") {
    run->monitor.post({.source = "test", .kind = NoticeKind::stop, .text = why});
  }
  void deadline(Duration left) {
    run->monitor.post({.source = "test",
                       .kind = NoticeKind::deadline,
                       .deadline = clock.now() + left,
                       .text = "the end is near"});
  }
  void withdraw() { run->monitor.post({.source = "test", .kind = NoticeKind::withdrawn}); }
  // No write of a checkpoint begins any more.
  void break_disk() {
    volume.faults.set_hook([](const Operation& operation) {
      if (operation.kind == Op::create && operation.path.find("step-") != std::string::npos) {
        throw Error("the disk is broken", ExitCode::io_failed);
      }
    });
  }
  void mend_disk() { volume.faults.set_hook({}); }

  // The newest checkpoint is that step's, bit for bit as an uninterrupted run has it. Ends the parts.
  void expect_newest(std::int64_t step) {
    end();
    Attempt next(volume.options());
    EXPECT_EQ(next.resumed.step, step);
    EXPECT_EQ(next.state(), state_after(step));
  }

  Volume volume;
  FakeClock& clock = volume.clock;
  CapturedLog log;
  CheckpointerOptions options = volume.options();
  MemorySource source;
  RecordingPartners partners;
  std::optional<internal::Run> run;
  std::optional<internal::Engine> engine;
};

}  // namespace holdfast::test
