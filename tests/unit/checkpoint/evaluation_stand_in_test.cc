// The image that several ranks keep for an evaluation stands in for a save of that step that fails.
#include <atomic>

#include "noticed.h"
#include "support/gate.h"
#include "together.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;

// A save of this very step is under way when the ranks begin to evaluate, and it fails inside.
TEST_F(Together, AnEvaluationStandsInForASaveThatFailsInside) {
  for (const int hears : {0, 2}) {
    SCOPED_TRACE(hears);
    start_over();
    patient = false;
    Gate gate;
    std::atomic<int> writes{0};
    volume->faults.set_hook([&](const Operation& operation) {
      if (!of_checkpoint(operation, Op::sync_file) || ++writes != 1) return;
      volume->faults.fail(Op::sync_file, 1, EIO);  // this very one
      gate.pass();
    });
    std::atomic<bool> committed{false};
    live(3, [&](Member& one) {
      one.train_to(2);
      one.checkpointer->request_save();
      one.train_to(4);
      EXPECT_THAT(one.saved, ElementsAre(4));
      {
        const Checkpointer::EvaluationScope scope(*one.checkpointer);
        one.source.evaluate();
        if (one.rank == hears) one.announcer.deadline(one.clock.now() + 24h);
        if (one.rank == 0) {
          gate.await_arrival();
          gate.open();
          EXPECT_TRUE(soon([&] { return one.checkpointer->last_durable().step == 4; }));
          committed = true;
        }
        EXPECT_TRUE(soon([&] { return committed.load(); }));
      }
      throw Error("the machine went");
    });
    live(3, [&](Member& one) {
      EXPECT_EQ(one.resumed.step, 4);
      EXPECT_TRUE(one.resumed.bit_exact);
      EXPECT_TRUE(one.resumed.evaluation_due);
      one.train_to(6);
    });
  }
}

}}  // namespace holdfast::test
