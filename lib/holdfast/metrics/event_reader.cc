// What earlier attempts have told readers of a folder of event files.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/metrics/event_file.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using Tags = std::set<std::string, std::less<>>;

constexpr std::size_t kRecordHead = 12;           // a length and its checksum
constexpr std::size_t kLongestEvent = 64u << 20;  // of an event; a histogram takes a few KiB
constexpr std::size_t kReadAtOnce = std::size_t{1} << 20;
constexpr int kLengthDelimited = 2;

struct MessageField {
  int number = 0;
  std::uint64_t integer = 0;    // of a varint
  std::string_view bytes = {};  // of all others
};

std::optional<std::uint64_t> take_varint(std::string_view& text) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; !text.empty() && shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(text.front());
    text.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

// nullopt at the end, and where the text is no message.
std::optional<MessageField> take_message_field(std::string_view& text) {
  const auto key = take_varint(text);
  if (!key) return std::nullopt;
  MessageField field{.number = static_cast<int>(*key >> 3 & 0xffff)};
  const auto type = static_cast<int>(*key & 7);
  std::optional<std::uint64_t> length = type == 1 ? 8 : type == 5 ? 4 : 0;
  if (type == 0 || type == kLengthDelimited) length = take_varint(text);
  if (!length) return std::nullopt;
  if (type == 0) {
    field.integer = *length;
    return field;
  }
  if (*length > text.size()) return std::nullopt;
  field.bytes = text.substr(0, *length);
  text.remove_prefix(*length);
  return field;
}

void add_tags(std::string_view summary, Tags& tags) {
  while (const auto value = take_message_field(summary)) {
    std::string_view parts = value->bytes;
    while (const auto part = take_message_field(parts)) {
      if (part->number == event_fields::kTag) tags.emplace(part->bytes);
    }
  }
}

// What one file says about the step.
struct Shown {
  Tags tags;
  bool begins_anew = false;  // what older files say about it is dropped
};

void add_event(std::string_view event, std::int64_t step, Shown& shown) {
  std::int64_t at = 0;  // protobuf leaves out a zero
  bool starts = false;
  Tags tags;
  while (const auto field = take_message_field(event)) {
    std::string_view inner = field->bytes;
    if (field->number == event_fields::kStep) {
      at = static_cast<std::int64_t>(field->integer);
    } else if (field->number == event_fields::kSummary) {
      add_tags(inner, tags);
    } else if (field->number == event_fields::kSessionLog) {
      const auto status = take_message_field(inner);
      starts = status && status->number == event_fields::kStatus && status->integer == event_fields::kStart;
    }
  }
  if (starts && at <= step) shown = {.tags = {}, .begins_anew = true};
  if (at == step) shown.tags.merge(tags);
}

class Records {
 public:
  explicit Records(const File& file) : file_(file) {}

  // nullopt at the end, and at a torn record, where readers stop as well.
  std::optional<std::string_view> next() {
    if (!have(kRecordHead)) return std::nullopt;
    std::uint64_t length = 0;
    std::memcpy(&length, at(0), sizeof length);
    if (!agrees({at(0), sizeof length}, at(sizeof length)) || length > kLongestEvent) return std::nullopt;
    const std::size_t whole = kRecordHead + length + sizeof(std::uint32_t);
    if (!have(whole)) return std::nullopt;
    const std::string_view event(at(kRecordHead), length);
    if (!agrees(event, at(kRecordHead + length))) return std::nullopt;
    begin_ += whole;
    return event;
  }

 private:
  const char* at(std::size_t offset) const { return buffer_.data() + begin_ + offset; }
  static bool agrees(std::string_view bytes, const char* checksum) {
    std::uint32_t told = 0;
    std::memcpy(&told, checksum, sizeof told);
    return told == masked_crc32c(bytes);
  }
  bool have(std::size_t count) {
    if (buffer_.size() - begin_ >= count) return true;
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
    const std::size_t held = buffer_.size();
    buffer_.resize(std::max(count, held + kReadAtOnce));
    const auto free = std::as_writable_bytes(std::span(buffer_).subspan(held));
    const std::size_t got = file_.read_at(free, offset_);
    offset_ += got;
    buffer_.resize(held + got);
    return buffer_.size() >= count;
  }

  const File& file_;
  std::uint64_t offset_ = 0;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
};

}  // namespace

std::set<std::string, std::less<>> tags_at(FileSystem& file_system, const std::filesystem::path& directory,
                                           std::int64_t step) {
  Tags tags;
  const auto folder = file_system.open_directory(directory, false);
  if (!folder) return tags;
  std::vector<std::string> names;
  for (const DirectoryEntry& entry : folder->list()) {
    if (entry.kind == FileKind::regular && entry.name.starts_with(kEventFilePrefix))
      names.push_back(entry.name);
  }
  // The newest first: usually it begins before the step, and the others need not be read.
  std::sort(names.begin(), names.end(), std::greater<>());
  for (const std::string& name : names) {
    Shown shown;
    try {
      const auto file = folder->open(name, OpenMode::read);
      if (!file) continue;
      Records records(*file);
      while (const auto event = records.next()) add_event(*event, step, shown);
    } catch (const IoError& error) {
      log_debug("{}: no reader can show it", error.what());
    }
    tags.merge(shown.tags);
    if (shown.begins_anew) break;
  }
  return tags;
}

}}  // namespace holdfast::v0_2
