// An image that one process has read, in the hands of others: who may have it, who is refused, and why.
#include "holdfast/ranks/shared_image.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/shared_arena.h"

namespace holdfast::test { namespace {

using internal::map_image;
using internal::OfferedImage;
using internal::place_of;
using internal::plan_reading;
using internal::ReadingPlan;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kBytes = (5u << 20) + 123;

std::shared_ptr<Arena> filled_image() {
  auto arena = make_shared_arena(kBytes);
  std::uint8_t next = 1;
  for (std::byte& byte : arena->bytes()) byte = std::byte{next++};
  return arena;
}

bool equal(const Arena& one, const Arena& other) {
  return one.size() == other.size() &&
         std::memcmp(one.padded().data(), other.padded().data(), one.capacity()) == 0;
}

// What a child process returns; −1 if it was killed.
int in_child(const std::function<int()>& work) {
  const pid_t child = fork();
  if (child == 0) _exit(work());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SharedImage, HasTheBytesOfTheOneThatWasRead) {
  const auto arena = filled_image();
  ASSERT_TRUE(is_shared(arena)) << shared_memory_of(arena)->why_not;
  const auto mapped = map_image(place_of(arena), kBytes);
  ASSERT_NE(mapped.image, nullptr) << mapped.why_not;
  EXPECT_TRUE(equal(*mapped.image, *arena));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapped.image->bytes().data()) % (2u << 20), 0U);
}

TEST(SharedImage, IsTheSameMemoryUntilItIsWrittenTo) {
  const auto arena = filled_image();
  const auto mapped = map_image(place_of(arena), kBytes);
  ASSERT_NE(mapped.image, nullptr) << mapped.why_not;
  arena->bytes()[4096] = std::byte{99};
  EXPECT_EQ(mapped.image->bytes()[4096], std::byte{99}) << "a copy was made";
  mapped.image->bytes()[4096] = std::byte{7};
  EXPECT_EQ(arena->bytes()[4096], std::byte{99}) << "another rank's image was changed";
}

TEST(SharedImage, IsFoundByAnotherProcessThatOnlyHasItsText) {
  const auto arena = filled_image();
  const std::string text = nlohmann::json(place_of(arena)).dump();
  EXPECT_EQ(in_child([&] {
              // The mapping that fork() has copied proves nothing.
              munmap(arena->bytes().data(), arena->capacity());
              const auto mapped = map_image(nlohmann::json::parse(text).get<OfferedImage>(), kBytes);
              if (!mapped.image) return 1;
              std::uint8_t next = 1;
              const auto bytes = mapped.image->bytes();
              return std::all_of(bytes.begin(), bytes.end(),
                                 [&](std::byte byte) { return byte == std::byte{next++}; })
                         ? 0
                         : 2;
            }),
            0);
}

TEST(SharedImage, LastsAsLongAsOneHasIt) {
  auto arena = filled_image();
  const OfferedImage place = place_of(arena);
  const auto mapped = map_image(place, kBytes);
  ASSERT_NE(mapped.image, nullptr) << mapped.why_not;
  arena.reset();
  EXPECT_EQ(mapped.image->bytes().front(), std::byte{1});
  EXPECT_THAT(map_image(place, kBytes).why_not, HasSubstr("/proc/")) << "its name must die with it";
}

TEST(SharedImage, OfAProcessThatHasEndedIsGone) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  in_child([&] {
    const auto arena = filled_image();
    const std::string text = nlohmann::json(place_of(arena)).dump();
    return write(pipes[1], text.data(), text.size()) < 0 ? 1 : 0;
  });
  std::string text(1000, ' ');
  const ssize_t count = read(pipes[0], text.data(), text.size());
  ASSERT_GT(count, 0);
  text.resize(static_cast<std::size_t>(count));
  const auto mapped = map_image(nlohmann::json::parse(text).get<OfferedImage>(), kBytes);
  EXPECT_EQ(mapped.image, nullptr);
  EXPECT_THAT(mapped.why_not, HasSubstr("does not run"));
  close(pipes[0]);
  close(pipes[1]);
}

// A container has other numbers for the same processes.
TEST(SharedImage, OfAnotherPidNamespaceOrAnotherLifeOfThatNumberIsNotTaken) {
  const auto arena = filled_image();
  OfferedImage elsewhere = place_of(arena);
  ++elsewhere.process.pid_namespace;
  EXPECT_THAT(map_image(elsewhere, kBytes).why_not, HasSubstr("does not run"));
  OfferedImage earlier = place_of(arena);
  --earlier.process.started;
  EXPECT_THAT(map_image(earlier, kBytes).why_not, HasSubstr("does not run"));
}

TEST(SharedImage, IsNotMistakenForAnotherFileUnderItsNumber) {
  const auto arena = filled_image();
  OfferedImage place = place_of(arena);
  EXPECT_THAT(map_image(place, 2 * kBytes).why_not, HasSubstr("another file")) << "it is shorter";
  const auto second = filled_image();
  place.descriptor = place_of(second).descriptor;
  EXPECT_THAT(map_image(place, kBytes).why_not, HasSubstr("another file"));
}

TEST(SharedImage, OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto arena = filled_image();
  const OfferedImage place = place_of(arena);
  EXPECT_EQ(in_child([&] {
              if (setgid(65534) != 0 || setuid(65534) != 0) return 3;
              const auto mapped = map_image(place, kBytes);
              if (mapped.image) return 1;
              return mapped.why_not.find("/proc/") != std::string::npos ? 0 : 2;
            }),
            0);
}

TEST(SharedImage, CannotBeCutOffByAnybody) {
  const auto arena = filled_image();
  EXPECT_NE(ftruncate(shared_memory_of(arena)->descriptor, 4096), 0);
  EXPECT_EQ(arena->bytes().back(), map_image(place_of(arena), kBytes).image->bytes().back());
}

// The kernel would end the process by SIGXFSZ.
TEST(SharedImage, BeyondTheLimitOfFileSizesIsMemoryOfItsOwn) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{kBytes / 2, kBytes / 2};
              if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 3;
              const auto arena = filled_image();
              if (is_shared(arena)) return 1;
              return map_image(place_of(arena), kBytes).why_not.find("ulimit -f") != std::string::npos ? 0
                                                                                                       : 2;
            }),
            0);
}

TEST(SharedImage, WithoutADescriptorIsMemoryOfItsOwn) {
  EXPECT_EQ(in_child([] {
              const rlimit limit{3, 3};
              if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 3;
              const auto arena = filled_image();
              if (is_shared(arena)) return 1;
              return place_of(arena).why_not.empty() ? 2 : 0;
            }),
            0);
}

TEST(SharedImage, OfAnOrdinaryArenaThereIsNone) {
  const auto arena = std::make_shared<Arena>(kBytes);
  EXPECT_FALSE(is_shared(arena));
  EXPECT_THAT(map_image(place_of(arena), kBytes).why_not, HasSubstr("there is none"));
  EXPECT_THAT(place_of(nullptr).why_not, HasSubstr("there is none"));
  EXPECT_FALSE(is_shared(make_shared_arena(0)));
}

TEST(SharedImage, ATextThatIsNoneIsNoImage) {
  for (const char* const text : {"{}", "[]", "7", "null", R"({"why_not":"", "pid":1})"}) {
    const auto place = nlohmann::json::parse(text).get<OfferedImage>();
    const auto mapped = map_image(place, kBytes);
    EXPECT_EQ(mapped.image, nullptr) << text;
    EXPECT_NE(mapped.why_not, "") << text;
  }
}

TEST(Host, IsTheSameForProcessesThatMayShareMemory) {
  const std::string host = internal::own_host();
  EXPECT_EQ(host, internal::own_host());
  EXPECT_TRUE(internal::same_machine(host, host + "0"));
  EXPECT_FALSE(internal::same_machine(host, "x" + host));
  EXPECT_FALSE(internal::same_machine(" 1 0", " 1 0")) << "an unknown machine is nobody's";
}

constexpr int kSent = ReadingPlan::kSent;

TEST(ReadingPlan, OneHostTakesRankZerosImage) {
  const ReadingPlan plan = plan_reading({0, 0, 0}, {true, true, true}, true);
  EXPECT_THAT(plan.from, ElementsAre(0, 0, 0));
  EXPECT_FALSE(plan.sends());
  EXPECT_TRUE(plan.offers(0));
  EXPECT_FALSE(plan.offers(1));
  // Even a rank without the volume.
  EXPECT_THAT(plan_reading({0, 0, 0}, {}, true).from, ElementsAre(0, 0, 0));
}

TEST(ReadingPlan, OneRankOfEachOtherHostReads) {
  const ReadingPlan plan = plan_reading({0, 0, 2, 2, 2}, {true, true, true, true, true}, true);
  EXPECT_THAT(plan.from, ElementsAre(0, 0, 2, 2, 2));
  EXPECT_TRUE(plan.offers(2));
  EXPECT_FALSE(plan.offers(3));
}

TEST(ReadingPlan, TheFirstThatSeesReadsAndWhoDoesNotSeeReceives) {
  const ReadingPlan plan = plan_reading({0, 1, 1, 1, 4, 4}, {true, false, true, true, false, false}, true);
  EXPECT_THAT(plan.from, ElementsAre(0, kSent, 2, 2, kSent, kSent));
  EXPECT_TRUE(plan.sends());
}

TEST(ReadingPlan, WithoutRankZerosImageAnotherRankOfItsHostReads) {
  EXPECT_THAT(plan_reading({0, 0, 0}, {true, true, true}, false).from, ElementsAre(0, 1, 1));
  EXPECT_THAT(plan_reading({0, 0, 0}, {}, false).from, ElementsAre(0, kSent, kSent));
}

TEST(ReadingPlan, WhoCannotShareReadsItself) {
  EXPECT_THAT(plan_reading({0, 1, 2}, {true, true, true}, true).from, ElementsAre(0, 1, 2));
}

}}  // namespace holdfast::test
