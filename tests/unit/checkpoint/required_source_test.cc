// A run that does not want to begin blind.
#include <cstdlib>

#include "noticed.h"

namespace holdfast::test { namespace {

TEST(RequiredSource, ABlindStartIsRefusedBeforeAnythingIsClaimed) {
  for (const bool by_environment : {false, true}) {
    Volume volume;
    CheckpointerOptions options = volume.options();
    if (by_environment) {
      setenv("HOLDFAST_REQUIRE_SOURCE", "ec2", 1);
    } else {
      options.notices.require_sources = {"ec2"};
    }
    MemorySource source{MemorySource::Options()};
    Checkpointer checkpointer(source, options);
    try {
      checkpointer.resume();
      ADD_FAILURE() << "it began";
    } catch (const RefusedError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::refused);
      EXPECT_THAT(error.what(), HasSubstr("source ec2 is required"));
    }
    EXPECT_EQ(volume.disk.open_directory(kRun, false), nullptr) << "nothing was made";
    unsetenv("HOLDFAST_REQUIRE_SOURCE");
  }
}

TEST(RequiredSource, OneThatSeesLetsTheRunBegin) {
  Volume volume;
  CheckpointerOptions options = volume.options();
  Announcer announcer;
  announcer.give_to(options);
  options.notices.require_sources = {"test"};
  EXPECT_TRUE(Attempt(options).resumed.fresh);
}

}}  // namespace holdfast::test
