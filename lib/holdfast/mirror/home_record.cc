#include "holdfast/mirror/home_record.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "holdfast/base/clock.h"
#include "holdfast/base/error.h"
#include "holdfast/base/json.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A record has at most 100 claims and 2,000 bytes of a failure, and takes a few KiB.
constexpr std::uint64_t kLongestRecord = 64 << 10;
constexpr std::size_t kLongestFailure = 2000;
constexpr std::int64_t kLongestTook = std::int64_t{30} * 24 * 3600 * 1000;  // ms
constexpr std::int64_t kSchema = 1;
constexpr Duration kBetweenTries = std::chrono::milliseconds(20);
constexpr int kTries = 10;   // a write takes as long as two fsyncs
constexpr int kRounds = 10;  // each lost to another process, which had to wait for all tries first

std::string text_in(const JsonValue& object, const char* name) {
  return text_member(object, name).value_or("");
}

bool is_number_of_attempt(std::int64_t value) {
  return value > 0 && static_cast<std::uint64_t>(value) <= kHighestNumber;
}

std::optional<std::string> read_text(Directory& run_directory) {
  const auto status = run_directory.status(kHomeStateName);
  // A pipe would block, and a huge file would fill the memory.
  if (!status || status->kind != FileKind::regular || status->size > kLongestRecord) return std::nullopt;
  const auto file = run_directory.open(kHomeStateName, OpenMode::read);
  if (!file) return std::nullopt;
  std::string text(status->size, '\0');
  text.resize(file->read_at(std::as_writable_bytes(std::span(text)), 0));
  return text;
}

// The temporary file is the lock: it is created exclusively, and read and written under its name. One that
// stays for long was left by a process that was killed, and is removed. But its owner may only be slow, such
// as on a disk that takes seconds for an fsync. So each looks whether the file is still its own before the
// rename, and after it whether its own text is in place: no call renames a file only if it is a certain one.
class Lock {
 public:
  explicit Lock(Directory& run_directory) : run_directory_(run_directory) {
    file_ = create();
    for (int tries = 0; !file_ && tries < kTries; ++tries) {
      Clock::real().sleep_for(kBetweenTries);
      file_ = create();
    }
    if (!file_) {
      run_directory_.unlink(kHomeStateNewName);
      file_ = create();
      if (!file_) {
        throw Error(run_directory_.path() + "/" + kHomeStateNewName + " comes back after it was removed");
      }
    }
    inode_ = inode();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  // Best effort: the next writer removes what stays.
  ~Lock() {
    try {
      if (is_ours()) run_directory_.unlink(kHomeStateNewName);
    } catch (const std::exception&) {
    }
  }

  // False: another process has taken the lock for left behind. Its file may have become the record instead,
  // half written.
  bool replace_record(const std::string& text) {
    file_->write_at(std::as_bytes(std::span(text)), 0);
    // Before the rename, so that a crash leaves the old content or the new one.
    file_->sync();
    // Before close(), which may take long, and after which some file systems number the file anew.
    if (!is_ours()) return false;
    try {
      run_directory_.rename_over(kHomeStateNewName, kHomeStateName);
    } catch (const IoError& error) {
      // The other process has renamed its file meanwhile.
      if (error.code() != ENOENT) throw;
      return false;
    }
    inode_.reset();
    file_->close();
    return read_text(run_directory_) == text;
  }

 private:
  std::unique_ptr<File> create() { return run_directory_.open(kHomeStateNewName, OpenMode::create); }
  std::optional<std::uint64_t> inode() const {
    const auto status = run_directory_.status(kHomeStateNewName);
    return status ? std::optional(status->inode) : std::nullopt;
  }
  bool is_ours() const { return inode_ && inode() == inode_; }

  Directory& run_directory_;
  std::unique_ptr<File> file_;
  std::optional<std::uint64_t> inode_;  // none: this holds the lock no longer
};

}  // namespace

bool HomeRecord::owns(AttemptNumber attempt) const {
  return std::binary_search(claims.begin(), claims.end(), attempt);
}

void HomeRecord::add(AttemptNumber attempt) {
  const auto place = std::lower_bound(claims.begin(), claims.end(), attempt);
  if (place == claims.end() || *place != attempt) claims.insert(place, attempt);
  if (attempt >= alone) alone = 0;
  if (claims.size() > kAttemptsKept) claims.erase(claims.begin());
}

bool HomeRecord::is_contested(AttemptNumber highest, AttemptNumber newest) const {
  return highest >= (alone == 0 ? newest : std::min(alone, newest)) && !owns(highest);
}

std::string to_json(const HomeRecord& record) {
  std::string claims;
  for (const AttemptNumber claim : record.claims)
    claims += (claims.empty() ? "" : ",") + std::to_string(claim);
  std::string text = "{\"schema\":" + std::to_string(kSchema) + ",\"home\":" + json_text(record.home) +
                     ",\"claims\":[" + claims + "]";
  if (record.alone != 0) text += ",\"alone\":" + std::to_string(record.alone);
  if (record.newest) {
    text += ",\"attempt\":" + std::to_string(record.newest->attempt) +
            ",\"step\":" + std::to_string(record.newest->step) +
            ",\"since\":" + json_text(record.newest_since);
  }
  // json_text() mends the character that the cut of a long failure may break.
  text += ",\"took_ms\":" + std::to_string(record.took_ms) + ",\"copies\":" + std::to_string(record.copies) +
          ",\"copying\":" + json_text(record.copying) +
          ",\"failure\":" + json_text(record.failure.substr(0, kLongestFailure)) +
          ",\"failing_since\":" + json_text(record.failing_since) +
          ",\"superseded\":" + (record.superseded ? "true" : "false") + ",\"time\":" + json_text(record.time);
  return text + "}\n";
}

std::optional<HomeRecord> home_record_from_json(const std::string& text) {
  const JsonValue object = parse_json(text);
  if (integer_member(object, "schema") != kSchema || !text_member(object, "home")) return std::nullopt;
  HomeRecord record{.home = text_in(object, "home"),
                    .newest_since = text_in(object, "since"),
                    .copying = text_in(object, "copying"),
                    .failure = text_in(object, "failure"),
                    .failing_since = text_in(object, "failing_since"),
                    .time = text_in(object, "time")};
  if (const JsonValue* const claims = object.find("claims");
      claims != nullptr && claims->is(JsonValue::Kind::list)) {
    for (const JsonValue& claim : claims->items) {
      // The numbers come from a file, so only possible ones count.
      if (claim.whole && is_number_of_attempt(claim.integer))
        record.add(static_cast<AttemptNumber>(claim.integer));
    }
  }
  if (const auto alone = integer_member(object, "alone"); alone && is_number_of_attempt(*alone)) {
    record.alone = static_cast<AttemptNumber>(*alone);
  }
  const auto attempt = integer_member(object, "attempt");
  const auto step = integer_member(object, "step");
  if (attempt && step && is_number_of_attempt(*attempt) && *step >= 0) {
    record.newest = FileId{.attempt = static_cast<AttemptNumber>(*attempt), .step = *step};
  }
  if (const auto took = integer_member(object, "took_ms"); took && *took > 0 && *took <= kLongestTook) {
    record.took_ms = *took;
  }
  if (const auto copies = integer_member(object, "copies"); copies && *copies >= 0 && *copies < 1'000'000) {
    record.copies = static_cast<int>(*copies);
  }
  const JsonValue* const superseded = object.find("superseded");
  record.superseded = superseded != nullptr && superseded->integer == 1;
  return record;
}

std::optional<HomeRecord> read_home_record(Directory& run_directory) {
  const auto text = read_text(run_directory);
  return text ? home_record_from_json(*text) : std::nullopt;
}

void update_home_record(Directory& run_directory,
                        const std::function<HomeRecord(const std::optional<HomeRecord>&)>& merge) {
  std::optional<HomeRecord> there;
  for (int rounds = 0; rounds < kRounds; ++rounds) {
    Lock lock(run_directory);
    // What an earlier round found stands, if there is only a half-written file now.
    if (auto now = read_home_record(run_directory)) there = std::move(now);
    if (!lock.replace_record(to_json(merge(there)))) continue;  // another process has changed it meanwhile
    // The claims in it tell a later start which files in HOME came from here, so they must survive a power
    // cut.
    run_directory.sync();
    return;
  }
  throw Error(run_directory.path() + "/" + kHomeStateNewName +
              " is removed again and again by another process");
}

}}  // namespace holdfast::v0_2
