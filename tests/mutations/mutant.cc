// Linked into the test programs of tests/mutations/run: HOLDFAST_MUTANT chooses the mutant, and HOLDFAST_MUTANT_LOG takes a
// line as each case begins and ends. Without a mutant, the end's line lists the mutants that the case has met.
#include "mutant.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace {

int chosen() {
  const char* const number = std::getenv("HOLDFAST_MUTANT");
  return number != nullptr ? std::atoi(number) : 0;
}

class Log : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo& test) override {
    std::fill(std::begin(mutants_met), std::end(mutants_met), false);
    line(std::string("begins ") + test.test_suite_name() + "." + test.name());
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    std::string text = test.result()->Failed() ? "failed " : "passed ";
    text += std::to_string(test.result()->elapsed_time());
    for (int n = 1; mutant_chosen == 0 && n < kMutants; ++n) {
      if (mutants_met[n]) text += " " + std::to_string(n);
    }
    line(text);
  }

 private:
  void line(const std::string& text) const {
    if (write(file_, (text + "\n").data(), text.size() + 1) < 0) std::abort();
  }

  int file_ = open(std::getenv("HOLDFAST_MUTANT_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
};

}  // namespace

const int mutant_chosen = chosen();
bool mutants_met[kMutants];

namespace {
const bool kListens = (testing::UnitTest::GetInstance()->listeners().Append(new Log), true);
}  // namespace
