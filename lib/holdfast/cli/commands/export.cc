#include <CLI/CLI.hpp>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/files/metered_file.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/progress.h"
#include "holdfast/cli/weights/base_weights.h"
#include "holdfast/cli/weights/export_files.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// What the export needs and the checkpoint has by digest alone.
std::vector<DigestedTensor> missing_tensors(const ExportRequest& options, const CheckpointIndex& index) {
  std::vector<DigestedTensor> missing;
  if (!options.ema.empty()) return missing;
  std::uint64_t bytes = 0;
  for (DigestedTensor& tensor : digested_tensors(index.attributes)) {
    if (!options.all && !tensor.spec.name.starts_with(options.module + "/")) continue;
    bytes += tensor.spec.bytes();
    missing.push_back(std::move(tensor));
  }
  if (missing.empty() || !options.base.empty()) return missing;
  throw RefusedError(shown(options.file) + " has " + format_count(static_cast<std::int64_t>(missing.size())) +
                     " frozen tensors by digest alone (" + printable(missing.front().spec.name) +
                     " is the first, " + format_bytes(bytes) +
                     " together): --base FILE names a file that has them");
}

int run_export(const ExportRequest& options) {
  if (!options.to.has_filename()) throw UsageError("--to " + shown(options.to) + ": name a file");
  const auto folder = folder_of(options.to);
  const auto directory = FileSystem::real().open_directory(folder, false);
  if (directory == nullptr) throw IoError("open", folder.string(), ENOENT);

  const auto [checkpoint, stored] = open_index(options.file);
  ReadLimit limit(options.read_limit);
  const std::vector<DigestedTensor> missing = missing_tensors(options, stored);
  const auto base = missing.empty() ? nullptr : read_base(options.base, missing, limit);
  const CheckpointIndex index = base ? with_base(stored, missing, *base) : stored;
  const Export wanted(options, index, state_digest_of(stored));
  // Before anything is read: a file that exists must not be found after an hour of copying.
  for (const std::string& name : wanted.names()) {
    check_replaceable(*directory, name == options.to.filename() ? options.to : folder / name, options.force);
  }
  ExportRemains remains(*directory, options.to, wanted.names(), wanted.can_shard(), options.force);
  remains.begin();
  std::optional<Rejection> rejection;
  for (const ReadMode mode : {ReadMode::once, ReadMode::uncached}) {
    // Their destructors remove the files of a try that found damage, before the next try begins.
    std::vector<std::unique_ptr<NewFile>> made;
    {
      Progress progress("exporting " + printable(options.file.filename().string()), stored.file_length);
      const MeteredFile metered(*checkpoint, limit, progress.done());
      rejection = wanted.write(FileWithBase(metered, base.get()), *directory, mode, remains, made);
    }
    if (rejection) continue;  // damage counts only if the device shows it too
    remains.publishing();
    std::uint64_t bytes = 0;
    // The index of shards comes last, so a loader never finds one that names files which are not there yet.
    for (const auto& file : made) {
      file->publish(options.force);
      bytes += file->size();
    }
    // Only now: until here a loader found the earlier weights, whole.
    remains.finish();
    const std::filesystem::path named = made.size() == 1 ? options.to : folder / wanted.names().back();
    const std::size_t shards = made.size() == 1 ? 0 : made.size() - 1;
    if (options.json) {
      print_json({{"schema", kJsonSchema},
                  {"file", named.string()},
                  {"module", options.ema.empty() ? options.module : options.ema},
                  {"tensors", wanted.tensors()},
                  {"step", index.step},
                  {"bytes", bytes},
                  {"shards", shards}});
      return 0;
    }
    std::cout << shown(named) << ": " << wanted.what() << " at step " << format_count(index.step) << ", "
              << format_bytes(bytes);
    if (shards != 0) std::cout << " in " << shards << " shards";
    std::cout << '\n';
    return 0;
  }
  throw Error(shown(options.file) + ": damaged: " + rejection->reason, ExitCode::difference);
}

constexpr char kExportFooter[] =
    R"(The ending of the new file's name chooses the format: .pt, .pth or .bin for PyTorch (torch.load), .h5 or .hdf5
for HDF5 without a user block, everything else safetensors.
The keys are those of the state dict. A tied weight appears under each of its names.
Frozen weights that the checkpoint has by digest alone (holdfast show lists them) come from --base.
Every byte is verified while it is copied. The new file appears whole or not at all. It is no checkpoint.

Exit code: 0 written, 1 the checkpoint or the base is damaged, 2 unreadable, or the base is missing or another.

Example:
  holdfast export /mnt/ckpt/run1/step-000000001200-a0001.h5 --to weights.pt
  python3 -c 'import torch; print(torch.load("weights.pt").keys())')";

}  // namespace

void add_export(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ExportRequest>();
  CLI::App* const command = app.add_subcommand(
      "export", "Write a checkpoint's weights for other tools: PyTorch, safetensors, HDF5");
  command->add_option("FILE", options->file, "the checkpoint")->required();
  command->add_option("--to", options->to, "the new file; the umask decides who can read it")
      ->type_name("FILE")
      ->required();
  command->add_option("--module", options->module, "module of the training state to export")
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--ema", options->ema,
                   "the averaged weights instead, of the part NAME of the training state")
      ->type_name("NAME");
  command->add_flag("--all", options->all,
                    "the whole training state, for .pt and .h5: optimizer, schedule, counters");
  command
      ->add_option("--base", options->base,
                   "a checkpoint, .safetensors or .pt file with the frozen weights that this one lacks")
      ->type_name("FILE");
  command->add_option("--dtype", options->dtype, "convert floating-point weights to this type: bf16")
      ->type_name("TYPE");
  command
      ->add_option("--shard", options->shard, "several safetensors files of at most this size, and an index")
      ->type_name("SIZE");
  command->add_flag("--force", options->force,
                    "replace the new file, and remove what an earlier export left");
  add_read_limit(*command, options->read_limit);
  add_json(*command, options->json);
  command->footer(kExportFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_export(*options); }; });
}

}}  // namespace holdfast::v0_2
