// That Azure is told when the machine may go: never by itself, and only in the pause, of a step that is
// durable.
#include <cstdlib>

#include "holdfast/cli/rehearsal/metadata_server.h"
#include "noticed.h"
#include "support/soon.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class AzureApproval : public Noticed {
 protected:
  AzureApproval() {
    options.notices.cloud = true;
    setenv("HOLDFAST_SOURCES", "azure", 1);
    for (const auto& [name, value] : server_.environment("azure")) {
      setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~AzureApproval() override {
    setenv("HOLDFAST_SOURCES", "signal,file,deadline", 1);
    for (const char* const name : {"HOLDFAST_AZURE_METADATA_ENDPOINT", "HOLDFAST_APPROVE_END"})
      unsetenv(name);
  }
  // A machine whose end is announced: its run pauses, and is told to stop there.
  void live() {
    options.notices.on_notice = OnNotice::wait;
    server_.announce({.in = 30min});
    start();
    ASSERT_TRUE(soon([&] { return server_.requests(MetadataServer::kAzureEvents) >= 2; }))
        << "the first is heard";
    // The pause moves the clock; the source polls on the machine's own.
    volume.clock.plan(5min, [&] {
      const auto polled = server_.requests(MetadataServer::kAzureEvents);
      soon([&] { return server_.requests(MetadataServer::kAzureEvents) >= polled + 2; });
      run->checkpointer.request_stop("the test is over");
    });
    ASSERT_TRUE(steps_until([&] { return run->decision.stop; }));
    EXPECT_EQ(run->checkpointer.finish(), 75);
  }

  MetadataServer server_{volume.clock};
};

TEST_F(AzureApproval, IsNotGivenUnlessAskedFor) {
  live();
  EXPECT_THAT(server_.approved(), IsEmpty());
}

TEST_F(AzureApproval, IsGivenInThePauseOnce) {
  options.notices.approve_end = true;
  live();
  EXPECT_THAT(server_.approved(), ElementsAre("event-1"));
}

TEST_F(AzureApproval, TheEnvironmentBeatsTheOption) {
  setenv("HOLDFAST_APPROVE_END", "1", 1);
  live();
  EXPECT_THAT(server_.approved(), ElementsAre("event-1"));
}

}}  // namespace holdfast::test
