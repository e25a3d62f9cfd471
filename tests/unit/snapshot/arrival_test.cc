// News of an image that is on its way.
#include "holdfast/snapshot/arrival.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/snapshot.h"

namespace holdfast::test { namespace {

TEST(Arrival, EverybodyWaitsForIt) {
  auto arrival = std::make_shared<Arrival>();
  Snapshot snapshot;
  snapshot.arrival = arrival;
  std::atomic<int> there{0};
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.emplace_back([&] {
      snapshot.wait_for_arrival();
      ++there;
    });
  }
  EXPECT_FALSE(arrival->arrived());
  EXPECT_EQ(there, 0);
  arrival->settle();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_TRUE(arrival->arrived());
  snapshot.wait_for_arrival();
}

TEST(Arrival, AFailureIsToldToEverybodyForGood) {
  Arrival arrival;
  arrival.fail("the device fell off the bus");
  EXPECT_TRUE(arrival.arrived());
  for (int i = 0; i < 2; ++i) {
    try {
      arrival.wait();
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "the device fell off the bus");
    }
  }
}

TEST(Arrival, AWholeImageHasNone) { Snapshot().wait_for_arrival(); }

TEST(Arena, ACompanionGoesBeforeTheMemory) {
  auto arena = std::make_unique<Arena>(5000);
  std::byte* const memory = arena->bytes().data();
  bool gone = false;
  arena->attach({memory, [&gone](std::byte* address) {
                   *address = std::byte{1};  // still there
                   gone = true;
                 }});
  EXPECT_FALSE(gone);
  arena.reset();
  EXPECT_TRUE(gone);
}

}}  // namespace holdfast::test
