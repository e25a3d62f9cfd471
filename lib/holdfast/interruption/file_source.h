// Watches a notice file (notice_file.h has its format): the hook for interruptions without another source.
//
//   monitor.add(std::make_unique<FileSource>("/run/holdfast/notice"));
//
// A file that appears, is rewritten or is replaced is news, also if it exists at the start. If it disappears
// or says that nothing is coming, an earlier interruption is `withdrawn`. The source never writes or deletes
// the file. docs/interruption_sources.md#the-notice-file has the timing, and the cases that are only logged.
//
// A file system that hangs blocks a thread of its own (lookup.h), and poll() for half a second at most.
// Errors: the constructor throws UsageError for an empty path. poll() throws only bad_alloc, and then reports
// its news at the next call. Threads: as source.h says; block signals before the first poll().
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "holdfast/base/thread/lookup.h"
#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {

class FileSource final : public Source {
 public:
  explicit FileSource(const std::filesystem::path& path, Clock& clock = Clock::real());

  std::string_view name() const override { return "file"; }
  std::vector<Notice> poll() override;
  Duration interval() const override;

 private:
  // Distinguishes one state of the file from another.
  struct Content {
    std::string text;  // at most kMaxNoticeFile + 1 bytes
    std::uint64_t inode = 0;
    std::int64_t modified = 0;  // nanoseconds
    bool operator==(const Content&) const = default;
  };
  enum class Seen { content, absent, unknown };
  struct Look {
    Seen seen = Seen::unknown;
    Content content = {};
    std::string remark = {};  // for people; empty: none
  };

  static Look read_file(const std::filesystem::path& path);
  std::optional<Look> look();  // nullopt: no answer yet
  std::vector<Notice> gone(const char* how) const;
  void say_once(const std::string& what);

  std::filesystem::path path_;
  Clock& clock_;
  std::optional<Content> believed_;  // reported
  std::optional<Content> doubtful_;  // possibly half written
  int doubts_ = 0;                   // polls since `doubtful_` was first seen
  bool coming_ = false;              // an interruption was reported and not withdrawn
  std::string said_;
  std::optional<Lookup<Look>> looking_;
  int unanswered_ = 0;  // polls since looking_ began
};

}}  // namespace holdfast::v0_2
