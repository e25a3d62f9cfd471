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

// Types that are stored as bytes: in by one format, out by the other, with their names.
TEST_F(Import, TypesOfBytesSurviveTheWayInAndOut) {
  const std::string file = golden("python-2.11.0/bytes.pt");
  const std::string made = imported(file, "run");
  EXPECT_EQ(run({"diff", made, file}).exit_code, 0);
  ASSERT_EQ(run({"export", made, "--to", path("back.pt")}).exit_code, 0);
  EXPECT_EQ(run({"diff", path("back.pt"), file}).exit_code, 0);
  ASSERT_EQ(run({"export", made, "--to", path("back.safetensors")}).exit_code, 0);
  const std::string written = read_text(path("back.safetensors"));
  EXPECT_THAT(written, HasSubstr(R"("float8_e8m0fnu":{"dtype":"F8_E8M0","shape":[2,4])"));
  EXPECT_THAT(written, HasSubstr(R"("float8_e4m3fnuz":{"dtype":"F8_E4M3FNUZ","shape":[2,4])"));
  EXPECT_THAT(written, HasSubstr(R"("float8_e5m2fnuz":{"dtype":"F8_E5M2FNUZ","shape":[2,4])"));
  EXPECT_THAT(written, HasSubstr(R"("float4_e2m1fn_x2":{"dtype":"F4","shape":[2,8])"));
  EXPECT_THAT(written, HasSubstr(R"("bits8":{"dtype":"U8","shape":[2,4])"));
  // bits8 has no name in safetensors, and is a byte there.
  const Ended ended = run({"diff", file, path("back.safetensors")});
  EXPECT_THAT(ended.out, HasSubstr("bits8: bits8 in the first, uint8 in the second\n"));
  EXPECT_THAT(ended.out, HasSubstr("weights: 0 of 5 differ in value, 1 in name, type or shape\n"));
  const std::string again = imported(path("back.safetensors"), "again");
  EXPECT_THAT(run({"show", again, "--all"}).out + run({"show", again}).out, HasSubstr("float4_e2m1fn_x2"));
  ASSERT_EQ(run({"export", again, "--to", path("again.safetensors")}).exit_code, 0);
  EXPECT_EQ(run({"diff", path("again.safetensors"), path("back.safetensors")}).exit_code, 0);
}

TEST_F(Import, APrefixIsRemovedFromTheNamesOfTypesToo) {
  const std::string header = R"({"module.s":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]},)"
                             R"("module.q":{"dtype":"F4","shape":[3,2],"data_offsets":[2,5]}})";
  const auto with = [&](const std::string& text) {
    std::string bytes(8, '\0');
    bytes[0] = static_cast<char>(text.size());
    write_text(path("a.safetensors"), bytes + text + "abcde");
    return path("a.safetensors");
  };
  const std::string made = imported(with(header), "run", {"--strip-prefix", "module."});
  ASSERT_EQ(run({"export", made, "--to", path("back.safetensors")}).exit_code, 0);
  EXPECT_THAT(read_text(path("back.safetensors")), HasSubstr(R"("s":{"dtype":"F8_E8M0","shape":[2])"));
  EXPECT_THAT(read_text(path("back.safetensors")), HasSubstr(R"("q":{"dtype":"F4","shape":[3,2])"));
  expect_complaint(
      run({"import", with(R"({"q":{"dtype":"F4","shape":[2,5],"data_offsets":[0,5]}})"), "--to", path("x")}),
      1, "tensor 'q': its last dimension fills no whole bytes");
  expect_complaint(
      run({"import", with(R"({"q":{"dtype":"F4","shape":[],"data_offsets":[0,5]}})"), "--to", path("x")}), 1,
      "tensor 'q': its last dimension fills no whole bytes");
}

// What torch.load opens with its defaults; what lies beside the weights is named, and does not block them.
TEST_F(Import, WhatNoWeightsNeedBlocksNothing) {
  const std::string weights = golden("python-2.11.0/state_dict.pt");
  for (const char* const name : {"plain", "no_weights"}) {
    const std::string made = imported(golden("python-2.11.0/" + std::string(name) + ".pt"), name);
    EXPECT_EQ(run({"diff", made, weights}).exit_code, 0) << name;
  }
  expect_complaint(
      run({"import", golden("python-2.11.0/no_weights.pt"), "--to", path("x"), "--key", "quantized"}), 1,
      "PyTorch archive: a quantized tensor, which no checkpoint holds: save its dequantize()");
  EXPECT_FALSE(fs::exists(path("x")));
}

TEST_F(Import, ARunDirectoryIsItsOwnersAlone) {
  const std::string made = imported(golden("2.7.1/module.pt"), "run");
  EXPECT_EQ(fs::status(path("run")).permissions(), fs::perms(0700));
  EXPECT_EQ(fs::status(made).permissions(), fs::perms(0600));
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
