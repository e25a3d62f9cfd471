#include "holdfast/cli/weights/export_remains.h"

#include <algorithm>
#include <sstream>

#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
#include "holdfast/base/log.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/cli/files/new_file.h"
#include "holdfast/format/weight_shards.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::uint64_t kMostBytes = 32U << 20U;  // of an index; a hundred thousand tensors need a third

std::string list_name(const std::string& name) { return ".holdfast-export-of-" + name; }

std::string text_of(const File& file) {
  std::string text(std::min(file.size(), kMostBytes + 1), '\0');
  text.resize(file.read_at(std::as_writable_bytes(std::span(text)), 0));
  return text;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

ExportRemains::ExportRemains(Directory& directory, const std::filesystem::path& to,
                             const std::vector<std::string>& made, bool sharded, bool force)
    : directory_(directory), to_(to), name_(to.filename().string()), made_(made), force_(force) {
  if (sharded) {
    add(index_name(name_));
    add(name_);
    read_index();
  }
  read_list();
  for (const std::string& name : stale_) {
    const auto path = to_.parent_path() / name;
    if (!force) {
      throw UsageError("--to " + shown(to_) + ": " + shown(path) +
                       " of an earlier export would stay beside it, with other weights; --force removes it");
    }
    check_replaceable(directory_, path, true);
  }
}

ExportRemains::~ExportRemains() {
  // A try that published nothing leaves nothing. Otherwise the next export needs the list.
  if (list_ == nullptr || published_ || killed_) return;
  try {
    list_ = nullptr;
    directory_.unlink(list_name(name_));
  } catch (const Error& error) {
    log_warning("a list of the export's files is left behind: {}", error.what());
  }
}

bool ExportRemains::is_shard(const std::string& name) const {
  const auto numbers = shard_numbers(name);
  return numbers && name == shard_name(name_, numbers->first, numbers->second);
}

// Names that exist, each once.
void ExportRemains::add(const std::string& name) {
  if (!contains(made_, name) && !contains(stale_, name) && directory_.status(name)) stale_.push_back(name);
}

void ExportRemains::read_index() {
  const std::string index = index_name(name_);
  const auto status = directory_.status(index);
  if (!status || status->kind != FileKind::regular) return;  // check_replaceable() speaks about other kinds
  const auto file = directory_.open(index, OpenMode::read);
  if (file == nullptr) return;
  const JsonValue document = parse_json(text_of(*file));
  const JsonValue* const map = document.find("weight_map");
  if (map == nullptr || !map->is(JsonValue::Kind::object)) {
    throw UsageError("--to " + shown(to_) + ": " + shown(to_.parent_path() / index) +
                     " names no shards, so those of that export are not known; delete it and them");
  }
  std::size_t foreign = 0;
  std::vector<std::string> names;
  for (const JsonValue& shard : map->items) names.push_back(shard.text);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) is_shard(name) ? add(name) : void(++foreign);
  if (foreign != 0) {
    log_warning("{} names {} files that are no shards of it; they are left alone", index, foreign);
  }
}

// One name a line. A last line without an end may be a part of a name.
void ExportRemains::read_list() {
  const auto status = directory_.status(list_name(name_));
  if (!status || status->kind != FileKind::regular) return;
  const auto file = directory_.open(list_name(name_), OpenMode::read);
  if (file == nullptr) return;
  killed_ = true;
  const std::string text = text_of(*file);
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  for (std::string name; std::getline(lines, name);) {
    if (is_shard(name)) add(name);
    if (NewFile::is_temporary(name)) temporaries_.push_back(name);
  }
}

void ExportRemains::begin() {
  for (const std::string& name : temporaries_) directory_.unlink(name);
  auto file = directory_.open(list_name(name_), OpenMode::append);
  list_ = std::make_unique<LineFile>(std::move(file));
  for (const std::string& name : stale_) list_->append(name);
  // One file that has its name is complete, and no part of an export.
  if (made_.size() > 1) {
    for (const std::string& name : made_) list_->append(name);
  }
  list_->file().sync();
  directory_.sync();
}

void ExportRemains::note(const std::string& temporary) {
  list_->append(temporary);
  list_->file().sync();
}

void ExportRemains::publishing() {
  published_ = true;
  if (force_ && made_.size() > 1 && directory_.unlink(index_name(name_))) directory_.sync();
}

void ExportRemains::finish() {
  for (const std::string& name : stale_) directory_.unlink(name);
  // The list last: it names what a kill would leave.
  if (!stale_.empty()) directory_.sync();
  directory_.unlink(list_name(name_));
  directory_.sync();
}

}}  // namespace holdfast::v0_2
