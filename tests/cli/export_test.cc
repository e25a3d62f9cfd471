// `holdfast export`: weights for other tools, whole or not at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "holdfast/base/text.h"
#include "holdfast/format/safetensors.h"
#include "holdfast/store/names.h"
#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class Export : public testing::Test {
 protected:
  Export() {
    Attributes attributes = small_attributes();
    attributes.set("model.alias.tied", std::string("model/conv.weight"));
    attributes.set("head.alias.tied", std::string("model/conv.weight"));  // a second module shares it
    attributes.set("run.attempt", std::int64_t{1}, Role::record);
    made_ = make_snapshot(small_tensors(), attributes, 1200);
    write(FileSystem::real(), checkpoint(), made_);
  }

  std::string path(const std::string& name) const { return folder_.path() / name; }
  std::string checkpoint() const { return path(checkpoint_name({1, 1200})); }
  Ended run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {HOLDFAST_BIN_DIR "/holdfast", "export"});
    return Subprocess(std::move(arguments)).wait();
  }
  // One line that says who complains; nothing is left behind.
  void expect_complaint(const Ended& ended, int code, const std::string& text) const {
    EXPECT_EQ(ended.exit_code, code) << ended.err << ended.out;
    EXPECT_THAT(ended.err, StartsWith("holdfast: "));
    EXPECT_THAT(ended.err, HasSubstr(text));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_EQ(ended.out, "");
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_THAT(entry.path().filename().string(), testing::Not(StartsWith(".holdfast")));
    }
  }
  std::shared_ptr<Snapshot> weights(const std::string& file) const {
    const auto opened = FileSystem::real().open_file(file, OpenMode::read);
    const auto index = std::get<SafetensorsIndex>(read_safetensors_index(*opened));
    return std::get<std::shared_ptr<Snapshot>>(read_safetensors(*opened, index));
  }
  static std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
    return names;
  }
  static void flip(const std::string& file, std::uint64_t byte) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(byte));
    const char value = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(byte));
    stream.put(value);
  }

  TemporaryFolder folder_;
  Made made_;
};

TEST_F(Export, HelpHasAnExample) {
  const Ended ended = run({"--help"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_THAT(ended.out, HasSubstr("Example:\n  holdfast export "));
}

TEST_F(Export, WritesTheStateDict) {
  const Ended ended = run({checkpoint(), "--to", path("w.safetensors")});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(ended.out, path("w.safetensors") + ": 4 tensors of 'model' at step 1,200, " +
                           format_bytes(fs::file_size(path("w.safetensors"))) + "\n");
  const auto back = weights(path("w.safetensors"));
  const std::map<std::string, std::size_t> expected = {
      {"model/conv.weight", 0}, {"model/tied", 0}, {"model/scale", 1}, {"model/empty", 2}};
  EXPECT_EQ(back->layout->tensors().size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    EXPECT_TRUE(same_bytes(back->find(name).value(), made_.snapshot->bytes(tensor))) << name;
  }
  const auto file = FileSystem::real().open_file(path("w.safetensors"), OpenMode::read);
  const auto index = std::get<SafetensorsIndex>(read_safetensors_index(*file));
  EXPECT_EQ(index.metadata,
            (std::map<std::string, std::string>{{"format", "pt"},
                                                {"holdfast_state", to_hex(state_digest(*made_.snapshot))},
                                                {"holdfast_step", "1200"}}));
}

TEST_F(Export, TakesAnotherModuleWhenAsked) {
  const Ended ended = run({checkpoint(), "--to", path("rng"), "--module", "rng"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(weights(path("rng"))->layout->tensors().size(), 1u);
  EXPECT_EQ(run({checkpoint(), "--to", path("head"), "--module", "head"}).exit_code, 0);
  EXPECT_TRUE(same_bytes(weights(path("head"))->find("model/tied").value(), made_.snapshot->bytes(0)));
  expect_complaint(run({checkpoint(), "--to", path("x"), "--module", "ema"}), 2, "no module 'ema' in it");
  EXPECT_FALSE(fs::exists(path("x")));
}

TEST_F(Export, ReplacesOnlyWhenTold) {
  write_text(path("w"), "precious");
  expect_complaint(run({checkpoint(), "--to", path("w")}), 64, "it exists; --force replaces it");
  EXPECT_EQ(read_text(path("w")), "precious");
  EXPECT_EQ(run({checkpoint(), "--to", path("w"), "--force"}).exit_code, 0);
  EXPECT_EQ(weights(path("w"))->layout->tensors().size(), 4u);
  EXPECT_EQ(run({checkpoint(), "--to", path("new"), "--force"}).exit_code, 0);
}

// transformers reads model.safetensors before an index; others take the index first. Either would be the earlier weights.
TEST_F(Export, NothingOfAnEarlierExportStaysBesideTheNewOne) {
  const std::string one = path("w.safetensors"), shards = one + ".index.json";
  const auto in_shards = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {checkpoint(), "--to", one, "--shard", "1"});
    return run(std::move(more));
  };
  ASSERT_EQ(run({checkpoint(), "--to", one}).exit_code, 0);
  expect_complaint(in_shards({}), 64, one + " of an earlier export would stay beside it");
  EXPECT_FALSE(fs::exists(shards));
  const Ended sharded = in_shards({"--force"});
  EXPECT_EQ(sharded.exit_code, 0) << sharded.err;
  EXPECT_TRUE(fs::exists(shards));
  EXPECT_FALSE(fs::exists(one));

  expect_complaint(run({checkpoint(), "--to", one}), 64,
                   shards + " of an earlier export would stay beside it");
  EXPECT_FALSE(fs::exists(one));
  EXPECT_EQ(run({checkpoint(), "--to", one, "--force"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(one));
  EXPECT_FALSE(fs::exists(shards));
}

// Shards of 1 byte: a file for each tensor.
TEST_F(Export, ShardsOfAnEarlierExportGoWithItsIndex) {
  const std::string one = path("w.safetensors");
  ASSERT_EQ(run({checkpoint(), "--to", one, "--shard", "1"}).exit_code, 0);
  const auto is_shard = [](const std::string& name) { return name.find("-of-") != std::string::npos; };
  const auto shards = [&] {
    std::vector<std::string> found;
    for (const std::string& name : names_in(folder_.path())) {
      if (is_shard(name)) found.push_back(name);
    }
    return found;
  };
  ASSERT_GE(shards().size(), 3u);
  // Of the same stem, and in no index: not of this export.
  write_text(path("w-00007-of-00009.safetensors"), "somebody's");
  write_text(path("w-notes.safetensors"), "somebody's");
  ASSERT_EQ(run({checkpoint(), "--to", one, "--shard", "150", "--force"}).exit_code, 0);
  std::vector<std::string> named{"w-00007-of-00009.safetensors"};
  const auto index = nlohmann::json::parse(read_text(one + ".index.json"));
  for (const auto& [key, shard] : index["weight_map"].items()) named.push_back(shard);
  EXPECT_THAT(shards(),
              testing::UnorderedElementsAreArray(std::set<std::string>(named.begin(), named.end())));

  ASSERT_EQ(run({checkpoint(), "--to", one, "--force"}).exit_code, 0);
  EXPECT_THAT(names_in(folder_.path()),
              testing::UnorderedElementsAre(checkpoint_name({1, 1200}), "w.safetensors",
                                            "w-notes.safetensors", "w-00007-of-00009.safetensors"));
}

TEST_F(Export, MoreShardsThanAProcessMayHaveFilesOpen) {
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back({"model/" + std::to_string(i), DType::float32, {64}});
  write(FileSystem::real(), path("many.h5"), make_snapshot(tensors, small_attributes(), 1200));
  const Ended ended = Subprocess({"/bin/sh", "-c",
                                  "ulimit -n 60; exec " HOLDFAST_BIN_DIR "/holdfast export " +
                                      path("many.h5") + " --to " + path("w.safetensors") + " --shard 256"})
                          .wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr(" in 100 shards"));
  EXPECT_TRUE(fs::exists(path("w-00100-of-00100.safetensors")));
}

TEST_F(Export, AnIndexThatNamesOtherFilesRemovesNone) {
  const std::string one = path("sub/w.safetensors");
  fs::create_directories(path("sub/folder-00001-of-00002.safetensors"));
  const std::vector<std::string> kept = {"x-00001-of-00002.safetensors", "sub/other.safetensors",
                                         "sub/v-00001-of-00002.safetensors", "sub/w-1-of-2.safetensors"};
  for (const std::string& name : kept) write_text(path(name), "precious");
  fs::copy(checkpoint(), path("sub/" + checkpoint_name({1, 1200})));
  nlohmann::json index;
  for (const std::string& name :
       {std::string("../x-00001-of-00002.safetensors"), path("x-00001-of-00002.safetensors"),
        std::string("."), std::string("other.safetensors"), std::string("v-00001-of-00002.safetensors"),
        std::string(), std::string("w-1-of-2.safetensors"), checkpoint_name({1, 1200}),
        std::string(300'000, '1'), std::string("sub/../w-00001-of-00002.safetensors"),
        std::string("w-00000-of-00002.safetensors")}) {
    index["weight_map"][std::to_string(index["weight_map"].size())] = name;
  }
  index["weight_map"]["number"] = 7;
  write_text(one + ".index.json", index.dump());
  const Ended ended = run({checkpoint(), "--to", one, "--force"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("no shards of it; they are left alone"));
  for (const std::string& name : kept) EXPECT_EQ(read_text(path(name)), "precious") << name;
  EXPECT_TRUE(fs::exists(path("sub/" + checkpoint_name({1, 1200}))));
  EXPECT_FALSE(fs::exists(one + ".index.json"));

  write_text(one + ".index.json", "{}");
  expect_complaint(run({checkpoint(), "--to", one, "--force"}), 64, "names no shards");
  // A checkpoint under the name of a shard stays, too.
  fs::copy(checkpoint(), path("sub/w-00001-of-00002.safetensors"));
  write_text(one + ".index.json", R"({"weight_map":{"a":"w-00001-of-00002.safetensors"}})");
  expect_complaint(run({checkpoint(), "--to", one, "--force"}), 64, "never replaced");
  EXPECT_TRUE(fs::exists(path("sub/w-00001-of-00002.safetensors")));
}

// A killed export has left shards without an index, a temporary file, and the list of both.
TEST_F(Export, WhatAKilledExportLeftGoesWithTheNextOne) {
  const std::string one = path("w.safetensors");
  const std::string list = path(".holdfast-export-of-w.safetensors");
  write_text(path("w-00001-of-00009.safetensors"), "of the killed one");
  write_text(path(".holdfast-export-4711-3"), "of the killed one");
  write_text(path(".holdfast-export-4711-4"), "of another one");
  write_text(path("precious"), "precious");
  write_text(list,
             "w-00001-of-00009.safetensors\n.holdfast-export-4711-3\n../precious\nprecious\n"
             ".holdfast-export-4711-4");
  const Ended refused = run({checkpoint(), "--to", one});
  EXPECT_EQ(refused.exit_code, 64);
  EXPECT_THAT(refused.err,
              HasSubstr("w-00001-of-00009.safetensors of an earlier export would stay beside it"));
  ASSERT_EQ(run({checkpoint(), "--to", one, "--force"}).exit_code, 0);
  EXPECT_THAT(names_in(folder_.path()),
              testing::UnorderedElementsAre(checkpoint_name({1, 1200}), "w.safetensors", "precious",
                                            ".holdfast-export-4711-4"));
}

TEST_F(Export, AKilledExportLeavesNothingBehindTheNextOne) {
  // Reading takes a quarter of an hour, so the kill comes in the middle.
  Subprocess slow({HOLDFAST_BIN_DIR "/holdfast", "export", checkpoint(), "--to", path("w.safetensors"),
                   "--read-limit", "0.0000001"});
  const auto begun = [&] {
    const auto names = names_in(folder_.path());
    return std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.starts_with(".holdfast-export-") && !name.starts_with(".holdfast-export-of-");
    });
  };
  ASSERT_TRUE(slow.wait_until(begun)) << slow.err();
  slow.send(SIGKILL);
  slow.wait();
  EXPECT_EQ(names_in(folder_.path()).size(), 3u);  // the list, and the beginning of a file
  ASSERT_EQ(run({checkpoint(), "--to", path("w.safetensors")}).exit_code, 0);
  EXPECT_THAT(names_in(folder_.path()),
              testing::UnorderedElementsAre(checkpoint_name({1, 1200}), "w.safetensors"));
}

TEST_F(Export, TheUmaskDecidesWhoReadsANewFileAndAReplacedOneStaysAsItWas) {
  const auto mode = [&](const std::string& name) {
    return static_cast<unsigned>(fs::status(path(name)).permissions());
  };
  umask(027);
  EXPECT_EQ(run({checkpoint(), "--to", path("w.pt")}).exit_code, 0);
  EXPECT_EQ(run({checkpoint(), "--to", path("s.safetensors"), "--shard", "1"}).exit_code, 0);
  EXPECT_EQ(mode("w.pt"), 0640u);
  EXPECT_EQ(mode("s.safetensors.index.json"), 0640u);
  umask(022);
  ASSERT_EQ(chmod(path("w.pt").c_str(), 0606), 0);
  const bool root = geteuid() == 0;
  if (root) {
    ASSERT_EQ(chown(path("w.pt").c_str(), 4711, 4712), 0);
  }
  EXPECT_EQ(run({checkpoint(), "--to", path("w.pt"), "--force"}).exit_code, 0);
  EXPECT_EQ(mode("w.pt"), 0606u);
  struct stat found {};
  ASSERT_EQ(stat(path("w.pt").c_str(), &found), 0);
  EXPECT_EQ(found.st_uid, root ? 4711u : geteuid());
}

TEST_F(Export, NeverReplacesACheckpoint) {
  const std::string other = path(checkpoint_name({2, 7}));
  fs::copy(checkpoint(), other);
  const std::string before = read_text(other);
  for (const std::string& target : {checkpoint(), other}) {
    expect_complaint(run({checkpoint(), "--to", target, "--force"}), 64, "never replaced");
  }
  EXPECT_EQ(read_text(other), before);
  EXPECT_EQ(read_text(checkpoint()), before);
}

TEST_F(Export, WritesPlainFilesAlone) {
  fs::create_directory(path("folder"));
  fs::create_symlink(path("elsewhere"), path("link"));
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  for (const char* const name : {"folder", "link", "pipe"}) {
    expect_complaint(run({checkpoint(), "--to", path(name), "--force"}), 64, "no plain file");
  }
  expect_complaint(run({checkpoint(), "--to", path("folder") + "/", "--force"}), 64, "name a file");
  expect_complaint(run({checkpoint(), "--to", path("nowhere/w")}), 2, "No such file");
  expect_complaint(run({checkpoint()}), 64, "--to");
  EXPECT_FALSE(fs::exists(path("elsewhere")));
}

TEST_F(Export, DamageLeavesNoFile) {
  const auto file = FileSystem::real().open_file(checkpoint(), OpenMode::read);
  const auto index = std::get<CheckpointIndex>(read_index(*file));
  flip(checkpoint(), index.tensors[0].offset);
  expect_complaint(run({checkpoint(), "--to", path("w")}), 1, "tensor model/conv.weight");
  EXPECT_FALSE(fs::exists(path("w")));
  write_text(path("w"), "precious");
  expect_complaint(run({checkpoint(), "--to", path("w"), "--force"}), 1, "damaged");
  EXPECT_EQ(read_text(path("w")), "precious");
  // Other tensors are not its concern.
  EXPECT_EQ(run({checkpoint(), "--to", path("rng"), "--module", "rng"}).exit_code, 0);
  flip(checkpoint(), 5000);
  expect_complaint(run({checkpoint(), "--to", path("x")}), 1, "index: digest differs");
}

TEST_F(Export, GarbageIsNoCheckpoint) {
  write_text(path("garbage"), std::string(100'000, '{'));
  expect_complaint(run({path("garbage"), "--to", path("w")}), 1, "damaged");
  expect_complaint(run({path("nothing"), "--to", path("w")}), 2, "No such file");
  expect_complaint(run({folder_.path(), "--to", path("w")}), 2, "directory");
}

}}  // namespace holdfast::test
