// TensorBoard's event files, without protobuf: the few messages that metrics need, and their records.
//
//   EventFile file(FileSystem::real(), "run/tensorboard");   // a new file, never another attempt's
//   file.scalars({{"train/loss", 0.5}}, 1200, wall_time);
//   file.flush();
//
// Record: u64le length | u32le masked(crc32c(length)) | payload | u32le masked(crc32c(payload)), with
// masked(c) = rotate_right(c, 15) + 0xa282ead8. The payload is an Event of tensorflow/core/util/event.proto.
// Readers take the files of a folder in the order of their names, so the number in the name is at least one
// more than that of every file that is there: a wrong clock changes nothing.
//
// Errors: IoError. Threads: one thread. Durability: by sync() alone; readers skip a torn last record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"
#include "holdfast/io/file_system.h"
#include "holdfast/metrics/event.h"

namespace holdfast { inline namespace v0_2 {

inline constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

// Field numbers of tensorflow's event.proto and summary.proto.
namespace event_fields {
inline constexpr int kWallTime = 1;  // of Event
inline constexpr int kStep = 2;
inline constexpr int kFileVersion = 3;
inline constexpr int kSummary = 5;
inline constexpr int kSessionLog = 7;
inline constexpr int kTag = 1;  // of Value
inline constexpr int kSimpleValue = 2;
inline constexpr int kHisto = 5;
inline constexpr int kValue = 1;   // of Summary
inline constexpr int kStatus = 1;  // of SessionLog
inline constexpr std::uint64_t kStart = 1;
}  // namespace event_fields

std::uint32_t crc32c(std::string_view bytes);
std::uint32_t masked_crc32c(std::string_view bytes);  // as records have it

// A protobuf message in its wire format.
class WireMessage {
 public:
  WireMessage& integer(int field, std::uint64_t value);
  WireMessage& number(int field, double value);       // fixed64
  WireMessage& small_number(int field, float value);  // fixed32
  WireMessage& bytes(int field, std::string_view value);
  WireMessage& child(int field, const WireMessage& value) { return bytes(field, value.text_); }
  WireMessage& numbers(int field, std::span<const double> values);  // packed
  const std::string& text() const { return text_; }

 private:
  void key(int field, unsigned wire_type);
  void varint(std::uint64_t value);
  template <class T>
  void raw(T value);

  std::string text_;
};

struct Scalar {
  std::string_view tag;
  double value;
};

// The tags that a reader of the folder shows at that step. Reads the newest files, as far back as they say
// something about it; a file that cannot be read shows nothing.
std::set<std::string, std::less<>> tags_at(FileSystem& file_system, const std::filesystem::path& directory,
                                           std::int64_t step);

class EventFile {
 public:
  // Creates missing folders. Throws IoError if no file can be created.
  EventFile(FileSystem& file_system, const std::filesystem::path& directory, WallTime now);

  // Readers drop what other files of the folder have at steps >= `step`.
  void start_at(std::int64_t step, WallTime at);
  // One event; all values have the same step.
  void scalars(std::span<const Scalar> values, std::int64_t step, WallTime at);
  void histogram(const HistogramEvent& event, WallTime at);

  std::size_t unwritten() const { return buffer_.size(); }
  void flush();
  std::function<void()> sync() const;  // of what was flushed: MetricSink::row_sync()
  const std::filesystem::path& path() const { return path_; }

 private:
  void record(const WireMessage& event);

  std::filesystem::path path_;
  std::shared_ptr<Directory> folder_;
  std::shared_ptr<File> file_;
  std::uint64_t end_ = 0;
  std::string buffer_;
};

}}  // namespace holdfast::v0_2
