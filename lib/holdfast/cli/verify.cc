#include <CLI/CLI.hpp>
#include <iostream>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/examine.h"
#include "holdfast/cli/progress.h"
#include "holdfast/cli/table.h"

namespace holdfast { inline namespace v1 {
namespace {

struct VerifyRequest {
  std::filesystem::path path;
};

// Damage decides the exit code: it is certain, while an unreadable file may be good.
class Verdicts {
 public:
  void print(const std::string& name, std::uint64_t bytes, const Examined& examined,
             const std::string& rate) {
    worst_damaged_ |= examined.state == FileState::damaged;
    worst_unknown_ |= examined.state == FileState::newer || examined.state == FileState::unreadable;
    const std::string word = word_of(examined.state);
    std::cout << word << std::string(12 - word.size(), ' ') << printable(name, 4096) << "  "
              << format_bytes(bytes);
    const std::string& note = examined.reason.empty() ? examined.remark : examined.reason;
    if (!note.empty()) std::cout << "  " << terminal_text(note);
    std::cout << std::endl;
    if (stderr_is_terminal()) print_line("  read at " + rate);
  }
  int exit_code() const {
    if (worst_damaged_) return static_cast<int>(ExitCode::difference);
    return static_cast<int>(worst_unknown_ ? ExitCode::unreadable : ExitCode::complete);
  }

 private:
  bool worst_damaged_ = false;
  bool worst_unknown_ = false;
};

int verify_directory(Directory& directory, const VerifyRequest& options) {
  const Listing listing = list_checkpoints(directory);
  if (listing.checkpoints.empty()) {
    throw Error("no checkpoints in " + printable(options.path.string(), 4096) +
                    " (their names are step-<step>-a<attempt>.h5)",
                ExitCode::unreadable);
  }
  Verdicts verdicts;
  for (const Listed& listed : listing.checkpoints) {
    Progress progress("verifying " + listed.name, listed.bytes);
    const Examined examined = examine(directory, listed.name, Depth::every_byte, progress.done());
    verdicts.print(listed.name, listed.bytes, examined, progress.rate());
  }
  return verdicts.exit_code();
}

int run_verify(const VerifyRequest& options) {
  std::error_code ignored;
  if (std::filesystem::is_directory(options.path, ignored)) {
    return verify_directory(*open_run_directory(options.path), options);
  }
  const auto file = open_checkpoint(options.path);
  const std::uint64_t bytes = file->size();
  Progress progress("verifying " + printable(options.path.filename().string()), bytes);
  const Examined examined =
      examine(*file, options.path.filename().string(), Depth::every_byte, progress.done());
  Verdicts verdicts;
  verdicts.print(options.path.string(), bytes, examined, progress.rate());
  return verdicts.exit_code();
}

constexpr char kVerifyFooter[] =
    R"(Reads from the device, not from the page cache. A file counts as damaged only if two reads agree.

Exit code: 0 all good, 1 something is damaged, 2 unreadable or of a newer format.

Example:
  holdfast verify /mnt/ckpt/run1)";

}  // namespace

void add_verify(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<VerifyRequest>();
  CLI::App* const command =
      app.add_subcommand("verify", "Read every byte of a checkpoint, or of all in a directory");
  command->add_option("PATH", options->path, "a checkpoint, or a run directory")->required();
  command->footer(kVerifyFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_verify(*options); }; });
}

}}  // namespace holdfast::v1
