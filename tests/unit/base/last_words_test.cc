#include "holdfast/base/last_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "holdfast/base/error.h"
#include "support/subprocess.h"

namespace holdfast { namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LastWords : public ::testing::Test {
 protected:
  LastWords() { setenv("TORCHELASTIC_ERROR_FILE", file().c_str(), 1); }
  ~LastWords() override { unsetenv("TORCHELASTIC_ERROR_FILE"); }
  std::filesystem::path file() const { return folder_.path() / "error.json"; }
  std::string told(std::string_view sentence) const {
    tell_launcher(sentence);
    return test::read_text(file());
  }
  test::TemporaryFolder folder_;
};

// torch/distributed/elastic/multiprocessing/errors reads message.extraInfo.{py_callstack,timestamp}.
TEST_F(LastWords, AreWhatTorchrunPrints) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(last_words(RefusedError("refused: lr is 0.1 here")), 78);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("refused: lr is 0.1 here\n"));
  EXPECT_THAT(test::read_text(file()),
              MatchesRegex(R"(\{"message": \{"message": "refused: lr is 0.1 here", "extraInfo": )"
                           R"(\{"py_callstack": "refused: lr is 0.1 here", "timestamp": "[0-9]+"\}\}\})"));
}

TEST_F(LastWords, OfAnotherExceptionAreItsFirstLine) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(last_words(std::runtime_error("shapes differ\nException raised from…")), 70);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("shapes differ\n"));
  EXPECT_THAT(test::read_text(file()), HasSubstr(R"("message": "shapes differ",)"));
}

TEST_F(LastWords, AreJsonWhateverIsInThem) {
  EXPECT_THAT(told("a \"b\" c:\\d"), HasSubstr(R"("a \"b\" c:\\d")"));
  EXPECT_THAT(told("4 → 2 × ü"), HasSubstr("\"4 → 2 × ü\"")) << "what is UTF-8 stays";
  EXPECT_THAT(told("one\ntwo\x01"), HasSubstr("\"one two \""));
  EXPECT_THAT(told("\xFF|\xC0\x80|\xED\xA0\x80|\xE2\x86"), HasSubstr("\"?|??|???|??\"")) << "the rest is not";
}

TEST_F(LastWords, OfABodyOfMainAreItsExitCode) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run([] { return 3; }), 3);
  EXPECT_EQ(run([]() -> int { throw RefusedError("refused: lr is 0.1 here"); }), 78);
  EXPECT_EQ(run([]() -> int { throw std::runtime_error("shapes differ"); }), 70);
  EXPECT_EQ(run([]() -> int { throw 5; }), 70);
  EXPECT_EQ(run([]() -> int { throw Error("rank 3 is lost", ExitCode::interrupted); }, 0), 0);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("refused: lr is 0.1 here\n"));
}

TEST_F(LastWords, OfAnInterruptionReturnTheCodeThatWasChosenForThose) {
  testing::internal::CaptureStderr();
  const Error interrupted("rank 3 is lost", ExitCode::interrupted);
  EXPECT_EQ(last_words(interrupted), 75);
  EXPECT_EQ(last_words(interrupted, 0), 0);
  EXPECT_EQ(last_words(UsageError("no such option"), 0), 64);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("rank 3 is lost\n"));
}

TEST_F(LastWords, NeverThrowWithoutALaunchersFile) {
  setenv("TORCHELASTIC_ERROR_FILE", "/nowhere/at/all", 1);
  tell_launcher("nobody hears it");
  unsetenv("TORCHELASTIC_ERROR_FILE");
  tell_launcher("nor this");
  EXPECT_FALSE(std::filesystem::exists(file()));
}

}}  // namespace holdfast
