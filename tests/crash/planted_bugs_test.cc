// The proof is tested: variants of the library with one rule broken each (tests/crash/planted), and every one
// must fail in some lane, by a test that says so: a lane that crashes, hangs or runs no test proves nothing.
// The library without a bug must pass them all. Prints the table bug × lane: the first lane that caught a bug, and
// with HOLDFAST_NIGHTLY=1 every lane that does.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <thread>

#include "support/nightly.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

struct Lane {
  const char* name;
  const char* module;
  const char* tests;
};

constexpr char kSimulation[] = "simulation";

// Quick ones: a few seconds in all for one variant.
constexpr Lane kLanes[] = {
    {kSimulation, "store", "Simulation.OverTheRealStore"},
    {"power loss", "store", "PowerLoss.NothingAcknowledgedIsLostOfOpaqueFiles"},
    {"commit", "store", "Rule2*:Rule11*:CommitUsage*"},
    {"faults", "store", "Rule3*:Rule9*:*Faults*"},
    {"recovery", "store", "Rule5*:Rule7*:StartingPoint*"},
    {"retention", "store", "Rule4*"},
    {"zombies", "store", "Rule6*"},
    {"states", "store", "Rule10*"},
    {"digests", "snapshot", "PieceDigests*:DigestKernel*"},
    {"format", "format", "*-ForeignTools*"},
    {"stacks", "interruption", "AlternateStack.*"},
    {"forks", "interruption", "ForkedChild.*"},
    {"checkpointer", "checkpoint", "Writer*:CheckpointerFailure.ShowsUntil*"},
    {"half update", "checkpoint", "HalfUpdate*"},
    {"evaluation exception", "checkpoint", "EvaluationException*"},
    {"late staging", "checkpoint", "LateStaging.AnUpdateBefore*"},
    {"two tiers", "mirror", "Mirrors.*:Starts.*"},
    {"alone", "mirror", "StartsAlone.*"},
    {"reserve", "checkpoint", "Home.TheLast*:Home.WhatThePlan*"},
    {"stores", "mirror", "Rclone.*:ConditionalClaims.*-*AnyCall*"},
    {"losses", "checkpoint", "UntoldLoss*:FiniteState*"},
};

// What the simulation of whole runs (tests/simulation) cannot do: a copy that comes from a HOME, which makes a file of an
// older step later; a checkpoint of the last two that this attempt has not verified.
constexpr std::string_view kBeyondTheSimulation[] = {"recovery_by_time", "keep_one"};

struct Variant {
  std::string name;
  std::string module;
  std::string program;
  std::string what;  // is broken; empty: nothing
  std::vector<std::string> caught_by = {};
  std::vector<std::string> broken = {};  // lanes that neither passed nor failed
  std::string log = {};
};

std::vector<Variant> all_variants() {
  std::vector<Variant> variants;
  std::ifstream list(HOLDFAST_VARIANTS);
  for (std::string line; std::getline(list, line);) {
    std::istringstream words(line);
    Variant variant;
    std::string patch;
    words >> variant.name >> variant.module >> variant.program >> patch;
    if (!patch.empty()) {
      std::ifstream text(patch);
      std::getline(text, variant.what);
      variant.what.erase(0, 2);
    }
    variants.push_back(std::move(variant));
  }
  return variants;
}

void try_lanes(Variant& variant) {
  for (const Lane& lane : kLanes) {
    if (lane.module != variant.module) continue;
    std::vector<std::string> command = {variant.program, std::string("--gtest_filter=") + lane.tests,
                                        "--gtest_brief=1"};
    if (!nightly()) command.emplace_back("--gtest_fail_fast");
    Subprocess run(command, {{"HOLDFAST_POWER_LOSS_STATES", "10000"}, {"HOLDFAST_NIGHTLY", ""}});
    const Ended ended = run.wait(std::chrono::seconds(120));
    const bool ran = ended.out.find("[  PASSED  ] 0 tests") == std::string::npos;
    if (ended.exit_code == 0 && ran) continue;
    if (ended.exit_code == 1 && ended.out.find("[  FAILED  ]") != std::string::npos) {
      variant.caught_by.emplace_back(lane.name);
    } else {
      variant.broken.push_back(
          std::string(lane.name) +
          (ran ? ": exit code " + std::to_string(ended.exit_code) + ", signal " + std::to_string(ended.signal)
               : ": no test ran"));
    }
    variant.log +=
        std::string("--- ") + lane.name + "\n" + ended.out.substr(0, 3000) + ended.err.substr(0, 1000);
    if (!variant.what.empty() && !nightly()) return;
  }
}

TEST(PlantedBugs, EveryOneIsCaught) {
  std::vector<Variant> variants = all_variants();
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  for (int i = 0; i < 2; ++i) {
    workers.emplace_back([&] {
      for (std::size_t at = next++; at < variants.size(); at = next++) try_lanes(variants[at]);
    });
  }
  for (std::thread& worker : workers) worker.join();

  int planted = 0;
  int caught = 0;
  for (const Variant& variant : variants) {
    std::string lanes;
    for (const std::string& lane : variant.broken) {
      ADD_FAILURE() << variant.name << ", " << lane << "\n" << variant.log;
    }
    for (const std::string& lane : variant.caught_by) lanes += (lanes.empty() ? "" : ", ") + lane;
    if (variant.what.empty()) {
      EXPECT_EQ(lanes, "") << "without any bug, " << variant.module << " fails in these lanes:\n"
                           << variant.log;
      continue;
    }
    ++planted;
    caught += lanes.empty() ? 0 : 1;
    std::printf("  %-66s %s\n", variant.what.c_str(), lanes.empty() ? "SURVIVES" : lanes.c_str());
    EXPECT_NE(lanes, "") << "survives: " << variant.what << "\n  " << variant.program;
    const bool beyond = std::find(std::begin(kBeyondTheSimulation), std::end(kBeyondTheSimulation),
                                  variant.name) != std::end(kBeyondTheSimulation);
    if (variant.module == "store" && !beyond && !lanes.empty()) {
      EXPECT_EQ(variant.caught_by.front(), kSimulation)
          << "the simulation alone does not find: " << variant.what;
    }
  }
  std::printf("planted bugs: %d of %d caught\n", caught, planted);
  EXPECT_GE(planted, 14);
}

}}  // namespace holdfast::test
