// News of an interruption for which there is no memory at the moment is told as soon as there is some.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "failing_memory.h"
#include "holdfast/interruption/deadline_source.h"
#include "holdfast/interruption/file_source.h"
#include "support/fake_clock.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;

using Kinds = std::vector<NoticeKind>;

// What a source tells when the n-th request for memory of its poll is refused, or every one from there on, in
// that poll and the next; for every n.
void expect_told(const std::function<std::unique_ptr<Source>()>& make, const Kinds& kinds, bool for_ever) {
  std::uint64_t refused = 1;
  for (std::uint64_t n = 1; refused > 0; ++n) {
    const auto source = make();
    std::vector<Notice> news;
    memory::arm({.nth = n, .for_ever = for_ever, .this_thread_only = true});
    try {
      news = source->poll();
    } catch (const std::bad_alloc&) {  // as the Monitor does
      news.clear();
    }
    refused = memory::disarm().refused;
    if (news.empty()) news = source->poll();
    Kinds told;
    for (const Notice& notice : news) told.push_back(notice.kind);
    EXPECT_EQ(told, kinds) << "without request " << n;
    ASSERT_LT(n, 1000U);
  }
}

void expect_told(const std::function<std::unique_ptr<Source>()>& make, const Kinds& kinds) {
  for (const bool for_ever : {false, true}) expect_told(make, kinds, for_ever);
}

TEST(News, OfANoticeFileWaitsForMemory) {
  const TemporaryFolder folder;
  FakeClock clock;
  const auto file = folder.path() / "notice";
  const auto source = [&] {
    write_text(file, R"({"action": "terminate", "in_seconds": 90})");
    return std::make_unique<FileSource>(file, clock);
  };
  expect_told(source, {NoticeKind::deadline});
  const auto withdrawn = [&] {
    auto told = source();
    EXPECT_EQ(told->poll().size(), 1U);
    std::filesystem::remove(file);
    return told;
  };
  expect_told(withdrawn, {NoticeKind::withdrawn});
}

TEST(News, OfADeadlineWaitsForMemory) {
  FakeClock clock;
  const auto ending_in = [&](Duration time) {
    return [&clock, time] {
      const DeadlineOptions options{.max_wall = time, .started = clock.now()};
      return std::make_unique<DeadlineSource>(clock, options);
    };
  };
  expect_told(ending_in(5min), {NoticeKind::deadline});
  expect_told(ending_in(0s), {NoticeKind::deadline, NoticeKind::stop});
}

}}  // namespace holdfast::test
