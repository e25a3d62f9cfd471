// Weights that come from elsewhere: another run's checkpoint, a file of safetensors or PyTorch, told apart by content.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "holdfast/format/safetensors.h"
#include "holdfast/format/safetensors_writer.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/format/torch_export.h"
#include "rig.h"

namespace holdfast::test { namespace {

using testing::HasSubstr;

constexpr char kCheckpoint[] = "/vol/run/step-000000000003-a0001.h5";

struct Tensor {
  TensorSpec spec;
  unsigned char fill = 0;
};

void write_weights(FileSystem& disk, const std::string& path, const std::vector<Tensor>& tensors) {
  const auto file = disk.open_file(path, OpenMode::create);
  std::vector<TensorSpec> specs;
  for (const Tensor& tensor : tensors) specs.push_back(tensor.spec);
  SafetensorsWriter writer(*file, specs);
  for (const std::size_t i : writer.order()) {
    const auto bytes = writer.next(specs[i].bytes());
    std::fill(bytes.begin(), bytes.end(), std::byte{tensors[i].fill});
  }
  writer.finish();
}

const std::vector<Tensor> kWeights = {{{"weight", DType::float32, {1000}}, 1},
                                      {{"bias", DType::float64, {7}}, 2},
                                      {{"batches", DType::int64, {1}}, 3}};

// Three steps and a checkpoint; its model as a safetensors file beside it.
void leave_weights(Volume& volume) {
  {
    Attempt first(volume.options());
    first.train_to(3);
    ASSERT_EQ(first.checkpointer.finish(), 0);
  }
  const auto from = volume.disk.open_file(kCheckpoint, OpenMode::read);
  const auto index = std::get<CheckpointIndex>(read_index(*from));
  const auto to = volume.disk.open_file("/vol/weights.safetensors", OpenMode::create);
  ASSERT_FALSE(export_safetensors(*from, index, state_dict_of(index), {{"format", "pt"}}, *to));
  const auto torch = volume.disk.open_file("/vol/weights.pt", OpenMode::create);
  ASSERT_FALSE(export_torch(*from, index, torch_state_dict(index, state_dict_of(index)), *torch));
}

CheckpointerOptions beginning_with(Volume& volume, const std::string& file) {
  CheckpointerOptions options = volume.options();
  options.directory = "/vol/tuned";
  options.start.init_from = file;
  return options;
}

// Why this file is refused; nothing is claimed then.
std::string refusal(Volume& volume, const std::string& file, MemorySource::Options state = {}) {
  MemorySource source(state);
  try {
    Checkpointer(source, beginning_with(volume, file)).resume();
    return "not refused";
  } catch (const RefusedError& error) {
    EXPECT_FALSE(volume.disk.exists("/vol/tuned"));
    return error.what();
  }
}

TEST(InitFrom, ASafetensorsFileGivesTheWeightsThatTheCheckpointGives) {
  Volume volume;
  CapturedLog log;
  leave_weights(volume);
  std::string with_checkpoint;
  {
    CheckpointerOptions options = beginning_with(volume, kCheckpoint);
    options.directory = "/vol/other";
    Attempt tuned(options);
    tuned.train_to(5);
    with_checkpoint = tuned.state();
  }
  Attempt tuned(beginning_with(volume, "/vol/weights.safetensors"));
  EXPECT_TRUE(tuned.resumed.fresh);
  EXPECT_EQ(tuned.source.step(), 0);
  EXPECT_EQ(tuned.source.weight_loads, 1);
  EXPECT_NE(tuned.source.weight(0), MemorySource().weight(0));
  tuned.train_to(5);
  EXPECT_EQ(tuned.state(), with_checkpoint);
  EXPECT_NE(tuned.state(), state_after(5));
  EXPECT_THAT(log.text(),
              HasSubstr("fresh start in /vol/tuned with the weights of /vol/weights.safetensors\n"));
}

TEST(InitFrom, AFileOfPytorchGivesTheWeightsThatTheCheckpointGives) {
  Volume volume;
  CapturedLog log;
  leave_weights(volume);
  std::string states[2];
  for (const bool torch : {false, true}) {
    CheckpointerOptions options = beginning_with(volume, torch ? "/vol/weights.pt" : kCheckpoint);
    options.directory = torch ? "/vol/by_torch" : "/vol/by_checkpoint";
    Attempt tuned(options);
    EXPECT_EQ(tuned.source.weight_loads, 1);
    tuned.train_to(5);
    states[torch ? 1 : 0] = tuned.state();
  }
  EXPECT_EQ(states[0], states[1]);
  EXPECT_NE(states[0], state_after(5));
  auto bytes = volume.disk.get("/vol/weights.pt");
  bytes[bytes.size() / 2] ^= std::byte{1};  // within the largest tensor
  volume.disk.put("/vol/rotten.pt", bytes);
  EXPECT_THAT(refusal(volume, "/vol/rotten.pt"), HasSubstr("its checksum differs"));
}

TEST(InitFrom, OfACheckpointTheIndexAndTheWeightsAloneAreRead) {
  Volume volume;
  CapturedLog log;
  const MemorySource::Options large{.elements = 200'000};
  {
    Attempt first(volume.options(), large);
    first.train_to(3);
    ASSERT_EQ(first.checkpointer.finish(), 0);
  }
  const auto from = volume.disk.open_file(kCheckpoint, OpenMode::read);
  const auto index = std::get<CheckpointIndex>(read_index(*from));
  std::uint64_t allowed = index.user_block + 4096;  // the header's blocks may be looked at once more
  for (const IndexedTensor& tensor : index.tensors) {
    if (tensor.spec.name.starts_with("model/")) allowed += tensor.spec.bytes() + 2 * 4096;
  }
  ASSERT_LT(allowed, index.file_length - 500'000);
  volume.faults.clear_log();
  const Attempt tuned(beginning_with(volume, kCheckpoint), large);
  EXPECT_EQ(tuned.source.weight_loads, 1);
  std::uint64_t bytes = 0;
  for (const Operation& operation : volume.faults.log()) {
    if (operation.kind == Op::read && operation.path == kCheckpoint) bytes += operation.length;
  }
  EXPECT_GT(bytes, 800'000u);
  EXPECT_LE(bytes, allowed);
}

TEST(InitFrom, TheSameCommandLineResumes) {
  Volume volume;
  CapturedLog log;
  write_weights(volume.disk, "/vol/w", kWeights);
  {
    Attempt first(beginning_with(volume, "/vol/w"));
    first.train_to(2);
    EXPECT_EQ(first.checkpointer.finish(), 0);
  }
  Attempt second(beginning_with(volume, "/vol/w"));
  EXPECT_EQ(second.resumed.step, 2);
  EXPECT_EQ(second.source.weight_loads, 0);
}

TEST(InitFrom, TheContentDecidesAndNotTheName) {
  Volume volume;
  CapturedLog log;
  leave_weights(volume);
  volume.disk.put("/vol/a.safetensors", volume.disk.get(kCheckpoint));
  volume.disk.put("/vol/b.h5", volume.disk.get("/vol/weights.safetensors"));
  for (const char* const file : {"/vol/a.safetensors", "/vol/b.h5"}) {
    CheckpointerOptions options = beginning_with(volume, file);
    options.directory = std::string(file) + ".run";
    EXPECT_EQ(Attempt(options).source.weight_loads, 1) << file;
  }
}

TEST(InitFrom, WeightsThatDoNotFitAreRefusedBeforeTheClaim) {
  Volume volume;
  CapturedLog log;
  write_weights(volume.disk, "/vol/few", {kWeights[0], kWeights[1]});
  EXPECT_THAT(refusal(volume, "/vol/few"), HasSubstr("init_from /vol/few: no weights model/batches"));
  write_weights(volume.disk, "/vol/all", kWeights);
  EXPECT_THAT(refusal(volume, "/vol/all", {.elements = 7}), HasSubstr("no weights model/weight"));
  EXPECT_EQ(refusal(volume, "/vol/all"), "not refused");
}

TEST(InitFrom, AFileThatIsNeitherIsNamedWithItsFault) {
  Volume volume;
  CapturedLog log;
  leave_weights(volume);
  const auto whole = volume.disk.get("/vol/weights.safetensors");
  const auto put = [&](auto change) {
    auto bytes = whole;
    change(bytes);
    volume.disk.put("/vol/w", bytes);
    return refusal(volume, "/vol/w");
  };
  EXPECT_THAT(put([](auto& bytes) { bytes.pop_back(); }),
              HasSubstr("init_from /vol/w: safetensors header: tensor 'weight' ends at byte"));
  EXPECT_THAT(put([](auto& bytes) { bytes.resize(40); }), HasSubstr("and the file has 40"));
  EXPECT_THAT(put([](auto& bytes) { bytes[9] = std::byte{'x'}; }), HasSubstr("not JSON at byte"));
  constexpr char kNeither[] =
      "init_from /vol/w: neither a Holdfast checkpoint nor a file of safetensors or PyTorch; ";
  EXPECT_THAT(put([](auto& bytes) { bytes[8] = std::byte{'x'}; }), HasSubstr(kNeither));
  EXPECT_THAT(put([](auto& bytes) { bytes.clear(); }), HasSubstr(kNeither));
  const auto index =
      std::get<CheckpointIndex>(read_index(*volume.disk.open_file(kCheckpoint, OpenMode::read)));
  const auto weight =
      std::find_if(index.tensors.begin(), index.tensors.end(),
                   [](const IndexedTensor& tensor) { return tensor.spec.name == "model/weight"; });
  ASSERT_NE(weight, index.tensors.end());
  EXPECT_THAT(put([&](auto& bytes) {
                bytes = volume.disk.get(kCheckpoint);
                bytes[weight->offset + 11] ^= std::byte{1};
              }),
              testing::AllOf(HasSubstr("init_from /vol/w: "), HasSubstr("digest differs")));
  EXPECT_THAT(refusal(volume, "/vol/nowhere"), HasSubstr("init_from /vol/nowhere: no such file"));
}

TEST(InitFrom, ADiskThatCannotReadIsNoVerdict) {
  Volume volume;
  CapturedLog log;
  write_weights(volume.disk, "/vol/w", kWeights);
  volume.faults.fail(Op::read, 3, EIO);
  MemorySource source;
  EXPECT_THROW(Checkpointer(source, beginning_with(volume, "/vol/w")).resume(), IoError);
  EXPECT_FALSE(volume.disk.exists("/vol/tuned"));
}

// Tied weights: "decoder" is "embedding" under a second name.
class TiedWeights : public testing::Test {
 protected:
  TiedWeights() { now_.set("model.alias.decoder", std::string("model/embedding")); }

  std::shared_ptr<Snapshot> read(const std::vector<Tensor>& tensors) {
    MemoryFileSystem disk;
    write_weights(disk, "/w", tensors);
    const auto weights = read_weights(*disk.open_file("/w", OpenMode::read), now_);
    return std::get<std::shared_ptr<Snapshot>>(weights);
  }
  static std::vector<std::string> names(const Snapshot& snapshot) {
    std::vector<std::string> names;
    for (const TensorSpec& spec : snapshot.layout->tensors()) names.push_back(spec.name);
    return names;
  }
  static Tensor tensor(const char* name, unsigned char fill, std::int64_t size = 4) {
    return {{name, DType::uint8, {size}}, fill};
  }
  static void expect_tied(const Snapshot& snapshot, unsigned char fill) {
    EXPECT_THAT(names(snapshot), testing::ElementsAre("model/embedding", "model/other"));
    EXPECT_EQ(snapshot.attributes.get_string("model.alias.decoder"), "model/embedding");
    EXPECT_EQ(snapshot.find("model/embedding").value()[3], std::byte{fill});
    EXPECT_EQ(snapshot.find("model/other").value()[0], std::byte{9});
  }

  Attributes now_;
};

TEST_F(TiedWeights, MayBeThereTwiceWithTheSameBytes) {
  expect_tied(*read({tensor("embedding", 5), tensor("decoder", 5), tensor("other", 9)}), 5);
}

TEST_F(TiedWeights, MayBeThereUnderEitherName) {
  expect_tied(*read({tensor("embedding", 5), tensor("other", 9)}), 5);
  expect_tied(*read({tensor("decoder", 6), tensor("other", 9)}), 6);
}

TEST_F(TiedWeights, ThatDifferStayTwoTensors) {
  for (const Tensor& decoder : {tensor("decoder", 6), tensor("decoder", 5, 3)}) {
    const auto snapshot = read({tensor("embedding", 5), decoder});
    EXPECT_THAT(names(*snapshot), testing::ElementsAre("model/decoder", "model/embedding"));
    EXPECT_FALSE(snapshot->attributes.has("model.alias.decoder"));
  }
  const auto neither = read({tensor("other", 9)});
  EXPECT_THAT(names(*neither), testing::ElementsAre("model/other"));
  EXPECT_EQ(neither->attributes.size(), 0u);
}

TEST_F(TiedWeights, MayHaveThreeNames) {
  now_.set("model.alias.last", std::string("model/embedding"));
  const auto snapshot = read({tensor("decoder", 5), tensor("last", 5)});
  EXPECT_THAT(names(*snapshot), testing::ElementsAre("model/embedding"));
  EXPECT_EQ(snapshot->attributes.size(), 2u);
}

TEST_F(TiedWeights, AreAllInTheStateDict) {
  CheckpointIndex index;
  for (const char* const name :
       {"model/embedding", "model/other", "models/x", "ema/embedding", "optimizer/m/other"}) {
    index.tensors.push_back({{name, DType::uint8, {4}}, 0, {}});
  }
  now_.set("model.alias.lost", std::string("model/nowhere"));
  now_.set("ema.alias.decoder", std::string("ema/embedding"));
  index.attributes = now_;
  const auto keys = [&](std::string_view module) {
    std::map<std::string, std::size_t> found;
    for (const auto& [key, tensor] : state_dict_of(index, module)) found.emplace(key, tensor);
    return found;
  };
  EXPECT_EQ(keys("model"),
            (std::map<std::string, std::size_t>{{"embedding", 0}, {"other", 1}, {"decoder", 0}}));
  EXPECT_EQ(keys("ema"), (std::map<std::string, std::size_t>{{"embedding", 3}, {"decoder", 3}}));
  EXPECT_TRUE(keys("mod").empty());
}

}}  // namespace holdfast::test
