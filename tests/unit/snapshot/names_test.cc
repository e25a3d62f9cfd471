#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"
#include "holdfast/snapshot/dtype.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { namespace {

using testing::HasSubstr;

TensorSpec spec(std::string name, std::vector<std::int64_t> shape = {2}) {
  return {std::move(name), DType::float32, std::move(shape)};
}

std::string refusal(const std::vector<TensorSpec>& specs) {
  try {
    check_tensor_specs(specs);
  } catch (const RefusedError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(DType, NamesAndNumbersAreFrozen) {
  EXPECT_EQ(static_cast<int>(DType::boolean), 0);
  EXPECT_EQ(static_cast<int>(DType::uint64), 16);
  EXPECT_EQ(name_of(DType::boolean), "bool");
  for (int i = 0; i <= 16; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_named(name_of(dtype)), dtype);
    EXPECT_GE(size_of(dtype), 1u);
  }
  EXPECT_EQ(size_of(DType::complex128), 16u);
  EXPECT_EQ(dtype_named("Float32"), std::nullopt);
  EXPECT_EQ(dtype_named(""), std::nullopt);
  EXPECT_THROW(size_of(static_cast<DType>(17)), Error);
}

TEST(TensorSpec, CountsElementsAndBytes) {
  EXPECT_EQ(spec("a/b", {}).bytes(), 4u);
  EXPECT_EQ(spec("a/b", {64, 3, 7, 7}).elements(), 9408u);
  EXPECT_EQ(spec("a/b", {0, 5}).bytes(), 0u);
  EXPECT_EQ(shape_text(std::vector<std::int64_t>{64, 3}), "[64, 3]");
  EXPECT_EQ(shape_text({}), "[]");
}

TEST(TensorSpec, RefusesSizesThatCannotBe) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refusal({spec("a/b", {-1})}), HasSubstr("negative or too large"));
  EXPECT_THAT(refusal({spec("a/b", {kHuge})}), HasSubstr("'a/b'"));
  EXPECT_THAT(refusal({spec("a/b", {kHuge, kHuge, 0})}), HasSubstr("too large"));
  EXPECT_THAT(refusal({spec("a/b", {1ll << 32, 1ll << 32})}), HasSubstr("too large"));
}

TEST(TensorSpec, RefusesNamesThatAreNoKeys) {
  EXPECT_EQ(refusal({spec("model/layer1.0.conv1.weight"), spec("rng/cpu"), spec("größe/ü")}), "accepted");
  EXPECT_EQ(refusal({spec("a/" + std::string(1022, 'x'))}), "accepted");
  EXPECT_THAT(refusal({spec("a/" + std::string(1023, 'x'))}), HasSubstr("1025 bytes"));
  EXPECT_THAT(refusal({spec("weight")}), HasSubstr("group and a leaf"));
  for (const char* const name : {"", "/", "a/", "/a", "a//b", "./a", "a/..", "../a/b", "a/./b"}) {
    EXPECT_THAT(refusal({spec(name)}), HasSubstr("component")) << name;
  }
  EXPECT_THAT(refusal({spec(std::string("a/b\0c", 5))}), HasSubstr("NUL"));
  EXPECT_THAT(refusal({spec("a/\xff")}), HasSubstr("UTF-8"));
}

TEST(TensorSpec, RefusesDuplicatesAndTensorsThatAreGroups) {
  EXPECT_THAT(refusal({spec("a/b"), spec("c/d"), spec("a/b")}), HasSubstr("two tensors of this name"));
  EXPECT_THAT(refusal({spec("a/b"), spec("a/b.c"), spec("a/b/c")}), HasSubstr("'a/b' is a tensor"));
  EXPECT_EQ(refusal({spec("a/b"), spec("a/b.c"), spec("a/bc/d")}), "accepted");
}

TEST(Utf8, AcceptsWhatRfc3629Does) {
  for (const char* const good :
       {"", "plain", "é", "€", "😀", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "\xee\x80\x80"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const char* const bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3", "\xe2\x82", "\xe2\x28\xa1", "a\xff"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Utf8, PrintableNeverSteersATerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\x7f\xffé"), "a\\x1b[2Jb\\x7f\\xffé");
  EXPECT_EQ(printable("abcdef", 3), "abc…");
  EXPECT_EQ(printable("a\xc2\x9b"
                      "2J\xe2\x80\xae"
                      "b\xd8\x9c"),
            "a\\xc2\\x9b2J\\xe2\\x80\\xaeb\\xd8\\x9c");
  for (const char* steers : {"\xc2\x80", "\xc2\x9f", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xaa",
                             "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9", "\xd8\x9c", "\x1b", "\x7f"}) {
    EXPECT_TRUE(printable(steers).starts_with("\\x")) << printable(steers);
    EXPECT_TRUE(terminal_text(steers).starts_with("\\x")) << printable(steers);
  }
  for (const char* harmless : {"\xc2\xa0", "\xe2\x80\x8d", "\xe2\x80\xaf", "\xe2\x81\xa5", "\xd8\x9d", "é"}) {
    EXPECT_EQ(printable(harmless), harmless);
  }
  EXPECT_EQ(terminal_text("a\n\tb\r\x1b[2J\xff"), "a\n\tb\\x0d\\x1b[2J\\xff");
  EXPECT_TRUE(has_control("a\nb"));
  EXPECT_FALSE(has_control("aé"));
}

}}  // namespace holdfast
