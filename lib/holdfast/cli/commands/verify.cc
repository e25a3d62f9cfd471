#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/files/metered_file.h"
#include "holdfast/cli/output/color.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/progress.h"
#include "holdfast/cli/output/table.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyRequest {
  std::filesystem::path path;
  double read_limit = 0;
  std::string color = "auto";
  bool json = false;
};

Color color_of(FileState state) {
  if (state == FileState::ok) return Color::good;
  return state == FileState::damaged ? Color::bad : Color::warning;
}

// Damage decides the exit code: it is certain, while an unreadable file may be good.
class Verdicts {
 public:
  explicit Verdicts(const VerifyRequest& options) : json_(options.json), paint_(paint_for(options.color)) {}

  void print(const std::string& name, std::uint64_t bytes, const Examined& examined,
             const std::string& rate) {
    worst_damaged_ |= examined.state == FileState::damaged;
    worst_unknown_ |= examined.state == FileState::newer || examined.state == FileState::unreadable;
    const std::string word = word_of(examined.state);
    if (json_) {
      const std::string& why = examined.reason.empty() ? examined.remark : examined.reason;
      files_.push_back({{"name", name},
                        {"bytes", bytes},
                        {"state", word},
                        {"note", why.empty() ? Json(nullptr) : Json(why)}});
      return;
    }
    std::cout << paint_(color_of(examined.state), word) << std::string(12 - word.size(), ' ')
              << printable(name, 4096) << "  " << format_bytes(bytes);
    const std::string& note = examined.reason.empty() ? examined.remark : examined.reason;
    if (!note.empty()) std::cout << "  " << terminal_text(note);
    // Flushed, because the next file may take minutes.
    std::cout << std::endl;
    // Not in a file or a pipe: the rate differs each time, and results are to be compared.
    if (stderr_is_terminal()) print_line("  read at " + rate);
  }
  // The exit code.
  int end() const {
    if (json_) print_json({{"schema", kJsonSchema}, {"files", files_}, {"exit_code", exit_code()}});
    return exit_code();
  }

 private:
  int exit_code() const {
    if (worst_damaged_) return static_cast<int>(ExitCode::difference);
    return static_cast<int>(worst_unknown_ ? ExitCode::unreadable : ExitCode::complete);
  }

  const bool json_;
  const Paint paint_;
  Json files_ = Json::array();
  bool worst_damaged_ = false;
  bool worst_unknown_ = false;
};

// The retention of a living trainer deletes the oldest while newer ones are read.
bool is_gone(const Directory& directory, const std::string& name) {
  try {
    return !directory.status(name);
  } catch (const Error&) {
    return false;  // the volume does not tell
  }
}

int verify_directory(Directory& directory, const VerifyRequest& options) {
  const Listing listing = list_checkpoints(directory);
  std::size_t deleted = 0;
  Verdicts verdicts(options);
  ReadLimit limit(options.read_limit);
  for (const Listed& listed : listing.checkpoints) {
    // One for each file: the rate beside a verdict is that of its own file.
    Progress progress("verifying " + listed.name, listed.bytes);
    const Examined examined = examine(directory, listed.name, Depth::every_byte, progress.done(), &limit);
    if (examined.state == FileState::unreadable && is_gone(directory, listed.name)) {
      log_info("{} was deleted meanwhile; left out", listed.name);
      ++deleted;
      continue;
    }
    verdicts.print(listed.name, listed.bytes, examined, progress.rate());
  }
  // Not a success: a script that names the wrong directory must not hear that all is good.
  if (deleted == listing.checkpoints.size()) {
    throw Error("no checkpoints in " + shown(options.path) + " (their names are step-<step>-a<attempt>.h5)",
                ExitCode::unreadable);
  }
  return verdicts.end();
}

int run_verify(const VerifyRequest& options) {
  std::error_code ignored;
  // The error is ignored: such a path is then opened as a file, and that error has its reason.
  if (std::filesystem::is_directory(options.path, ignored)) {
    return verify_directory(*open_run_directory(options.path), options);
  }
  const auto file = open_checkpoint(options.path);
  const std::uint64_t bytes = file->size();
  Progress progress("verifying " + printable(options.path.filename().string()), bytes);
  ReadLimit limit(options.read_limit);
  const Examined examined = examine(MeteredFile(*file, limit), options.path.filename().string(),
                                    Depth::every_byte, progress.done());
  Verdicts verdicts(options);
  verdicts.print(options.path.string(), bytes, examined, progress.rate());
  return verdicts.end();
}

constexpr char kVerifyFooter[] =
    R"(Reads from the device, not from the page cache. A file counts as damaged only if two reads agree.

Exit code: 0 all good, 1 something is damaged, 2 unreadable or of a newer format. Of a directory, files that its trainer
deletes meanwhile are left out.

Example:
  holdfast verify /mnt/ckpt/run1)";

}  // namespace

void add_verify(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<VerifyRequest>();
  CLI::App* const command =
      app.add_subcommand("verify", "Read every byte of a checkpoint, or of all in a directory");
  command->add_option("PATH", options->path, "a checkpoint, or a run directory")->required();
  add_read_limit(*command, options->read_limit);
  add_color(*command, options->color);
  add_json(*command, options->json);
  command->footer(kVerifyFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_verify(*options); }; });
}

}}  // namespace holdfast::v0_2
