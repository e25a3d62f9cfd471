// Two ranks over Gloo on CPUs: the cases of tests/gpu/nccl_ranks_test.cc, so that these are tried every day.
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace holdfast::test { namespace {

class SeveralRanks : public testing::Test {
 protected:
  static std::string device() { return "cpu"; }
  static std::map<std::string, std::string> environment() { return {}; }
};

}}  // namespace holdfast::test

#include "dist/several_ranks_cases.h"
