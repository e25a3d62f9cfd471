// The root group's attributes, which h5py shows as file.attrs.
#include "holdfast/format/internal/hdf5/root_attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

std::uint32_t checksum_of(std::string_view text) {
  return internal::lookup3(std::as_bytes(std::span(text.data(), text.size())));
}

// Of the file lookup3.c in the public domain, function driver5(), with initial value 0.
TEST(Lookup3, HashesAsItsAuthorSays) {
  EXPECT_EQ(checksum_of(""), 0xdeadbeefu);
  EXPECT_EQ(checksum_of("Four score and seven years ago"), 0x17770551u);
}

TEST(RootAttributes, LieInTheHeadWhateverTheTensorsAre) {
  for (const int count : {0, 1, 300, 3000}) {
    std::vector<TensorSpec> tensors;
    for (int i = 0; i < count; ++i)
      tensors.push_back({"model/w" + std::to_string(i), DType::float32, {i % 9}});
    const auto plan = make_file_plan(tensors, kSmallAttributeCapacity);
    for (const std::uint64_t at : {plan->root.step, plan->root.run, plan->root.version}) {
      EXPECT_GT(at, plan->user_block);
      EXPECT_LT(at, plan->head);
    }
  }
}

class Attrs : public testing::Test {
 protected:
  // "step=…;run=…;version=…" as h5py reads it.
  std::string seen(std::int64_t step, const Attributes& attributes) {
    Made made = make_snapshot({{"model/w", DType::float32, {5}}}, attributes, step, kSmallAttributeCapacity);
    write(FileSystem::real(), path(), made);
    const Ended ended =
        Subprocess(
            {"/usr/bin/python3", "-c",
             "import h5py, sys; a = h5py.File(sys.argv[1]).attrs; "
             "text = lambda key: a[key].decode() if isinstance(a[key], bytes) else str(a[key]); "
             "print(f\"step={a['step']};run={text('run')};version={text('holdfast_version')}\", end='')",
             path()})
            .wait();
    return ended.out + ended.err;
  }
  static bool has_h5py() {
    return Subprocess({"/usr/bin/python3", "-c", "import h5py"}).wait().exit_code == 0;
  }
  std::string path() const { return folder_.path() / "checkpoint.h5"; }

 private:
  TemporaryFolder folder_;
};

TEST_F(Attrs, SayStepRunAndVersion) {
  if (!has_h5py()) GTEST_SKIP() << "python3 has no h5py";
  Attributes attributes;
  attributes.set("run.attempt", std::int64_t{3}, Role::record);
  attributes.set("run.time", std::string("2026-11-24T12:00:00Z"), Role::record);
  attributes.set("run.host", std::string("a-host"), Role::record);
  attributes.set("environment.holdfast", std::string("1.2.3"), Role::record);
  EXPECT_EQ(seen(1234567890123, attributes),
            "step=1234567890123;run=attempt 3, 2026-11-24T12:00:00Z, a-host;version=1.2.3");
}

TEST_F(Attrs, AreEmptyTextsWhereTheStateRecordsNothing) {
  if (!has_h5py()) GTEST_SKIP() << "python3 has no h5py";
  EXPECT_EQ(seen(0, {}), "step=0;run=;version=");
}

TEST_F(Attrs, EndAtAWholeCharacter) {
  if (!has_h5py()) GTEST_SKIP() << "python3 has no h5py";
  Attributes attributes;
  attributes.set("run.attempt", std::int64_t{1}, Role::record);
  std::string host;
  for (int i = 0; i < 60; ++i) host += "\u00e9";
  attributes.set("run.host", host, Role::record);
  EXPECT_EQ(seen(7, attributes), "step=7;run=attempt 1, " + host.substr(0, 84) + ";version=");
}

// A save fills in its own values: nothing of an earlier one may stay, in a shorter text neither.
TEST_F(Attrs, OfALaterSaveAreItsOwn) {
  const auto plan = make_file_plan({{"model/w", DType::float32, {5}}}, kSmallAttributeCapacity);
  const auto sealed = [&](const std::shared_ptr<Arena>& arena, std::int64_t step, std::string host) {
    Snapshot snapshot;
    snapshot.layout = plan->layout;
    snapshot.arena = arena;
    snapshot.step = step;
    snapshot.attributes.set("run.attempt", std::int64_t{1}, Role::record);
    snapshot.attributes.set("run.host", std::move(host), Role::record);
    const std::vector<Digest> digests{tensor_digest(plan->layout->slot(0, arena->bytes()))};
    seal(snapshot, *plan, digests);
    const auto bytes = arena->bytes();
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  const auto used = make_image(*plan);
  sealed(used, 99, "a-host-with-a-long-name");
  EXPECT_TRUE(sealed(used, 7, "b") == sealed(make_image(*plan), 7, "b"));
}

}}  // namespace holdfast::test
