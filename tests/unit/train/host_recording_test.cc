// What a failed capture leaves in the allocator of page-locked memory is ended: by the releases' own interfaces.
#include "holdfast/train/internal/host_recording.h"

#include <gtest/gtest.h>
#include <torch/csrc/api/include/torch/version.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace holdfast { namespace {

using Pool = std::pair<unsigned long long, unsigned long long>;

// As LibTorch 2.11's: ending a recording that is none throws.
struct Recording {
  void end_allocate_to_pool(const Pool& pool) {
    if (pool != recorded) throw std::runtime_error("not currently recording to mempool_id");
    recorded = {};
    calls.push_back("end");
  }
  void release_pool(const Pool&) { calls.push_back("release"); }
  Pool recorded;
  std::vector<std::string> calls;
};
struct Older {};  // up to 2.10: records nothing

TEST(HostRecording, IsEndedAndItsPoolIsReleased) {
  Recording allocator{.recorded = {3, 0}, .calls = {}};
  internal::end_host_recording(&allocator, Pool{3, 0});
  EXPECT_EQ(allocator.calls, (std::vector<std::string>{"end", "release"}));
}

// Otherwise the pool of the graph that shares it would lose an owner.
TEST(HostRecording, ThatNeverBeganReleasesNothing) {
  Recording allocator{.recorded = {3, 0}, .calls = {}};
  internal::end_host_recording(&allocator, Pool{4, 0});
  EXPECT_TRUE(allocator.calls.empty());
}

TEST(HostRecording, IsNoneInOlderReleases) {
  Older older;
  internal::end_host_recording(&older, Pool{3, 0});
  internal::end_host_recording(nullptr, Pool{3, 0});
}

// Otherwise nothing would be ended, without a word.
TEST(HostRecording, FindsTheAllocatorOfThisLibTorch) {
  const bool found = []<class Found>(Found) {
    return requires(Found allocator, Pool pool) { allocator->end_allocate_to_pool(pool); };
  }(internal::host_allocator_of(at::kCUDA));
  EXPECT_EQ(found, TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 11);
}

}}  // namespace holdfast
