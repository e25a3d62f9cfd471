#include "holdfast/store/names.h"

#include <gtest/gtest.h>

namespace holdfast { namespace {

TEST(Rule8Names, NamesArePaddedAndNeverCut) {
  EXPECT_EQ(checkpoint_name({.attempt = 3, .step = 1200}), "step-000000001200-a0003.h5");
  EXPECT_EQ(checkpoint_name({.attempt = 12345, .step = 1'234'567'890'123}), "step-1234567890123-a12345.h5");
  EXPECT_EQ(damaged_name({.attempt = 3, .step = 0}), "step-000000000000-a0003.h5.damaged");
  EXPECT_EQ(damaged_name({.attempt = 3, .step = 0}, 2), "step-000000000000-a0003.h5.damaged-2");
  EXPECT_EQ(temporary_name(7, "state"), "tmp-a0007-state");
  EXPECT_EQ(ledger_name(7), "ledger-a0007.jsonl");
  EXPECT_EQ(claim_name(7), "7");
  EXPECT_EQ(state_name(7), "7.state.json");
}

TEST(Rule8Names, WhatIsWrittenIsReadBack) {
  for (const std::int64_t step : {std::int64_t{0}, std::int64_t{1}, std::int64_t{999'999'999'999},
                                  std::int64_t{1'000'000'000'000}, std::int64_t{kHighestNumber}}) {
    for (const AttemptNumber attempt :
         {AttemptNumber{1}, AttemptNumber{9999}, AttemptNumber{10000}, kHighestNumber}) {
      const FileId id{.attempt = attempt, .step = step};
      EXPECT_EQ(parse_checkpoint_name(checkpoint_name(id)), id);
      EXPECT_EQ(parse_damaged_name(damaged_name(id)), id);
      EXPECT_EQ(damaged_name(id, 1), damaged_name(id));
      for (const std::uint64_t nth : {std::uint64_t{2}, std::uint64_t{10}, kHighestNumber}) {
        EXPECT_EQ(parse_damaged_name(damaged_name(id, nth)), id);
        EXPECT_FALSE(parse_checkpoint_name(damaged_name(id, nth)));
      }
      EXPECT_EQ(parse_temporary_name(temporary_name(attempt, "x")), attempt);
      EXPECT_EQ(parse_claim_name(claim_name(attempt)), attempt);
      EXPECT_EQ(parse_state_name(state_name(attempt)), attempt);
      EXPECT_FALSE(parse_damaged_name(checkpoint_name(id)));
      EXPECT_FALSE(parse_checkpoint_name(damaged_name(id)));
    }
  }
}

TEST(Rule8Names, NothingElseIsOurs) {
  for (const char* name : {"",
                           "step-",
                           "step-1-a1.h5",
                           "step-00000001200-a0003.h5",
                           "step-000000001200-a003.h5",
                           "step-0000000001200-a0003.h5",
                           "step-000000001200-a00003.h5",
                           "step-000000001200-a0000.h5",
                           "step--00000001200-a0003.h5",
                           "step-+00000001200-a0003.h5",
                           "step-000000001200-a0003.h5 ",
                           " step-000000001200-a0003.h5",
                           "step-000000001200-a0003.h5.bak",
                           "step-000000001200-a0003.hdf5",
                           "step-000000001200-a0003",
                           "step-000000001200.h5",
                           "STEP-000000001200-a0003.h5",
                           "step-000000001200-a0003.h5/",
                           "step-1000000000000000000-a0003.h5",
                           "step-000000001200-a18446744073709551617.h5",
                           "step-00000000120x-a0003.h5",
                           "step-000000001200-a0003.h5.damaged.damaged",
                           "step-000000001200-a0003.h5.damaged-2.damaged",
                           "step-000000001200-a0003.h5.damaged-",
                           "step-000000001200-a0003.h5.damaged-0",
                           "step-000000001200-a0003.h5.damaged-1",
                           "step-000000001200-a0003.h5.damaged-02",
                           "step-000000001200-a0003.h5.damaged-2x",
                           "step-000000001200-a0003.h5.damaged-2-3",
                           "step-000000001200-a0003.h5.damaged2",
                           "step-000000001200-a0003.h5.damaged-1000000000000000000"}) {
    EXPECT_FALSE(parse_checkpoint_name(name)) << name;
    EXPECT_FALSE(parse_damaged_name(name)) << name;
  }
  EXPECT_FALSE(parse_checkpoint_name(std::string_view("step-000000001200-a0003.h5\0", 27)));
  for (const char* name : {"tmp-a0001", "tmp-a0001-", "tmp-a1-x", "tmp-a0000-x", "tmp-x", "tmp-a0001x"}) {
    EXPECT_FALSE(parse_temporary_name(name)) << name;
  }
  for (const char* name : {"", "0", "01", "1 ", "-1", "1.state", "1.state.json", "1000000000000000000"}) {
    EXPECT_FALSE(parse_claim_name(name)) << name;
  }
  EXPECT_FALSE(parse_state_name("0.state.json"));
  EXPECT_FALSE(parse_state_name(".state.json"));
}

TEST(Rule5Names, OrderIsByAttemptThenStepAsNumbers) {
  EXPECT_LT((FileId{.attempt = 1, .step = 500}), (FileId{.attempt = 2, .step = 3}));
  EXPECT_LT((FileId{.attempt = 2, .step = 999'999'999'999}),
            (FileId{.attempt = 2, .step = 1'000'000'000'000}));
  EXPECT_LT((FileId{.attempt = 9999, .step = 7}), (FileId{.attempt = 10000, .step = 7}));
}

}}  // namespace holdfast
