// A cloud that stops a machine for a while and says so before (Azure's Freeze): its ranks are waited for, and
// once that is over a silent one is lost as soon as ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "dist/ranks.h"
#include "holdfast/cli/rehearsal/metadata_server.h"

namespace holdfast::test { namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Freeze : public testing::Test {
 protected:
  Freeze() {
    for (const int rank : {0, 1}) {
      Environment place = meeting_.of_rank(rank);
      place.merge(azure_.environment("azure"));
      place["HOLDFAST_SOURCES"] = "signal,azure";  // of the ranks of a machine the first asks for all
      place["HOLDFAST_SILENCE"] = "2s";
      ranks_[rank] = std::make_unique<Subprocess>(
          story(folder_.path() / "run", 1'000'000, {"timeout=300", "every=1000", "pause=5"}), place);
    }
  }
  void announce(bool freezes) {
    nlohmann::json events = nlohmann::json::array();
    if (freezes) {
      events.push_back({{"EventId", "1"},
                        {"EventStatus", "Scheduled"},
                        {"EventType", "Freeze"},
                        {"Resources", {MetadataServer::kVirtualMachine}}});
    }
    azure_.answer(MetadataServer::kAzureEvents, {.body = nlohmann::json{{"Events", events}}.dump()});
  }
  bool says(int rank, const std::string& words) {
    return ranks_[rank]->wait_until([&] { return ranks_[rank]->err().find(words) != std::string::npos; });
  }

  const TemporaryFolder folder_;
  const Meeting meeting_;
  MetadataServer azure_;
  std::unique_ptr<Subprocess> ranks_[2];
};

TEST_F(Freeze, WhoStandsStillIsWaitedForWhileItIsAnnouncedAndNoLonger) {
  announce(true);
  for (const int rank : {0, 1}) ASSERT_TRUE(says(rank, "ranks may be silent for 32s")) << ranks_[rank]->err();
  for (const int frozen : {1, 0}) {
    ranks_[frozen]->send(SIGSTOP);
    std::this_thread::sleep_for(8s);
    EXPECT_TRUE(ranks_[1 - frozen]->running()) << ranks_[1 - frozen]->err();
    ranks_[frozen]->send(SIGCONT);
    std::this_thread::sleep_for(2s);
  }
  for (const auto& rank : ranks_) EXPECT_TRUE(rank->running()) << rank->err();

  announce(false);
  for (const int rank : {0, 1})
    ASSERT_TRUE(says(rank, "no machine stands still any more")) << ranks_[rank]->err();
  ranks_[1]->send(SIGSTOP);
  const Ended ended = ranks_[0]->wait(25s);  // sooner than a freeze would be waited for
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("rank 1 died, hangs or cannot be reached"));
}

}}  // namespace holdfast::test
