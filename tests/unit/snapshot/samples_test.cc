// Samples of memory: what changes all of a piece is seen always, what changes part of it sooner or later.
#include "holdfast/snapshot/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Exactly so many bytes: an address sanitizer sees a step beyond. `skew`: past a multiple of 64.
class Memory {
 public:
  explicit Memory(std::size_t bytes, std::size_t skew = 0)
      : all_(new (std::align_val_t{64}) std::byte[skew + bytes]), bytes_(bytes), skew_(skew) {
    for (std::size_t i = 0; i < bytes; ++i) span()[i] = static_cast<std::byte>(i * 7 + 1);
  }
  ~Memory() { operator delete[](all_, std::align_val_t{64}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::span<std::byte> span() const { return {all_ + skew_, bytes_}; }

 private:
  std::byte* all_;
  std::size_t bytes_;
  std::size_t skew_;
};

constexpr std::size_t kSizes[] = {1,   3,   4,    63,    64,    65,    127,   128,     129,    191,    192,
                                  193, 512, 4096, 16383, 16384, 16385, 16700, 1 << 20, 262143, 1000003};

TEST(Samples, AChangeOfAllOfAPieceIsSeen) {
  for (const std::size_t size : kSizes) {
    for (const std::size_t skew : {0, 1, 16, 63}) {
      const Memory memory(size, skew);
      Samples samples;
      samples.add(7, memory.span());
      samples.keep();
      EXPECT_THAT(samples.changed(), IsEmpty()) << size;
      for (std::byte& byte : memory.span()) byte ^= std::byte{0x80};  // signs, in any number format
      EXPECT_THAT(samples.changed(), ElementsAre(7)) << size << " bytes, skew " << skew;
      for (std::byte& byte : memory.span()) byte ^= std::byte{0x80};
      EXPECT_THAT(samples.changed(), IsEmpty()) << size;
    }
  }
}

TEST(Samples, EveryByteOfASmallPieceCounts) {
  for (const std::size_t size : {1, 4, 100, 128}) {
    const Memory memory(size);
    Samples samples;
    samples.add(0, memory.span());
    samples.keep();
    for (std::byte& byte : memory.span()) {
      byte ^= std::byte{1};
      EXPECT_THAT(samples.changed(), ElementsAre(0));
      byte ^= std::byte{1};
    }
  }
}

TEST(Samples, EveryPlaceOfAPieceHasItsTurn) {
  for (const std::size_t size : {4096, 1 << 18}) {
    const Memory memory(size, 16);
    for (std::size_t part = 0; part < 4; ++part) {
      const auto quarter = memory.span().subspan(part * size / 4, size / 4);
      int seen = 0;
      for (int i = 0; i < 400; ++i) {
        Samples samples;
        samples.add(0, memory.span());
        samples.keep();
        for (std::byte& byte : quarter) byte ^= std::byte{1};
        seen += samples.changed().empty() ? 0 : 1;
      }
      EXPECT_GT(seen, 60) << "of 400, part " << part << " of " << size;
      EXPECT_LT(seen, 140) << "of 400, part " << part << " of " << size;
    }
  }
}

TEST(Samples, OwnersInTheirOrderAndOnlyWhatWasKept) {
  const Memory first(100), second(1 << 16), third(1 << 10), late(64);
  Samples samples;
  samples.add(3, first.span());
  samples.add(9, {});
  samples.keep();
  samples.add(1, second.span());
  samples.add(2, third.span());
  samples.keep();
  samples.add(4, late.span());
  for (const Memory* memory : {&first, &third, &late})
    std::memset(memory->span().data(), 0, memory->span().size());
  EXPECT_THAT(samples.changed(), ElementsAre(3, 2));
}

}}  // namespace holdfast::test
