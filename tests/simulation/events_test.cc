// The table of events in docs/interruptions.md: each row is a case here, and each case a row. What is decided before
// the first step, or by the next start, names the test that proves it.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "scripted_world.h"

namespace holdfast::simulation { namespace {

using namespace std::chrono_literals;

using Codes = std::set<int>;
const run::RunOptions kNoOptions = {};

// A commit takes a second, and one has been measured.
struct Trained : ScriptedWorld {
  explicit Trained(OnNotice on_notice = OnNotice::train_on, int ranks = 1)
      : ScriptedWorld({.every = {SaveEvery::steps(100)}, .on_notice = on_notice}, ranks), policy(on_notice) {
    measure_a_save();
    step();
  }
  void announce(Duration left, bool hibernates = false) {
    give(0, run::NoticeHeard{.source = 1, .at = now + left, .hibernates = hibernates, .policy = policy});
  }
  void withdraw() { give(0, run::NoticeHeard{.source = 1, .kind = NoticeKind::withdrawn}); }
  void tell_to_stop(SteadyTime by) {
    give(0, run::NoticeHeard{.source = 2, .kind = NoticeKind::stop, .at = by});
  }
  Codes end() {
    finish();
    return {rank(0).code.value_or(-1)};
  }
  OnNotice policy;
};

Codes commits_trains_on_commits_again_and_pauses() {
  Trained world;
  world.announce(60s);
  world.step();
  EXPECT_EQ(world.begun(), 2U) << "the insurance";
  const run::Step insured = world.at;
  while (world.step(1s, 0s)) {
  }
  EXPECT_GT(world.at, insured + 20) << "it trained on";
  world.pass(2s);
  EXPECT_EQ(world.durable, world.at) << "it committed again";
  EXPECT_TRUE(world[0].says(run::Remark::pausing) && world[0].approved);
  world.tell_to_stop(world.now + 10s);
  world.pass(1s);
  EXPECT_TRUE(world[0].returned && world[0].returned->stop) << "SIGTERM ends the pause";
  return world.end();
}

Codes pauses_after_the_first_commit() {
  Trained world(OnNotice::wait);
  world.announce(10min);
  EXPECT_FALSE(world.step(1s, 30s));
  EXPECT_EQ(world.durable, world.at);
  world.tell_to_stop(world.now + 10s);
  world.pass(1s);
  return world.end();
}

Codes ends_after_the_first_commit() {
  Trained world(OnNotice::exit);
  world.announce(10min);
  world.step();
  EXPECT_TRUE(world[0].returned->stop);
  const Codes codes = world.end();
  EXPECT_EQ(world.durable, world.at);
  return codes;
}

Codes commits_inside_an_evaluation() {
  for (const int ranks : {1, 2}) {
    Trained world(OnNotice::train_on, ranks);
    world.call(run::EvaluationBegun{world.at});
    EXPECT_LT(world.durable, world.at);
    world.announce(10min);
    world.pass(5s);
    EXPECT_EQ(world.durable, world.at) << ranks << " ranks";
  }
  return {};
}

Codes continues_in_place() {
  for (const bool withdrawn : {true, false}) {
    Trained world(OnNotice::wait);
    world.announce(30s);
    EXPECT_FALSE(world.step(1s, 20s));
    if (withdrawn) world.withdraw();
    world.pass(withdrawn ? 1s : 75s);
    EXPECT_TRUE(world[0].returned && !world[0].returned->stop);
    EXPECT_TRUE(world.step());
    EXPECT_FALSE(world[0].approved);
  }
  return {};
}

Codes begins_no_commit_that_cannot_end() {
  Trained world;
  const std::size_t before = world.begun();
  const run::Step durable = world.durable;
  world.tell_to_stop(world.now + 1100ms);
  world.step();
  const Codes codes = world.end();
  EXPECT_EQ(world.begun(), before);
  EXPECT_EQ(world.durable, durable) << "the older checkpoint stands";
  EXPECT_TRUE(world[0].says(run::Remark::too_late));

  Trained guessing;
  guessing.give(0, run::NoticeHeard{
                       .source = 2, .kind = NoticeKind::stop, .at = guessing.now + 1100ms, .guessed = true});
  guessing.step();
  EXPECT_EQ(guessing.end(), codes);
  EXPECT_EQ(guessing.durable, guessing.at) << "where the time is a guess, it tries";
  return codes;
}

Codes commits_soon_and_more_often() {
  Trained world;
  world.give(0, run::NoticeHeard{.source = 1, .kind = NoticeKind::at_risk});
  world.step();
  world.pass(2s);
  EXPECT_EQ(world.durable, world.at);
  const run::Step saved = world.at;
  while (world.durable == saved && world.at < saved + 200) world.step();
  EXPECT_EQ(world.durable, saved + 50) << "every 100 steps, halved";
  return {};
}

Codes commits_and_continues_when_it_wakes_up() {
  Trained world;
  world.announce(30s, true);
  world.step();
  world.pass(2s);
  EXPECT_EQ(world.durable, world.at);
  world.give(0, run::MachineWoke{});
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(world.step(1s, 10s));
  EXPECT_FALSE(world[0].says(run::Remark::pausing));
  return {};
}

Codes trains_on_after_a_failed_save() {
  Codes codes;
  for (const bool told : {false, true}) {
    Trained world;
    const run::Step durable = world.durable;
    world.failing_writes = 100;
    world.give(0, run::NoticeHeard{.source = 3, .kind = NoticeKind::checkpoint_now});
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(world.step());
    if (told) world.tell_to_stop(world.now + 10min);
    world.step();
    codes.merge(world.end());
    EXPECT_EQ(world.durable, durable) << "the older checkpoint stands";
  }
  return codes;
}

Codes commits_nothing_inside_an_update() {
  Codes codes;
  for (const bool told : {false, true}) {
    Trained world;
    const std::size_t before = world.begun();
    world.call(run::BeforeUpdate{world.at});
    if (told) world.tell_to_stop(world.now + 10min);
    codes.merge(world.end());
    EXPECT_EQ(world.begun(), before);
  }
  ScriptedWorld unstarted(kNoOptions);
  unstarted.finish();
  EXPECT_EQ(unstarted[0].code, 70) << "without a single step";
  return codes;
}

Codes stops_for_a_newer_attempt() {
  Trained world;
  const std::size_t before = world.begun();
  world.give(0, run::Superseded{});
  world.step();
  EXPECT_TRUE(world[0].returned->stop);
  const Codes codes = world.end();
  EXPECT_EQ(world.begun(), before) << "it writes nothing";
  return codes;
}

struct Row {
  const char* event;  // the first words of the row's first cell
  Codes (*check)() = nullptr;
  const char* proved_by = "";  // where the run's decisions have no part
};

const Row kRows[] = {
    {"a notice that the machine ends", commits_trains_on_commits_again_and_pauses},
    {"… with `--on-notice wait`", pauses_after_the_first_commit},
    {"… with `--on-notice exit`", ends_after_the_first_commit},
    {"… or a signal, inside an `EvaluationScope`", commits_inside_an_evaluation},
    {"… is withdrawn, or the machine still lives", continues_in_place},
    {"… but no commit can end before a deadline", begins_no_commit_that_cannot_end},
    {"EC2 recommends to rebalance", commits_soon_and_more_often},
    {"the machine will hibernate", commits_and_continues_when_it_wakes_up},
    {"`kill -9`, power cut", nullptr, "tests/crash/power_loss_test.cc"},
    {"a bad sector in the newest checkpoint", nullptr, "tests/crash/corruption_test.cc"},
    {"a save fails (disk full, EIO)", trains_on_after_a_failed_save},
    {"`finish()` inside an update", commits_nothing_inside_an_update},
    {"a second run starts on the directory", stops_for_a_newer_attempt},
    {"a required source does not answer", nullptr, "tests/unit/interruption"},
    {"another model, other options", nullptr, "tests/resume/options_test.cc"},
    {"the run directory belongs to somebody else", nullptr, "tests/unit/store"},
    {"the volume can never hold a checkpoint", nullptr, "tests/unit/checkpoint"},
    {"the mount is missing", nullptr, "tests/unit/checkpoint"},
    {"wrong options", nullptr, "tests/resume/options_test.cc"},
};

struct PageRow {
  std::string event;
  Codes codes;
};

std::vector<PageRow> rows_of_the_page() {
  std::ifstream page(std::filesystem::path(HOLDFAST_SOURCE_DIR) / "docs/interruptions.md");
  std::vector<PageRow> rows;
  bool inside = false;
  for (std::string line; std::getline(page, line);) {
    if (line.rfind("## ", 0) == 0) inside = line == "## Events";
    if (!inside || line.rfind("| ", 0) != 0 || line.rfind("| event |", 0) == 0) continue;
    const auto last = line.rfind('|', line.size() - 2);
    const std::string cell = line.substr(last + 1);
    Codes codes;
    const std::regex number("[0-9]+");
    for (std::sregex_iterator found(cell.begin(), cell.end(), number), end; found != end; ++found) {
      codes.insert(std::stoi(found->str()));
    }
    rows.push_back({line.substr(2), codes});
  }
  return rows;
}

class Events : public testing::TestWithParam<Row> {};

TEST_P(Events, DoWhatThePageSays) {
  const Row& row = GetParam();
  for (const PageRow& on_page : rows_of_the_page()) {
    if (on_page.event.rfind(row.event, 0) != 0) continue;
    if (row.check != nullptr) {
      EXPECT_EQ(row.check(), on_page.codes);
    } else {
      EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(HOLDFAST_SOURCE_DIR) / row.proved_by));
    }
    return;
  }
  FAIL() << "no row of docs/interruptions.md begins with: " << row.event;
}

INSTANTIATE_TEST_SUITE_P(All, Events, testing::ValuesIn(kRows),
                         [](const auto& info) { return "Row" + std::to_string(info.index + 1); });

TEST(EventsOfThePage, HaveACase) {
  const auto rows = rows_of_the_page();
  EXPECT_EQ(rows.size(), std::size(kRows));
  for (const PageRow& on_page : rows) {
    const auto begins = [&](const Row& row) { return on_page.event.rfind(row.event, 0) == 0; };
    EXPECT_EQ(std::count_if(std::begin(kRows), std::end(kRows), begins), 1) << on_page.event;
  }
}

}}  // namespace holdfast::simulation
