#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/name_list.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/format/foreign_weights.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/format/state_import.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/weight_import.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct ImportRequest {
  std::filesystem::path file;
  std::filesystem::path to;
  std::string key;
  std::string module = std::string(kModelModule);
  std::string strip;
  std::filesystem::path like;
  bool json = false;
};

[[noreturn]] void refuse(const ImportRequest& options, const std::string& reason) {
  throw Error(shown(options.file) + ": " + reason, ExitCode::difference);
}

// DataParallel and torch.compile put a word in front of every key. Removed from all keys, or from none.
void strip_prefix(Snapshot& weights, const ImportRequest& options) {
  if (options.strip.empty()) return;
  const std::string group = options.module + "/";
  const std::string prefix = group + options.strip;
  std::vector<TensorSpec> specs = weights.layout->tensors();
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    std::string& name = specs[i].name;
    // A key that is the prefix alone would become empty.
    if (!name.starts_with(prefix) || name.size() == prefix.size()) {
      refuse(options, "the key '" + printable(name.substr(group.size())) +
                          "' does not begin with --strip-prefix '" + printable(options.strip) + "'");
    }
    name.replace(0, prefix.size(), group);
    offsets.push_back(weights.layout->offset(i));
  }
  // The attributes of types have the keys in their names.
  const std::string before = byte_type_attribute(options.module, options.strip);
  for (const auto& [name, attribute] : weights.attributes.with_prefix(before)) {
    weights.attributes.erase(name);
    weights.attributes.set(byte_type_attribute(options.module, name.substr(before.size())), attribute.value);
  }
  // Other names over the same bytes: no weight is copied.
  weights.layout =
      std::make_shared<ImageLayout>(std::move(specs), std::move(offsets), weights.layout->length());
}

// Keys of the file that the checkpoint lacks: an optimizer, an epoch, averages, the state of something else.
std::vector<std::string> left_out(const ForeignIndex& foreign) {
  const auto* const torch = std::get_if<TorchIndex>(&foreign);
  return torch != nullptr ? torch->others : std::vector<std::string>();
}

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 12;
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kMost; ++i) {
    text += (i == 0 ? "'" : ", '") + printable(names[i], 64) + "'";
  }
  return names.size() > kMost ? text + ", …" : text;
}

// "model-00001-of-00003.safetensors": alone it is a part of the weights.
void check_whole(const ImportRequest& options) {
  // One part of one is whole, so the count must be at least 2.
  static const std::regex part("-[0-9]{5}-of-0*([2-9]|[1-9][0-9]+)\\.[a-z]+");
  std::smatch match;
  const std::string name = options.file.filename().string();
  if (!std::regex_search(name, match, part, std::regex_constants::match_default)) return;
  refuse(options, "one of " + match.str(1) +
                      " parts of the weights: join them in Python first (load each, update one "
                      "dict, save that), or give a part another name to import it alone");
}

// --like: a training state that Python has gone on with becomes a whole checkpoint again.
[[noreturn]] void refuse_state(const std::filesystem::path& file, const std::string& reason) {
  throw Error(shown(file) + ": " + reason, ExitCode::difference);
}

ImportedState read_python_state(const ImportRequest& options, const CheckpointIndex& like) {
  const auto file = open_checkpoint(options.file);
  if (!looks_like_torch(*file)) {
    refuse_state(options.file, looks_like_safetensors(*file)
                                   ? "safetensors has weights alone: without --like they become a checkpoint"
                                   : "not a file of PyTorch");
  }
  auto read = read_training_state(*file, like);
  if (const auto* const rejection = std::get_if<Rejection>(&read))
    refuse_state(options.file, rejection->reason);
  return std::get<ImportedState>(std::move(read));
}

// Those that the file does not name, verified.
std::shared_ptr<Snapshot> read_kept(const ImportRequest& options, const Opened& like,
                                    const ImportedState& state) {
  const auto kept = [&](const TensorSpec& spec) { return !state.find(spec.name); };
  for (const ReadMode mode : {ReadMode::once, ReadMode::uncached}) {
    auto read = read_tensors(*like.file, like.index, kept, kReadThreads, mode);
    if (auto* const snapshot = std::get_if<std::shared_ptr<Snapshot>>(&read)) return std::move(*snapshot);
    if (mode == ReadMode::uncached)
      refuse_state(options.like, "damaged: " + std::get<Rejection>(read).reason);
  }
  return nullptr;
}

// The names are the file's, and may be any text.
void print_names(const char* what, std::vector<std::string> names) {
  constexpr std::size_t kMostNames = 24;
  for (std::string& name : names) name = printable(name);
  if (!names.empty()) std::cout << what << name_list(names, kMostNames) << '\n';
}

int run_state_import(const ImportRequest& options) {
  check_import_directory(FileSystem::real(), options.to);
  const Opened like = open_index(options.like);
  try {
    static_cast<void>(run_record_of(like.index.attributes));
  } catch (const RefusedError& error) {
    refuse_state(options.like, std::string("no run resumes from it: ") + error.what());
  }
  // Everything is read and checked before the run directory is made: a refused file leaves no trace.
  const ImportedState state = read_python_state(options, like.index);
  const auto kept = read_kept(options, like, state);
  WholeState whole{.step = state.step, .tensors = state.tensors, .bytes = {}, .attributes = state.attributes};
  for (const TensorSpec& spec : state.tensors) {
    const auto taken = state.find(spec.name);
    whole.bytes.push_back(taken ? *taken : kept->find(spec.name).value());
  }
  const CheckpointInfo made =
      import_state(FileSystem::real(), Clock::real(), options.to, whole, options.file.filename().string());
  const std::filesystem::path path = options.to / made.name;
  if (options.json) {
    print_json({{"schema", kJsonSchema},
                {"file", path.string()},
                {"step", state.step},
                {"tensors", state.tensors.size()},
                {"format", "PyTorch"},
                {"bytes", made.bytes},
                {"from_file", state.from_file},
                {"from_checkpoint", state.from_checkpoint},
                {"left_out", state.left_out},
                {"ignored_options", state.ignored_options}});
    return 0;
  }
  std::cout << shown(path) << ": step " << format_count(state.step) << ", "
            << format_count(static_cast<std::int64_t>(state.tensors.size())) << " tensors, "
            << format_bytes(made.bytes) << '\n';
  print_names("from the file: ", state.from_file);
  print_names("from the checkpoint: ", state.from_checkpoint);
  print_names("not imported: ", state.left_out);
  print_names("ignored options of Python's optimizers: ", state.ignored_options);
  std::cout << "the program resumes from it with the run directory " << shown(options.to) << '\n';
  return 0;
}

int run_import(const ImportRequest& options) {
  if (!options.like.empty()) {
    if (!options.key.empty() || !options.strip.empty() || options.module != kModelModule) {
      throw UsageError(
          "--like takes the parts by their names: --key, --module and --strip-prefix are for "
          "weights alone");
    }
    return run_state_import(options);
  }
  check_whole(options);
  const auto file = open_checkpoint(options.file);
  if (!looks_foreign(*file)) refuse(options, "neither a file of PyTorch nor of safetensors");
  const auto index = read_foreign_index(*file, options.key);
  if (const auto* const rejection = std::get_if<Rejection>(&index)) refuse(options, rejection->reason);
  const auto& foreign = std::get<ForeignIndex>(index);
  // Everything is read and checked before the run directory is made: a refused file leaves no trace.
  const auto read = read_foreign(*file, foreign, options.module);
  if (const auto* const rejection = std::get_if<Rejection>(&read)) refuse(options, rejection->reason);
  Snapshot& weights = *std::get<std::shared_ptr<Snapshot>>(read);
  strip_prefix(weights, options);

  const CheckpointInfo made = import_weights(FileSystem::real(), Clock::real(), options.to, weights,
                                             options.file.filename().string());
  const std::filesystem::path path = options.to / made.name;
  if (options.json) {
    print_json({{"schema", kJsonSchema},
                {"file", path.string()},
                {"module", options.module},
                {"tensors", weights.layout->tensors().size()},
                {"format", format_name(foreign)},
                {"bytes", made.bytes},
                {"left_out", left_out(foreign)}});
    return 0;
  }
  std::cout << shown(path) << ": "
            << format_count(static_cast<std::int64_t>(weights.layout->tensors().size())) << " tensors of '"
            << printable(options.module) << "' from " << format_name(foreign) << ", "
            << format_bytes(made.bytes) << '\n';
  if (const auto others = left_out(foreign); !others.empty()) {
    std::cout << "not imported: " << listed(others) << " (--key takes another dict of the file)\n";
  }
  std::cout << "a run begins with these weights by --init-from " << shown(path) << '\n';
  return 0;
}

constexpr char kImportFooter[] =
    R"(FILE is what torch.save wrote in Python (a state dict, or a trainer's checkpoint that has one), what torch::save
or torch::pickle_save wrote in C++, or a safetensors file. No code in it runs: classes other than tensors and plain
values are refused by name. The new checkpoint has the weights alone, at step 0.

With --like FILE is a training state: what holdfast export --all writes, or what Python has saved in that shape after
some steps of its own. The program of CHECKPOINT resumes from the new checkpoint, with FILE's modules and optimizers.
A part that FILE does not name is CHECKPOINT's own. A state that does not fit is refused, and nothing is written.

Exit code: 0 written, 1 FILE is refused, 2 unreadable, 64 RUN_DIR is not empty.

Example:
  holdfast import old.pt --to /mnt/ckpt/pretrained
  holdfast import all.pt --to /mnt/ckpt/run2 --like /mnt/ckpt/run1/step-000000001200-a0001.h5)";

}  // namespace

void add_import(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ImportRequest>();
  CLI::App* const command =
      app.add_subcommand("import", "Make a checkpoint of weights that PyTorch or safetensors wrote");
  command->add_option("FILE", options->file, "a .pt, .bin or .safetensors file")->required();
  command->add_option("--to", options->to, "a new run directory")->type_name("RUN_DIR")->required();
  command
      ->add_option("--key", options->key,
                   "where the weights are in the file, such as model_state_dict or state.model; found by "
                   "itself where trainers usually put them")
      ->type_name("KEY");
  command->add_option("--module", options->module, "module of the training state that they are for")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--strip-prefix", options->strip,
                   "remove this text in front of every key, such as \"module.\"")
      ->type_name("TEXT");
  command
      ->add_option("--like", options->like,
                   "a checkpoint of the program that goes on: import a whole training state, with optimizers")
      ->type_name("CHECKPOINT");
  add_json(*command, options->json);
  command->footer(kImportFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_import(*options); }; });
}

}}  // namespace holdfast::v0_2
