// Files that PyTorch and LibTorch from 1.13 to 2.15 wrote (tests/golden/torch/make) are read with every value.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "holdfast/format/foreign_weights.h"
#include "holdfast/io/file_system.h"
#include "support/subprocess.h"

namespace holdfast::test { namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

std::string golden(const std::string& name) { return HOLDFAST_SOURCE_DIR "/tests/golden/torch/" + name; }

std::string reason(const std::string& name, const std::string& key = {}) {
  const auto file = FileSystem::real().open_file(golden(name), OpenMode::read);
  const auto index = read_torch_index(*file, key);
  const auto* const rejection = std::get_if<Rejection>(&index);
  return rejection != nullptr ? rejection->reason : "accepted";
}

std::shared_ptr<Snapshot> read(const std::string& name, const std::string& key = {}) {
  const auto file = FileSystem::real().open_file(golden(name), OpenMode::read);
  const auto index = read_foreign_index(*file, key);
  if (const auto* const rejection = std::get_if<Rejection>(&index))
    throw std::runtime_error(rejection->reason);
  auto snapshot = read_foreign(*file, std::get<ForeignIndex>(index), "model");
  if (const auto* const rejection = std::get_if<Rejection>(&snapshot))
    throw std::runtime_error(rejection->reason);
  return std::get<std::shared_ptr<Snapshot>>(snapshot);
}

template <class Value>
std::vector<Value> values(const Snapshot& snapshot, const std::string& key) {
  const auto bytes = snapshot.find("model/" + key).value();
  std::vector<Value> all(bytes.size() / sizeof(Value));
  if (!all.empty()) std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

std::vector<double> as_doubles(const Snapshot& snapshot, const std::string& key) {
  const DType dtype = snapshot.layout->tensors()[*snapshot.layout->find("model/" + key)].dtype;
  std::vector<double> all;
  if (dtype == DType::float32) {
    for (const float value : values<float>(snapshot, key)) all.push_back(static_cast<double>(value));
  } else if (dtype == DType::int64) {
    for (const std::int64_t value : values<std::int64_t>(snapshot, key))
      all.push_back(static_cast<double>(value));
  } else {
    for (const std::uint16_t value : values<std::uint16_t>(snapshot, key)) {  // bfloat16
      all.push_back(static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16U)));
    }
  }
  return all;
}

class OfLibTorch : public testing::TestWithParam<const char*> {
 protected:
  static std::string file(const std::string& name) { return std::string(GetParam()) + "/" + name; }
};

// values.txt: "norm.weight Float 2 : 0x1p+0 0x1p+1", as the program that saved the module printed it.
TEST_P(OfLibTorch, AModuleHasEveryValue) {
  const auto snapshot = read(file("module.pt"));
  std::istringstream lines(read_text(golden(file("values.txt"))));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::string name;
    std::string type;
    words >> name >> type;
    std::vector<std::int64_t> shape;
    std::string word;
    while (words >> word && word != ":") shape.push_back(std::stoll(word));
    std::vector<double> expected;
    while (words >> word) expected.push_back(std::strtod(word.c_str(), nullptr));
    const auto found = snapshot->layout->find("model/" + name);
    ASSERT_TRUE(found) << name;
    const TensorSpec& spec = snapshot->layout->tensors()[*found];
    EXPECT_EQ(spec.shape, shape) << name;
    EXPECT_EQ(spec.dtype, type == "Float" ? DType::float32 : type == "Long" ? DType::int64 : DType::bfloat16);
    EXPECT_EQ(as_doubles(*snapshot, name), expected) << name;
  }
  EXPECT_EQ(count, 10u);
  EXPECT_EQ(snapshot->layout->tensors().size(), count);
}

TEST_P(OfLibTorch, TheDictOfPickleSaveIsReadToo) {
  const auto module = read(file("module.pt"));
  const auto dict = read(file("pickle_save.pt"));
  EXPECT_EQ(dict->layout->tensors().size(), 6u);
  EXPECT_EQ(as_doubles(*dict, "head.weight"), as_doubles(*module, "head.weight"));
}

// "0x55835f41ac40" names a parameter by the memory of the program that is gone; its number remains.
TEST_P(OfLibTorch, AnOptimizerHasEverySlotByTheNumberOfItsParameter) {
  const auto names_of = [](const Snapshot& snapshot) {
    std::vector<std::string> names;
    for (const TensorSpec& spec : snapshot.layout->tensors()) names.push_back(spec.name);
    return names;
  };
  const auto module = read(file("module.pt"));
  const std::vector<std::string> parameters = {"scale",     "conv.weight", "norm.weight",
                                               "norm.bias", "head.weight", "head.bias"};
  const auto adamw = read(file("adamw.pt"));
  const auto sgd = read(file("sgd.pt"));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string state = "model/state." + std::to_string(i) + ".";
    EXPECT_THAT(names_of(*adamw),
                IsSupersetOf({state + "exp_avg", state + "exp_avg_sq", state + "max_exp_avg_sq"}));
    EXPECT_EQ(sgd->find(state + "momentum_buffer").value().size(),
              module->find("model/" + parameters[i]).value().size());
  }
}

TEST_P(OfLibTorch, TensorsAndListsOfTensorsAreRead) {
  EXPECT_EQ(read(file("tensor.pt"))->layout->tensors().size(), 1u);
  EXPECT_EQ(read(file("tensors.pt"))->layout->tensors().size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Versions, OfLibTorch, testing::Values("1.13.1", "2.7.1", "2.11.0", "2.15.0"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

TEST(OfPython, AStateDictAndACheckpointOfATrainerHaveTheSameWeights) {
  const auto plain = read("python-2.11.0/state_dict.pt");
  EXPECT_EQ(plain->layout->tensors().size(), 9u);
  EXPECT_EQ(as_doubles(*plain, "norm.num_batches_tracked"), std::vector<double>{0});
  const auto nested = read("python-2.11.0/checkpoint.pt");
  EXPECT_EQ(nested->layout->tensors(), plain->layout->tensors());
  for (const TensorSpec& spec : plain->layout->tensors()) {
    const std::string key = spec.name.substr(6);
    EXPECT_EQ(as_doubles(*plain, key), as_doubles(*nested, key)) << key;
  }
  EXPECT_EQ(read("python-2.11.0/checkpoint.pt", "optimizer_state_dict.state")->layout->tensors().size(), 18u);
  EXPECT_THAT(reason("python-2.11.0/checkpoint.pt", "ema"),
              HasSubstr("there is no 'ema' in it, but 'epoch', 'model_state_dict', 'optimizer_state_dict'"));
}

TEST(OfPython, ParametersScriptsAndViewsAreRead) {
  EXPECT_EQ(read("python-2.11.0/parameters.pt")->layout->tensors().size(), 6u);
  EXPECT_EQ(read("python-2.11.0/script.pt")->layout->tensors().size(), 9u);
  const auto views = read("python-2.11.0/views.pt");
  const auto floats = [&](const char* key) { return values<float>(*views, key); };
  EXPECT_THAT(floats("column"), ElementsAre(2, 8, 14, 20));
  EXPECT_THAT(floats("rows"), ElementsAre(6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17));
  EXPECT_THAT(floats("one"), ElementsAre(23));
  EXPECT_THAT(floats("expanded"), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(floats("empty"), ElementsAre());
  EXPECT_THAT(values<std::int64_t>(*views, "scalar"), ElementsAre(7));
  const auto transposed = floats("transposed");
  ASSERT_EQ(transposed.size(), 24u);
  EXPECT_EQ(transposed[1], 6.F);
  EXPECT_EQ(transposed[23], 23.F);
  const auto last = floats("last");
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_EQ(last[i], static_cast<float>(i));
}

TEST(OfPython, EveryTypeIsRead) {
  const auto types = read("python-2.11.0/types.pt");
  EXPECT_EQ(types->layout->tensors().size(), 17u);
  for (const TensorSpec& spec : types->layout->tensors()) {
    EXPECT_EQ("model/" + std::string(name_of(spec.dtype)), spec.name);
    EXPECT_EQ(spec.shape, std::vector<std::int64_t>{3});
  }
  EXPECT_THAT(values<std::uint8_t>(*types, "float8_e4m3fn"), ElementsAre(0, 0x38, 0x40));
  EXPECT_THAT(values<std::uint16_t>(*types, "bfloat16"), ElementsAre(0, 0x3f80, 0x4000));
}

// Each of these files is one that torch.load opens with its defaults.
TEST(OfPython, PlainValuesBesideTheWeightsAreReadPast) {
  const auto plain = read("python-2.11.0/state_dict.pt");
  EXPECT_EQ(read("python-2.11.0/plain.pt")->layout->tensors(), plain->layout->tensors());
  EXPECT_THAT(reason("python-2.11.0/plain.pt", "multi_step"), HasSubstr("there are no tensors in it, but"));
}

TEST(OfPython, ParametersAndBuffersWithAttributesAreRead) {
  const auto read_ones = read("python-2.11.0/attributes.pt");
  EXPECT_THAT(values<float>(*read_ones, "parameter"), ElementsAre(1, 1));
  EXPECT_THAT(values<float>(*read_ones, "buffer"), ElementsAre(2, 2));
  EXPECT_THAT(values<float>(*read_ones, "tensor"), ElementsAre(3, 3));
}

TEST(OfPython, TypesOfBytesKeepTheirNames) {
  const auto bytes = read("python-2.11.0/bytes.pt");
  EXPECT_EQ(bytes->layout->tensors().size(), 5u);
  for (const TensorSpec& spec : bytes->layout->tensors()) {
    const std::string key = spec.name.substr(6);
    EXPECT_EQ(spec.dtype, DType::uint8) << key;
    EXPECT_EQ(spec.shape, (std::vector<std::int64_t>{2, 4})) << key;
    EXPECT_THAT(values<std::uint8_t>(*bytes, key), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << key;
    EXPECT_EQ(bytes->attributes.get_string("model.dtype." + key), key);
  }
}

TEST(OfPython, ATensorThatNoCheckpointHoldsIsRefusedOnlyWhereItIsWanted) {
  const std::string file = "python-2.11.0/no_weights.pt";
  EXPECT_EQ(read(file)->layout->tensors(), read("python-2.11.0/state_dict.pt")->layout->tensors());
  for (const auto& [key, remedy] : std::map<std::string, std::string>{
           {"sparse", "a sparse tensor, which no checkpoint holds: save its to_dense()"},
           {"csr", "a sparse tensor"},
           {"quantized", "a quantized tensor, which no checkpoint holds: save its dequantize()"},
           {"channels", "a quantized tensor"},
           {"meta", "a tensor of the device 'meta', which has no values"},
           {"nested", "a nested tensor, which no checkpoint holds: save its unbind()"},
           {"jagged", "a nested tensor"},
           {"half_complex", "complex32, which no checkpoint holds: save it as torch.complex64"},
           {"conj", "save its resolve_conj().resolve_neg()"}}) {
    EXPECT_THAT(reason(file, key), HasSubstr(remedy)) << key;
  }
}

// C++ names a storage by its element type, also where Python has no such class.
TEST(OfLibTorchAlone, PickleSaveOfEveryNewTypeIsRead) {
  const auto types = read("2.11.0/types.pt");
  EXPECT_EQ(types->layout->tensors().size(), 10u);
  const auto type_of = [&](const std::string& key) {
    return types->layout->tensors()[types->layout->find("model/" + key).value()].dtype;
  };
  EXPECT_EQ(type_of("Float8_e4m3fn"), DType::float8_e4m3fn);
  EXPECT_EQ(type_of("Float8_e5m2"), DType::float8_e5m2);
  EXPECT_EQ(type_of("UInt16"), DType::uint16);
  EXPECT_EQ(type_of("UInt64"), DType::uint64);
  EXPECT_THAT(values<std::uint8_t>(*types, "Float8_e5m2"), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  for (const char* const key : {"Float8_e8m0fnu", "Float8_e4m3fnuz", "Float8_e5m2fnuz", "Float4_e2m1fn_x2"}) {
    EXPECT_EQ(type_of(key), DType::uint8);
    std::string name = key;
    name[0] = 'f';
    EXPECT_EQ(types->attributes.get_string("model.dtype." + std::string(key)), name);
  }
}

TEST(OfPython, ClassesAndTheOldFormatAreRefusedByName) {
  EXPECT_THAT(reason("python-2.11.0/own_class.pt"), HasSubstr("it needs __builtin__.print"));
  EXPECT_THAT(reason("python-2.11.0/legacy.pt"), HasSubstr("PyTorch before 1.6"));
}

}}  // namespace holdfast::test
