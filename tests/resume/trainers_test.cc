// A trainer of each family of LibTorch programs (tests/resume/trainers) is proven by `holdfast check`.
#include "resume/example_run.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}};

struct Family {
  std::string name;
  bool epochs = true;  // it tells Holdfast where an epoch ends
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class Trainers : public testing::TestWithParam<Family> {};

std::vector<std::string> trainer(const std::string& family, const std::filesystem::path& directory,
                                 const std::string& epochs = "1000") {
  std::filesystem::create_directories(directory);
  return {HOLDFAST_TRAINERS, family, directory.string(), epochs};
}

TEST_P(Trainers, IsProven) {
  const TemporaryFolder folder;
  std::vector<std::string> words = {program("holdfast"), "check", "--steps", "30", "--stdout", "--"};
  for (const auto& word : trainer(GetParam().name, folder.path())) words.push_back(word);
  const Ended ended = Subprocess(words, kOneThread).wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\nPROVEN\n"));
  EXPECT_EQ(ended.out.find("killed at an epoch's end") != std::string::npos, GetParam().epochs) << ended.out;
}

INSTANTIATE_TEST_SUITE_P(Families, Trainers,
                         testing::Values(Family{"lstm", false}, Family{"gan"}, Family{"gpt", false},
                                         Family{"ppo", false}, Family{"lbfgs", false},
                                         Family{"frozen", false}, Family{"buffers", false}),
                         [](const auto& info) { return info.param.name; });

}}  // namespace holdfast::test
