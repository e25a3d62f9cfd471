#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/examine.h"
#include "holdfast/cli/json_output.h"
#include "holdfast/cli/metered_file.h"
#include "holdfast/cli/progress.h"
#include "holdfast/format/layout.h"
#include "holdfast/format/state_dict.h"

namespace holdfast { inline namespace v1 {
namespace {

struct ExportRequest {
  std::filesystem::path file;
  std::filesystem::path to;
  std::string module = std::string(kModelModule);
  bool force = false;
  double read_limit = 0;
  bool json = false;
};

std::string shown(const std::filesystem::path& path) { return printable(path.string(), 4096); }

bool is_checkpoint(const File& file) {
  std::array<std::byte, kMagic.size()> start{};
  return file.read_at(start, 0) == start.size() &&
         std::string_view(reinterpret_cast<const char*>(start.data()), start.size()) == kMagic;
}

// The new file, under a temporary name until it is complete. The destructor removes it unless it was
// published.
class NewFile {
 public:
  NewFile(Directory& directory, std::string name)
      : directory_(directory),
        name_(std::move(name)),
        temporary_(".holdfast-export-" + std::to_string(getpid())),
        file_(directory_.open(temporary_, OpenMode::create)) {
    if (file_ != nullptr) return;
    throw IoError("create", directory_.path() + "/" + temporary_, EEXIST,
                  "delete what an earlier export left");
  }
  ~NewFile() {
    if (published_) return;
    file_ = nullptr;
    try {
      directory_.unlink(temporary_);
    } catch (const Error& error) {
      log_warning("a part of the export is left behind: {}", error.what());
    }
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  File& file() { return *file_; }
  // Makes it durable under its name, as a whole. False if a file of that name appeared meanwhile.
  bool publish(bool replace) {
    file_->sync();
    file_->close();
    if (replace) {
      directory_.rename_over(temporary_, name_);
    } else if (!directory_.rename_new(temporary_, name_)) {
      return false;
    }
    published_ = true;
    directory_.sync();
    return true;
  }

 private:
  Directory& directory_;
  std::string name_;
  std::string temporary_;
  std::unique_ptr<File> file_;
  bool published_ = false;
};

[[noreturn]] void refuse_existing(const ExportRequest& options) {
  throw UsageError("--to " + shown(options.to) + ": it exists; --force replaces it");
}

// Refuses targets that must not be replaced.
void check_target(Directory& directory, const ExportRequest& options) {
  const std::string name = options.to.filename().string();
  const auto status = directory.status(name);
  if (!status) return;
  if (status->kind != FileKind::regular)
    throw UsageError("--to " + shown(options.to) + ": it is no plain file");
  if (!options.force) refuse_existing(options);
  const auto file = directory.open(name, OpenMode::read);
  if (file != nullptr && is_checkpoint(*file)) {
    throw UsageError("--to " + shown(options.to) + ": that is a checkpoint, which is never replaced");
  }
}

int run_export(const ExportRequest& options) {
  if (!options.to.has_filename()) throw UsageError("--to " + shown(options.to) + ": name a file");
  const auto folder = options.to.has_parent_path() ? options.to.parent_path() : std::filesystem::path(".");
  const auto directory = FileSystem::real().open_directory(folder, false);
  if (directory == nullptr) throw IoError("open", folder.string(), ENOENT);
  check_target(*directory, options);

  const auto [checkpoint, index] = open_index(options.file);
  const auto tensors = state_dict_of(index, options.module);
  if (tensors.empty()) {
    throw Error(shown(options.file) + ": there is no module '" + printable(options.module) +
                    "' in it (holdfast show lists the tensors)",
                ExitCode::unreadable);
  }
  const std::map<std::string, std::string> metadata{{"format", "pt"},
                                                    {"holdfast_state", to_hex(state_digest_of(index))},
                                                    {"holdfast_step", std::to_string(index.step)}};
  std::optional<Rejection> rejection;
  ReadLimit limit(options.read_limit);
  for (const ReadMode mode : {ReadMode::once, ReadMode::uncached}) {
    NewFile made(*directory, options.to.filename().string());
    Progress progress("exporting " + printable(options.file.filename().string()), index.file_length);
    const MeteredFile metered(*checkpoint, limit, progress.done());
    rejection = export_safetensors(metered, index, tensors, metadata, made.file(), mode);
    if (rejection) continue;  // damage counts only if the device shows it too
    const std::uint64_t bytes = made.file().size();
    if (!made.publish(options.force)) refuse_existing(options);
    if (options.json) {
      print_json({{"schema", kJsonSchema},
                  {"file", options.to.string()},
                  {"module", options.module},
                  {"tensors", tensors.size()},
                  {"step", index.step},
                  {"bytes", bytes}});
      return 0;
    }
    std::cout << shown(options.to) << ": " << format_count(static_cast<std::int64_t>(tensors.size()))
              << " tensors of '" << printable(options.module) << "' at step " << format_count(index.step)
              << ", " << format_bytes(bytes) << '\n';
    return 0;
  }
  throw Error(shown(options.file) + ": damaged: " + rejection->reason, ExitCode::difference);
}

constexpr char kExportFooter[] =
    R"(The keys are those of the state dict. A tied weight appears under each of its names.
Every byte is verified while it is copied. The new file appears whole or not at all.

Exit code: 0 written, 1 the checkpoint is damaged, 2 unreadable.

Example:
  holdfast export /mnt/ckpt/run1/step-000000001200-a0001.h5 --to weights.safetensors
  python3 -c 'import safetensors.torch as s; print(s.load_file("weights.safetensors").keys())')";

}  // namespace

void add_export(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ExportRequest>();
  CLI::App* const command =
      app.add_subcommand("export", "Write a checkpoint's weights as a safetensors file, for other tools");
  command->add_option("FILE", options->file, "the checkpoint")->required();
  command->add_option("--to", options->to, "the new file; only its owner can read it")
      ->type_name("FILE")
      ->required();
  command->add_option("--module", options->module, "module of the training state to export")
      ->type_name("NAME")
      ->capture_default_str();
  command->add_flag("--force", options->force, "replace the new file if it exists");
  add_read_limit(*command, options->read_limit);
  add_json(*command, options->json);
  command->footer(kExportFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_export(*options); }; });
}

}}  // namespace holdfast::v1
