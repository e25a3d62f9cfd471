// One process life on a simulated volume, as a trainer lives it, that writes down what the store promises by
// returning.
//
// Errors: what the store throws. Threads: one.
#pragma once

#include "file_maker.h"
#include "promise.h"
#include "random.h"
#include "support/fake_clock.h"
#include "support/sim_file_system.h"

namespace holdfast::test::power_loss {

class Session {
 public:
  // All of them outlive this object.
  Session(SimFileSystem& files, Promise& promise, FileMaker& maker, StoreOptions options = {});

  // preflight, claim, recover.
  Selection start();
  void save(bool finite);  // the next step
  void write_state(RunPhase phase);
  void append_ledger() { store_.append_ledger(R"({"step":)" + std::to_string(step_) + "}"); }
  void tidy() { store_.apply_retention(); }
  // start(), then some rounds of all of them, as `random` wants it.
  void live(Random& random);

  CheckpointStore& store() { return store_; }
  AttemptNumber attempt() const { return store_.attempt(); }
  std::int64_t step() const { return step_; }
  const Selection& preflight() const { return preflight_; }

 private:
  void promised(const char* what) const { files_.changed(what, kRun.native()); }

  SimFileSystem& files_;
  Promise& promise_;
  FileMaker& maker_;
  FakeClock clock_;
  CheckpointStore store_;
  Selection preflight_;
  Ancestry ancestry_;
  std::int64_t step_ = 0;
  std::int64_t durable_ = -1;
};

}  // namespace holdfast::test::power_loss
