// A trainer of each family of LibTorch programs (tests/resume/trainers): proven by `holdfast check`, killed again
// and again, compared with the program before the port, and found out where a line of the port is missing.
// By day each family has one of these proofs, and each proof several families; HOLDFAST_NIGHTLY=1 tries all.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};
constexpr char kForEver[] = "1000000000";

enum class Proof { check, missing_line, kills };

struct Family {
  std::string name;
  Proof by_day;
  std::string epochs;               // that a short whole run has, or updates
  bool ends_epochs = true;          // among 30 steps, told by .applied
  bool same_before = true;          // the program before the port prints the same
  std::vector<Words> without = {};  // parts, each of which can be left out of the state
  std::string doubt = {};           // what its first save rightly warns of
  bool thorough = false;            // by night: `check` at its default settings
  Words decides_the_end = {};       // a part that no step reads, and the file of the program that it decides
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class Trainers : public testing::TestWithParam<Family> {
 protected:
  static bool due(Proof proof) { return nightly() || GetParam().by_day == proof; }
  static constexpr char kByNight[] =
      "by day other families prove this: HOLDFAST_NIGHTLY=1 proves it of this one";
  static std::filesystem::path beneath(const TemporaryFolder& folder, const std::string& name) {
    std::filesystem::create_directories(folder.path() / name);
    return folder.path() / name;
  }
  static Words trainer(const std::filesystem::path& directory, const std::string& epochs = kForEver,
                       const Words& without = {}) {
    Words words = {HOLDFAST_TRAINERS, GetParam().name, directory.string(), epochs};
    words.insert(words.end(), without.begin(), without.end());
    return words;
  }
  static Ended check(const Words& without = {}) {
    const TemporaryFolder folder;
    Words options = {"--steps", "30", "--stdout"};
    if (GetParam().thorough) options = nightly() ? Words{} : Words{"--steps", "60"};
    // A life without a difference is computed to its end, so each kill costs two whole lives.
    if (!nightly() && without.empty()) options.insert(options.end(), {"--kills", "4"});
    return check(options, trainer(folder.path(), kForEver, without));
  }
  static Ended check(const Words& options, const Words& command) {
    Words words = {program("holdfast"), "check"};
    words.insert(words.end(), options.begin(), options.end());
    words.push_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return Subprocess(words, kOneThread).wait();
  }
};

TEST_P(Trainers, PortIsProvenByCheck) {
  if (!due(Proof::check)) GTEST_SKIP() << kByNight;
  const Family& family = GetParam();
  const Ended ended = check();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\nPROVEN for steps 1 to "));
  EXPECT_EQ(ended.out.find("killed at an epoch's end") != std::string::npos, family.ends_epochs) << ended.out;
  if (family.doubt.empty()) {
    EXPECT_THAT(ended.out, Not(HasSubstr("warnings")));
  } else {
    EXPECT_THAT(ended.out, HasSubstr(family.doubt));
  }
}

TEST_P(Trainers, AMissingLineIsFound) {
  if (!due(Proof::missing_line)) GTEST_SKIP() << kByNight;
  const std::size_t by_day = 2;
  for (const Words& parts : GetParam().without) {
    if (!nightly() && &parts >= GetParam().without.data() + by_day) break;
    const Ended ended = check(parts);
    EXPECT_EQ(ended.exit_code, 1) << parts.front() << '\n' << ended.out << ended.err;
    EXPECT_THAT(ended.out, AllOf(HasSubstr("NOT PROVEN: "), HasSubstr("usual causes:"))) << parts.front();
  }
}

// An average that is only saved, and best weights: docs/porting.md says how to find them.
TEST_P(Trainers, WhatOnlyTheEndReadsIsFoundInTheProgramsFile) {
  const Family& family = GetParam();
  if (family.decides_the_end.empty()) GTEST_SKIP() << "each step reads all of it";
  if (!nightly()) GTEST_SKIP() << "three checks of whole runs take minutes";
  const std::string& part = family.decides_the_end[0];
  const Ended unseen = check({part});
  EXPECT_EQ(unseen.exit_code, 0) << unseen.out << "found at the default settings: docs/porting.md names it";
  const TemporaryFolder folder;
  const Words options = {"--output", (folder.path() / family.decides_the_end[1]).string()};
  const Ended whole = check(options, trainer(folder.path(), family.epochs));
  EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  const Ended ended = check(options, trainer(folder.path(), family.epochs, {part}));
  EXPECT_EQ(ended.exit_code, 1) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr(family.decides_the_end[1]));
}

TEST_P(Trainers, ComputesWhatItDidBeforeThePort) {
  if (!due(Proof::missing_line)) GTEST_SKIP() << kByNight;
  const Family& family = GetParam();
  const TemporaryFolder folder;
  const Ended before =
      Subprocess({HOLDFAST_ORIGINALS, family.name, beneath(folder, "before").string(), family.epochs},
                 kOneThread)
          .wait();
  const Ended after = Subprocess(trainer(beneath(folder, "after"), family.epochs), kOneThread).wait();
  EXPECT_EQ(before.exit_code, 0) << before.err;
  EXPECT_EQ(after.exit_code, 0) << after.err;
  EXPECT_GE(lines_of(before.out).size(), 4U);
  EXPECT_EQ(lines_of(before.out).size(), lines_of(after.out).size());
  if (family.same_before) {
    EXPECT_EQ(before.out, after.out);
  }
}

// The lines that were printed whole.
Words whole_lines(const std::string& text) { return lines_of(text.substr(0, text.find_last_of('\n') + 1)); }

std::size_t newest_step(const std::filesystem::path& run) {
  std::size_t newest = 0;
  if (!std::filesystem::exists(run)) return newest;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.ends_with(".h5"))
      newest = std::max(newest, std::stoul(name.substr(5)));
  }
  return newest;
}

// Each life continues where a checkpoint was, and prints what an uninterrupted run prints there.
TEST_P(Trainers, KilledAtAnyMomentItPrintsTheSame) {
  if (!due(Proof::kills)) GTEST_SKIP() << kByNight;
  const int kills = nightly() ? 30 : GetParam().thorough ? 5 : 1;
  std::mt19937 random(11);
  const auto moment = [&](int most) { return std::chrono::milliseconds(random() % most); };
  const TemporaryFolder folder;
  const auto directory = beneath(folder, "killed");
  std::vector<Words> lives;
  for (int life = 0; life <= kills; ++life) {
    Subprocess process(trainer(directory), kOneThread);
    ASSERT_TRUE(process.wait_until([&] { return !whole_lines(process.out()).empty(); })) << process.err();
    std::this_thread::sleep_for(moment(30));
    const std::size_t before = newest_step(directory / "run");
    process.send(SIGUSR1);
    if (life == 0 || life % 3 > 0) {  // every third one is killed while it saves
      ASSERT_TRUE(process.wait_until([&] { return newest_step(directory / "run") > before; }))
          << process.err();
    }
    std::this_thread::sleep_for(moment(20));
    process.send(SIGKILL);
    const Ended ended = process.wait();
    EXPECT_EQ(ended.signal, SIGKILL);
    lives.push_back(whole_lines(ended.out));
    ASSERT_FALSE(lives.back().empty());
  }
  Subprocess straight(trainer(beneath(folder, "straight")), kOneThread);
  ASSERT_TRUE(straight.wait_until([&] {
    const std::string printed = "\n" + straight.out();
    return std::all_of(lives.begin(), lives.end(), [&](const Words& life) {
      return printed.find("\n" + life.back() + "\n") != std::string::npos;
    });
  }));
  straight.send(SIGKILL);
  const Words expected = whole_lines(straight.wait().out);
  for (const Words& life : lives) {
    const auto at = std::search(expected.begin(), expected.end(), life.begin(), life.end());
    EXPECT_NE(at, expected.end()) << "printed after a resume: " << life.front();
    EXPECT_EQ(at == expected.begin(), &life == &lives.front()) << "a life that began anew";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Trainers,
    testing::Values(
        Family{.name = "lstm", .by_day = Proof::missing_line, .epochs = "2", .without = {{"loop"}}},
        Family{.name = "gan",
               .by_day = Proof::kills,
               .epochs = "1",
               .same_before = false,  // the order of its data is another
               .without = {{"generator_steps"}, {"discriminator", "discriminator_steps"}}},
        Family{.name = "gpt",
               .by_day = Proof::check,
               .epochs = "1",
               .without = {{"optimizer"}},
               .doubt = "parameter model/head.weight has had no gradient so far"},
        Family{.name = "ppo",
               .by_day = Proof::missing_line,
               .epochs = "6",
               .ends_epochs = false,
               .without = {{"optimizer"}, {"cart"}, {"baseline"}}},
        Family{.name = "lbfgs", .by_day = Proof::kills, .epochs = "6", .without = {{"optimizer"}}},
        Family{.name = "frozen", .by_day = Proof::check, .epochs = "1", .without = {{"optimizer"}}},
        Family{.name = "buffers",
               .by_day = Proof::missing_line,
               .epochs = "6",
               .ends_epochs = false,
               .without = {{"optimizer"}}},
        Family{.name = "splats",
               .by_day = Proof::kills,
               .epochs = "60",
               .ends_epochs = false,
               .without = {{"degree"},
                           {"seen.0"},
                           {"views.1"},
                           {"seen.1"},
                           {"seen.2"},
                           {"views.0"},
                           {"adam"},
                           {"splats", "adam"}},
               .thorough = true},
        Family{.name = "dqn",
               .by_day = Proof::check,
               .epochs = "60",
               .ends_epochs = false,
               .without = {{"player.1"},
                           {"moves.2", "moves.3"},
                           {"target"},
                           {"pictures", "moves.0", "moves.1"},
                           {"game.0", "game.1", "game.2"},
                           {"game.3"},
                           {"player.0"},
                           {"optimizer"},
                           {"net", "optimizer"}},
               .thorough = true},
        Family{.name = "unfreezing",
               .by_day = Proof::missing_line,
               .epochs = "8",
               .without = {{"plateau.0"},
                           {"loop.2"},
                           {"loop.0", "loop.1"},
                           {"plateau.1"},
                           {"optimizer"},
                           {"net", "optimizer"}},
               .thorough = true,
               .decides_the_end = {"best_weights", "best.pt"}},
        Family{.name = "two_phases",
               .by_day = Proof::kills,
               .epochs = "50",
               .ends_epochs = false,
               .without = {{"patience"},
                           {"scale.1"},
                           {"lbfgs"},
                           {"scale.0"},
                           {"points.0"},
                           {"points.1"},
                           {"adam"},
                           {"net", "adam", "lbfgs"}},
               .thorough = true,
               .decides_the_end = {"average", "net.pt"}}),
    [](const auto& info) { return info.param.name; });

}}  // namespace holdfast::test
