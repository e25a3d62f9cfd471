// The safetensors format, byte by byte as its own library writes it, and what must not be read.
#include "holdfast/format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>

#include "holdfast/base/error.h"
#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/safetensors_writer.h"
#include "support/fault_file_system.h"
#include "support/memory_file_system.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

// A file of this header, with its length in front and `data` bytes 0, 1, 0, 1, … behind.
std::string file_of(const std::string& header, std::size_t data) {
  std::array<std::byte, 8> length;
  internal::put_little_endian<std::uint64_t>(length, 0, header.size());
  std::string file(reinterpret_cast<const char*>(length.data()), length.size());
  file += header;
  for (std::size_t i = 0; i < data; ++i) file += static_cast<char>(i % 2);
  return file;
}

struct Read {
  std::shared_ptr<Snapshot> snapshot;
  std::map<std::string, std::string> metadata;
  std::string reason;
};

Read read(const std::string& bytes) {
  MemoryFileSystem disk;
  disk.put("/f", bytes);
  const auto file = disk.open_file("/f", OpenMode::read);
  const auto index = read_safetensors_index(*file);
  if (const auto* const rejection = std::get_if<Rejection>(&index)) return {{}, {}, rejection->reason};
  const auto& good = std::get<SafetensorsIndex>(index);
  const auto all = read_safetensors(*file, good);
  if (const auto* const rejection = std::get_if<Rejection>(&all)) return {{}, {}, rejection->reason};
  return {std::get<std::shared_ptr<Snapshot>>(all), good.metadata, ""};
}

// Why a header for `data` bytes is refused; "" when it is not.
std::string refusal(const std::string& header, std::uint64_t data) {
  const auto parsed = parse_safetensors_header(header, data);
  const auto* const rejection = std::get_if<Rejection>(&parsed);
  return rejection == nullptr ? "" : rejection->reason;
}

std::string f32(const std::string& shape, const std::string& offsets) {
  return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::vector<DType> every_dtype() {
  std::vector<DType> all;
  for (int i = 0; i <= static_cast<int>(DType::uint64); ++i) {
    if (static_cast<DType>(i) != DType::complex128) all.push_back(static_cast<DType>(i));
  }
  return all;
}

// Writes tensors with bytes 0, 1, 0, 1, … and returns the file.
std::string written(const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {}) {
  MemoryFileSystem disk;
  const auto file = disk.open_file("/f", OpenMode::create);
  SafetensorsWriter writer(*file, tensors, metadata);
  for (const std::size_t i : writer.order()) {
    for (std::uint64_t done = 0; done < tensors[i].bytes();) {
      const auto piece = writer.next(std::min<std::uint64_t>(tensors[i].bytes() - done, 5u << 20));
      for (std::size_t k = 0; k < piece.size(); ++k) piece[k] = static_cast<std::byte>((done + k) % 2);
      done += piece.size();
    }
  }
  writer.finish();
  EXPECT_EQ(file->size(), writer.file_length());
  return disk.get_text("/f");
}

// As Python's `safetensors` 0.8.0 writes these tensors, to the last blank.
constexpr char kHeaderOfAll[] =
    R"({"__metadata__":{"format":"pt"},)"
    R"("t.U64":{"dtype":"U64","shape":[2,1],"data_offsets":[0,16]},)"
    R"("t.I64":{"dtype":"I64","shape":[2,1],"data_offsets":[16,32]},)"
    R"("empty":{"dtype":"F64","shape":[0,3],"data_offsets":[32,32]},)"
    R"("t.F64":{"dtype":"F64","shape":[2,1],"data_offsets":[32,48]},)"
    R"("t.C64":{"dtype":"C64","shape":[2,1],"data_offsets":[48,64]},)"
    R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[64,68]},)"
    R"("t.F32":{"dtype":"F32","shape":[2,1],"data_offsets":[68,76]},)"
    R"("t.U32":{"dtype":"U32","shape":[2,1],"data_offsets":[76,84]},)"
    R"("t.I32":{"dtype":"I32","shape":[2,1],"data_offsets":[84,92]},)"
    R"("t.BF16":{"dtype":"BF16","shape":[2,1],"data_offsets":[92,96]},)"
    R"("t.F16":{"dtype":"F16","shape":[2,1],"data_offsets":[96,100]},)"
    R"("t.U16":{"dtype":"U16","shape":[2,1],"data_offsets":[100,104]},)"
    R"("t.I16":{"dtype":"I16","shape":[2,1],"data_offsets":[104,108]},)"
    R"("t.F8_E4M3":{"dtype":"F8_E4M3","shape":[2,1],"data_offsets":[108,110]},)"
    R"("t.F8_E5M2":{"dtype":"F8_E5M2","shape":[2,1],"data_offsets":[110,112]},)"
    R"("t.I8":{"dtype":"I8","shape":[2,1],"data_offsets":[112,114]},)"
    "\"q\\\"\\\\\\n\u00e9\\u0001/x\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[114,117]},"
    R"("t.U8":{"dtype":"U8","shape":[2,1],"data_offsets":[117,119]},)"
    R"("t.BOOL":{"dtype":"BOOL","shape":[2,1],"data_offsets":[119,121]}}  )";

std::vector<TensorSpec> tensors_of_all() {
  std::vector<TensorSpec> tensors;
  for (const DType dtype : every_dtype()) {
    tensors.push_back({"t." + std::string(safetensors_name(dtype)), dtype, {2, 1}});
  }
  tensors.push_back({"scalar", DType::float32, {}});
  tensors.push_back({"empty", DType::float64, {0, 3}});
  tensors.push_back({"q\"\\\n\u00e9\u0001/x", DType::uint8, {3}});
  return tensors;
}

TEST(Safetensors, AreWrittenAsTheirOwnLibraryWritesThem) {
  const std::string file = written(tensors_of_all(), {{"format", "pt"}});
  const std::string head = file_of(kHeaderOfAll, 0);
  ASSERT_EQ(file.size(), head.size() + 121);
  EXPECT_EQ(file.substr(0, head.size()), head);
  EXPECT_EQ(written({}), file_of("{}      ", 0));
  EXPECT_EQ(written({{"attn.0", DType::float32, {1, 2, 3}}}),
            file_of(R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})", 24));
}

TEST(Safetensors, EveryTypeComesBack) {
  const auto tensors = tensors_of_all();
  const Read back = read(written(tensors, {{"format", "pt"}, {"note", "é\n"}}));
  ASSERT_EQ(back.reason, "");
  EXPECT_EQ(back.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"note", "é\n"}}));
  ASSERT_EQ(back.snapshot->layout->tensors().size(), tensors.size());
  for (const TensorSpec& tensor : tensors) {
    SCOPED_TRACE(tensor.name);
    const auto at = back.snapshot->layout->find("model/" + tensor.name);
    ASSERT_TRUE(at);
    EXPECT_EQ(back.snapshot->layout->tensors()[*at].dtype, tensor.dtype);
    EXPECT_EQ(back.snapshot->layout->tensors()[*at].shape, tensor.shape);
    const auto bytes = back.snapshot->bytes(*at);
    ASSERT_EQ(bytes.size(), tensor.bytes());
    for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(bytes[i], static_cast<std::byte>(i % 2));
  }
}

TEST(Safetensors, AHandMadeFileGivesItsNumbers) {
  std::string file = file_of(R"({"w" : {"data_offsets":[2,10],"shape":[2],"dtype":"F32"},
                                 "__metadata__":{}, "h":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}   )",
                             0);
  file += std::string("\xc0\x3f", 2) + std::string("\0\0\x80\x3f\0\0\0\xc0", 8);  // 1.5, then 1 and -2
  const Read back = read(file);
  ASSERT_EQ(back.reason, "");
  const auto bits = [&](const char* name, std::size_t at) {
    return internal::get_little_endian<std::uint32_t>(back.snapshot->find(name).value(), at);
  };
  EXPECT_EQ(bits("model/w", 0), std::bit_cast<std::uint32_t>(1.0F));
  EXPECT_EQ(bits("model/w", 4), std::bit_cast<std::uint32_t>(-2.0F));
  EXPECT_EQ(internal::get_little_endian<std::uint16_t>(back.snapshot->find("model/h").value(), 0), 0x3fc0);
}

TEST(Safetensors, TensorsLargerThanABlockComeBack) {
  const std::vector<TensorSpec> tensors = {{"big", DType::uint8, {(16 << 20) + 5}}, {"b", DType::int8, {3}}};
  const Read back = read(written(tensors));
  ASSERT_EQ(back.reason, "");
  const auto bytes = back.snapshot->find("model/big").value();
  ASSERT_EQ(bytes.size(), (16u << 20) + 5);
  bool right = true;
  for (std::size_t i = 0; i < bytes.size(); ++i) right = right && bytes[i] == static_cast<std::byte>(i % 2);
  EXPECT_TRUE(right);
}

TEST(Safetensors, TheFileMayBeOfAnyOtherKind) {
  for (const std::string& bytes : {std::string(), std::string(7, '\0'), std::string(8, '\xff')}) {
    EXPECT_NE(read(bytes).reason, "");
  }
  EXPECT_THAT(read("").reason, HasSubstr("has 0 bytes"));
  EXPECT_THAT(read(std::string(4096, '\xff')).reason, HasSubstr("more than the format allows"));
  EXPECT_THAT(read("HOLDFAST" + std::string(9000, '{')).reason, HasSubstr("more than the format allows"));
  // The length is compared with the file before it becomes memory.
  EXPECT_THAT(read(file_of(R"({"a":1})", 0).replace(0, 8, std::string("\0\xe1\xf5\x05\0\0\0\0", 8))).reason,
              HasSubstr("it would have 100000000 bytes, and the file has 15"));
  const std::string good = file_of(R"({"a":)" + f32("[2]", "[0,8]") + "}", 8);
  EXPECT_EQ(read(good).reason, "");
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(read(good.substr(0, length)).reason, "") << length;
  }
  EXPECT_THAT(read(good + "x").reason, HasSubstr("1 bytes of data behind the last tensor belong to none"));
}

TEST(Safetensors, TheContentTellsWhatAFileIs) {
  MemoryFileSystem disk;
  const auto looks = [&](const std::string& bytes) {
    disk.put("/f", bytes);
    return looks_like_safetensors(*disk.open_file("/f", OpenMode::read));
  };
  EXPECT_TRUE(looks(file_of("{}", 0)));
  EXPECT_TRUE(looks(file_of("{}", 0).substr(0, 9)));  // cut short, and still one
  EXPECT_FALSE(looks(file_of("{}", 0).substr(0, 8)));
  EXPECT_FALSE(looks(""));
  EXPECT_FALSE(looks("HOLDFAST{"));
  EXPECT_FALSE(looks("PK\x03\x04" + std::string(100, '{')));
}

TEST(Safetensors, HeadersThatMeanSomethingElseAreRefused) {
  const std::string a = R"({"a":)";
  const auto expect = [](const std::string& header, std::uint64_t data, const std::string& reason) {
    EXPECT_THAT(refusal(header, data), HasSubstr(reason)) << header;
  };
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_EQ(refusal(a + f32("[2]", "[0,8]") + "}  ", 8), "");
  expect("", 0, "does not begin with '{'");
  expect(" {}", 0, "does not begin with '{'");
  expect("\xef\xbb\xbf{}", 0, "does not begin with '{'");
  expect("[]", 0, "does not begin with '{'");
  expect("{}\n", 0, "does not end with '}'");
  expect(std::string("{}\0", 3), 0, "does not end with '}'");
  expect(std::string("{}\0}", 4), 0, "a NUL");
  expect("{}{}", 0, "not JSON at byte");
  expect(R"({"a":1)" + std::string("}"), 0, "a number at 'a'");
  expect(R"({"a":null})", 0, "a null at 'a'");
  expect(R"({"a":true})", 0, "a truth value at 'a'");
  expect(R"({"a":"x"})", 0, "a text at 'a'");
  expect(R"({"a":[]})", 0, "a list at 'a'");
  expect(R"({"a":{"b":{}}})", 0, "unknown member 'b'");
  expect(R"({"a":{"dtype":{}}})", 0, "an object at 'a'");
  expect("{\"\xff\":1}", 0, "not JSON at byte");
  expect(a + f32("[2]", "[0,8]") + ",}", 8, "not JSON at byte");
  expect(a + R"({"dtype":"F32","shape":[2]}})", 8, "'data_offsets' is missing");
  expect(a + R"({"dtype":"F32","data_offsets":[0,4]}})", 8, "'shape' is missing");
  expect(a + R"({"shape":[2],"data_offsets":[0,4]}})", 8, "'dtype' is missing");
  expect(a + R"({"dtype":"F32","dtype":"F32"}})", 8, "'dtype' appears twice");
  expect(a + R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})", 8, "unknown member 'more'");
  expect(a + R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]}})", 8, "type 'F33' cannot be read");
  expect(a + R"({"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,1]}})", 1, "type 'F6_E2M3' cannot be read");
  expect(a + R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]}})", 8, "type 'f32' cannot be read");
  expect(R"({"__metadata__":{"a":1}})", 0, "a number at 'a'");
  expect(R"({"__metadata__":{"a":{}}})", 0, "an object at 'a'");
  expect(R"({"__metadata__":{"a":"1","a":"1"}})", 0, "'a' appears twice");
  expect(R"({"__metadata__":{},"__metadata__":{}})", 0, "'__metadata__' appears twice");
  expect(R"({"__metadata__":"x"})", 0, "a text at '__metadata__'");
}

TEST(Safetensors, SizesAndPlacesMustAgree) {
  const auto one = [](const std::string& shape, const std::string& offsets, std::uint64_t data) {
    return refusal(R"({"a":)" + f32(shape, offsets) + "}", data);
  };
  EXPECT_EQ(one("[]", "[0,4]", 4), "");
  EXPECT_EQ(one("[0]", "[0,0]", 0), "");
  EXPECT_THAT(one("[2]", "[0,4]", 4), HasSubstr("has 4 bytes, and its type and shape make 8"));
  EXPECT_THAT(one("[2]", "[0]", 8), HasSubstr("not two numbers"));
  EXPECT_THAT(one("[2]", "[]", 8), HasSubstr("not two numbers"));
  EXPECT_THAT(one("[2]", "[0,8,8]", 8), HasSubstr("a third number"));
  EXPECT_THAT(one("[2]", "[8,0]", 8), HasSubstr("ends before it begins"));
  EXPECT_THAT(one("[2]", "[0,16]", 8), HasSubstr("ends at byte 16 of the data, which has 8"));
  EXPECT_THAT(one("[2]", "[4,12]", 12), HasSubstr("leaves a hole before it"));
  EXPECT_THAT(one("[2]", "[0,8]", 12), HasSubstr("4 bytes of data behind the last tensor"));
  EXPECT_THAT(one("[-2]", "[0,8]", 8), HasSubstr("a negative number"));
  EXPECT_THAT(one("[-0]", "[0,0]", 0), HasSubstr("a negative number"));
  EXPECT_THAT(one("[2.0]", "[0,8]", 8), HasSubstr("the number 2.0"));
  EXPECT_THAT(one("[2e0]", "[0,8]", 8), HasSubstr("the number 2e0"));
  EXPECT_THAT(one("[\"2\"]", "[0,8]", 8), HasSubstr("a text"));
  EXPECT_THAT(one("[[2]]", "[0,8]", 8), HasSubstr("a list"));
  EXPECT_THAT(one("[2]", "[0,99999999999999999999]", 8), HasSubstr("the number 9"));
  EXPECT_THAT(one("[2]", "[0,18446744073709551615]", 8), HasSubstr("ends at byte"));
  EXPECT_THAT(one("[9223372036854775808]", "[0,0]", 0), HasSubstr("the dimension 9223372036854775808"));
  // 2^62 elements of 4 bytes are 0 in 64 bits.
  EXPECT_THAT(one("[4611686018427387904]", "[0,0]", 0), HasSubstr("too large"));
  EXPECT_THAT(one("[4294967296,4294967296]", "[0,0]", 0), HasSubstr("too large"));
  EXPECT_THAT(one("[4294967296,4294967296,0]", "[0,0]", 0), HasSubstr("too large"));
  std::string ones = "[1";
  for (int i = 1; i < 32; ++i) ones += ",1";
  EXPECT_EQ(one(ones + "]", "[0,4]", 4), "");
  EXPECT_THAT(one(ones + ",1]", "[0,4]", 4), HasSubstr("a 33rd dimension"));
}

TEST(Safetensors, TensorsTileTheData) {
  const auto two = [](const std::string& first, const std::string& second) {
    return refusal(R"({"a":)" + f32("[2]", first) + R"(,"b":)" + f32("[2]", second) + "}", 16);
  };
  EXPECT_EQ(two("[0,8]", "[8,16]"), "");
  EXPECT_EQ(two("[8,16]", "[0,8]"), "");  // any order in the header
  EXPECT_THAT(two("[0,8]", "[0,8]"), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,8]", "[4,12]"), HasSubstr("overlaps"));
  EXPECT_THAT(two("[0,8]", "[9,17]"), HasSubstr("ends at byte 17"));
  EXPECT_THAT(refusal(R"({"a":)" + f32("[2]", "[0,8]") + R"(,"a":)" + f32("[2]", "[8,16]") + "}", 16),
              HasSubstr("'a' appears twice"));
  // An empty tensor lies between two others, or nowhere.
  const auto with_empty = [](const std::string& at) {
    return refusal(R"({"a":)" + f32("[2]", "[0,8]") + R"(,"e":)" + f32("[0]", at) + "}", 8);
  };
  EXPECT_EQ(with_empty("[0,0]"), "");
  EXPECT_EQ(with_empty("[8,8]"), "");
  EXPECT_THAT(with_empty("[4,4]"), HasSubstr("overlaps"));
  EXPECT_THAT(with_empty("[9,9]"), HasSubstr("ends at byte 9"));
}

TEST(Safetensors, NamesThatWeCannotStoreAreRefusedWithThem) {
  const auto named = [](const std::string& key) {
    return read(file_of("{\"" + key + "\":" + f32("[2]", "[0,8]") + "}", 8)).reason;
  };
  EXPECT_EQ(named("a"), "");
  EXPECT_EQ(named("a/b"), "");
  EXPECT_EQ(named("é"), "");
  EXPECT_THAT(named(""), HasSubstr("is empty"));
  EXPECT_THAT(named("../../etc/passwd"), HasSubstr("'..'"));
  EXPECT_THAT(named("/etc/passwd"), HasSubstr("is empty"));
  EXPECT_THAT(named("a\\u0000b"), HasSubstr("holds a NUL"));
  EXPECT_THAT(named(std::string(10'000, 'x')), HasSubstr("has 10006 bytes"));
  EXPECT_LT(named(std::string(10'000, 'x')).size(), 400u);
  EXPECT_THAT(named("a\\u001b[31m"), testing::Eq(""));  // a name like any other; messages show \x1b
}

TEST(Safetensors, ATruthValueIsNoOrYes) {
  std::string file = file_of(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3);
  EXPECT_EQ(read(file).reason, "");
  file.back() = 2;
  EXPECT_THAT(read(file).reason, HasSubstr("tensor model/a: a truth value is neither 0 nor 1"));
}

TEST(Safetensors, ALargeHeaderIsNoTrouble) {
  std::string header = "{";
  constexpr int kCount = 100'000;
  for (int i = 0; i < kCount; ++i) {
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  }
  EXPECT_EQ(refusal(header + "}", kCount), "");
  EXPECT_THAT(refusal(header + R"(,"0":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", kCount),
              HasSubstr("'0' appears twice"));
  EXPECT_THAT(refusal(std::string(2'000'000, '{') + "}", 0), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(2'000'000, '[') + "}", 0), HasSubstr("a list"));
}

TEST(Safetensors, WhatTheSystemRefusesIsNoVerdict) {
  MemoryFileSystem disk;
  FaultFileSystem faults(disk);
  disk.put("/f", file_of(R"({"a":)" + f32("[2]", "[0,8]") + "}", 8));
  for (int nth = 1; nth <= 3; ++nth) {
    const auto file = faults.open_file("/f", OpenMode::read);
    faults.fail(Op::read, nth, EIO);
    EXPECT_THROW(
        {
          const auto index = read_safetensors_index(*file);
          static_cast<void>(read_safetensors(*file, std::get<SafetensorsIndex>(index)));
        },
        IoError)
        << nth;
    faults.clear_faults();
  }
}

TEST(Safetensors, WhatTheFormatCannotHoldIsNotWritten) {
  EXPECT_THROW(written({{"a", DType::complex128, {1}}}), RefusedError);
  EXPECT_THROW(written({{"__metadata__", DType::uint8, {1}}}), RefusedError);
  EXPECT_THROW(written({{"a", DType::uint8, {1}}, {"a", DType::uint8, {1}}}), RefusedError);
  EXPECT_THROW(written({{"\xff", DType::uint8, {1}}}), RefusedError);
  EXPECT_THROW(written({}, {{"a", "\xff"}}), RefusedError);
}

TEST(Safetensors, AWriterThatGetsTooLittleOrTooMuchSaysSo) {
  MemoryFileSystem disk;
  const auto file = disk.open_file("/f", OpenMode::create);
  const std::vector<TensorSpec> tensors = {{"a", DType::uint8, {4}}};
  SafetensorsWriter writer(*file, tensors);
  EXPECT_EQ(writer.next(3).size(), 3u);
  EXPECT_THROW(static_cast<void>(writer.next(2)), Error);
  EXPECT_THROW(writer.finish(), Error);
}

}}  // namespace holdfast::test
