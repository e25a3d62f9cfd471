// Exports opened by the libraries that they are for: torch, safetensors, h5py, h5dump, unzip.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "holdfast/store/names.h"
#include "support/foreign_python.h"
#include "support/nightly.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kReader[] = HOLDFAST_SOURCE_DIR "/tests/cli/interop/read_export.py";

// A tensor of every type that there is, a scalar, an empty one, one above a digest's piece, and a tied one.
std::vector<TensorSpec> every_type() {
  std::vector<TensorSpec> specs = {{"model/scalar", DType::float32, {}},
                                   {"model/none", DType::float32, {0, 7}},
                                   {"model/large", DType::float32, {3, 1'000'000}},
                                   {"ema/large", DType::float32, {3, 1'000'000}},
                                   {"rng/cpu", DType::uint8, {33}}};
  for (int i = 1; i <= static_cast<int>(DType::uint64); ++i) {  // without bool, whose bytes are 0 and 1
    const auto dtype = static_cast<DType>(i);
    specs.push_back({"model/" + std::string(name_of(dtype)), dtype, {2, 3}});
  }
  return specs;
}

class Interop : public testing::Test {
 protected:
  void make(const std::vector<TensorSpec>& specs) {
    Attributes attributes = small_attributes();
    attributes.set("model.alias.tied", std::string("model/large"));
    attributes.set("run.attempt", std::int64_t{1}, Role::record);
    made_ = make_snapshot(specs, attributes, 1200);
    write(FileSystem::real(), checkpoint(), made_);
  }
  std::string path(const std::string& name) const { return folder_.path() / name; }
  std::string checkpoint() const { return path(checkpoint_name({1, 1200})); }
  Ended exported(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {HOLDFAST_BIN_DIR "/holdfast", "export", checkpoint(), "--to"});
    return Subprocess(std::move(arguments)).wait();
  }
  // What `python` must print of a state dict with these keys.
  static std::string read_by(const ForeignPython& python, const std::string& kind, const std::string& file) {
    const Ended ended = python.run({kReader, kind, file});
    EXPECT_EQ(ended.exit_code, 0) << python.versions() << ended.err;
    return ended.out;
  }
  // The same lines, made by Python from the bytes of the snapshot: `name dtype shape hex`.
  std::string expected(const ForeignPython& python, const std::string& part = "model") const {
    std::string given;
    const auto& tensors = made_.snapshot->layout->tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!tensors[i].name.starts_with(part + "/")) continue;
      std::vector<std::string> keys = {tensors[i].name.substr(part.size() + 1)};
      if (keys[0] == "large") keys.emplace_back("tied");
      const std::string raw = path("raw" + std::to_string(i));
      const auto bytes = made_.snapshot->bytes(i);
      std::ofstream(raw, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      for (const std::string& key : keys) {
        given += key + "|" + std::string(name_of(tensors[i].dtype)) + "|" + shape_text(tensors[i].shape) +
                 "|" + raw + "\n";
      }
    }
    write_text(path("given"), given);
    const Ended ended =
        python.run({"-c",
                    "import sys, hashlib\nlines = [l.rstrip('\\n').split('|') for l in open(sys.argv[1])]\n"
                    "print('\\n'.join(sorted(f'{k} {t} {s} {hashlib.md5(open(r, "
                    "\"rb\").read()).hexdigest()}' for k, t, s, r in lines)))",
                    path("given")});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended.out;
  }

  TemporaryFolder folder_;
  Made made_;
};

TEST_F(Interop, TorchLoadsEveryTypeWithWeightsOnlyAndMapped) {
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  make(every_type());
  const Ended ended = exported({path("w.pt")});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const std::string right = expected(python);
  EXPECT_THAT(right, HasSubstr("float8_e4m3fn"));
  EXPECT_EQ(read_by(python, "pt", path("w.pt")), right) << python.versions();
  EXPECT_EQ(read_by(python, "pt-mmap", path("w.pt")), right) << python.versions();
  // One memory for both names, at a place that mmap can use.
  const Ended shared = python.run({"-c",
                                   "import torch, sys\nd = torch.load(sys.argv[1], mmap=True)\n"
                                   "assert d['large'].data_ptr() == d['tied'].data_ptr()\n"
                                   "assert all(t.data_ptr() % 64 == 0 for t in d.values())",
                                   path("w.pt")});
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
}

TEST_F(Interop, TorchLoadsAsBfloat16AndAveraged) {
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  make(every_type());
  ASSERT_EQ(exported({path("w.pt")}).exit_code, 0);
  ASSERT_EQ(exported({path("h.pt"), "--dtype", "bf16"}).exit_code, 0);
  const Ended converted = python.run({"-c", R"(
import sys, torch
full, half = (torch.load(path) for path in sys.argv[1:])
assert list(full) == list(half)
for key, tensor in full.items():
    wide = tensor.dtype in (torch.float16, torch.float32, torch.float64)
    assert half[key].dtype == (torch.bfloat16 if wide else tensor.dtype), key
    right = tensor.to(half[key].dtype)
    same = right.isnan() & half[key].isnan() if wide else torch.zeros(right.shape, dtype=torch.bool)
    equal = right.reshape(-1).view(torch.uint8).reshape(*right.shape, -1) == half[key].reshape(-1).view(torch.uint8).reshape(*right.shape, -1) if right.numel() else torch.ones(1, dtype=torch.bool)
    assert (equal.all(-1) | same).all() if right.numel() else True, key
)",
                                      path("w.pt"), path("h.pt")});
  EXPECT_EQ(converted.exit_code, 0) << converted.err;
  ASSERT_EQ(exported({path("e.pt"), "--ema", "ema"}).exit_code, 0);
  EXPECT_EQ(read_by(python, "pt", path("e.pt")), expected(python, "ema"));
}

TEST_F(Interop, UnzipFindsTheArchiveClean) {
  if (!fs::exists("/usr/bin/unzip")) GTEST_SKIP() << "no unzip here";
  make(every_type());
  ASSERT_EQ(exported({path("w.pt")}).exit_code, 0);
  const Ended ended = Subprocess({"/usr/bin/unzip", "-t", path("w.pt")}).wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("No errors detected"));
}

TEST_F(Interop, SafetensorsReadsShardsAndTheirIndex) {
  const ForeignPython python("torch, safetensors");
  if (!python) GTEST_SKIP() << python.why_not();
  make({{"model/large", DType::float32, {1'000'000}},
        {"model/a", DType::float32, {300'000}},
        {"model/b", DType::float16, {300'000}},
        {"model/c", DType::float32, {2}}});
  const Ended ended = exported({path("w.safetensors"), "--shard", "1MB"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("w.safetensors.index.json: 5 tensors of 'model' at step 1,200"));
  EXPECT_THAT(ended.out, HasSubstr("in 4 shards\n"));
  EXPECT_TRUE(fs::exists(path("w-00004-of-00004.safetensors")));
  EXPECT_FALSE(fs::exists(path("w.safetensors")));
  EXPECT_EQ(read_by(python, "sharded", path("w.safetensors.index.json")), expected(python))
      << python.versions();
  // What fits into one is one.
  ASSERT_EQ(exported({path("one.safetensors"), "--shard", "1GB"}).exit_code, 0);
  EXPECT_EQ(read_by(python, "safetensors", path("one.safetensors")), expected(python));
}

// A new export over an old one, which fails between two shards. The old index would name shards of both.
TEST_F(Interop, NoIndexNamesShardsOfTwoExports) {
  const std::vector<std::string> strace = {"/usr/bin/env", "strace", "-f", "-o", "/dev/null"};
  std::vector<std::string> probe = strace;
  probe.emplace_back("true");
  if (Subprocess(probe).wait().exit_code != 0) GTEST_SKIP() << "strace is missing, or may not trace here";
  make({{"model/a", DType::float32, {300'000}}, {"model/b", DType::float32, {300'000}}});
  const std::vector<std::string> arguments = {path("w.safetensors"), "--shard", "1MB", "--force"};
  ASSERT_EQ(exported(arguments).exit_code, 0);
  ASSERT_TRUE(fs::exists(path("w.safetensors.index.json")));
  std::vector<std::string> command = strace;
  command.insert(command.end(), {"-e", "inject=renameat:error=EIO:when=2", HOLDFAST_BIN_DIR "/holdfast",
                                 "export", checkpoint(), "--to"});
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Ended failed = Subprocess(command).wait();
  EXPECT_NE(failed.exit_code, 0);
  EXPECT_THAT(failed.err, HasSubstr("rename"));
  EXPECT_FALSE(fs::exists(path("w.safetensors.index.json")));
  EXPECT_EQ(exported(arguments).exit_code, 0);
  EXPECT_TRUE(fs::exists(path("w.safetensors.index.json")));
}

TEST_F(Interop, H5pyAndH5dumpReadAFileWithoutUserBlock) {
  make({{"model/large", DType::float32, {3, 1'000'000}},
        {"model/a.weight", DType::float32, {2, 3}},
        {"model/count", DType::int64, {}},
        {"model/none", DType::float32, {0, 2}}});
  const Ended ended = exported({path("w.h5")});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read_text(path("w.h5")).substr(1, 3), "HDF");
  const ForeignPython python("h5py");
  if (!python) GTEST_SKIP() << python.why_not();
  EXPECT_EQ(read_by(python, "h5", path("w.h5")), expected(python)) << python.versions();
  const Ended attributes = python.run(
      {"-c", "import h5py, sys; f = h5py.File(sys.argv[1]); print(f.attrs['step'], f['meta/step'][()])",
       path("w.h5")});
  EXPECT_EQ(attributes.out, "1200 1200\n") << attributes.err;
  if (!fs::exists("/usr/bin/h5dump")) GTEST_SKIP() << "no h5dump here";
  const Ended dumped = Subprocess({"/usr/bin/h5dump", "-d", "/model/a.weight", path("w.h5")}).wait();
  EXPECT_EQ(dumped.exit_code, 0) << dumped.err;
  EXPECT_THAT(dumped.out, HasSubstr("DATASPACE  SIMPLE { ( 2, 3 ) / ( 2, 3 ) }"));
}

// The block of docs/interop.md that begins with this line.
std::string recipe(const std::string& first_line) {
  const std::string page = read_text(HOLDFAST_SOURCE_DIR "/docs/interop.md");
  const std::size_t line = page.find(first_line);
  if (line == std::string::npos) return "raise SystemExit('the page has no such block')";
  const std::size_t begin = page.rfind("```py\n", line) + 6;
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST_F(Interop, TheRecipeForH5pyReadsTheStateDict) {
  const ForeignPython python("torch, h5py");
  if (!python) GTEST_SKIP() << python.why_not();
  make({{"model/0.weight", DType::float32, {3, 2}},
        {"model/0.bias", DType::float32, {3}},
        {"model/count", DType::int64, {}},
        {"model/small", DType::float8_e4m3fn, {4}},
        {"model/half", DType::bfloat16, {4}}});
  write_text(
      path("model.py"),
      "import os, sys\nos.chdir(sys.argv[1])\nclass Model:\n"
      "  def load_state_dict(self, weights):\n"
      "    for name, tensor in sorted(weights.items()): print(name, tensor.dtype, list(tensor.shape))\n"
      "model = Model()\n" +
          recipe("def load_holdfast(path):"));
  const Ended ended = python.run({path("model.py"), folder_.path()});
  EXPECT_EQ(ended.exit_code, 0) << python.versions() << ended.err;
  EXPECT_EQ(ended.out,
            "0.bias torch.float32 [3]\n0.weight torch.float32 [3, 2]\ncount torch.int64 []\n"
            "half torch.float32 [4]\nsmall torch.float8_e4m3fn [4]\n");
}

// Trained state as PyTorch's trainers save it, loaded by an optimizer and a module of Python.
TEST_F(Interop, TheWholeStateLoadsIntoAModuleAndAnOptimizerOfPython) {
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  Attributes attributes;
  attributes.set("step", std::int64_t{3});
  attributes.set("cursor.epoch", std::int64_t{2});
  attributes.set("schedule.last", std::int64_t{3});
  attributes.set("model.frozen", std::vector<std::string>{});
  attributes.set("optimizer.type", std::string("AdamW"));
  attributes.set("optimizer.maximize", true);
  attributes.set("optimizer.group.0.parameters", std::vector<std::string>{"weight"});
  attributes.set("optimizer.group.0.lr", 0.5);
  attributes.set("optimizer.group.0.now.lr", 0.25);
  attributes.set("optimizer.group.0.betas", std::vector<double>{0.5, 0.75});
  attributes.set("optimizer.group.0.eps", 1e-8);
  attributes.set("optimizer.group.0.weight_decay", 0.0);
  attributes.set("optimizer.group.0.amsgrad", false);
  attributes.set("optimizer.group.0.steps", std::vector<std::int64_t>{3});
  attributes.set("optimizer.group.1.parameters", std::vector<std::string>{"bias"});
  attributes.set("optimizer.group.1.lr", 0.125);
  attributes.set("optimizer.group.1.betas", std::vector<double>{0.5, 0.75});
  attributes.set("optimizer.group.1.eps", 1e-8);
  attributes.set("optimizer.group.1.weight_decay", 0.0);
  attributes.set("optimizer.group.1.amsgrad", false);
  attributes.set("optimizer.group.1.steps", std::vector<std::int64_t>{-1});
  attributes.set("run.attempt", std::int64_t{1}, Role::record);
  made_ = make_snapshot({{"model/weight", DType::float32, {2, 3}},
                         {"model/bias", DType::float32, {2}},
                         {"optimizer/exp_avg/weight", DType::float32, {2, 3}},
                         {"optimizer/exp_avg_sq/weight", DType::float32, {2, 3}},
                         {"rng/cpu", DType::uint8, {33}}},
                        attributes, 1200);
  write(FileSystem::real(), checkpoint(), made_);
  ASSERT_EQ(exported({path("all.pt"), "--all"}).exit_code, 0);
  const Ended ended = python.run({"-c", R"(
import sys, torch
state = torch.load(sys.argv[1])
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW([{"params": [model.weight]}, {"params": [model.bias]}])
model.load_state_dict(state["model"])
optimizer.load_state_dict(state["optimizer"])
first, second = optimizer.param_groups
assert (first["lr"], second["lr"], first["betas"]) == (0.25, 0.125, (0.5, 0.75)), (first, second)
assert first["maximize"] and second["maximize"]
slots = optimizer.state[model.weight]
assert slots["step"].item() == 3 and slots["exp_avg"].shape == (2, 3), slots
assert model.bias not in optimizer.state
same = lambda a, b: torch.equal(a.detach().view(torch.int32), b.detach().view(torch.int32))
assert same(model.weight, state["model"]["weight"])
assert (state["step"], state["epoch"], state["schedule"], state["rng"]["cpu"].shape) == (1200, 2, {"last": 3}, (33,)), state
assert state["attributes"]["model.frozen"] == []
for parameter in model.parameters(): parameter.grad = torch.ones_like(parameter)
optimizer.step()
)",
                                  path("all.pt")});
  EXPECT_EQ(ended.exit_code, 0) << python.versions() << ended.err;
}

// torchvision's ResNet-50 has 320 keys. Here every layer has few channels.
TEST_F(Interop, AFileOfPythonWithTheKeysOfResnet50ComesInAndGoesOutUnchanged) {
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  const Ended saved = python.run({"-c", R"(
import sys, torch
from collections import OrderedDict
d = OrderedDict()
def conv(name, *shape): d[name + ".weight"] = torch.randn(*shape)
def norm(name, size):
    for key in ("weight", "bias", "running_mean", "running_var"): d[f"{name}.{key}"] = torch.randn(size)
    d[name + ".num_batches_tracked"] = torch.tensor(7)
conv("conv1", 1, 3, 7, 7); norm("bn1", 1)
inputs = 1
for layer, (blocks, width) in enumerate(((3, 1), (4, 2), (6, 4), (3, 8)), 1):
    for block in range(blocks):
        name = f"layer{layer}.{block}"
        conv(name + ".conv1", width, inputs, 1, 1); norm(name + ".bn1", width)
        conv(name + ".conv2", width, width, 3, 3); norm(name + ".bn2", width)
        conv(name + ".conv3", 4 * width, width, 1, 1); norm(name + ".bn3", 4 * width)
        if block == 0: conv(name + ".downsample.0", 4 * width, inputs, 1, 1); norm(name + ".downsample.1", 4 * width)
        inputs = 4 * width
d["fc.weight"] = torch.randn(10, inputs); d["fc.bias"] = torch.randn(10)
assert len(d) == 320, len(d)
d._metadata = OrderedDict([("", {"version": 1})])
torch.save(d, sys.argv[1])
)",
                                  path("pytorch_model.bin")});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  const auto holdfast = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return Subprocess(std::move(arguments)).wait();
  };
  const Ended imported = holdfast({"import", path("pytorch_model.bin"), "--to", path("run")});
  ASSERT_EQ(imported.exit_code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr(": 320 tensors of 'model' from PyTorch, "));
  const std::string made = path("run") + "/" + checkpoint_name({1, 0});
  EXPECT_EQ(holdfast({"diff", made, path("pytorch_model.bin")}).out,
            "weights: 0 of 320 differ in value\nequal\n");
  ASSERT_EQ(holdfast({"export", made, "--to", path("again.pt")}).exit_code, 0);
  EXPECT_EQ(read_by(python, "pt", path("again.pt")), read_by(python, "pt", path("pytorch_model.bin")));
}

// Scales of MXFP8 and MXFP4, AMD's fp8: bytes in a checkpoint, themselves again for those who know them.
TEST_F(Interop, TypesThatAreStoredAsBytesAreThemselvesInTorchAndSafetensors) {
  const ForeignPython python("torch, safetensors");
  if (!python) GTEST_SKIP() << python.why_not();
  const std::string file = HOLDFAST_SOURCE_DIR "/tests/golden/torch/python-2.11.0/bytes.pt";
  const auto holdfast = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return Subprocess(std::move(arguments)).wait();
  };
  ASSERT_EQ(holdfast({"import", file, "--to", path("run")}).exit_code, 0);
  const std::string made = path("run") + "/" + checkpoint_name({1, 0});
  ASSERT_EQ(holdfast({"export", made, "--to", path("again.pt")}).exit_code, 0);
  EXPECT_EQ(read_by(python, "pt", path("again.pt")), read_by(python, "pt", file));
  ASSERT_EQ(holdfast({"export", made, "--to", path("again.safetensors")}).exit_code, 0);
  const auto text = read_by(python, "safetensors", path("again.safetensors"));
  for (const char* const type :
       {"float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2"}) {
    EXPECT_THAT(text, HasSubstr(std::string(type) + " " + type + " [2, 4] ")) << python.versions();
  }
  // And from safetensors.
  ASSERT_EQ(holdfast({"import", path("again.safetensors"), "--to", path("back")}).exit_code, 0);
  ASSERT_EQ(
      holdfast({"export", path("back") + "/" + checkpoint_name({1, 0}), "--to", path("back.pt")}).exit_code,
      0);
  EXPECT_THAT(read_by(python, "pt", path("back.pt")), HasSubstr("float4_e2m1fn_x2 float4_e2m1fn_x2 [2, 4] "));
}

TEST_F(Interop, FileNamesACheckpointByOurSignatures) {
  if (!fs::exists("/usr/bin/file")) GTEST_SKIP() << "no file(1) here";
  make({{"model/w", DType::float32, {3}}});
  const Ended ended =
      Subprocess({"/usr/bin/file", "-b", "-m", HOLDFAST_SOURCE_DIR "/lib/holdfast/cli/magic", checkpoint()})
          .wait();
  EXPECT_THAT(ended.out, testing::StartsWith("Holdfast checkpoint, format 1, " +
                                             std::to_string(fs::file_size(checkpoint())) +
                                             " bytes (HDF5 with a user block of "));
}

// netCDF4 for Python 1.7.5 crashes on any float16 data set, with or without a user block.
TEST_F(Interop, Netcdf4OpensACheckpoint) {
  const ForeignPython python("netCDF4");
  if (!python) GTEST_SKIP() << python.why_not();
  make({{"model/w", DType::float32, {3}}, {"model/n", DType::int64, {2}}});
  const Ended ended =
      python.run({"-c",
                  "import netCDF4, sys\nv = "
                  "netCDF4.Dataset(sys.argv[1])['model'].variables\nprint(v['w'].shape, v['n'].dtype)",
                  checkpoint()});
  EXPECT_EQ(ended.exit_code, 0) << python.versions() << ended.err;
  EXPECT_EQ(ended.out, "(3,) int64\n");
}

// A sparse file of more than 4 GiB: 64-bit sizes and offsets are in use, and PyTorch and unzip follow them.
TEST_F(Interop, MoreThanFourGibibytesLoad) {
  if (!nightly()) GTEST_SKIP() << "only with HOLDFAST_NIGHTLY=1: it writes 4.4 GB";
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  make({{"model/first", DType::uint8, {std::int64_t{4} << 30}}, {"model/last", DType::int64, {5}}});
  ASSERT_EQ(exported({path("w.pt")}).exit_code, 0);
  const auto bytes = made_.snapshot->find("model/last").value();
  std::int64_t last = 0;
  std::memcpy(&last, bytes.data() + 32, sizeof last);
  const Ended ended = python.run({"-c",
                                  "import torch, sys\nd = torch.load(sys.argv[1], "
                                  "mmap=True)\nprint(d['first'].numel(), d['last'][4].item())",
                                  path("w.pt")});
  EXPECT_EQ(ended.out, std::to_string(std::int64_t{4} << 30) + " " + std::to_string(last) + "\n")
      << ended.err;
  if (!fs::exists("/usr/bin/unzip")) GTEST_SKIP() << "no unzip here";
  EXPECT_EQ(Subprocess({"/usr/bin/unzip", "-tq", path("w.pt")}).wait().exit_code, 0);
}

}}  // namespace holdfast::test
