#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <thread>

#include "holdfast/base/error.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

std::vector<TensorSpec> many_tensors(int count) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < count; ++i) {
    tensors.push_back(
        {"model/layer" + std::to_string(i) + ".weight", DType::float32, {i % 7 == 0 ? 40000 : 64 + i}});
    tensors.push_back({"optimizer/slot/layer" + std::to_string(i) + ".weight", DType::float32, {64 + i}});
  }
  return tensors;
}

std::string refusal(std::vector<TensorSpec> tensors, std::uint64_t capacity = kSmallCapacity) {
  try {
    make_file_plan(std::move(tensors), capacity);
  } catch (const RefusedError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_tiled(const FilePlan& plan) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> segments;
  for (std::size_t i = 0; i < plan.layout->tensors().size(); ++i) {
    const std::uint64_t bytes = plan.layout->tensors()[i].bytes();
    if (bytes == 0) {
      EXPECT_EQ(plan.layout->offset(i), 0u);
      continue;
    }
    segments.emplace_back(plan.layout->offset(i), bytes);
    EXPECT_TRUE(bytes < kAlignedFrom || plan.layout->offset(i) % 4096 == 0) << i;
  }
  for (const MetadataStretch& stretch : plan.stretches)
    segments.emplace_back(stretch.offset, stretch.bytes.size());
  std::sort(segments.begin(), segments.end());
  std::uint64_t covered = plan.user_block;
  for (const auto& [offset, bytes] : segments) {
    EXPECT_EQ(offset, covered);
    covered += bytes;
  }
  EXPECT_EQ(covered, plan.layout->length());
}

TEST(FilePlan, TilesTheFileExactly) {
  for (const int count : {0, 1, 5, 200}) {
    const auto plan = make_file_plan(many_tensors(count));
    expect_tiled(*plan);
    EXPECT_TRUE(std::has_single_bit(plan->user_block));
    EXPECT_EQ(plan->head % 4096, 0u);
    EXPECT_GE(plan->head, plan->json_offset + plan->attribute_capacity);
    EXPECT_GE(plan->head, plan->step_offset + 8);
    // The head is written last and by itself: it must stay short.
    EXPECT_LT(plan->head, plan->user_block + kDefaultAttributeCapacity + (2u << 20));
  }
}

TEST(FilePlan, EqualInputsGiveEqualBytesInAnySecond) {
  const auto first = make_file_plan(many_tensors(50));
  const auto second = std::chrono::system_clock::now() + std::chrono::milliseconds(1100);
  std::this_thread::sleep_until(second);
  const auto later = make_file_plan(many_tensors(50));
  ASSERT_EQ(first->stretches.size(), later->stretches.size());
  for (std::size_t i = 0; i < first->stretches.size(); ++i) {
    EXPECT_EQ(first->stretches[i].offset, later->stretches[i].offset);
    EXPECT_EQ(first->stretches[i].bytes, later->stretches[i].bytes) << "stretch " << i;
    EXPECT_EQ(first->stretches[i].digest, tensor_digest(later->stretches[i].bytes));
  }
  EXPECT_EQ(first->head, later->head);
}

TEST(FilePlan, UserBlockHoldsTheLongestIndex) {
  EXPECT_EQ(make_file_plan({}, kMinAttributeCapacity)->user_block, kMinUserBlock);
  const auto plan = make_file_plan(many_tensors(1000), kDefaultAttributeCapacity);
  EXPECT_GE(plan->user_block, kIndexOffset + kDefaultAttributeCapacity + 2000u * 150);
}

TEST(FilePlan, RefusesWhatTheFormatCannotStore) {
  EXPECT_EQ(refusal(small_tensors()), "accepted");
  EXPECT_THAT(refusal({{"meta/step", DType::int64, {}}}), HasSubstr("the file format's own"));
  EXPECT_EQ(refusal({{"metadata/step", DType::int64, {}}}), "accepted");
  EXPECT_THAT(refusal({{"a/b", DType::int8, std::vector<std::int64_t>(33, 1)}}), HasSubstr("32 dimensions"));
  EXPECT_EQ(refusal({{"a/b", DType::int8, std::vector<std::int64_t>(32, 1)}}), "accepted");
  EXPECT_THAT(
      refusal(
          {{"a/b", DType::int8, {1ll << 61}}, {"a/c", DType::int8, {1ll << 61}}, {"a/d", DType::int8, {1}}}),
      HasSubstr("2^62"));
  EXPECT_THAT(refusal({{"a/../b", DType::int8, {1}}}), HasSubstr("component"));
  EXPECT_THAT(refusal({}, 1000), HasSubstr("capacity"));
  EXPECT_THAT(refusal({}, 32u << 20), HasSubstr("capacity"));
}

TEST(FilePlan, LongAndStrangeNamesAreOnlyKeys) {
  EXPECT_EQ(refusal({{"a/" + std::string(1022, 'x'), DType::int8, {1}},
                     {"a/...", DType::int8, {1}},
                     {"a/\n\x1b[2J", DType::int8, {1}},
                     {"ü/ /~", DType::int8, {1}}}),
            "accepted");
}

TEST(AttributeCapacity, GrowsWithTheState) {
  const auto of_bytes = [](std::int64_t bytes) {
    return usual_attribute_capacity(std::vector<TensorSpec>{{"model/w", DType::uint8, {bytes}}});
  };
  EXPECT_EQ(usual_attribute_capacity({}), kSmallAttributeCapacity);
  EXPECT_EQ(of_bytes(1 << 19), kSmallAttributeCapacity);
  EXPECT_EQ(of_bytes(4 << 20), 128u << 10);
  EXPECT_EQ(of_bytes(1ll << 60), kDefaultAttributeCapacity);
  EXPECT_EQ(usual_attribute_capacity(many_tensors(5000)), kDefaultAttributeCapacity);
}

TEST(AttributeCapacity, DoublesUntilItFitsWithRoomToGrow) {
  const std::vector<TensorSpec> tensors = small_tensors();
  Attributes attributes;
  EXPECT_EQ(attribute_capacity_for(attributes, tensors), kSmallAttributeCapacity);
  attributes.set("text", std::string(kSmallAttributeCapacity - 1000, 'x'));
  EXPECT_EQ(attribute_capacity_for(attributes, tensors), 2 * kSmallAttributeCapacity);
  attributes.set("text", std::string(kDefaultAttributeCapacity, 'x'));
  EXPECT_EQ(attribute_capacity_for(attributes, tensors), 2 * kDefaultAttributeCapacity);
  attributes.set("text", std::string(kMaxAttributeCapacity - 1000, 'x'));
  EXPECT_EQ(attribute_capacity_for(attributes, tensors), kMaxAttributeCapacity);
  attributes.set("text", std::string(kMaxAttributeCapacity, 'x'));
  EXPECT_THROW(attribute_capacity_for(attributes, tensors), RefusedError);
}

// For people whose runs save a tiny model every minute.
TEST(FilePlan, ASmallStateHasASmallFile) {
  std::vector<TensorSpec> tensors;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 24; ++i) {
    tensors.push_back(
        {(i % 2 == 0 ? "model/layer." : "optimizer/exp_avg/layer.") + std::to_string(i) + ".weight",
         DType::float32,
         {10}});
    bytes += tensors.back().bytes();
  }
  const auto plan = make_file_plan(tensors, usual_attribute_capacity(tensors));
  EXPECT_LE(plan->layout->length() - bytes, 64u << 10);
}

TEST(AttributeCapacity, HoldsWhatSealWrites) {
  Attributes attributes;
  // Shorter as bits in the index than as decimals in /meta/json, and the other way round.
  attributes.set("long", std::vector<double>(9000, -1.2345678901234567e-300));
  attributes.set("short", std::vector<double>(2000, 1.0));
  const std::uint64_t capacity = attribute_capacity_for(attributes, small_tensors());
  Made made = make_snapshot(small_tensors(), attributes, 1, capacity);
  MemoryFileSystem disk;
  EXPECT_NO_THROW(write(disk, "/a", made));

  made.snapshot->attributes.set("more", std::vector<double>(20000, 0.1));
  try {
    write(disk, "/b", made);
    FAIL();
  } catch (const RefusedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("it needs a new plan"));
  }
}

}}  // namespace holdfast::test
