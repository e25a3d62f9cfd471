// `holdfast import --like`: what Python has made of an exported training state becomes a checkpoint of the run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "holdfast/format/internal/pickle/pickle_writer.h"
#include "holdfast/format/internal/zip/zip_writer.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/store/names.h"
#include "support/foreign_python.h"
#include "support/subprocess.h"
#include "unit/format/checkpoint_maker.h"

namespace holdfast::test { namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Options = std::map<std::string, AttributeValue>;

// The record of one optimizer, as a TrainState writes it for each kind.
struct Kind {
  std::string name;    // of the case
  std::string python;  // its class in torch.optim; empty: there is none
  std::string type;
  Options options;
  std::vector<std::string> slots;
  bool maximize = false;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

std::vector<Kind> kinds() {
  const std::vector<double> betas{0.9, 0.999};
  const Options sgd{
      {"lr", 0.1}, {"momentum", 0.9}, {"dampening", 0.0}, {"weight_decay", 0.01}, {"nesterov", true}};
  const Options adam{
      {"lr", 0.1}, {"betas", betas}, {"eps", 1e-8}, {"weight_decay", 0.01}, {"amsgrad", false}};
  const auto with = [](Options options, const std::string& name, AttributeValue value) {
    options[name] = std::move(value);
    return options;
  };
  const Options rms{{"lr", 0.1},           {"alpha", 0.99},   {"eps", 1e-8},
                    {"weight_decay", 0.0}, {"momentum", 0.0}, {"centered", false}};
  const std::vector<std::string> moments{"exp_avg", "exp_avg_sq"};
  return {
      {"Sgd", "SGD", "SGD", sgd, {"momentum_buffer"}},
      {"SgdWithoutMomentum", "SGD", "SGD", with(with(sgd, "momentum", 0.0), "nesterov", false), {}},
      {"Adam", "Adam", "Adam", adam, moments},
      {"AdamAmsgrad",
       "Adam",
       "Adam",
       with(adam, "amsgrad", true),
       {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
      {"AdamW", "AdamW", "AdamW", adam, moments},
      {"AdamWMaximize", "AdamW", "AdamW", adam, moments, true},
      {"Lamb",
       "",
       "LAMB",
       {{"lr", 0.1}, {"betas", betas}, {"eps", 1e-6}, {"weight_decay", 0.01}, {"adapt_all", false}},
       moments},
      {"RmspropPlain", "RMSprop", "RMSprop", rms, {"square_avg"}},
      {"Rmsprop",
       "RMSprop",
       "RMSprop",
       with(with(rms, "momentum", 0.9), "centered", true),
       {"square_avg", "momentum_buffer", "grad_avg"}},
      {"Adagrad",
       "Adagrad",
       "Adagrad",
       {{"lr", 0.1},
        {"lr_decay", 0.1},
        {"weight_decay", 0.0},
        {"initial_accumulator_value", 0.2},
        {"eps", 1e-10}},
       {"sum"}},
      {"Lbfgs",
       "LBFGS",
       "LBFGS",
       {{"lr", 0.1},
        {"max_iter", std::int64_t{3}},
        {"max_eval", std::int64_t{4}},
        {"tolerance_grad", 1e-7},
        {"tolerance_change", 1e-9},
        {"history_size", std::int64_t{4}},
        {"line_search_fn", std::string("none")}},
       {}},
  };
}
Kind kind_named(const std::string& name) {
  for (const Kind& kind : kinds()) {
    if (kind.name == name) return kind;
  }
  throw std::runtime_error(name);
}

// A training state, by its tensors and attributes. "model/scale" was never updated.
struct State {
  std::vector<TensorSpec> tensors;
  Attributes attributes;
  std::int64_t step = 1200;
  unsigned seed = 0;  // of the tensors' bytes
};

void add_lbfgs(State& state) {
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> fields = {
      {"d", {9}},          {"H_diag", {}},      {"prev_flat_grad", {9}}, {"old_dirs.0", {9}},
      {"old_dirs.1", {9}}, {"old_stps.0", {9}}, {"old_stps.1", {9}},     {"ro.0", {}},
      {"ro.1", {}},        {"al.0", {}}};
  for (const auto& [field, shape] : fields) {
    state.tensors.push_back({"optimizer/lbfgs/" + field, DType::float32, shape});
  }
  const std::string prefix = "optimizer.lbfgs.";
  for (const char* const count : {"func_evals", "n_iter"})
    state.attributes.set(prefix + count, std::int64_t{9});
  state.attributes.set(prefix + "t", 0.25);
  state.attributes.set(prefix + "prev_loss", 0.5);
  state.attributes.set(prefix + "vectors", std::vector<std::string>{"d", "H_diag", "prev_flat_grad"});
  for (const char* const list : {"old_dirs", "old_stps", "ro"})
    state.attributes.set(prefix + list, std::int64_t{2});
  state.attributes.set(prefix + "al", std::int64_t{4});
  state.attributes.set(prefix + "al_used", std::vector<std::int64_t>{0});
}

State state_of(const Kind& kind) {
  State state;
  Attributes& all = state.attributes;
  state.tensors = {{"model/weight", DType::float32, {3, 2}}, {"model/bias", DType::float32, {2}},
                   {"model/scale", DType::float32, {}},      {"model/running", DType::int64, {2}},
                   {"ema/weight", DType::float32, {3, 2}},   {"rng/cpu", DType::uint8, {33}}};
  all.set("step", state.step);
  all.set("cursor.epoch", std::int64_t{3});
  all.set("cursor.samples", std::int64_t{512});
  all.set("data.epoch", std::int64_t{3});
  all.set("data.samples", std::int64_t{512});
  all.set("data.seed", std::int64_t{7});
  all.set("ema.updates", std::int64_t{1200});
  all.set("schedule.position", std::int64_t{1200});
  all.set("schedule.best", 0.75);
  all.set("model.alias.tied", std::string("model/weight"));
  all.set("model.strides.weight", std::vector<std::int64_t>{1, 3});
  all.set("model.frozen", std::vector<std::string>{});
  all.set("model.evaluating", std::vector<std::string>{"."});
  all.set("optimizer.type", kind.type);
  std::vector<std::string> options{"data.seed"};
  const std::vector<std::vector<std::string>> groups =
      kind.type == "LBFGS" ? std::vector<std::vector<std::string>>{{"weight", "bias", "scale"}}
                           : std::vector<std::vector<std::string>>{{"weight"}, {"bias", "scale"}};
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::string prefix = "optimizer.group." + std::to_string(g) + ".";
    all.set(prefix + "parameters", groups[g]);
    for (const auto& [option, value] : kind.options) {
      all.set(prefix + option, value);
      options.push_back(prefix + option);
    }
    if (g == 1) all.set(prefix + "now.lr", 0.05);
    if (kind.type == "LBFGS") continue;
    const std::int64_t steps = kind.type == "SGD" ? (kind.slots.empty() ? -1 : 0) : 1200;
    all.set(prefix + "steps",
            g == 0 ? std::vector<std::int64_t>{steps} : std::vector<std::int64_t>{steps, -1});
  }
  for (const std::string& slot : kind.slots) {
    state.tensors.push_back({"optimizer/" + slot + "/weight", DType::float32, {3, 2}});
    state.tensors.push_back({"optimizer/" + slot + "/bias", DType::float32, {2}});
  }
  if (!kind.slots.empty()) {
    all.set("optimizer.strides." + kind.slots[0] + "/weight", std::vector<std::int64_t>{1, 3});
  }
  if (kind.type == "LBFGS") add_lbfgs(state);
  if (kind.maximize) {
    all.set("optimizer.maximize", true);
    options.emplace_back("optimizer.maximize");
  }
  all.set("state.parts",
          std::vector<std::string>{"module model", "optimizer optimizer", "component ema", "component data",
                                   "component schedule"},
          Role::record);
  all.set("state.options", options, Role::record);
  RunRecord record;
  record.attempt = 1;
  record.time = "2026-01-01T00:00:00Z";
  record.host = "here";
  put_run_record(all, record);
  return state;
}

// The same program some time later: every byte and every count has changed.
State later(State state) {
  state.step = 1500;
  state.seed = 77;
  Attributes& all = state.attributes;
  all.set("step", std::int64_t{1500});
  all.set("cursor.epoch", std::int64_t{4});
  all.set("cursor.samples", std::int64_t{128});
  all.set("data.epoch", std::int64_t{4});
  all.set("data.samples", std::int64_t{128});
  all.set("schedule.position", std::int64_t{1500});
  all.set("schedule.best", 0.5);
  all.set("ema.updates", std::int64_t{1500});
  all.set("optimizer.group.0.now.lr", 0.025);
  // Counts that a float32 rounds.
  for (const char* const steps : {"optimizer.group.0.steps", "optimizer.group.1.steps"}) {
    if (!all.has(steps)) continue;
    auto counts = all.get_ints(steps);
    for (auto& count : counts) count = count > 0 ? (1 << 24) + 1 : count;
    all.set(steps, counts);
  }
  if (all.has("optimizer.lbfgs.t")) all.set("optimizer.lbfgs.t", 0.125);
  return state;
}

// A file of torch.save, by hand.
class PtFile {
 public:
  explicit PtFile(const std::function<void(PtFile&)>& content) {
    pickle.begin_dict();
    content(*this);
    pickle.end_dict();
  }
  void tensor(const std::string& key, DType dtype, std::vector<std::int64_t> shape, char byte = 1) {
    pickle.text(key);
    const TensorSpec spec{"x/y", dtype, shape};
    pickle.tensor(storages_.size(), dtype, shape);
    storages_.emplace_back(spec.bytes(), byte);
  }
  void dict(const std::string& key, const std::function<void()>& content) {
    pickle.text(key);
    pickle.begin_dict();
    content();
    pickle.end_dict();
  }
  void integer(const std::string& key, std::int64_t value) {
    pickle.text(key);
    pickle.integer(value);
  }
  std::string write(const std::string& path) {
    const std::string& text = pickle.finish();
    std::vector<internal::NewZipEntry> entries{{"a/data.pkl", text.size()}};
    for (std::size_t i = 0; i < storages_.size(); ++i)
      entries.push_back({"a/data/" + std::to_string(i), storages_[i].size()});
    const auto file = FileSystem::real().open_file(path, OpenMode::create);
    internal::ZipWriter zip(*file, entries);
    zip.write(std::as_bytes(std::span(text)));
    for (const std::string& bytes : storages_) zip.write(std::as_bytes(std::span(bytes)));
    zip.finish();
    return path;
  }
  internal::PickleWriter pickle;

 private:
  std::vector<std::string> storages_;
};

class ImportState : public testing::TestWithParam<Kind> {
 protected:
  static Ended run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), HOLDFAST_BIN_DIR "/holdfast");
    return Subprocess(std::move(arguments)).wait();
  }
  std::string path(const std::string& name) const { return folder_.path() / name; }
  std::string checkpoint(const std::string& folder, const State& state) const {
    fs::create_directories(path(folder));
    Made made = make_snapshot(state.tensors, state.attributes, state.step, 16384);
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      for (std::byte& byte : made.plan->layout->slot(i, made.snapshot->arena->bytes()))
        byte ^= static_cast<std::byte>(state.seed);
    }
    const std::string file = path(folder) + "/" + checkpoint_name({1, state.step});
    write(FileSystem::real(), file, made);
    return file;
  }
  std::string exported(const std::string& from, const std::string& name) const {
    const Ended ended = run({"export", from, "--all", "--to", path(name)});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return path(name);
  }
  Ended import(const std::string& file, const std::string& like, const std::string& to = "new") const {
    return run({"import", file, "--to", path(to), "--like", like});
  }
  // Refused with one line that says so, and without a trace.
  void expect_refused(const std::string& file, const std::string& like, const std::string& text,
                      int code = 1) const {
    const Ended ended = import(file, like);
    EXPECT_EQ(ended.exit_code, code) << ended.out << ended.err;
    EXPECT_THAT(ended.err, StartsWith("holdfast: "));
    EXPECT_THAT(ended.err, HasSubstr(text));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    EXPECT_FALSE(fs::exists(path("new")));
  }
  // The state `changed` makes of it, exported, does not fit the checkpoint of `kind`.
  void expect_state_refused(const std::string& kind, const std::function<void(State&)>& changed,
                            const std::string& text) const {
    const std::string like = checkpoint("like", state_of(kind_named(kind)));
    State other = state_of(kind_named(kind));
    changed(other);
    const std::string file = exported(checkpoint("other", other), "other.pt");
    expect_refused(file, like, text);
    fs::remove_all(path("other"));
    fs::remove_all(path("like"));
    fs::remove(file);
  }
  TemporaryFolder folder_;
};

TEST_P(ImportState, ThereAndBackIsEqualToTheBit) {
  const std::string from = checkpoint("run", state_of(GetParam()));
  const Ended made = import(exported(from, "all.pt"), from);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("from the file: "));
  EXPECT_THAT(made.out, Not(HasSubstr("from the checkpoint: ")));
  const std::string back = path("new/" + checkpoint_name({1, 1200}));
  const Ended same = run({"diff", from, back});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_EQ(run({"verify", back}).exit_code, 0);
}

// Bytes, counts, rates and position come from the file, whatever the checkpoint has.
TEST_P(ImportState, EveryValueComesFromTheFile) {
  const std::string early = checkpoint("early", state_of(GetParam()));
  const std::string late = checkpoint("late", later(state_of(GetParam())));
  EXPECT_EQ(run({"diff", early, late}).exit_code, 1);
  ASSERT_EQ(import(exported(late, "all.pt"), early).exit_code, 0);
  const Ended same = run({"diff", late, path("new/" + checkpoint_name({1, 1500}))});
  // An export leaves out what LBFGS fills anew.
  if (GetParam().type == "LBFGS") {
    EXPECT_THAT(same.out, HasSubstr("optimizer/lbfgs/al.0"));
    EXPECT_THAT(same.out, HasSubstr(" 1 of "));
    return;
  }
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

// A program that has made no step has no slots; the slots of the file are added.
TEST_P(ImportState, TheFirstCheckpointOfAProgramServesToo) {
  State first = state_of(GetParam());
  std::erase_if(first.tensors, [](const TensorSpec& spec) { return spec.name.starts_with("optimizer/"); });
  for (const std::string prefix : {"optimizer.lbfgs.", "optimizer.strides."}) {
    for (const auto& [name, attribute] : first.attributes.with_prefix(prefix)) first.attributes.erase(name);
  }
  for (const std::string steps : {"optimizer.group.0.steps", "optimizer.group.1.steps"}) {
    if (first.attributes.has(steps))
      first.attributes.set(steps, std::vector<std::int64_t>(first.attributes.get_ints(steps).size(), -1));
  }
  const std::string like = checkpoint("first", first);
  const std::string late = checkpoint("late", later(state_of(GetParam())));
  const Ended made = import(exported(late, "all.pt"), like);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Ended different = run({"diff", late, path("new/" + checkpoint_name({1, 1500})), "--all"});
  // Strides are of the program's memory.
  EXPECT_THAT(different.out, Not(HasSubstr("only in the second")));
  if (GetParam().type == "LBFGS" || GetParam().slots.empty()) return;
  EXPECT_THAT(different.out, HasSubstr("optimizer.strides."));
  EXPECT_THAT(different.out, Not(HasSubstr("optimizer.group.")));
  EXPECT_THAT(different.out, HasSubstr("tensors: 0 of "));
  // And back: a state that Python never stepped takes the checkpoint's slots away.
  ASSERT_EQ(import(exported(like, "first.pt"), late, "again").exit_code, 0);
  EXPECT_EQ(run({"diff", like, path("again/" + checkpoint_name({1, 1200}))}).exit_code, 0);
}

// What load_state_dict() and state_dict() of Python's own optimizer make of it.
TEST_P(ImportState, PythonsOwnOptimizerGivesItBack) {
  const ForeignPython python("torch");
  if (!python) GTEST_SKIP() << python.why_not();
  if (GetParam().python.empty()) GTEST_SKIP() << "PyTorch has no such optimizer";
  const std::string from = checkpoint("run", state_of(GetParam()));
  const Ended ended = python.run({"-c", R"(
import sys, torch
kind, file, to = sys.argv[1:]
state = torch.load(file)
p = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((3, 2), (2,), ())]
groups = p if kind == "LBFGS" else [{"params": p[:1]}, {"params": p[1:]}]
optimizer = getattr(torch.optim, kind)(groups, lr=1.0)
optimizer.load_state_dict(state["optimizer"])
state["optimizer"] = optimizer.state_dict()
torch.save(state, to)
)",
                                  GetParam().python, exported(from, "all.pt"), path("back.pt")});
  ASSERT_EQ(ended.exit_code, 0) << python.versions() << ended.err;
  const Ended made = import(path("back.pt"), from);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const Ended same = run({"diff", from, path("new/" + checkpoint_name({1, 1200}))});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
}

INSTANTIATE_TEST_SUITE_P(EachOptimizer, ImportState, testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

using ImportStateForms = ImportState;

// A second module with one tensor of its own, and one without any.
State with_sharing_modules(State state) {
  state.tensors.push_back({"a_head/bias", DType::float32, {3}});
  state.attributes.set("a_head.alias.tied", std::string("model/weight"));
  state.attributes.set("rest.alias.tied", std::string("model/bias"));
  auto parts = state.attributes.get_strings("state.parts");
  parts.insert(parts.end(), {"module a_head", "module rest"});
  state.attributes.set("state.parts", parts, Role::record);
  return state;
}

TEST_F(ImportStateForms, ModulesThatShareTensorsHaveThemUnderTheirOwnKeys) {
  const State state = with_sharing_modules(state_of(kind_named("Adam")));
  const std::string early = checkpoint("early", state);
  const std::string late = checkpoint("late", later(state));
  const Ended made = import(exported(late, "all.pt"), early);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("from the file: a_head (2 tensors), "));
  EXPECT_THAT(made.out, HasSubstr(", rest (1 tensor), "));
  EXPECT_EQ(run({"diff", late, path("new/" + checkpoint_name({1, 1500}))}).exit_code, 0);
  fs::remove_all(path("new"));
  const auto head = [](PtFile& file, char byte) {
    file.dict("a_head", [&] {
      file.tensor("bias", DType::float32, {3});
      file.tensor("tied", DType::float32, {3, 2}, byte);
    });
  };
  const auto with_model = [&](char byte) {
    return PtFile([&](PtFile& file) {
      head(file, byte);
      file.dict("model", [&] {
        file.tensor("weight", DType::float32, {3, 2});
        file.tensor("bias", DType::float32, {2});
        file.tensor("scale", DType::float32, {});
        file.tensor("running", DType::int64, {2});
      });
    });
  };
  expect_refused(with_model(2).write(path("untied.pt")), early,
                 "'a_head/tied' and 'model/weight' are one tensor in the checkpoint, and differ in it");
  EXPECT_EQ(import(with_model(1).write(path("tied.pt")), early, "a").exit_code, 0);
  // Alone it stands for the tensor.
  EXPECT_EQ(import(PtFile([&](PtFile& file) { head(file, 1); }).write(path("head.pt")), early, "b").exit_code,
            0);
}

TEST_F(ImportStateForms, OtherFormsAreRefusedByName) {
  expect_state_refused(
      "Adam",
      [](State& state) {
        state.attributes.erase("optimizer.group.1.parameters");
        std::erase_if(state.tensors, [](const TensorSpec& spec) { return spec.name.ends_with("/bias"); });
        state.tensors.push_back({"model/bias", DType::float32, {2}});
      },
      "optimizer 'optimizer' has 1 parameter group in it and 2 in the checkpoint");
  expect_state_refused(
      "Adam",
      [](State& state) {
        state.attributes.set("optimizer.group.1.parameters", std::vector<std::string>{"bias"});
        state.attributes.set("optimizer.group.1.steps", std::vector<std::int64_t>{3});
      },
      "has 1 parameter in group 1 and the checkpoint 2");
  expect_state_refused(
      "Adam",
      [](State& state) {
        state.tensors[0].shape = {2, 3};
      },
      "'model/weight' is float32 [2, 3] in it, and the checkpoint needs float32 [3, 2]");
  expect_state_refused(
      "Adam", [](State& state) { state.tensors[1].dtype = DType::float16; },
      "'model/bias' is float16 [2] in it");
  expect_state_refused(
      "Adam", [](State& state) { state.tensors.erase(state.tensors.begin() + 1); },
      "'model/bias' is in the checkpoint and not in it");
  expect_state_refused(
      "Adam",
      [](State& state) {
        state.tensors.push_back({"model/more", DType::float32, {2}});
      },
      "'model/more' is not in the checkpoint");
  expect_state_refused(
      "Adam",
      [](State& state) {
        for (TensorSpec& spec : state.tensors) {
          if (spec.name == "optimizer/exp_avg_sq/bias") spec.shape = {4};
        }
      },
      "'optimizer/exp_avg_sq/bias' is float32 [4] in it");
  expect_state_refused(
      "Adam", [](State& state) { state.attributes.set("cursor.samples", std::string("x")); },
      "'cursor.samples' is a text in it, and 512 in the checkpoint");
}

TEST_F(ImportStateForms, AnotherKindOfOptimizerIsRefusedByName) {
  const auto expect = [&](const char* file, const char* like, const std::string& text) {
    const std::string other = exported(checkpoint("other", state_of(kind_named(file))), "other.pt");
    expect_refused(other, checkpoint("like", state_of(kind_named(like))), text);
    fs::remove_all(path("other"));
    fs::remove_all(path("like"));
    fs::remove(other);
  };
  expect("Sgd", "Adam",
         "has the option 'dampening' in group 0, for which the Adam of the checkpoint has no place");
  expect("Adam", "Sgd", "has the option 'amsgrad' in group 0, for which the SGD");
  expect("Adam", "AdamAmsgrad", "has another 'amsgrad' in group 0: false in it, and true in the checkpoint");
  expect("AdamAmsgrad", "Adam", "has another 'amsgrad' in group 0: true in it, and false in the checkpoint");
  expect("AdamW", "AdamWMaximize", "has 'maximize' off in group 0, and the checkpoint on");
  expect("AdamWMaximize", "AdamW", "has 'maximize' on in group 0, and the checkpoint off");
  expect("RmspropPlain", "Rmsprop", "has another 'centered' in group 0");
  expect("Adam", "Lbfgs", "has 2 parameter groups in it and 1 in the checkpoint");
}

// What only Python writes.
TEST_F(ImportStateForms, PythonsOwnDictsAreTakenOrRefusedByName) {
  const std::string like = checkpoint("like", state_of(kind_named("Sgd")));
  const auto model = [](PtFile& file, const std::string& key) {
    file.dict(key, [&] {
      file.tensor("weight", DType::float32, {3, 2});
      file.tensor("bias", DType::float32, {2});
      file.tensor("scale", DType::float32, {});
      file.tensor("running", DType::int64, {2});
    });
  };
  struct Shape {
    bool foreach = false, unknown_option = false, decoupled = false;
    int extra_state = -1;
    bool none_slot = false, unknown_slot = false, shared = false;
  };
  const auto optimizer = [](PtFile& file, const std::string& key, const Shape& shape) {
    auto& pickle = file.pickle;
    file.dict(key, [&] {
      file.dict("state", [&] {
        for (int i = 0; i < 2; ++i) {
          pickle.integer(i);
          pickle.begin_dict();
          if (shape.none_slot) {
            pickle.text("momentum_buffer");
            pickle.none();
          } else {
            file.tensor("momentum_buffer", DType::float32,
                        i == 0 ? std::vector<std::int64_t>{3, 2} : std::vector<std::int64_t>{2}, 5);
          }
          if (shape.unknown_slot) file.tensor("exp_avg", DType::float32, {2});
          pickle.end_dict();
        }
        if (shape.extra_state < 0) return;
        pickle.integer(shape.extra_state);
        pickle.begin_dict();
        pickle.end_dict();
      });
      pickle.text("param_groups");
      pickle.begin_list();
      for (int g = 0; g < 2; ++g) {
        pickle.begin_dict();
        file.integer("lr", 1);  // as Python writes lr=1
        pickle.text("foreach");
        shape.foreach ? pickle.boolean(true) : pickle.none();
        if (shape.unknown_option) file.integer("mine", 1);
        if (shape.decoupled) {
          pickle.text("decoupled_weight_decay");
          pickle.boolean(true);
        }
        pickle.text("params");
        pickle.begin_list();
        for (int i = 0; i <= g; ++i) pickle.integer(g + i);
        pickle.end_list();
        pickle.end_dict();
      }
      pickle.end_list();
    });
  };
  const auto written = [&](const std::function<void(PtFile&)>& content) {
    fs::remove(path("py.pt"));
    return PtFile(content).write(path("py.pt"));
  };
  const Ended made = import(written([&](PtFile& file) {
                              model(file, "model_state_dict");
                              optimizer(file, "optimizer_state_dict", {.foreach = true});
                              file.integer("epoch", 5);
                              file.integer("args", 5);
                            }),
                            like, "taken");
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out,
              HasSubstr("from the file: model (4 tensors), optimizer (SGD, 2 slots), epoch 5, from its"));
  EXPECT_THAT(made.out, HasSubstr("from the checkpoint: ema, rng, schedule, step"));
  EXPECT_THAT(made.out, HasSubstr("not imported: args\n"));
  EXPECT_THAT(made.out, HasSubstr("ignored options of Python's optimizers: foreach\n"));
  const std::string taken = path("taken/" + checkpoint_name({1, 1200}));
  const Ended shown = run({"show", taken});
  EXPECT_THAT(shown.out, testing::ContainsRegex("data.epoch +5"));
  EXPECT_THAT(shown.out, testing::ContainsRegex("data.samples +0"));
  EXPECT_THAT(shown.out, testing::ContainsRegex("cursor.epoch +5"));
  EXPECT_THAT(shown.out, testing::ContainsRegex("optimizer.group.0.now.lr +1"));
  EXPECT_THAT(shown.out, testing::ContainsRegex("optimizer.group.1.steps +\\[0, -1\\]"));
  const auto with = [&](const Shape& shape) {
    return written([&](PtFile& file) { optimizer(file, "optimizer", shape); });
  };
  // Torch 1.x wrote None for a buffer that SGD does not need.
  ASSERT_EQ(import(with({.none_slot = true}), like, "none").exit_code, 0);
  EXPECT_THAT(run({"show", path("none/" + checkpoint_name({1, 1200}))}).out,
              Not(HasSubstr("momentum_buffer")));
  expect_refused(with({.unknown_option = true}), like, "has the option 'mine' in group 0");
  expect_refused(with({.decoupled = true}), like, "has 'decoupled_weight_decay' on in group 0");
  expect_refused(with({.extra_state = 9}), like, "has a state for parameter 9, which is in no group of it");
  expect_refused(with({.unknown_slot = true}), like, "has 'exp_avg' in the state of 'weight'");
  expect_refused(written([&](PtFile& file) { file.integer("model", 1); }), like,
                 "'model' is an integer in it");
  expect_refused(
      written([&](PtFile& file) { file.integer("other", 1); }), like,
      "none of its keys is a module or an optimizer of the checkpoint ('model', 'optimizer'), but 'other'");
  expect_refused(written([&](PtFile& file) { file.dict("optimizer", [] {}); }), like,
                 "has no 'state' and 'param_groups' in it");
  expect_refused(written([&](PtFile& file) {
                   model(file, "model");
                   file.integer("step", -1);
                 }),
                 like, "'step' is an integer in it, and must be an integer of at least 0");
  expect_refused(written([&](PtFile& file) {
                   file.dict("model", [&] {
                     file.tensor("weight", DType::float32, {3, 2}, 1);
                     file.tensor("tied", DType::float32, {3, 2}, 2);
                     file.tensor("bias", DType::float32, {2});
                     file.tensor("scale", DType::float32, {});
                     file.tensor("running", DType::int64, {2});
                   });
                 }),
                 like, "'model/tied' and 'model/weight' are one tensor in the checkpoint, and differ in it");
}

TEST_F(ImportStateForms, OtherFilesAndDirectoriesAreRefused) {
  const std::string like = checkpoint("like", state_of(kind_named("Adam")));
  const std::string file = exported(like, "all.pt");
  expect_refused(like, like, "not a file of PyTorch");
  expect_refused(HOLDFAST_SOURCE_DIR "/tests/golden/torch/python-2.11.0/legacy.pt", like,
                 "PyTorch before 1.6");
  expect_refused(HOLDFAST_SOURCE_DIR "/tests/golden/torch/python-2.11.0/own_class.pt", like,
                 "it needs __builtin__.print");
  expect_refused(file, file, "", 1);
  State no_run = state_of(kind_named("Adam"));
  no_run.attributes.erase("run.attempt");
  expect_refused(file, checkpoint("tool", no_run), "no run resumes from it");
  std::string bytes = read_text(file);
  bytes[bytes.find("param_groups")] ^= 1;
  write_text(path("bad.pt"), bytes);
  expect_refused(path("bad.pt"), like, "checksum");
  const Ended weights = run({"import", file, "--to", path("new"), "--like", like, "--key", "model"});
  EXPECT_EQ(weights.exit_code, 64) << weights.err;
  ASSERT_EQ(import(file, like, "used").exit_code, 0);
  EXPECT_EQ(import(file, like, "used").exit_code, 64);
}

}}  // namespace holdfast::test
