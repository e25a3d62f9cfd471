// `holdfast import`, and `holdfast diff` with files of other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "holdfast/store/names.h"
#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string golden(const std::string& name) { return HOLDFAST_SOURCE_DIR "/tests/golden/torch/" + name; }

class Import : public testing::Test {
 protected:
  static Ended run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return Subprocess(std::move(arguments)).wait();
  }
  std::string path(const std::string& name) const { return folder_.path() / name; }
  // The checkpoint that an import into a new folder makes.
  std::string imported(const std::string& file, const std::string& name,
                       std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments{"import", file, "--to", path(name)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return path(name) + "/" + checkpoint_name({1, 0});
  }
  static void expect_complaint(const Ended& ended, int code, const std::string& text) {
    EXPECT_EQ(ended.exit_code, code) << ended.out << ended.err;
    EXPECT_THAT(ended.err, StartsWith("holdfast: "));
    EXPECT_THAT(ended.err, HasSubstr(text));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  }

  TemporaryFolder folder_;
};

TEST_F(Import, MakesACheckpointThatVerifiesAndEqualsItsSource) {
  const std::string file = golden("2.7.1/module.pt");
  const std::string made = imported(file, "run");
  const Ended verified = run({"verify", made});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  const Ended listed = run({"ls", path("run")});
  EXPECT_THAT(listed.out, HasSubstr(checkpoint_name({1, 0})));
  const Ended same = run({"diff", made, file});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_EQ(same.out, "weights: 0 of 10 differ in value\nequal\n");
  // And back again.
  ASSERT_EQ(run({"export", made, "--to", path("back.pt")}).exit_code, 0);
  EXPECT_EQ(run({"diff", file, path("back.pt")}).exit_code, 0);
  ASSERT_EQ(run({"export", made, "--to", path("back.safetensors")}).exit_code, 0);
  EXPECT_EQ(run({"diff", path("back.pt"), path("back.safetensors")}).exit_code, 0);
}

TEST_F(Import, DiffNamesTheKeysThatDiffer) {
  const Ended ended = run({"diff", golden("2.7.1/module.pt"), golden("2.7.1/pickle_save.pt")});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.out, HasSubstr("only in the first: norm.running_mean  float32 [2]"));
  EXPECT_THAT(ended.out,
              HasSubstr("weights: 0 of 10 differ in value, 4 in name, type or shape\ndifferent\n"));
  const Ended other =
      run({"diff", golden("python-2.11.0/state_dict.pt"), golden("python-2.11.0/parameters.pt")});
  EXPECT_EQ(other.exit_code, 1) << other.err;
  expect_complaint(run({"diff", golden("python-2.11.0/own_class.pt"), golden("2.7.1/module.pt")}), 2,
                   "it needs __builtin__.print");
}

TEST_F(Import, TakesAKeyAPrefixAndAnotherModule) {
  const std::string file = golden("python-2.11.0/checkpoint.pt");
  const std::string made = imported(file, "whole");
  EXPECT_EQ(run({"diff", made, golden("python-2.11.0/state_dict.pt")}).exit_code, 0);
  const std::string part =
      imported(file, "part", {"--key", "optimizer_state_dict.state.0", "--module", "slots"});
  EXPECT_THAT(run({"show", part}).out, HasSubstr("slots/exp_avg"));
  expect_complaint(run({"import", file, "--to", path("x"), "--key", "nothing"}), 1,
                   "there is no 'nothing' in it");
  expect_complaint(run({"import", file, "--to", path("x"), "--strip-prefix", "module."}), 1,
                   "does not begin with --strip-prefix 'module.'");
  EXPECT_FALSE(fs::exists(path("x")));
}

TEST_F(Import, NamesWhatItLeavesOut) {
  const std::string file = golden("python-2.11.0/checkpoint.pt");
  const Ended ended = run({"import", file, "--to", path("run")});
  EXPECT_THAT(ended.out, HasSubstr("\nnot imported: 'epoch', 'optimizer_state_dict', 'schedule', "));
  const Ended json = run({"import", file, "--to", path("json"), "--json"});
  EXPECT_THAT(json.out, HasSubstr("\"left_out\""));
  EXPECT_THAT(json.out, HasSubstr("\"optimizer_state_dict\""));
  const Ended whole = run({"import", golden("python-2.11.0/state_dict.pt"), "--to", path("whole")});
  EXPECT_THAT(whole.out, Not(HasSubstr("not imported")));
}

TEST_F(Import, LeavesOtherRunsAlone) {
  imported(golden("2.7.1/module.pt"), "run");
  expect_complaint(run({"import", golden("2.7.1/module.pt"), "--to", path("run")}), 64, "it is not empty");
}

TEST_F(Import, RefusesWhatIsNoFileOfWeights) {
  write_text(path("garbage"), "garbage");
  expect_complaint(run({"import", path("garbage"), "--to", path("x")}), 1,
                   "neither a file of PyTorch nor of safetensors");
  expect_complaint(run({"import", path("nowhere"), "--to", path("x")}), 2, "No such file");
  expect_complaint(run({"import", golden("python-2.11.0/legacy.pt"), "--to", path("x")}), 1,
                   "PyTorch before 1.6");
  expect_complaint(run({"import", golden("python-2.11.0/own_class.pt"), "--to", path("x")}), 1,
                   "it needs __builtin__.print");
  fs::copy_file(golden("2.7.1/module.pt"), path("model-00001-of-00003.pt"));
  expect_complaint(run({"import", path("model-00001-of-00003.pt"), "--to", path("x")}), 1,
                   "one of 3 parts of the weights");
  EXPECT_FALSE(fs::exists(path("x")));
}

}}  // namespace holdfast::test
