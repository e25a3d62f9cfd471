#include "holdfast/cli/sweep/sweep_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <ios>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "holdfast/base/error.h"
#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using SweepJson = nlohmann::json;

constexpr const char* kRunDirectory = "run_dir";
constexpr std::size_t kLongestName = 100;  // a file name may have 255 bytes, and others append to it

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw UsageError(place + ": " + why);
}

// Event by event, because a document would keep neither a repeated name nor the digits of a number.
class SweepLine : public SweepJson::json_sax_t {
 public:
  std::map<std::string, std::string> values;
  std::string why = {};  // it is refused

  bool null() override { return no_value("null"); }
  bool boolean(bool value) override { return take(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return take(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return take(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& digits) override { return take(digits); }
  bool string(string_t& value) override {
    // A word of a command ends there.
    if (value.find('\0') != std::string::npos) return no_value("a text with a zero byte");
    return take(value);
  }
  bool binary(binary_t& /*value*/) override { return no_value("binary"); }
  bool start_object(std::size_t /*elements*/) override {
    if (inside_) return no_value("an object");
    inside_ = true;
    return true;
  }
  bool key(string_t& name) override {
    name_ = name;
    if (values.contains(name)) return fail("the name '" + printable(name, 100) + "' appears twice");
    return name != kRunDirectory || fail("'run_dir' is the run's directory, and no name for a value");
  }
  bool end_object() override { return true; }
  bool start_array(std::size_t /*elements*/) override { return inside_ ? no_value("a list") : no_object(); }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const SweepJson::exception& /*error*/) override {
    return fail("no JSON from character " + std::to_string(position) +
                R"( on; expected a line such as {"name": "lr03", "lr": 0.3})");
  }

 private:
  bool fail(const std::string& text) {
    why = text;
    return false;
  }
  bool no_object() { return fail(R"(expected an object, such as {"name": "lr03", "lr": 0.3})"); }
  bool no_value(const std::string& kind) {
    if (!inside_) return no_object();
    return fail("the value of '" + printable(name_, 100) + "' is " + kind +
                "; expected a text, a number, true or false");
  }
  bool take(const std::string& value) {
    if (!inside_) return no_object();
    values[name_] = value;
    return true;
  }

  bool inside_ = false;
  std::string name_;
};

bool is_safe(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kLongestName && name.front() != '.' && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), plain);
}

SweepRun run_of(std::string_view text, const std::string& place) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) refuse(place, "an empty line; run N of the file stands in line N + 1");
  if (text[begin] == '#' || text.substr(begin, 2) == "//") {
    refuse(place, "a comment; every line is a run, and run N of the file stands in line N + 1");
  }
  SweepLine line;
  if (!SweepJson::sax_parse(text, &line)) refuse(place, line.why);
  const auto name = line.values.find("name");
  if (name == line.values.end()) refuse(place, R"(it has no "name", which names the run's directory)");
  if (!is_safe(name->second)) {
    refuse(place, "the name '" + printable(name->second, 100) +
                      "' is unsafe for a directory: use at most 100 letters, digits, '.', '_' and '-', with "
                      "a letter, a digit or '_' first");
  }
  return {.place = place, .name = name->second, .values = line.values};
}

}  // namespace

SweepFile read_sweep(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  try {
    text.assign(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios_base::failure&) {  // a folder, or a disk that fails
    file.setstate(std::ios_base::badbit);
  }
  if (!file.is_open() || file.bad()) {
    throw UsageError("cannot read " + path.native() + ": " + std::strerror(errno) +
                     "; expected a file with a line a run");
  }
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  const std::string shown = printable(path.filename().string(), 200);
  if (text.empty()) throw UsageError(shown + " is empty: expected a line a run");
  SweepFile sweep{.path = path, .runs = {}};
  std::map<std::string, std::size_t> lines;  // by name
  for (std::size_t begin = 0, number = 1; begin <= text.size(); ++number) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    SweepRun run =
        run_of(std::string_view(text).substr(begin, end - begin), shown + ", line " + std::to_string(number));
    if (const auto [first, fresh] = lines.emplace(run.name, number); !fresh) {
      refuse(run.place,
             "the name '" + run.name + "' is that of line " + std::to_string(first->second) + " already");
    }
    sweep.runs.push_back(std::move(run));
    begin = end + 1;
  }
  return sweep;
}

std::string fill_in(const std::string& text, const SweepRun& run,
                    const std::filesystem::path& run_directory) {
  constexpr const char* kAdvice = "; for a brace itself write {{ or }}";
  std::string filled;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      filled += c;
      continue;
    }
    if (i + 1 < text.size() && text[i + 1] == c) {
      filled += text[++i];
      continue;
    }
    const std::size_t end = text.find('}', i);
    if (c == '}' || end == std::string::npos) {
      refuse(run.place, "a single " + std::string(1, c) + " in '" + printable(text, 200) + "'" + kAdvice);
    }
    const std::string name = text.substr(i + 1, end - i - 1);
    const auto value = run.values.find(name);
    if (name == kRunDirectory) {
      filled += run_directory.native();
    } else if (value != run.values.end()) {
      filled += value->second;
    } else {
      refuse(run.place,
             "no value named '" + printable(name, 100) + "' for '" + printable(text, 200) + "'" + kAdvice);
    }
    i = end;
  }
  return filled;
}

}}  // namespace holdfast::v0_2
