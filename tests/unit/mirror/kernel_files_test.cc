// The compiled GPU kernels of a run go home with it, and come to its next machine.
#include "holdfast/mirror/kernel_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "store_machine.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;

using testing::IsEmpty;
using testing::UnorderedElementsAre;

const std::string kOne(32, 'a');
const std::string kTwo(32, '7');

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  if (!fs::exists(folder)) return names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// Of a directory, and of a store by the real rclone.
class KernelsOfARun : public testing::TestWithParam<bool> {
 public:
  void SetUp() override {
    if (GetParam() && system("rclone version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "rclone is not installed";
  }
  std::string home() const { return (GetParam() ? "rclone::local:" : "") + at_home().native(); }
  fs::path at_home() const { return folder.path() / "home"; }
  fs::path kernels(const std::string& machine) const { return folder.path() / machine / "kernels"; }
  void compile(const std::string& machine, const std::string& name, const std::string& code) const {
    fs::create_directories(kernels(machine));
    write_text(kernels(machine) / name, code);
  }

  TemporaryFolder folder;
};

TEST_P(KernelsOfARun, GoHomeAndComeToTheNextMachine) {
  StoreMachine one(folder.path() / "one", home());
  one.prepare();
  EXPECT_THAT(names_in(kernels("one")), IsEmpty()) << "a fresh run has none";
  compile("one", kOne, "code of one");
  one.save(10);
  one.mirror.run();
  compile("one", kTwo, "code of two");
  compile("one", kOne + ".12.0.tmp", "half");
  compile("one", "README", "no kernel");
  one.save(20);
  one.mirror.run();
  StoreMachine two(folder.path() / "two", home());
  two.prepare();
  EXPECT_THAT(names_in(kernels("two")), UnorderedElementsAre(kOne, kTwo));
  EXPECT_EQ(read_text(kernels("two") / kOne), "code of one");
  EXPECT_EQ(read_text(kernels("two") / kTwo), "code of two");
}

TEST_P(KernelsOfARun, NothingElseComes) {
  StoreMachine one(folder.path() / "one", home());
  one.prepare();
  one.save(10);
  one.mirror.run();
  fs::create_directories(at_home() / "kernels" / "deep");
  write_text(at_home() / "kernels" / kOne, std::string(kLongestKernelFile + 1, 'x'));
  write_text(at_home() / "kernels" / "deep" / kOne, "x");
  write_text(at_home() / "kernels" / "x.so", "x");
  write_text(at_home() / "kernels" / kTwo, "code");
  StoreMachine two(folder.path() / "two", home());
  EXPECT_EQ(two.prepare().newest->step, 10);
  EXPECT_THAT(names_in(kernels("two")), UnorderedElementsAre(kTwo));
}

TEST_P(KernelsOfARun, AMachineKeepsItsOwn) {
  StoreMachine one(folder.path() / "one", home());
  one.prepare();
  compile("one", kOne, "of one");
  one.save(10);
  one.mirror.run();
  compile("two", kOne, "of two");
  StoreMachine two(folder.path() / "two", home());
  two.prepare();
  compile("two", kTwo, "new");
  two.save(20);
  two.mirror.run();
  EXPECT_EQ(read_text(kernels("two") / kOne), "of two");
  EXPECT_EQ(read_text(at_home() / "kernels" / kOne), "of one");
  EXPECT_EQ(read_text(at_home() / "kernels" / kTwo), "new");
}

INSTANTIATE_TEST_SUITE_P(Homes, KernelsOfARun, testing::Bool(),
                         [](const auto& param) { return param.param ? "Store" : "Directory"; });

// The script in rclone's place knows no such call.
TEST_F(Rclone, AStoreThatTakesNoKernelsTakesCheckpoints) {
  StoreMachine one(folder_.path() / "one");
  one.prepare();
  fs::create_directories(folder_.path() / "one/kernels");
  write_text(folder_.path() / "one/kernels" / kOne, "code");
  const FileId saved = one.save(10);
  one.mirror.run();
  EXPECT_TRUE(fs::exists(at_home(saved)));
  StoreMachine two(folder_.path() / "two");
  EXPECT_EQ(two.prepare().newest, saved);
}

}}  // namespace holdfast::test
