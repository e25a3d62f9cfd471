// Headers and indexes that nobody would write, with digests in order: refused, never a crash, never a large
// allocation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "holdfast/format/internal/header.h"
#include "holdfast/format/internal/index_json.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

using internal::Header;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kDigest(32, '0');
constexpr std::uint64_t kBlock = 8192;

// A file of `length` bytes whose user block holds this index; bytes beyond it are zero.
std::vector<std::byte> sealed(const std::string& index, std::uint64_t length = 2 * kBlock,
                              std::uint32_t version = 1) {
  std::vector<std::byte> file(length);
  std::memcpy(&file[kIndexOffset], index.data(), index.size());
  const auto block = std::span<const std::byte>(file).subspan(kIndexOffset, kBlock - kIndexOffset);
  internal::write_header(file, {.format_version = version,
                                .file_length = length,
                                .user_block = kBlock,
                                .index_length = index.size(),
                                .index_digest = digest_of(block)});
  return file;
}

std::string index_with(const std::string& tensors, const std::string& stretches,
                       const std::string& attributes = R"({"decides":{},"record":{}})",
                       const std::string& more = "") {
  return R"({"attribute_capacity":2048,"step":1,"tensors":[)" + tensors + R"(],"stretches":[)" + stretches +
         R"(],"attributes":)" + attributes + more + "}";
}

std::string digest_of_zeros(std::uint64_t length) {
  return to_hex(tensor_digest(std::vector<std::byte>(length)));
}

std::string tensor(const std::string& name, std::uint64_t offset, std::int64_t count,
                   const std::string& dtype = "uint8") {
  return R"({"name":")" + name + R"(","dtype":")" + dtype + R"(","shape":[)" + std::to_string(count) +
         R"(],"offset":)" + std::to_string(offset) + R"(,"length":)" + std::to_string(count) +
         R"(,"digest":")" + digest_of_zeros(static_cast<std::uint64_t>(count)) + R"("})";
}

std::string stretch(std::uint64_t offset, std::uint64_t length) {
  return R"({"offset":)" + std::to_string(offset) + R"(,"length":)" + std::to_string(length) +
         R"(,"digest":")" + digest_of_zeros(length > 100000 ? 0 : length) + R"("})";
}

std::string judge_index(const std::string& index, std::uint32_t version = 1) {
  return judge(sealed(index, 2 * kBlock, version));
}

const std::string kWhole = stretch(kBlock, kBlock);

TEST(HostileIndex, TheMouldItselfIsGood) {
  EXPECT_EQ(judge_index(index_with("", kWhole)), "good");
  EXPECT_EQ(judge_index(index_with(tensor("a/b", kBlock, 100), stretch(kBlock + 100, kBlock - 100))), "good");
  EXPECT_EQ(judge_index(index_with(tensor("a/b", 0, 0), kWhole)), "good");
  EXPECT_EQ(judge_index(" " + index_with("", kWhole)), "index: not a JSON object");
}

TEST(HostileIndex, DuplicatesAreRefused) {
  const std::string role = R"({"decides":{"x":1},"record":{"x":2}})";
  EXPECT_THAT(judge_index(index_with("", kWhole, role)), HasSubstr("attribute 'x' appears twice"));
  EXPECT_THAT(judge_index(index_with("", kWhole, R"({"decides":{"x":1,"x":1},"record":{}})")),
              HasSubstr("twice"));
  EXPECT_THAT(judge_index(index_with("", kWhole, R"({"decides":{},"decides":{},"record":{}})")),
              HasSubstr("twice"));
  EXPECT_THAT(judge_index(index_with("", kWhole, R"({"decides":{},"record":{}})", R"(,"step":2)")),
              HasSubstr("'step' appears twice"));
  EXPECT_THAT(judge_index(index_with(tensor("a/b", kBlock, 100) + "," + tensor("a/b", kBlock + 100, 100),
                                     stretch(kBlock + 200, kBlock - 200))),
              HasSubstr("two tensors of this name"));
  EXPECT_THAT(judge_index(index_with(tensor("a/b\",\"name\":\"a/c", kBlock, 1), kWhole)), HasSubstr("twice"));
}

TEST(HostileIndex, TensorsAndStretchesMustTileTheFile) {
  const auto index = [](const std::string& tensors, const std::string& stretches) {
    return judge_index(index_with(tensors, stretches));
  };
  EXPECT_THAT(index("", ""), HasSubstr("not covered"));
  EXPECT_THAT(index("", stretch(kBlock, kBlock - 1)), HasSubstr("not covered"));
  EXPECT_THAT(index("", stretch(kBlock, kBlock + 1)), HasSubstr("passes the end"));
  EXPECT_THAT(index("", stretch(kBlock + 1, kBlock - 1)), HasSubstr("gap"));
  EXPECT_THAT(index("", stretch(0, 2 * kBlock)), HasSubstr("overlaps"));
  EXPECT_THAT(index("", stretch(kBlock, 0) + "," + kWhole), HasSubstr("empty or out of order"));
  EXPECT_THAT(index("", stretch(kBlock + 9, kBlock - 9) + "," + stretch(kBlock, 9)),
              HasSubstr("out of order"));
  EXPECT_THAT(index("", stretch(kBlock, ~0ull)), HasSubstr("passes the end"));
  EXPECT_THAT(index("", stretch(~0ull, 10)), HasSubstr("gap"));
  EXPECT_THAT(index(tensor("a/b", kBlock, 100), kWhole), HasSubstr("overlaps"));
  EXPECT_THAT(index(tensor("a/b", kBlock, 100) + "," + tensor("a/c", kBlock + 50, 100),
                    stretch(kBlock + 150, kBlock - 150)),
              HasSubstr("overlaps"));
  EXPECT_THAT(index(tensor("a/b", 5, 0), kWhole), HasSubstr("has an offset"));
}

TEST(HostileIndex, TensorsMustBePossible) {
  const auto index = [](const std::string& tensors) { return judge_index(index_with(tensors, kWhole)); };
  EXPECT_THAT(index(tensor("a/b", kBlock, 1, "float99")), HasSubstr("unknown dtype"));
  EXPECT_THAT(index(tensor("a/b", kBlock, 1, "float32")), HasSubstr("not its shape's"));
  for (const char* const name : {"a", "", "a/../b", "/a/b", "a//b", "a/b\\u0000", "../../etc/passwd"}) {
    EXPECT_THAT(index(tensor(name, kBlock, 1)), StartsWith("index: tensor '")) << name;
  }
  EXPECT_THAT(index(tensor("meta/json", kBlock, 1)), HasSubstr("/meta"));
  EXPECT_THAT(index(tensor("a/" + std::string(1023, 'x'), kBlock, 1)), HasSubstr("at most 1024"));
  EXPECT_THAT(index(tensor("a/\xff", kBlock, 1)), HasSubstr("not JSON"));
  EXPECT_THAT(index(tensor("a/\\ud800", kBlock, 1)), HasSubstr("not JSON"));
  const auto shaped = [&](const std::string& shape, const std::string& length) {
    return index(R"({"name":"a/b","dtype":"uint8","shape":)" + shape + R"(,"offset":8192,"length":)" +
                 length + R"(,"digest":")" + kDigest + R"("})");
  };
  EXPECT_THAT(index(R"({"name":"a/b","dtype":"uint8","shape":[0],"offset":0,"length":0,"digest":")" +
                    kDigest + R"("})"),
              HasSubstr("(empty): digest differs"));
  EXPECT_THAT(shaped("[-1]", "1"), HasSubstr("negative"));
  EXPECT_THAT(shaped("[9223372036854775807,9223372036854775807]", "1"), HasSubstr("too large"));
  EXPECT_THAT(shaped("[4294967296,4294967296]", "0"), HasSubstr("too large"));
  EXPECT_THAT(shaped("[1.0]", "1"), HasSubstr("number 1.0"));
  EXPECT_THAT(shaped("[1e0]", "1"), HasSubstr("number 1e0"));
  EXPECT_THAT(shaped("[18446744073709551616]", "1"), HasSubstr("number"));
  EXPECT_THAT(shaped("[9223372036854775808]", "1"), HasSubstr("huge"));
  EXPECT_THAT(shaped("[[1]]", "1"), HasSubstr("list"));
  EXPECT_THAT(shaped("1", "1"), HasSubstr("the format allows none"));
  EXPECT_THAT(shaped("[1]", "-1"), HasSubstr("negative"));
  EXPECT_THAT(shaped("[1]", "\"1\""), HasSubstr("a text"));
  std::string deep = "[1";
  for (int i = 0; i < 32; ++i) deep += ",1";
  EXPECT_THAT(shaped(deep + "]", "1"), HasSubstr("32 dimensions"));
}

TEST(HostileIndex, AttributesMustBeOfOneType) {
  const auto value = [](const std::string& text) {
    return judge_index(index_with("", kWhole, R"({"decides":{"x":)" + text + R"(},"record":{}})"));
  };
  for (const char* const good : {"true", "-5", "\"\"", R"({"float":"3ff0000000000000"})",
                                 R"({"integers":[]})", R"({"floats":["7ff8000000000001"]})",
                                 R"({"texts":["a"]})", "9223372036854775807", "-9223372036854775808"}) {
    EXPECT_EQ(value(good), "good") << good;
  }
  for (const char* const bad : {"null",
                                "1.5",
                                "[]",
                                "{}",
                                "NaN",
                                R"({"float":1.5})",
                                R"({"float":"3ff"})",
                                R"({"float":"zzf0000000000000"})",
                                R"({"integers":["1"]})",
                                R"({"integers":[1.5]})",
                                R"({"floats":[1]})",
                                R"({"texts":[1]})",
                                R"({"texts":[[]]})",
                                R"({"integers":[],"texts":[]})",
                                R"({"double":1})",
                                R"({"float":{}})",
                                R"({"integers":{}})",
                                R"({"integers":5})",
                                R"({"texts":true})",
                                "9223372036854775808",
                                "-9223372036854775809",
                                "{\"float\":\"3ff0000000000000\"",
                                "01",
                                "+1",
                                "\"\x01\"",
                                "'x'"}) {
    EXPECT_THAT(value(bad), StartsWith("index: ")) << bad;
  }
  EXPECT_THAT(judge_index(index_with("", kWhole, R"({"decides":{"":1},"record":{}})")),
              HasSubstr("attribute name"));
  EXPECT_THAT(judge_index(index_with("", kWhole, R"({"decides":{"a\nb":1},"record":{}})")),
              StartsWith("index: "));
}

TEST(HostileIndex, MembersMustBeKnownAndComplete) {
  const std::string attributes = R"({"decides":{},"record":{}})";
  EXPECT_THAT(judge_index(index_with("", kWhole, attributes, R"(,"more":1)")),
              HasSubstr("unknown member 'more'"));
  EXPECT_THAT(judge_index("{}"), HasSubstr("missing"));
  EXPECT_THAT(judge_index(""), HasSubstr("not a JSON object"));
  EXPECT_THAT(judge_index("[]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(judge_index(index_with("", kWhole) + "x"), HasSubstr("not JSON"));
  EXPECT_THAT(judge_index(index_with("", kWhole) + "{}"), HasSubstr("not JSON"));
  EXPECT_THAT(judge_index(index_with("", kWhole) + '\0' + R"({"more":1})"), HasSubstr("a NUL"));
  EXPECT_THAT(judge_index(index_with("{}", kWhole)), HasSubstr("missing"));
  EXPECT_THAT(judge_index(index_with("5", kWhole)), HasSubstr("the format allows none"));
  EXPECT_THAT(judge_index(index_with("", "{}")), HasSubstr("missing"));
  EXPECT_THAT(judge_index(R"({"step":[)" + std::string(2000, '[')), StartsWith("index: "));
  for (const char* const capacity : {"0", "1023", "16777217", "18446744073709551615", "-1"}) {
    EXPECT_THAT(judge_index(R"({"attribute_capacity":)" + std::string(capacity) +
                            R"(,"step":1,"tensors":[],"stretches":[)" + kWhole + R"(],"attributes":)" +
                            attributes + "}"),
                StartsWith("index: "))
        << capacity;
  }
}

TEST(HostileIndex, NewerMinorFormatsMayHaveMoreMembers) {
  const std::string attributes = R"({"decides":{},"record":{}})";
  for (const char* const more :
       {"1", "-1", "1.5", "null", "true", "\"x\"", "[]", "{}", R"({"a":[1,{"b":null}],"c":2})"}) {
    EXPECT_EQ(judge_index(index_with("", kWhole, attributes, ",\"more\":" + std::string(more)), 2), "good")
        << more;
  }
  EXPECT_THAT(
      judge_index(
          index_with("", kWhole, attributes, ",\"more\":" + std::string(40, '[') + std::string(40, ']')), 2),
      HasSubstr("deep"));
}

TEST(HostileHeader, NumbersAreCheckedAgainstTheFile) {
  const auto judge_header = [](auto&& change) {
    std::vector<std::byte> file = sealed(index_with("", kWhole));
    Header header = std::get<Header>(internal::read_header(file, file.size()));
    change(header);
    internal::write_header(file, header);
    return judge(file);
  };
  for (const std::uint64_t block :
       {0ull, 1ull, 4096ull, 8193ull, 12288ull, 32768ull, 1ull << 40, 1ull << 63, ~0ull}) {
    EXPECT_THAT(judge_header([&](Header& h) { h.user_block = block; }), HasSubstr("user block")) << block;
  }
  for (const std::uint64_t length : {4097ull, ~0ull}) {
    EXPECT_THAT(judge_header([&](Header& h) { h.index_length = length; }), HasSubstr("an index of"))
        << length;
  }
  EXPECT_THAT(judge_header([](Header& h) { h.index_length -= 1; }), HasSubstr("padding"));
  EXPECT_THAT(judge_header([](Header& h) { h.file_length = ~0ull; }), HasSubstr("fewer"));
  EXPECT_THAT(judge_header([](Header& h) { h.file_length = 0; }), HasSubstr("more"));
  EXPECT_EQ(judge_header([](Header&) {}), "good");
}

TEST(HostileHeader, BytesAfterTheFieldsAreZero) {
  std::vector<std::byte> file = sealed(index_with("", kWhole));
  file[2000] = std::byte{1};
  std::fill_n(file.begin() + kHeaderDigestAt, 16, std::byte{0});
  const Digest digest = digest_of(std::span<const std::byte>(file).first(kHeaderSize));
  std::copy(digest.bytes.begin(), digest.bytes.end(), file.begin() + kHeaderDigestAt);
  EXPECT_THAT(judge(file), HasSubstr("not zero"));
}

TEST(HostileIndex, RandomEditsNeverCrash) {
  const std::string good =
      index_with(tensor("a/b", kBlock, 100), stretch(kBlock + 100, kBlock - 100),
                 R"({"decides":{"x":{"floats":["3ff0000000000000"]}},"record":{"y":[1]}})");
  std::mt19937 random(3);
  const std::string alphabet = R"({}[]",:0123456789-.eE\ntrufalsdigxy/ )";
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 9);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
      }
      if (text.empty()) text = "{";
    }
    // Whether it is accepted does not matter here; what is accepted must be written back the same.
    auto parsed = internal::parse_index(text, round % 2 == 0);
    if (auto* const index = std::get_if<CheckpointIndex>(&parsed)) {
      const auto again = internal::parse_index(internal::index_json(*index), false);
      ASSERT_TRUE(std::holds_alternative<CheckpointIndex>(again)) << text;
    }
  }
}

}}  // namespace holdfast::test
