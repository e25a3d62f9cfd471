// A trainer of each family of LibTorch programs (tests/resume/trainers): proven by `holdfast check`, killed again
// and again, compared with the program before the port, and found out where a line of the port is missing.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;

const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};
constexpr char kForEver[] = "1000000000";

struct Family {
  std::string name;
  std::string epochs;               // that a short whole run has, or updates
  bool ends_epochs = true;          // among 30 steps, told by .applied
  bool same_before = true;          // the program before the port prints the same
  std::vector<Words> without = {};  // parts, each of which can be left out of the state
  std::string doubt = {};           // what its first save rightly warns of
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class Trainers : public testing::TestWithParam<Family> {
 protected:
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
    Words words = {program("holdfast"), "check", "--steps", "30", "--stdout", "--"};
    for (const auto& word : trainer(folder.path(), kForEver, without)) words.push_back(word);
    return Subprocess(words, kOneThread).wait();
  }
};

TEST_P(Trainers, PortIsProvenByCheck) {
  const Family& family = GetParam();
  const Ended ended = check();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\nPROVEN for steps 1 to 30; "));
  EXPECT_EQ(ended.out.find("killed at an epoch's end") != std::string::npos, family.ends_epochs) << ended.out;
  if (family.doubt.empty()) {
    EXPECT_THAT(ended.out, Not(HasSubstr("warnings")));
  } else {
    EXPECT_THAT(ended.out, HasSubstr(family.doubt));
  }
}

TEST_P(Trainers, AMissingLineIsFound) {
  for (const Words& parts : GetParam().without) {
    const Ended ended = check(parts);
    EXPECT_EQ(ended.exit_code, 1) << parts.front() << '\n' << ended.out << ended.err;
    EXPECT_THAT(ended.out, AllOf(HasSubstr("NOT PROVEN: step "), HasSubstr("usual causes:")))
        << parts.front();
  }
}

TEST_P(Trainers, ComputesWhatItDidBeforeThePort) {
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
  const int kills = nightly() ? 30 : 1;
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
    testing::Values(Family{.name = "lstm", .epochs = "2", .without = {{"loop"}}},
                    Family{.name = "gan",
                           .epochs = "1",
                           .same_before = false,  // the order of its data is another
                           .without = {{"generator_steps"}, {"discriminator", "discriminator_steps"}}},
                    Family{.name = "gpt",
                           .epochs = "1",
                           .without = {{"optimizer"}},
                           .doubt = "parameter model/head.weight has had no gradient so far"},
                    Family{.name = "ppo",
                           .epochs = "6",
                           .ends_epochs = false,
                           .without = {{"optimizer"}, {"cart"}, {"baseline"}}},
                    Family{.name = "lbfgs", .epochs = "6", .without = {{"optimizer"}}},
                    Family{.name = "frozen", .epochs = "1", .without = {{"optimizer"}}},
                    Family{
                        .name = "buffers", .epochs = "6", .ends_epochs = false, .without = {{"optimizer"}}}),
    [](const auto& info) { return info.param.name; });

}}  // namespace holdfast::test
