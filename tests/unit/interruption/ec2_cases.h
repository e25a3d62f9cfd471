// EC2's source beside a scripted metadata server, on a clock that stands until a test moves it.
//
// Threads: the server has its own.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "holdfast/base/text.h"
#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/interruption/ec2_source.h"
#include "support/fake_clock.h"

namespace holdfast {

// A request is given as long as it takes: nothing here depends on how busy the machine is.
inline constexpr Duration kPatientWithEc2 = std::chrono::seconds(60);

class Ec2 : public testing::Test {
 protected:
  std::vector<Notice> poll(Duration later = std::chrono::seconds(2)) {
    clock_.advance(later);
    return source_->poll();
  }
  // News of `count` polls.
  std::vector<Notice> polls(int count) {
    std::vector<Notice> all;
    for (int i = 0; i < count; ++i) {
      for (Notice& notice : poll()) all.push_back(std::move(notice));
    }
    return all;
  }
  void limit_requests(Duration limit) {
    source_ = std::make_unique<Ec2Source>(clock_,
                                          Ec2Options{.endpoint = server_.endpoint(), .request_limit = limit});
  }
  std::string in_words(Duration time) {
    return format_utc(clock_.wall_now() + std::chrono::duration_cast<WallTime::duration>(time));
  }
  // The source has not lost its ears.
  void expect_that_it_hears() {
    server_.forget(MetadataServer::kEc2Token);
    server_.forget(MetadataServer::kEc2Action);
    server_.announce({.in = std::chrono::seconds(120)});
    std::vector<Notice> heard;
    for (int i = 0; i < 100 && heard.empty(); ++i) heard = poll(std::chrono::seconds(10));
    ASSERT_THAT(heard, testing::SizeIs(1));
    EXPECT_EQ(heard[0].kind, NoticeKind::deadline);
  }

  test::FakeClock clock_;
  MetadataServer server_{clock_, kPatientWithEc2};
  std::unique_ptr<Ec2Source> source_ = std::make_unique<Ec2Source>(
      clock_, Ec2Options{.endpoint = server_.endpoint(), .request_limit = kPatientWithEc2});
};

}  // namespace holdfast
