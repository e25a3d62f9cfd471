#include "holdfast/cli/report/status_screen.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {

std::string cut_to_width(const std::string& text, std::size_t width) {
  std::size_t characters = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    // The later bytes of one UTF-8 character.
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
    if (characters++ == width) return text.substr(0, at);
  }
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

// The longest labels ("home error", "save error") and a blank.
constexpr std::size_t kLabelWidth = 11;
constexpr std::size_t kLongestText = 400;

// The screen is made from the JSON alone, so that it cannot say anything else. The child process that reads
// the volume returns text.
const Json& member(const Json& object, const char* name) {
  // Null and no error, because a report lacks members in many states. A look-up in null gives null again.
  static const Json none;
  if (!object.is_object()) return none;
  const auto found = object.find(name);
  return found == object.end() ? none : *found;
}

std::string text_in(const Json& object, const char* name) {
  const Json& found = member(object, name);
  return found.is_string() ? printable(found.get<std::string>(), kLongestText) : std::string();
}

std::optional<std::int64_t> count_in(const Json& object, const char* name) {
  const Json& found = member(object, name);
  return found.is_number_integer() ? std::optional(found.get<std::int64_t>()) : std::nullopt;
}

std::optional<double> number_in(const Json& object, const char* name) {
  const Json& found = member(object, name);
  return found.is_number() ? std::optional(found.get<double>()) : std::nullopt;
}

std::optional<std::string> time_in(const Json& object, const char* name) {
  const auto seconds = number_in(object, name);
  if (!seconds) return std::nullopt;
  // Whole seconds, because a screen that shows milliseconds is not calm.
  const std::int64_t whole = std::llround(*seconds);
  return whole < 10 ? std::to_string(std::max<std::int64_t>(whole, 0)) + "s"
                    : format_duration(std::chrono::seconds(whole));
}

std::string size_in(const Json& object, const char* name) {
  return format_bytes(
      static_cast<std::uint64_t>(std::max<std::int64_t>(count_in(object, name).value_or(0), 0)));
}

void add(std::string& text, const std::string& more) {
  if (more.empty()) return;
  if (!text.empty()) text += ", ";
  text += more;
}

std::string step_text(const Json& report) {
  const auto step = count_in(report, "step");
  if (!step) return {};
  std::string text = format_count(*step);
  if (const auto last = count_in(report, "last_step"); last && *last > 0) {
    const double share = static_cast<double>(*step) / static_cast<double>(*last);
    text += " of " + format_count(*last) + " (" + format_number(std::round(1000 * share) / 10) + " %)";
  }
  if (const auto rate = number_in(report, "steps_per_second")) add(text, format_number(*rate) + " steps/s");
  if (const auto left = time_in(report, "time_left_s")) add(text, "about " + *left + " left");
  return text;
}

std::string loss_text(const Json& report) {
  if (const auto loss = number_in(report, "loss")) return format_number(*loss);
  return text_in(report, "loss");
}

std::string durable_text(const Json& report) {
  const Json& durable = member(report, "durable");
  const auto step = count_in(durable, "step");
  if (!step) return "nothing yet";
  const auto age = time_in(durable, "age_s");
  return "step " + format_count(*step) + (age ? ", " + *age + " old" : "");
}

std::string risk_text(const Json& report) {
  const Json& risk = member(report, "risk");
  const std::int64_t steps = count_in(risk, "steps").value_or(0);
  if (steps == 0) return "no work";
  const auto time = time_in(risk, "s");
  return format_count(steps) + (steps == 1 ? " step" : " steps") + (time ? ", " + *time + " of work" : "");
}

// "step 1,200 in /mnt/efs/run1, 60 steps not home"
std::string home_text(const Json& report) {
  const Json& home = member(report, "home");
  const std::string place = text_in(home, "place");
  if (place.empty()) return {};
  const auto step = count_in(home, "step");
  std::string text = (step ? "step " + format_count(*step) : std::string("nothing yet")) + " in " + place;
  if (const auto risk = count_in(home, "risk_steps"); risk && *risk > 0) {
    const auto time = time_in(home, "risk_s");
    text += ", " + format_count(*risk) + (*risk == 1 ? " step" : " steps") +
            (time ? " (" + *time + ")" : "") + " not home";
  }
  return text;
}

// "host b: step 1,200 at hand, waits for 12m"
std::string standby_text(const Json& report) {
  const Json& standby = member(report, "standby");
  const auto age = number_in(standby, "age_s");
  if (!age) return {};
  const std::string host = "host " + text_in(standby, "host") + ": ";
  if (*age > 30) return host + "gave its last sign " + time_in(standby, "age_s").value() + " ago";
  const auto step = count_in(standby, "step");
  return host + (step ? "step " + format_count(*step) + " at hand" : "nothing at hand yet") + ", waits for " +
         time_in(standby, "waits_s").value_or("0s");
}

std::string home_trouble(const Json& report) {
  const Json& home = member(report, "home");
  const Json& superseded = member(home, "superseded");
  if (superseded.is_boolean() && superseded.get<bool>()) return "another machine has taken it over";
  const std::string failure = text_in(home, "failure");
  const auto time = time_in(home, "failing_s");
  return failure + (failure.empty() || !time ? "" : ", for " + *time);
}

std::string next_save_text(const Json& report) {
  const Json& next = member(report, "next_save");
  std::string text;
  if (const auto in = number_in(next, "in_s")) text = *in < 1 ? "now" : "in " + time_in(next, "in_s").value();
  if (const auto step = count_in(next, "at_step")) {
    text += (text.empty() ? "" : ", or ") + ("at step " + format_count(*step));
  }
  return text;
}

std::string saves_text(const Json& report) {
  const Json& saves = member(report, "saves");
  const std::int64_t count = count_in(saves, "count").value_or(0);
  std::string text = count == 0 ? "" : format_count(count);
  if (count_in(saves, "last_bytes")) {
    text += ", the last " + size_in(saves, "last_bytes");
    const auto took = number_in(saves, "last_s");
    if (took && *took > 0) {
      text += " in " + format_duration(std::chrono::milliseconds(std::llround(*took * 1000)));
    }
  }
  if (const auto writing = time_in(saves, "writing_s")) add(text, "writing one for " + *writing);
  return text;
}

std::string volume_text(const Json& report) {
  const Json& volume = member(report, "volume");
  if (!count_in(volume, "free_bytes")) return {};
  std::string text = size_in(volume, "free_bytes") + " free of " + size_in(volume, "total_bytes");
  if (const auto rate = number_in(volume, "write_bytes_per_s")) {
    text += ", saves write " + format_byte_rate(static_cast<std::uint64_t>(*rate), std::chrono::seconds(1));
  }
  return text;
}

Color color_of(const Json& report) {
  const auto code = count_in(report, "exit_code").value_or(0);
  if (code == static_cast<int>(ExitCode::complete)) return Color::good;
  return code == static_cast<int>(ExitCode::interrupted) ? Color::warning : Color::bad;
}

// "healthy, training": the phase where the verdict does not say it.
std::string headline(const Json& report) {
  std::string verdict = text_in(report, "verdict");
  std::string phase = text_in(report, "phase");
  if (verdict == "healthy") return phase;
  const bool says_it = phase == verdict || phase == "none" || phase == "unknown" || verdict == "refused";
  return says_it ? verdict : verdict + " while " + phase;
}

std::string attempt_text(const Json& report) {
  const auto attempt = count_in(report, "attempt");
  if (!attempt) return {};
  std::string text = std::to_string(*attempt);
  if (const std::string host = text_in(report, "host"); !host.empty()) text += " on " + host;
  if (const auto up = time_in(report, "up_s")) add(text, "up " + *up);
  const std::int64_t restarts = count_in(report, "restarts").value_or(0);
  if (restarts > 0) add(text, format_count(restarts) + (restarts == 1 ? " restart" : " restarts"));
  return text;
}

class Screen {
 public:
  Screen(const Paint& paint, std::size_t width) : paint_(paint), width_(width) {}

  void row(const std::string& label, const std::string& text, Color color = Color::plain) {
    if (text.empty()) return;
    const std::string padded =
        label + std::string(kLabelWidth - std::min(label.size(), kLabelWidth - 1), ' ');
    // A terminal that is narrower than the labels shows none of such rows.
    if (width_ <= padded.size()) return;
    lines_.push_back(paint_(Color::label, padded) +
                     paint_(color, cut_to_width(text, width_ - padded.size())));
  }
  void line(const std::string& text) { lines_.push_back(cut_to_width(text, width_)); }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  const Paint& paint_;
  const std::size_t width_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> status_screen(const Json& report, const Paint& paint, std::size_t width) {
  Screen screen(paint, width);
  screen.line(text_in(report, "directory") + "  " + text_in(report, "time"));
  screen.row("run", headline(report), color_of(report));
  screen.row("why", text_in(report, "reason"));
  screen.row("attempt", attempt_text(report));
  screen.row("step", step_text(report));
  screen.row("loss", loss_text(report));
  // Before the first attempt there is no work that could be durable or at risk.
  if (count_in(report, "attempt")) {
    screen.row("durable", durable_text(report));
    screen.row("at risk", risk_text(report));
  }
  screen.row("home", home_text(report));
  screen.row("standby", standby_text(report));
  screen.row("home error", home_trouble(report), Color::bad);
  screen.row("next save", next_save_text(report));
  screen.row("saves", saves_text(report));
  screen.row("save error", text_in(member(report, "saves"), "failure"), Color::bad);
  for (const Json& notice : member(report, "notices")) {
    const auto left = time_in(notice, "left_s");
    screen.row("notice",
               text_in(notice, "source") + ": " + text_in(notice, "text") +
                   (left ? ", " + *left + " left" : std::string()),
               Color::warning);
  }
  for (const Json& source : member(report, "blind")) {
    const std::string why = text_in(source, "why");
    screen.row("blind",
               text_in(source, "source") + " has not seen for " +
                   time_in(source, "blind_s").value_or("a while") + (why.empty() ? "" : " (" + why + ")"),
               Color::warning);
  }
  screen.row("stall", text_in(report, "stall"));
  screen.row("volume", volume_text(report));
  return screen.take();
}

std::string status_line(const Json& report) {
  std::string text = text_in(report, "time") + " " + headline(report);
  add(text, text_in(report, "reason"));
  if (const std::string step = step_text(report); !step.empty()) add(text, "step " + step);
  if (const std::string loss = loss_text(report); !loss.empty()) add(text, "loss " + loss);
  if (count_in(report, "attempt")) {
    add(text, "durable: " + durable_text(report));
    add(text, "at risk: " + risk_text(report));
  }
  for (const Json& notice : member(report, "notices")) {
    const auto left = time_in(notice, "left_s");
    add(text, "notice: " + text_in(notice, "text") + (left ? ", " + *left + " left" : std::string()));
  }
  return text;
}

}}  // namespace holdfast::v0_2
