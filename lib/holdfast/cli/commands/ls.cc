#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/commands.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/output/color.h"
#include "holdfast/cli/output/json_output.h"
#include "holdfast/cli/output/table.h"
#include "holdfast/mirror/home_record.h"
#include "holdfast/staging/run_record.h"
#include "holdfast/store/run_state.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Json = nlohmann::ordered_json;

struct LsRequest {
  std::filesystem::path directory;
  bool verify = false;
  bool json = false;
  std::string color = "auto";
};

std::string phase_text(const RunState& state) {
  switch (state.phase) {
    case RunPhase::starting:
      return "starting";
    case RunPhase::running:
      return "running, or ended without a last state";
    case RunPhase::complete:
      return "complete";
    case RunPhase::interrupted:
      return "interrupted, resumable";
    case RunPhase::failed:
      return "failed";
    case RunPhase::superseded:
      return "superseded";
  }
  return "unknown";
}

void print_run_state(const RunState& state) {
  std::cout << "attempt " << state.attempt << ": " << phase_text(state) << ", at step "
            << format_count(state.step);
  if (state.durable_step >= 0) std::cout << ", step " << format_count(state.durable_step) << " durable";
  if (!state.time.empty()) std::cout << ", " << printable(state.time);
  if (!state.host.empty()) std::cout << " on " << printable(state.host);
  if (!state.reason.empty()) std::cout << " (" << printable(state.reason, 400) << ")";
  if (state.copy_of != 0) std::cout << ", as attempt " << state.copy_of << " left it before a prune";
  std::cout << '\n';
  if (state.saves > 0) {
    const auto time = [](std::int64_t ms) { return format_duration(std::chrono::milliseconds(ms)); };
    std::cout << "  " << format_count(state.saves) << (state.saves == 1 ? " save, " : " saves, ")
              << format_bytes(state.saved_bytes) << " in " << time(state.elapsed_ms) << "; training waited "
              << time(state.waited_ms) << " for them; at most " << time(state.most_risk_ms)
              << " of work was at risk\n";
  }
}

bool is_finite(const Examined& examined) {
  // Told in the index, so no byte of the state is read.
  const Attribute* const finite = examined.index ? examined.index->attributes.find(kRunFinite) : nullptr;
  const auto* const told = finite == nullptr ? nullptr : std::get_if<bool>(&finite->value);
  // A file without this attribute is none of a Checkpointer's, and nothing speaks against its state.
  return told == nullptr || *told;
}

// A valid file whose state is not finite must not show as simply "ok": nobody wants to resume from it.
std::string state_text(const Examined& examined) {
  const bool lost = examined.state == FileState::ok && !is_finite(examined);
  return word_of(examined.state) + (lost ? ", not finite" : "");
}

Json json_of(const Listed& listed, const Examined& examined) {
  const auto age = age_in_seconds(examined);
  const std::string& note = examined.reason.empty() ? examined.remark : examined.reason;
  return {{"name", listed.name},
          {"step", listed.id.step},
          {"attempt", listed.id.attempt},
          {"bytes", listed.bytes},
          {"age_s", age ? Json(*age) : Json(nullptr)},
          {"state", word_of(examined.state)},
          {"finite", is_finite(examined)},
          {"note", note.empty() ? Json(nullptr) : Json(note)}};
}

// The members of RUN_STATE.json; null before the first.
Json json_of(const LastWord& word) {
  if (word.attempt == 0) return nullptr;
  // Through the file's own text, so that `ls --json` and RUN_STATE.json have the same members.
  if (word.state) return Json::parse(to_json(*word.state), nullptr, false);
  return {{"attempt", word.attempt}, {"phase", word_of(RunPhase::starting)}};
}

// What a mirror has brought to a second place; null: no mirror was here.
Json json_of(const std::optional<HomeRecord>& home) {
  if (!home) return nullptr;
  return {{"place", home->home},
          {"checkpoint", home->newest ? Json(checkpoint_name(*home->newest)) : Json(nullptr)},
          {"since", home->newest ? Json(home->newest_since) : Json(nullptr)}};
}

void print_home(const HomeRecord& home) {
  std::cout << "home in " << printable(home.home, 400) << ": ";
  if (home.newest) {
    std::cout << checkpoint_name(*home.newest) << " since " << printable(home.newest_since) << '\n';
  } else {
    std::cout << "nothing yet\n";
  }
}

int run_ls(const LsRequest& options) {
  const auto directory = open_run_directory(options.directory);
  const Listing listing = list_checkpoints(*directory);
  using enum Table::Align;
  Table table({right, right, right, right, left, left});
  table.add({"STEP", "ATTEMPT", "SIZE", "AGE", "STATE", "NAME"});
  const Paint paint = paint_for(options.color);
  std::vector<std::string> notes;
  Json checkpoints = Json::array();
  for (const Listed& listed : listing.checkpoints) {
    const Examined examined =
        examine(*directory, listed.name, options.verify ? Depth::every_byte : Depth::index);
    if (options.json) checkpoints.push_back(json_of(listed, examined));
    table.add({format_count(listed.id.step), std::to_string(listed.id.attempt), format_bytes(listed.bytes),
               age_of(examined), state_text(examined), listed.name});
    const std::string& note = examined.reason.empty() ? examined.remark : examined.reason;
    if (note.empty()) continue;
    const Color color = examined.state == FileState::damaged ? Color::bad : Color::warning;
    // Below the table: a sentence in a column would push the names out of sight.
    notes.push_back(paint(color, terminal_text(listed.name + ": " + note)));
  }
  if (options.json) {
    print_json({{"schema", kJsonSchema},
                {"directory", options.directory.string()},
                {"checkpoints", checkpoints},
                {"damaged", listing.damaged},
                {"run", json_of(last_word(*directory))},
                {"home", json_of(read_home_record(*directory))}});
    return 0;
  }
  if (listing.checkpoints.empty()) {
    std::cout << "no checkpoints in " << shown(options.directory) << '\n';
  } else {
    table.print(std::cout);
  }
  for (const std::string& note : notes) std::cout << note << '\n';
  if (!listing.damaged.empty()) {
    std::cout << listing.damaged.size() << " more set aside as damaged (" << listing.damaged.back() << ")\n";
  }
  const LastWord word = last_word(*directory);
  if (word.state) {
    print_run_state(*word.state);
  } else if (word.attempt > 0) {
    std::cout << "attempt " << word.attempt
              << ": has claimed the directory and has not written its state yet\n";
  }
  if (const auto home = read_home_record(*directory)) print_home(*home);
  return 0;
}

constexpr char kLsFooter[] = R"(STATE is one of:
  ok            header and index are valid; with --verify, every byte is
  ok, not finite
                the loss, a trained parameter or an optimizer slot is NaN or infinite, or another tensor holds NaN
  damaged       its bytes are not those that were written
  newer         a newer version of Holdfast wrote it, in a format that this one cannot read
  unreadable    the volume refused to read it

Example:
  holdfast ls /mnt/ckpt/run1)";

}  // namespace

void add_ls(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<LsRequest>();
  CLI::App* const command = app.add_subcommand("ls", "List the checkpoints of a run directory, newest first");
  command->add_option("DIR", options->directory, "the run directory")->required();
  command->add_flag("--verify", options->verify, "read every byte, not only header and index");
  add_json(*command, options->json);
  add_color(*command, options->color);
  command->footer(kLsFooter);
  command->callback([options, &chosen] { chosen = [options] { return run_ls(*options); }; });
}

}}  // namespace holdfast::v0_2
