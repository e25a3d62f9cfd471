// A late copy beside the training: digested where nobody waits for it, and right in either case.
#include "holdfast/staging/late_stager.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "support/gate.h"
#include "support/vector_copies.h"

namespace holdfast::test { namespace {

using internal::LateStager;

class LateStagerTest : public testing::Test {
 protected:
  LateStagerTest() : live(3 << 20, std::byte{3}) {
    snapshot.layout = std::make_shared<ImageLayout>(
        std::vector<TensorSpec>{{"a", DType::uint8, {1 << 20}}, {"b", DType::uint8, {2 << 20}}},
        std::vector<std::uint64_t>{0, 1 << 20}, 3 << 20);
    snapshot.arena = std::make_shared<Arena>(3 << 20);
    digests = std::make_shared<PieceDigests>(snapshot);
  }
  std::unique_ptr<VectorCopies> copies() {
    auto made = std::make_unique<VectorCopies>();
    const std::span<const std::byte> from(live);
    made->add("a", from.first(1 << 20), snapshot.arena->bytes().first(1 << 20));
    made->add("b", from.subspan(1 << 20), snapshot.arena->bytes().subspan(1 << 20));
    return made;
  }
  bool copied() { return std::ranges::equal(live, snapshot.arena->bytes()); }

  std::vector<std::byte> live;
  Snapshot snapshot;
  std::shared_ptr<PieceDigests> digests;
  LateStager stager;
};

TEST_F(LateStagerTest, WhatItsThreadCopiesIsDigested) {
  std::promise<int> ended;
  std::atomic<bool> first{true};  // take() runs what is left: nothing
  auto late = copies();
  late->after = [&] {
    if (first.exchange(false)) ended.set_value(sched_getscheduler(0));
  };
  const int mine = sched_getscheduler(0);
  stager.begin(std::move(late), digests);
  EXPECT_EQ(ended.get_future().get(), mine == SCHED_OTHER ? SCHED_BATCH : mine)
      << "it would take the training's core when it is woken";
  EXPECT_EQ(sched_getscheduler(0), mine);
  stager.take();
  EXPECT_TRUE(copied());
  ASSERT_NE(digests->find(0), nullptr);
  ASSERT_NE(digests->find(1), nullptr);
  EXPECT_EQ(digests->find(1)->digest, digest_of(snapshot.bytes(1)));
}

TEST_F(LateStagerTest, WhoWaitsForTheCopyDoesNotWaitForDigests) {
  Gate go;
  auto late = copies();
  const auto training = std::this_thread::get_id();
  late->before = [&] {
    if (std::this_thread::get_id() == training) return go.open();
    go.pass();  // the thread comes too late
  };
  stager.begin(std::move(late), digests);
  stager.take();
  EXPECT_TRUE(copied());
  EXPECT_TRUE(digests->stopped());
  for (const std::size_t piece : {0, 1}) {
    if (const Inspected* const found = digests->find(piece)) {
      EXPECT_EQ(found->digest, digest_of(snapshot.bytes(piece)));
    }
  }
}

TEST_F(LateStagerTest, WithoutDigestsItOnlyCopies) {
  stager.begin(copies());
  stager.complete();
  EXPECT_TRUE(copied());
}

}}  // namespace holdfast::test
