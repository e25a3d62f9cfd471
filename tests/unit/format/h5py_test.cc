// Foreign tools read a checkpoint: h5py sees every tensor's values, h5dump lists it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cmath>

#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

Ended run(std::vector<std::string> command) { return Subprocess(std::move(command)).wait(); }

class ForeignTools : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<TensorSpec> tensors;
    for (int i = 0; i <= 16; ++i) {
      const auto dtype = static_cast<DType>(i);
      const std::string name = "model/" + std::string(name_of(dtype));
      tensors.push_back({name, dtype, {5, 11}});
      tensors.push_back({name + ".scalar", dtype, {}});
      tensors.push_back({name + ".empty", dtype, {2, 0, 3}});
      tensors.push_back({"optimizer/slot/" + std::string(name_of(dtype)), dtype, {300, 300}});
    }
    // More than eight in a group: libhdf5 then keeps links in another way.
    for (int i = 0; i < 300; ++i)
      tensors.push_back({"rank/0/layer." + std::to_string(i), DType::float32, {i}});
    Attributes attributes = small_attributes();
    attributes.set("nothing", std::nan(""));
    const Made made = make_snapshot(std::move(tensors), attributes, 1234567890123, kDefaultAttributeCapacity);
    // Only 0 and 1 are booleans.
    for (std::size_t i = 0; i < made.plan->layout->tensors().size(); ++i) {
      if (made.plan->layout->tensors()[i].dtype != DType::boolean) continue;
      for (std::byte& byte : made.plan->layout->slot(i, made.snapshot->arena->bytes())) byte &= std::byte{1};
    }
    write(FileSystem::real(), path(), made);
  }
  std::string path() const { return folder_.path() / "checkpoint.h5"; }

 private:
  TemporaryFolder folder_;
};

TEST_F(ForeignTools, H5pyReadsTheSameValues) {
  const std::string python = "/usr/bin/python3";
  const Ended probe = run({python, "-c", "import h5py, numpy"});
  if (probe.exit_code != 0) GTEST_SKIP() << python << " has no h5py: " << probe.err;
  const Ended ended = run({python, HOLDFAST_SOURCE_DIR "/tests/unit/format/h5py_check.py", path()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "equal 368\n");
}

TEST_F(ForeignTools, H5dumpListsIt) {
  if (run({"/usr/bin/env", "h5dump", "--version"}).exit_code != 0)
    GTEST_SKIP() << "h5dump is not installed (hdf5-tools)";
  const Ended ended = run({"/usr/bin/env", "h5dump", "-H", path()});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, testing::HasSubstr("DATASET \"float8_e4m3fn\""));
  EXPECT_THAT(ended.out, testing::HasSubstr("GROUP \"slot\""));
}

}}  // namespace holdfast::test
