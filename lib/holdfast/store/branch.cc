#include "holdfast/store/branch.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kLongestWord = 100;
constexpr std::size_t kLongestShown = 400;
constexpr std::size_t kLongestName = 16384;  // four times the longest path

bool is_word(std::string_view text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !text.empty() && text.size() <= kLongestWord &&
         text.find_first_not_of(kAllowed) == std::string_view::npos;
}

// As a record holds it: a path may be any bytes, and an attribute is a text.
std::string readable(const std::string& name) { return is_utf8(name) ? name : printable(name, kLongestName); }

const std::string& name_of(const StartingPoint& point, const std::string& file) {
  return point.outside.empty() ? file : point.outside;
}

bool is_checkpoint(const std::string& path) {
  return parse_checkpoint_name(std::filesystem::path(path).filename().native()).has_value();
}

// Any word of `branch` will do if the point has none: the run has gone back there, and once more.
bool is_from(const std::string& branch, const StartingPoint& point) {
  const std::size_t at = branch.rfind('@');
  const bool has_word = at != std::string::npos && is_checkpoint(branch.substr(0, at));
  const std::string name = has_word ? branch.substr(0, at) : branch;
  if (!point.word.empty() && !(has_word && branch.substr(at + 1) == point.word)) return false;
  if (!point.step) return name == readable(name_of(point, point.file.value_or(std::string())));
  const auto id = parse_checkpoint_name(name);
  return id && id->step == *point.step;
}

// Removes "@…" and returns the word. Any other file may have an "@" in its name.
std::string cut_word(std::string& text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string::npos) return {};
  const std::string before = text.substr(0, at);
  if (!parse_int(before) && !is_checkpoint(before)) return {};
  std::string word = text.substr(at + 1);
  if (!is_word(word)) {
    throw UsageError("resume_from " + printable(text, kLongestShown) +
                     ": after the @ comes a word of 1 to 100 letters, digits and _-.");
  }
  text = before;
  return word;
}

// Also if retention has deleted it.
bool is_in(const std::filesystem::path& file, FileSystem& file_system,
           const std::filesystem::path& directory) {
  std::error_code no_parent;
  std::error_code no_directory;
  if (file.has_parent_path()) {
    return std::filesystem::weakly_canonical(file.parent_path(), no_parent) ==
               std::filesystem::weakly_canonical(directory, no_directory) &&
           !no_parent && !no_directory;
  }
  const auto run = file_system.open_directory(directory, false);
  if (run && run->status(file.native())) return true;
  return parse_checkpoint_name(file.native()) && !std::filesystem::exists(file, no_parent);
}

}  // namespace

StartingPoint starting_point_from(const std::string& text, FileSystem& file_system,
                                  const std::filesystem::path& directory) {
  StartingPoint point;
  if (text.empty()) return point;
  std::string rest = text;
  point.word = cut_word(rest);
  point.step = parse_int(rest);
  if (point.step) {
    if (*point.step < 0) throw UsageError("resume_from " + rest + ": steps are not negative");
    return point;
  }
  const std::filesystem::path file(rest);
  if (is_in(file, file_system, directory)) {
    point.file = file.filename().native();
  } else {
    // Absolute, because the next start may run in another folder.
    point.outside = std::filesystem::absolute(file).lexically_normal().native();
  }
  return point;
}

std::string branch_from(const StartingPoint& point, const std::string& name) {
  const std::string branch = readable(name_of(point, name));
  return point.word.empty() ? branch : branch + "@" + point.word;
}

bool has_grown_from(const Branches& branches, const StartingPoint& point) {
  return std::any_of(branches.begin(), branches.end(),
                     [&](const std::string& branch) { return is_from(branch, point); });
}

std::string once_more(const StartingPoint& point) {
  if (point.step) return "give resume_from " + std::to_string(*point.step) + "@WORD with a word that is new";
  const std::string file = point.file.value_or(point.outside);
  if (!is_checkpoint(file)) return "give a copy of that file under another name";
  return "give resume_from " + file + "@WORD with a word that is new";
}

}}  // namespace holdfast::v0_2
