#include "holdfast/metrics/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "holdfast/base/error.h"
#include "holdfast/base/seconds.h"
#include "holdfast/base/system/machine.h"
#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Lengths, checksums and protobuf's fixed fields are little-endian, and are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

using namespace event_fields;

// CRC-32C (Castagnoli), as TensorFlow's record format demands.
constexpr auto kCrcTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t crc = i;
    // The polynomial with its bits in reverse order, because the table shifts to the right.
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (0x82f63b78U & (0U - (crc & 1)));
    table[i] = crc;
  }
  return table;
}();

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

WireMessage event_at(WallTime at) { return WireMessage().number(kWallTime, in_seconds(at)); }

WireMessage event_at(WallTime at, std::int64_t step) {
  return event_at(at).integer(kStep, static_cast<std::uint64_t>(step));
}

// The number after the prefix; nullopt for another file.
std::optional<std::int64_t> number_in(std::string_view name) {
  if (!name.starts_with(kEventFilePrefix)) return std::nullopt;
  name.remove_prefix(kEventFilePrefix.size());
  return parse_int(name.substr(0, name.find('.')));
}

std::string safe_host() {
  // A host name is part of a file name here.
  std::string host = host_name().substr(0, 100);
  std::replace(host.begin(), host.end(), '/', '_');
  return host.empty() ? "localhost" : host;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char byte : bytes) crc = kCrcTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

// The checksum of data that holds checksums would be weak (tensorflow/core/lib/hash/crc32c.h).
std::uint32_t masked_crc32c(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8U; }

// Wire types of protobuf: 0 a varint, 1 eight bytes, 2 a length and its bytes, 5 four bytes.
void WireMessage::key(int field, unsigned wire_type) {
  varint(static_cast<std::uint64_t>(field) << 3 | wire_type);
}

void WireMessage::varint(std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
  text_ += static_cast<char>(value);
}

template <class T>
void WireMessage::raw(T value) {
  text_ += bytes_of(value);
}

WireMessage& WireMessage::integer(int field, std::uint64_t value) {
  key(field, 0);
  varint(value);
  return *this;
}

WireMessage& WireMessage::number(int field, double value) {
  key(field, 1);
  raw(value);
  return *this;
}

WireMessage& WireMessage::small_number(int field, float value) {
  key(field, 5);
  raw(value);
  return *this;
}

WireMessage& WireMessage::bytes(int field, std::string_view value) {
  key(field, 2);
  varint(value.size());
  text_ += value;
  return *this;
}

WireMessage& WireMessage::numbers(int field, std::span<const double> values) {
  key(field, 2);
  varint(values.size_bytes());
  for (const double value : values) raw(value);
  return *this;
}

EventFile::EventFile(FileSystem& file_system, const std::filesystem::path& directory, WallTime now)
    : folder_(file_system.make_shared_directory(directory)) {
  // Readers order the files of a run by this number, so a later attempt needs a larger one.
  std::int64_t number = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  for (const DirectoryEntry& entry : folder_->list()) {
    // A foreign name may hold any number; the order by name needs ten digits.
    if (const auto other = number_in(entry.name); other && *other < 9'999'999'998)
      number = std::max(number, *other + 1);
  }
  // Two processes in one second must not share a file.
  const std::string end = '.' + safe_host() + '.' + std::to_string(getpid());
  for (int tries = 0; file_ == nullptr && tries < 100; ++tries, ++number) {
    std::array<char, 24> digits{};
    std::snprintf(digits.data(), digits.size(), "%010lld", static_cast<long long>(number));
    const std::string name = std::string(kEventFilePrefix) + digits.data() + end + ".holdfast";
    path_ = directory / name;
    file_ = folder_->open(name, OpenMode::create_shared);
  }
  if (file_ == nullptr) throw IoError("create", path_, EEXIST);
  // Readers expect this record first.
  record(event_at(now).bytes(kFileVersion, "brain.Event:2"));
  flush();
}

void EventFile::start_at(std::int64_t step, WallTime at) {
  record(event_at(at, step).child(kSessionLog, WireMessage().integer(kStatus, kStart)));
}

void EventFile::scalars(std::span<const Scalar> values, std::int64_t step, WallTime at) {
  WireMessage summary;
  for (const Scalar& scalar : values) {
    // A simple value is a 32-bit float in TensorBoard's format.
    summary.child(
        kValue,
        WireMessage().bytes(kTag, scalar.tag).small_number(kSimpleValue, static_cast<float>(scalar.value)));
  }
  record(event_at(at, step).child(kSummary, summary));
}

void EventFile::histogram(const HistogramEvent& event, WallTime at) {
  WireMessage histo;
  // Field numbers of HistogramProto, in the order in which summary.proto declares them.
  histo.number(1, event.min).number(2, event.max).number(3, event.count).number(4, event.sum);
  histo.number(5, event.sum_of_squares).numbers(6, event.limits).numbers(7, event.counts);
  const WireMessage value = WireMessage().bytes(kTag, event.name).child(kHisto, histo);
  record(event_at(at, event.step).child(kSummary, WireMessage().child(kValue, value)));
}

void EventFile::record(const WireMessage& event) {
  // TFRecord: the length has a checksum of its own, because a reader needs it before it can read the rest.
  const std::uint64_t length = event.text().size();
  buffer_ += bytes_of(length);
  buffer_ += bytes_of(masked_crc32c(bytes_of(length)));
  buffer_ += event.text();
  buffer_ += bytes_of(masked_crc32c(event.text()));
}

void EventFile::flush() {
  if (buffer_.empty()) return;
  file_->write_at(std::as_bytes(std::span(buffer_)), end_);
  end_ += buffer_.size();
  buffer_.clear();
}

std::function<void()> EventFile::sync() const {
  return [file = file_, folder = folder_] {
    file->sync();
    folder->sync();
  };
}

}}  // namespace holdfast::v0_2
