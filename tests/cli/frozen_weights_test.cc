// Checkpoints that record frozen weights by digest alone: show, diff, verify and export with --base.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/base/text.h"
#include "holdfast/format/safetensors.h"
#include "holdfast/snapshot/digested_tensors.h"
#include "holdfast/store/names.h"
#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

// "whole" stores all weights, as the pretraining did. "digests" has the first two by digest alone.
class FrozenWeights : public testing::Test {
 protected:
  FrozenWeights() {
    attributes_.set("run.attempt", std::int64_t{1}, Role::record);
    attributes_.set("model.alias.tied", std::string("model/conv.weight"));
    attributes_.set("state.parts", std::vector<std::string>{"module model"}, Role::record);
    whole_ = make_snapshot(small_tensors(), attributes_, 1200, 4096);
    fs::create_directory(folder_.path() / "base");
    write(FileSystem::real(), base(), whole_);
    digests_ = with_digests({0, 1});
    write(FileSystem::real(), checkpoint(), digests_);
  }

  // The same state, with those tensors by digest alone.
  Made with_digests(const std::vector<std::size_t>& frozen) const {
    Attributes attributes = attributes_;
    std::vector<TensorSpec> stored = small_tensors();
    for (auto i = frozen.rbegin(); i != frozen.rend(); ++i) {
      put_digested({stored[*i], tensor_digest(whole_.snapshot->bytes(*i))}, attributes);
      stored.erase(stored.begin() + static_cast<std::ptrdiff_t>(*i));
    }
    return make_snapshot(std::move(stored), std::move(attributes), 1200, 4096);
  }

  std::string path(const std::string& name) const { return folder_.path() / name; }
  std::string checkpoint() const { return path(checkpoint_name({1, 1200})); }
  std::string base() const { return path("base/" + checkpoint_name({1, 1200})); }
  static Ended run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return Subprocess(std::move(arguments)).wait();
  }
  // Refused in one line, and no file appears.
  void expect_refused(const Ended& ended, int code, const std::string& text) const {
    EXPECT_EQ(ended.exit_code, code) << ended.err << ended.out;
    EXPECT_THAT(ended.err, HasSubstr(text));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_FALSE(fs::exists(path("new.safetensors")));
  }
  Ended export_with(const std::string& base_file) const {
    return run({"export", checkpoint(), "--to", path("new.safetensors"), "--base", base_file});
  }
  void expect_whole(const std::string& file) const {
    const Ended ended = run({"diff", file, base()});
    EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  }

  TemporaryFolder folder_;
  Attributes attributes_ = small_attributes();
  Made whole_, digests_;
};

TEST_F(FrozenWeights, ShowListsThemApart) {
  const Ended text = run({"show", checkpoint()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("by digest alone  2, 104 B (frozen; not in this file)"),
                              HasSubstr("\nfrozen tensors, by digest alone"), HasSubstr("model/conv.weight"),
                              Not(HasSubstr("model.digest."))));
  EXPECT_THAT(text.out, HasSubstr(to_hex(state_digest(*digests_.snapshot))));
  const Json json = Json::parse(run({"show", checkpoint(), "--json"}).out);
  EXPECT_EQ(json["tensors"].size(), 3u);
  ASSERT_EQ(json["digested"].size(), 2u);
  EXPECT_EQ(json["digested"][0]["name"], "model/conv.weight");
  EXPECT_EQ(json["digested"][0]["shape"], (std::vector<int>{4, 3, 2}));
  EXPECT_EQ(json["digested"][0]["digest"], to_hex(tensor_digest(whole_.snapshot->bytes(0))));
  EXPECT_EQ(Json::parse(run({"show", base(), "--json"}).out)["digested"].size(), 0u);
  EXPECT_EQ(run({"verify", checkpoint()}).exit_code, 0);
}

TEST_F(FrozenWeights, DiffComparesThemByDigest) {
  const Ended same = run({"diff", checkpoint(), base()});
  EXPECT_EQ(same.exit_code, 0) << same.out;
  EXPECT_THAT(same.out, HasSubstr("tensors: 0 of 5 differ in value\nequal\n"));
  Attributes other = attributes_;
  put_digested({small_tensors()[1], tensor_digest({})}, other);
  put_digested({{"model/conv.weight", DType::float32, {4, 3, 3}}, {}}, other);
  auto stored = small_tensors();
  stored.erase(stored.begin(), stored.begin() + 2);
  fs::create_directory(path("other"));
  const std::string file = path("other/" + checkpoint_name({1, 1200}));
  write(FileSystem::real(), file, make_snapshot(stored, other, 1200, 4096));
  for (const std::string& first : {checkpoint(), base()}) {
    const Ended ended = run({"diff", first, file});
    EXPECT_EQ(ended.exit_code, 1);
    EXPECT_THAT(ended.out,
                AllOf(HasSubstr("model/scale  float64 []: other bytes (frozen: a file has its digest alone)"),
                      HasSubstr("model/conv.weight: float32 [4, 3, 2] in the first, float32 [4, 3, 3] in"),
                      HasSubstr("tensors: 1 of 5 differ in value, 1 in name, type or shape"),
                      Not(HasSubstr("model.digest"))));
  }
  const Json json = Json::parse(run({"diff", checkpoint(), file, "--json"}).out);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["other"].size(), 2u);
  EXPECT_EQ(json["attributes"].size(), 0u);
}

TEST_F(FrozenWeights, DiffWithForeignWeightsReadsTheOthersBytes) {
  ASSERT_EQ(run({"export", base(), "--to", path("w.safetensors")}).exit_code, 0);
  const Ended same = run({"diff", checkpoint(), path("w.safetensors")});
  EXPECT_THAT(same.out, HasSubstr("weights: 0 of"));
  EXPECT_THAT(same.out, Not(HasSubstr("model/conv.weight")));
  EXPECT_EQ(same.exit_code, 0) << same.out;
}

TEST_F(FrozenWeights, ExportSaysWhatIsMissing) {
  expect_refused(
      run({"export", checkpoint(), "--to", path("new.safetensors")}), 2,
      "has 2 frozen tensors by digest alone (model/conv.weight is the first, 104 B together): --base FILE");
  expect_refused(run({"export", checkpoint(), "--all", "--to", path("new.h5")}), 2, "by digest alone");
  // What is asked for is there.
  EXPECT_EQ(run({"export", checkpoint(), "--module", "rng", "--to", path("rng")}).exit_code, 0);
}

TEST_F(FrozenWeights, ExportTakesThemFromACheckpointOrAnExportedFile) {
  const std::vector<std::string> bases = {base(), path("base.safetensors"), path("base.pt")};
  for (std::size_t i = 1; i < bases.size(); ++i) {
    ASSERT_EQ(run({"export", base(), "--to", bases[i]}).exit_code, 0);
  }
  for (const std::string& from : bases) {
    SCOPED_TRACE(from);
    for (const char* name : {"new.safetensors", "new.pt"}) {
      const Ended ended = run({"export", checkpoint(), "--to", path(name), "--force", "--base", from});
      EXPECT_EQ(ended.exit_code, 0) << ended.err;
      EXPECT_THAT(ended.out, HasSubstr("4 tensors of 'model' at step 1,200"));
      expect_whole(path(name));
    }
  }
  const auto file = FileSystem::real().open_file(path("new.safetensors"), OpenMode::read);
  EXPECT_EQ(std::get<SafetensorsIndex>(read_safetensors_index(*file)).metadata.at("holdfast_state"),
            to_hex(state_digest(*digests_.snapshot)))
      << "the state that the run had";
  EXPECT_EQ(run({"export", checkpoint(), "--all", "--to", path("all.h5"), "--base", base()}).exit_code, 0);
  EXPECT_EQ(run({"export", checkpoint(), "--to", path("s.safetensors"), "--shard", "60", "--base", base()})
                .exit_code,
            0);
}

TEST_F(FrozenWeights, ExportRefusesAnotherBaseByTheTensor) {
  // One bit of one tensor.
  Made changed = make_snapshot(small_tensors(), attributes_, 1200, 4096);
  changed.plan->layout->slot(1, changed.snapshot->arena->bytes())[3] ^= std::byte{1};
  fs::create_directory(path("changed"));
  const std::string other = path("changed/" + checkpoint_name({1, 1200}));
  write(FileSystem::real(), other, changed);
  expect_refused(export_with(other), 2, "model/scale has other bytes than the training had");
  ASSERT_EQ(run({"export", other, "--to", path("changed.pt")}).exit_code, 0);
  expect_refused(export_with(path("changed.pt")), 2, "model/scale has other bytes than the training had");
  // Itself lacks them.
  expect_refused(export_with(checkpoint()), 2, "it has no tensor 'model/conv.weight'");
  // Of another shape.
  auto specs = small_tensors();
  specs[0].shape = {4, 3, 1};
  fs::create_directory(path("shape"));
  const std::string shape = path("shape/" + checkpoint_name({1, 1200}));
  write(FileSystem::real(), shape, make_snapshot(specs, attributes_, 1200, 4096));
  expect_refused(export_with(shape), 2,
                 "model/conv.weight is float32 [4, 3, 1] there, and the checkpoint needs float32 [4, 3, 2]");
}

TEST_F(FrozenWeights, ExportRefusesADamagedOrForeignBase) {
  for (const char* name : {"base.safetensors", "base.pt"}) {
    ASSERT_EQ(run({"export", base(), "--to", path(name)}).exit_code, 0);
    fs::resize_file(path(name), fs::file_size(path(name)) - 100);
    expect_refused(export_with(path(name)), 1, std::string("--base ") + path(name));
  }
  fs::resize_file(base(), fs::file_size(base()) - 1);
  expect_refused(export_with(base()), 1, "damaged");
  expect_refused(export_with(path("nothing")), 2, "nothing");
  write_text(path("text"), "no weights");
  expect_refused(export_with(path("text")), 1, "damaged");
}

}}  // namespace holdfast::test
