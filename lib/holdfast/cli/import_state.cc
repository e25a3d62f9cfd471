#include "holdfast/cli/import_state.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/name_list.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/examine.h"
#include "holdfast/cli/json_output.h"
#include "holdfast/format/foreign_weights.h"
#include "holdfast/format/state_import.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/writing/weight_import.h"

namespace holdfast { inline namespace v0_2 {
namespace {

[[noreturn]] void refuse_state(const std::filesystem::path& file, const std::string& reason) {
  throw Error(shown(file) + ": " + reason, ExitCode::difference);
}

ImportedState read_python_state(const StateImportRequest& request, const CheckpointIndex& like) {
  const auto file = open_checkpoint(request.file);
  if (!looks_like_torch(*file)) {
    refuse_state(request.file, looks_like_safetensors(*file)
                                   ? "safetensors has weights alone: without --like they become a checkpoint"
                                   : "not a file of PyTorch");
  }
  auto read = read_training_state(*file, like);
  if (const auto* const rejection = std::get_if<Rejection>(&read))
    refuse_state(request.file, rejection->reason);
  return std::get<ImportedState>(std::move(read));
}

// Those that the file does not name, verified.
std::shared_ptr<Snapshot> read_kept(const StateImportRequest& request, const Opened& like,
                                    const ImportedState& state) {
  const auto kept = [&](const TensorSpec& spec) { return !state.find(spec.name); };
  for (const ReadMode mode : {ReadMode::once, ReadMode::uncached}) {
    auto read = read_tensors(*like.file, like.index, kept, kReadThreads, mode);
    if (auto* const snapshot = std::get_if<std::shared_ptr<Snapshot>>(&read)) return std::move(*snapshot);
    if (mode == ReadMode::uncached)
      refuse_state(request.like, "damaged: " + std::get<Rejection>(read).reason);
  }
  return nullptr;
}

// The names are the file's, and may be any text.
void print_names(const char* what, std::vector<std::string> names) {
  constexpr std::size_t kMostNames = 24;
  for (std::string& name : names) name = printable(name);
  if (!names.empty()) std::cout << what << name_list(names, kMostNames) << '\n';
}

}  // namespace

int run_state_import(const StateImportRequest& request) {
  check_import_directory(FileSystem::real(), request.to);
  const Opened like = open_index(request.like);
  try {
    static_cast<void>(run_record_of(like.index.attributes));
  } catch (const RefusedError& error) {
    refuse_state(request.like, std::string("no run resumes from it: ") + error.what());
  }
  // Everything is read and checked before the run directory is made: a refused file leaves no trace.
  const ImportedState state = read_python_state(request, like.index);
  const auto kept = read_kept(request, like, state);
  WholeState whole{.step = state.step, .tensors = state.tensors, .bytes = {}, .attributes = state.attributes};
  for (const TensorSpec& spec : state.tensors) {
    const auto taken = state.find(spec.name);
    whole.bytes.push_back(taken ? *taken : kept->find(spec.name).value());
  }
  const CheckpointInfo made =
      import_state(FileSystem::real(), Clock::real(), request.to, whole, request.file.filename().string());
  const std::filesystem::path path = request.to / made.name;
  if (request.json) {
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
  std::cout << "the program resumes from it with the run directory " << shown(request.to) << '\n';
  return 0;
}

}}  // namespace holdfast::v0_2
