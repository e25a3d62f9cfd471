// Hostile files of PyTorch: cut, changed, overlapping, endless, huge, or with code. Each is refused with a reason.
#include "holdfast/format/torch_archive.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "holdfast/format/internal/little_endian.h"
#include "holdfast/format/internal/pickle/pickle_opcodes.h"
#include "holdfast/format/internal/pickle/pickle_writer.h"
#include "holdfast/format/internal/pickle/unpickler.h"
#include "holdfast/format/internal/zip/zip_writer.h"
#include "support/memory_file_system.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

struct Part {
  std::string name;
  std::string bytes;
};

std::vector<std::byte> archive(const std::vector<Part>& parts) {
  MemoryFileSystem disk;
  const auto file = disk.open_file("/a", OpenMode::create);
  std::vector<internal::NewZipEntry> entries;
  for (const Part& part : parts) entries.push_back({part.name, part.bytes.size()});
  internal::ZipWriter zip(*file, entries);
  for (const Part& part : parts) zip.write(std::as_bytes(std::span(part.bytes)));
  zip.finish();
  return disk.get("/a");
}

std::vector<std::byte> golden() {
  const std::string text = read_text(HOLDFAST_SOURCE_DIR "/tests/golden/torch/python-2.11.0/state_dict.pt");
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

struct ReadArchive {
  std::string reason;  // empty: accepted
  std::shared_ptr<Snapshot> snapshot;
};

ReadArchive read(std::span<const std::byte> bytes) {
  MemoryFileSystem disk;
  disk.put("/a", bytes);
  const auto file = disk.open_file("/a", OpenMode::read);
  const auto index = read_torch_index(*file);
  if (const auto* const rejection = std::get_if<Rejection>(&index)) return {rejection->reason, nullptr};
  auto snapshot = read_torch(*file, std::get<TorchIndex>(index), "model", 1);
  if (const auto* const rejection = std::get_if<Rejection>(&snapshot)) return {rejection->reason, nullptr};
  return {"", std::get<std::shared_ptr<Snapshot>>(snapshot)};
}

std::string refusal(std::span<const std::byte> bytes) {
  const ReadArchive got = read(bytes);
  return got.snapshot ? "accepted" : got.reason;
}

// One float tensor "w" of two elements in storage 0; `shape`, `strides` and `elements` may lie.
std::string tensor_pickle(std::int64_t offset, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides, std::int64_t elements = 2) {
  internal::PickleWriter pickle;
  pickle.begin_dict();
  pickle.text("w");
  std::string text = pickle.finish();
  text.pop_back();
  text += "ctorch._utils\n_rebuild_tensor_v2\n((X\x07";
  text += std::string(3, '\0') + "storagectorch\nFloatStorage\n";
  internal::PickleWriter rest;
  rest.text("0");
  rest.text("cpu");
  rest.integer(elements);
  text += rest.finish().substr(2);
  text.pop_back();
  text += "tQ";
  internal::PickleWriter last;
  last.integer(offset);
  last.begin_tuple();
  for (const std::int64_t value : shape) last.integer(value);
  last.end_tuple();
  last.begin_tuple();
  for (const std::int64_t value : strides) last.integer(value);
  last.end_tuple();
  last.boolean(false);
  text += last.finish().substr(2);
  text.pop_back();
  return text + "ccollections\nOrderedDict\n)RtRu.";
}

std::vector<std::byte> with_pickle(const std::string& pickle,
                                   const std::string& data = std::string(8, '\x3f')) {
  return archive({{"a/data.pkl", pickle}, {"a/data/0", data}, {"a/version", "3\n"}});
}

TEST(TorchArchive, APlainTensorIsRead) {
  const ReadArchive got = read(with_pickle(tensor_pickle(0, {2}, {1})));
  ASSERT_TRUE(got.snapshot) << got.reason;
  EXPECT_EQ(got.snapshot->find("model/w").value().size(), 8u);
}

// As PyTorch saves x.conj() and x.conj().imag: the storage has other values than the tensor.
TEST(TorchArchive, ATensorThatIsOnlyMarkedAsNegatedIsRefused) {
  const auto with_mark = [](const std::string& mark) {
    std::string pickle = tensor_pickle(0, {2}, {1});
    return refusal(with_pickle(pickle.insert(pickle.rfind("tRu."), mark)));
  };
  const auto key = [](const std::string& word) {
    return std::string("X") + static_cast<char>(word.size()) + std::string(3, '\0') + word;
  };
  EXPECT_THAT(with_mark("}" + key("neg") + "\x88s"), HasSubstr("save its resolve_conj().resolve_neg()"));
  EXPECT_THAT(with_mark("}(" + key("conj") + "\x88u"), HasSubstr("save its resolve_conj().resolve_neg()"));
  EXPECT_EQ(with_mark("}"), "accepted");
  EXPECT_EQ(with_mark("N"), "accepted");
}

// A dict of one tensor "w".
std::string dict_of_a_tensor() {
  const std::string pickle = tensor_pickle(0, {2}, {1});
  return pickle.substr(2, pickle.size() - 3);
}
std::string text(const std::string& word) {
  return std::string("X") + static_cast<char>(word.size()) + std::string(3, '\0') + word;
}

TorchIndex index_of(const std::string& pickle) {
  MemoryFileSystem disk;
  disk.put("/a", with_pickle("\x80\x02" + pickle + "."));
  auto index = read_torch_index(*disk.open_file("/a", OpenMode::read));
  if (const auto* const rejection = std::get_if<Rejection>(&index))
    throw std::runtime_error(rejection->reason);
  return std::get<TorchIndex>(std::move(index));
}

std::vector<std::string> names_of(const TorchIndex& index) {
  std::vector<std::string> names;
  for (const auto& tensor : index.tensors) names.push_back(tensor.spec.name);
  return names;
}

TEST(TorchArchive, WeightsInDictsWithinDictsComeBeforeADictThatOnlyHasTensors) {
  const std::string nested = "}(" + text("enc") + dict_of_a_tensor() + text("dec") + dict_of_a_tensor() + "u";
  const TorchIndex index =
      index_of("}(" + text("rng") + dict_of_a_tensor() + text("model") + nested + text("epoch") + "K\x03u");
  EXPECT_THAT(names_of(index), testing::ElementsAre("enc.w", "dec.w"));
  EXPECT_THAT(index.others, testing::ElementsAre("rng", "epoch"));
  // Without a usual name nothing decides, but an optimizer is no candidate.
  EXPECT_THROW(index_of("}(" + text("rng") + dict_of_a_tensor() + text("gen") + nested + "u"),
               std::runtime_error);
  const std::string optimizer =
      "}(" + text("state") + "}(K\x01" + dict_of_a_tensor() + "u" + text("param_groups") + "]u";
  EXPECT_THAT(names_of(index_of("}(" + text("optimizer") + optimizer + text("gen") + nested + "u")),
              testing::ElementsAre("enc.w", "dec.w"));
  EXPECT_THROW(index_of(optimizer), std::runtime_error);
}

// A large dict without tensors, under as many keys: a look at each pair would take minutes.
TEST(TorchArchive, ADictUnderManyKeysIsLookedAtOnce) {
  constexpr int kMany = 200'000;
  std::string pickle = "}(K\x01}q";
  pickle += '\0';
  pickle += '(';
  for (int i = 0; i < kMany; ++i) pickle += "NN";
  pickle += 'u';
  for (int i = 0; i < kMany; ++i) {
    pickle += 'J';
    for (int byte = 0; byte < 4; ++byte) pickle += static_cast<char>(i >> (8 * byte) & 0xFF);
    pickle += 'h';
    pickle += '\0';
  }
  EXPECT_THAT(refusal(with_pickle("\x80\x02" + pickle + "u.")), HasSubstr("no dict of tensors in it"));
}

TEST(TorchArchive, WhatIsNoTensorIsNamed) {
  std::string dict = dict_of_a_tensor();
  dict.pop_back();
  dict += text("_extra_state") + "K\x07" + text("sizes") +
          "](K\x01K\x02"
          "e" +
          text("sub") + "}" + text("n") + "Nsu";
  EXPECT_THAT(index_of(dict).others, testing::ElementsAre("_extra_state", "sizes", "sub.n"));
}

TEST(TorchArchive, AnEmptyTensorOfEndlessShapeIsRefusedAsAValue) {
  constexpr auto kHuge = std::int64_t{1} << 50;
  EXPECT_THAT(refusal(with_pickle(tensor_pickle(0, {0, kHuge, kHuge}, {1, 1, 1}))),
              HasSubstr("negative or too large"));
}

TEST(TorchArchive, CutAtAnyByteItIsRefused) {
  const auto whole = golden();
  ASSERT_TRUE(read(whole).snapshot) << read(whole).reason;
  for (std::size_t size = 0; size < whole.size(); size += size < 200 ? 1 : 13) {
    EXPECT_NE(refusal(std::span(whole).first(size)), "accepted") << size;
  }
  auto longer = whole;
  longer.push_back(std::byte{0});
  EXPECT_THAT(refusal(longer), HasSubstr("something was appended"));
}

// The checksums cover pickle and tensors; other bytes (times, padding) may change nothing.
TEST(TorchArchive, AChangedByteIsRefusedOrChangesNothing) {
  auto bytes = golden();
  const auto right = read(bytes).snapshot;
  ASSERT_TRUE(right);
  int refused = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x41};
    const ReadArchive got = read(bytes);
    bytes[i] ^= std::byte{0x41};
    if (!got.snapshot) {
      EXPECT_NE(got.reason, "") << i;
      ++refused;
      continue;
    }
    ASSERT_EQ(got.snapshot->layout->tensors(), right->layout->tensors()) << i;
    for (std::size_t t = 0; t < right->layout->tensors().size(); ++t) {
      const auto a = got.snapshot->bytes(t);
      const auto b = right->bytes(t);
      ASSERT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << i;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(TorchArchive, TensorsStayWithinTheirStorages) {
  const auto refused = [](std::int64_t offset, const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides, std::int64_t elements = 2) {
    return refusal(with_pickle(tensor_pickle(offset, shape, strides, elements)));
  };
  EXPECT_THAT(refused(1, {2}, {1}), HasSubstr("reaches out of its storage"));
  EXPECT_THAT(refused(0, {3}, {1}), HasSubstr("reaches out of its storage"));
  EXPECT_THAT(refused(0, {2}, {2}), HasSubstr("reaches out of its storage"));
  EXPECT_THAT(refused(0, {2, 2}, {1}), HasSubstr("more sizes than strides"));
  EXPECT_THAT(refused(0, {-1}, {1}), HasSubstr("shape is no size"));
  EXPECT_THAT(refused(0, {std::int64_t{1} << 55, std::int64_t{1} << 55}, {1, 1}), HasSubstr("reaches out"));
  EXPECT_THAT(refused(0, {std::int64_t{1} << 55}, {std::int64_t{1} << 55}),
              HasSubstr("larger than any memory"));
  EXPECT_THAT(refused(0, {std::int64_t{1} << 40}, {0}), HasSubstr("they repeat elements"));
  EXPECT_THAT(refused(0, {std::int64_t{1} << 40, std::int64_t{1} << 40}, {0, 0}),
              HasSubstr("they repeat elements"));
  EXPECT_THAT(refused(0, {3}, {1}, 3), HasSubstr("its storage has another size than its description"));
  EXPECT_THAT(refused(0, std::vector<std::int64_t>(33, 1), std::vector<std::int64_t>(33, 1)),
              HasSubstr("up to 32 sizes"));
  EXPECT_EQ(refused(5, {0}, {1}), "accepted");  // without elements it touches nothing
}

TEST(TorchArchive, EntriesOverlapNothingAndArePlain) {
  const std::string pickle = tensor_pickle(0, {2}, {1});
  const auto twice =
      archive({{"a/data.pkl", pickle}, {"a/data.pkl", pickle}, {"a/data/0", std::string(8, 'x')}});
  EXPECT_THAT(refusal(twice), HasSubstr("two entries are named 'a/data.pkl'"));
  EXPECT_THAT(refusal(archive({{"a/data.pkl", pickle}, {"b/data.pkl", pickle}})),
              HasSubstr("more than one data.pkl"));
  EXPECT_THAT(refusal(archive({{"a/data.pkl", pickle}})), HasSubstr("'a/data/0' is missing"));
  EXPECT_THAT(refusal(archive({{"a/else", pickle}})), HasSubstr("without data.pkl"));
  EXPECT_THAT(refusal(archive({{"a/data.pkl", pickle}, {"a/data/0", "x"}, {"a/byteorder", "big"}})),
              HasSubstr("big-endian"));

  // The directory's entry of a/data/0, changed: its offset, its size, its method, its flags.
  const auto whole = with_pickle(pickle);
  const std::string text(reinterpret_cast<const char*>(whole.data()), whole.size());
  const std::size_t central = text.rfind("a/data/0") - 46;
  const std::size_t extra = central + 46 + 8;
  const auto changed = [&](std::size_t at, auto value) {
    auto bytes = whole;
    internal::put_little_endian(std::span<std::byte>(bytes), at, value);
    return refusal(bytes);
  };
  EXPECT_THAT(changed(extra + 20, std::uint64_t{0}), HasSubstr("overlaps another entry"));
  EXPECT_THAT(changed(extra + 20, std::uint64_t{1} << 60), HasSubstr("lies outside"));
  EXPECT_THAT(changed(extra + 12, std::uint64_t{1} << 60), HasSubstr("stored with another size"));
  EXPECT_THAT(changed(central + 10, std::uint16_t{8}), HasSubstr("is another entry than its directory says"));
  EXPECT_THAT(changed(central + 8, std::uint16_t{1}), HasSubstr("is encrypted"));
  EXPECT_THAT(changed(whole.size() - 22 - 20 - 56 + 32, std::uint64_t{1} << 50), HasSubstr("cannot have"));
}

// 4 GiB of directory in a file of a few blocks.
TEST(TorchArchive, ADirectoryLargerThanAnyArchiveNeedsIsNotRead) {
  const TemporaryFolder folder;
  const std::string path = folder.path() / "sparse.pt";
  constexpr std::uint32_t kSize = 0xFFFFFFF0;
  {
    const auto file = FileSystem::real().open_file(path, OpenMode::create);
    std::array<std::byte, 22> end{};
    internal::put_little_endian(std::span<std::byte>(end), 0, std::uint32_t{0x06054b50});
    internal::put_little_endian(std::span<std::byte>(end), 10, std::uint16_t{3});
    internal::put_little_endian(std::span<std::byte>(end), 12, kSize);
    std::array<std::byte, 4> start{};
    internal::put_little_endian(std::span<std::byte>(start), 0, std::uint32_t{0x04034b50});
    file->write_at(start, 0);
    file->write_at(end, kSize);
  }
  const auto file = FileSystem::real().open_file(path, OpenMode::read);
  const auto index = read_torch_index(*file);
  EXPECT_THAT(std::get<Rejection>(index).reason, HasSubstr("cannot have 3 entries that Holdfast reads"));
}

std::string of(const std::string& pickle) {
  const auto got = internal::unpickle("\x80\x02" + pickle);
  const auto* const rejection = std::get_if<Rejection>(&got);
  return rejection != nullptr ? rejection->reason : "accepted";
}

TEST(Unpickler, RunsNoCode) {
  for (const std::string name : {"os\nsystem", "posix\nsystem", "builtins\neval", "__builtin__\nprint",
                                 "torch\nload", "torch.jit\nload", "numpy.core.multiarray\n_reconstruct"}) {
    std::string shown = name;
    shown.replace(shown.find('\n'), 1, ".");
    EXPECT_THAT(of("c" + name + "\n(X\x02" + std::string(3, '\0') + "lstR."), HasSubstr("it needs " + shown));
  }
  EXPECT_THAT(of("\x93."), HasSubstr("opcode 147"));                                  // STACK_GLOBAL
  EXPECT_THAT(of("(ios\nsystem\n."), HasSubstr("opcode 105"));                        // INST
  EXPECT_THAT(of("(X\x01" + std::string(3, '\0') + "xo."), HasSubstr("opcode 111"));  // OBJ
  EXPECT_THAT(of("ctorch\nFloatStorage\n)R."), HasSubstr("in an unknown way"));
  EXPECT_THAT(of("ctorch\nFloatStorage\n)\x81."), HasSubstr("an object of an unknown class"));
}

// One byte makes an empty list of 48, so the largest pickle could ask for 3 GiB and more.
TEST(Unpickler, RefusesValuesThatNeedMoreThanHalfAGibibyte) {
  const std::string millions(12U << 20U, ']');
  EXPECT_THAT(of("(" + millions + "t."), HasSubstr("more than 512 MiB of memory"));
  // As many values as a state dict of 64 MiB has.
  std::string floats;
  for (int i = 0; i < 3'500'000; ++i) floats += "G" + std::string(8, '\x3f');
  EXPECT_EQ(of("](" + floats + "e."), "accepted");
}

TEST(Unpickler, RefusesWhatIsNotBalanced) {
  for (const char* const pickle : {"",
                                   ".",
                                   "(.",
                                   "K",
                                   "K\x01",
                                   "t.",
                                   "}u.",
                                   "}(K\x01u.",
                                   "NN.",
                                   "a.",
                                   "]N",
                                   "0.",
                                   "h\x01.",
                                   "q\x05.",
                                   "Nq\x07.",
                                   "X\xff\xff\xff\xff.",
                                   "c.",
                                   "cno end",
                                   "R.",
                                   "NR.",
                                   "b.",
                                   "NNb.",
                                   "Q.",
                                   "NQ.",
                                   "N.N",
                                   "(N]e.",
                                   "N(K\x01K\x02u."}) {
    EXPECT_NE(of(pickle), "accepted") << pickle;
  }
  EXPECT_EQ(of("N."), "accepted");
  EXPECT_EQ(of("}(K\x01K\x02u."), "accepted");
  EXPECT_THAT(of("\x80\x04N."), HasSubstr("another protocol than 2"));
}

// What a call returns to a reader of weights is decided by its name alone, so a wrong call gives no other tensor.
TEST(Unpickler, CallsOfKnownNamesCannotShowAnotherTensor) {
  const std::string twice = "ctorch._tensor\n_rebuild_from_type_v2\n";
  for (const std::string& pickle : std::initializer_list<std::string>{
           twice + ")R.",                             // without a function
           twice + "(ctorch\nTensor\nN)tR.",          // which is none
           twice + "(" + twice + "N)tR.",             // which is the same
           twice + "(ctorch\nSize\nN)tR.",            // without an argument
           twice + "(cos\nsystem\nN)tR.",             // of the program
           "ctorch.nn.parameter\nParameter\n)\x81.",  // of nothing
           "ctorch\nFloatTensor\n)R.", "ccollections\nOrderedDict\n(]tR.", "c__builtin__\neval\n.",
           "cbuiltins\ngetattr\n.", "ctorch\nload\n.", "ctorch.storage\n_load_from_bytes\n."}) {
    EXPECT_NE(of(pickle), "accepted") << pickle;
  }
  for (const std::string& pickle : std::initializer_list<std::string>{
           "c__builtin__\nset\n(]tR.", "cbuiltins\ncomplex\n(K\x01K\x02tR.", "ccollections\nCounter\n(}tR.",
           "\x8a\x0a" + std::string(10, '\x7f') + ".", "\x8f.",
           "U\x03"
           "abc.",
           "\x80\x03N."}) {
    EXPECT_EQ(of(pickle), "accepted") << pickle;
  }
}

// A dict may count by numbers, tuples or None; a weight has no such name.
TEST(TorchArchive, KeysThatNameNoWeightAreLeftOut) {
  const std::string weight = dict_of_a_tensor();  // {"w": tensor}
  const TorchIndex left = index_of("}(" + text("model") + weight + text("seen") + "}(NK\x01" + "NK\x02uu");
  EXPECT_EQ(left.tensors.size(), 1u);
  const TorchIndex beside = index_of("}(" + text("a") + weight + text("seen") + "}(NK\x01uu");
  EXPECT_EQ(beside.tensors.size(), 1u);
  EXPECT_THAT(refusal(with_pickle("\x80\x02}(" + text("model") + "}(" + text("v") + weight + text("x") +
                                  "}(N" + weight + "uuu.")),
              HasSubstr("a tensor in 'x' has a key that is neither a text nor a number"));
}

// Pickle writes each of these in a byte or two, and shares one value.
TEST(TorchArchive, ALongListOfTruthValuesIsRead) {
  for (const std::string value : {"\x88", "N", ")"}) {
    std::string flags = "](";
    for (int i = 0; i < 500; ++i) flags += value;
    const TorchIndex index =
        index_of("}(" + text("model") + dict_of_a_tensor() + text("flags") + flags + "eu");
    EXPECT_EQ(index.tensors.size(), 1u);
  }
}

// A list in itself; a dict of ten dicts of ten dicts …, written once each.
TEST(TorchArchive, EndlessValuesAreRefused) {
  EXPECT_NE(
      refusal(with_pickle(std::string("\x80\x02]q", 4) + std::string("\0h", 2) + std::string("\0a.", 3))),
      "accepted");
  std::string laughs = "\x80\x02}q";
  laughs += '\0';
  for (char level = 1; level < 30; ++level) {
    laughs += "}q";
    laughs += level;
    laughs += '(';
    for (int i = 0; i < 10; ++i) {
      laughs += 'K';
      laughs += static_cast<char>(i);
      laughs += 'h';
      laughs += static_cast<char>(level - 1);
    }
    laughs += 'u';
  }
  laughs = laughs.substr(0, 2) + "(" + laughs.substr(2) + "t.";
  EXPECT_NE(refusal(with_pickle(laughs)), "accepted");
}

TEST(Unpickler, OneDescriptionCannotBecomeManyTensors) {
  std::string pickle = tensor_pickle(0, {2}, {1}).substr(2);
  // Keep the function and its arguments, and call again and again.
  const std::size_t call = pickle.rfind("tRu.");
  const std::size_t function = pickle.find("ctorch._utils");
  std::string many = "(" + pickle.substr(function, pickle.find("((") - function) + "q";
  many += '\0';
  many += pickle.substr(pickle.find("(("), call - pickle.find("((")) + "tq";
  many += '\1';
  for (int i = 0; i < 10'000; ++i) many += std::string("h\0h\1R", 5);
  EXPECT_THAT(of(many + "t."), HasSubstr("more tensors than it describes"));
}

}}  // namespace holdfast::test
