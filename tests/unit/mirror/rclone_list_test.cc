// The only text of rclone that a mirror reads.
#include "holdfast/mirror/rclone_list.h"

#include <gtest/gtest.h>

#include "holdfast/mirror/home_record.h"

namespace holdfast::test { namespace {

TEST(RcloneList, ReadsPathsAndSizes) {
  const auto list = rclone_list_from_json(
      "[\n{\"Path\":\"d/a\",\"Name\":\"a\",\"Size\":12,\"ModTime\":\"\",\"IsDir\":false},\n"
      "{\"Path\":\"d\",\"Name\":\"d\",\"Size\":-1,\"IsDir\":true}\n]\n");
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 2U);
  EXPECT_EQ(list->front().path, "d/a");
  EXPECT_EQ(list->front().bytes, 12);
  EXPECT_TRUE(list->back().is_folder);
  EXPECT_TRUE(rclone_list_from_json("[]")->empty());
}

TEST(RcloneList, NothingElseIsAList) {
  for (const char* const text :
       {"", "[", "{}", "null", "[1]", "[{}]", R"([{"Path":"a","Size":1}])",
        R"([{"Path":"","Size":1,"IsDir":false}])", R"([{"Path":"a","Size":"1","IsDir":false}])",
        R"([{"Path":"a","Size":-2,"IsDir":false}])", R"([{"Path":"a","Size":1.5,"IsDir":false}])",
        R"([{"Path":"a","Size":1,"IsDir":0}])", R"([{"Path":"a","Size":1,"IsDir":false}] x)"}) {
    EXPECT_FALSE(rclone_list_from_json(text)) << text;
  }
}

TEST(HomeRecord, ComesBackAsItWasWritten) {
  HomeRecord record{.home = "rclone:s3:b/\"run\"",
                    .alone = 9,
                    .newest = FileId{.attempt = 3, .step = 1200},
                    .newest_since = "now",
                    .took_ms = 41'000,
                    .copies = 2,
                    .copying = "x",
                    .failure = "why\nnot",
                    .failing_since = "then",
                    .superseded = true};
  for (const AttemptNumber claim : {5, 3, 4, 3}) record.add(claim);
  auto read = home_record_from_json(to_json(record));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->home, record.home);
  EXPECT_EQ(read->claims, (std::vector<AttemptNumber>{3, 4, 5}));
  EXPECT_EQ(read->newest, record.newest);
  EXPECT_EQ(read->failure, record.failure);
  EXPECT_TRUE(read->superseded);
  EXPECT_EQ(read->took_ms, 41'000);
  EXPECT_EQ(read->alone, 9U);
  read->add(8);
  EXPECT_EQ(read->alone, 9U);
  read->add(9);
  EXPECT_EQ(read->alone, 0U) << "a claim settles it";
  EXPECT_TRUE(read->owns(4));
  EXPECT_FALSE(read->owns(6));
  for (const char* const text : {"", "{}", "[]", R"({"schema":2,"home":"x"})", R"({"schema":1})"}) {
    EXPECT_FALSE(home_record_from_json(text)) << text;
  }
}

TEST(HomeRecord, RemembersTheNewestClaims) {
  HomeRecord record;
  for (AttemptNumber claim = 1; claim <= 150; ++claim) record.add(claim);
  EXPECT_EQ(record.claims.size(), 100U);
  EXPECT_TRUE(record.owns(150));
}

}}  // namespace holdfast::test
