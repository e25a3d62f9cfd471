#include "holdfast/ranks/shared_volume.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/base/system/random_bytes.h"
#include "holdfast/base/utf8.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr char kNonceMessage[] = "volume/nonce";
constexpr char kSightMessage[] = "volume/sight";
constexpr char kAllMessage[] = "volume/all";
constexpr char kSeen[] = "seen";
constexpr std::size_t kLongestAnswer = 300;
constexpr std::size_t kNumber = 2 * sizeof(Digest);  // hex digits
constexpr char kNoNonce[] = "none";
constexpr std::string_view kNoWord = "sent an unreadable answer";

// A file that its destructor removes.
class Nonce {
 public:
  // Random, because a name that can be guessed would not prove that the volume is the same.
  Nonce(Directory& run, AttemptNumber attempt)
      : run_(run),
        number_(in_hex(random_bytes(kNumber / 2))),
        name_(temporary_name(attempt, "nonce-" + number_)) {
    const auto file = run_.open(name_, OpenMode::create);
    if (!file) throw IoError("create", run_.path() + "/" + name_, EEXIST);
    try {
      file->write_at(std::as_bytes(std::span(number_)), 0);
      // Synced, so that a server that answers from its own cache shows the file to other machines.
      file->sync();
      file->close();
      run_.sync();
    } catch (...) {
      remove();
      throw;
    }
  }
  ~Nonce() { remove(); }
  Nonce(const Nonce&) = delete;
  Nonce& operator=(const Nonce&) = delete;
  std::string message() const { return name_ + ' ' + number_; }

 private:
  void remove() noexcept {
    try {
      run_.unlink(name_);
    } catch (const std::exception& error) {
      log_debug("a temporary file stays for the next attempt to remove: {}", what_of(error));
    }
  }

  Directory& run_;
  const std::string number_;
  const std::string name_;
};

// Empty: this rank sees the file. Otherwise what it found instead.
std::string check_file(FileSystem& files, const std::filesystem::path& run, const std::string& name,
                       std::string_view number) {
  try {
    // A new open of the directory makes NFS ask its server for new names.
    const auto directory = files.open_directory(run, false);
    if (!directory) return run.native() + " does not exist here";
    // Opened for writing: a rank that can only read the volume cannot write its share.
    const auto file = directory->open(name, OpenMode::overwrite_direct);
    if (!file) return run.native() + " here is not rank 0's: it lacks the file that rank 0 put there";
    // One byte more than expected, so that a longer file shows.
    std::array<std::byte, kNumber + 1> found{};
    const std::size_t count = file->read_at(found, 0);
    if (count != kNumber || !std::equal(number.begin(), number.end(), found.begin(),
                                        [](char a, std::byte b) { return std::byte(a) == b; })) {
      return run.native() + " shows another content of " + name + " here than rank 0 wrote";
    }
    return {};
  } catch (const std::exception& error) {
    return what_of(error);
  }
}

std::string await_file(FileSystem& files, const std::filesystem::path& run, const std::string& message,
                       Clock& clock, Duration limit) {
  const std::size_t blank = message.find(' ');
  if (blank == std::string::npos || message.size() - blank - 1 != kNumber) return "rank 0 sent no nonce";
  const std::string name = message.substr(0, blank);
  // The name comes from another process, and this rank is about to open the file for writing.
  if (!parse_temporary_name(name)) return "rank 0 sent no nonce";
  const std::string_view number = std::string_view(message).substr(blank + 1);
  const SteadyTime end = clock.now() + limit;
  // Grows to 1 s, because each look costs the file server a request.
  Duration pause = std::chrono::milliseconds(20);
  while (true) {
    std::string reason = check_file(files, run, name, number);
    if (reason.empty()) return {};
    const Duration left = end - clock.now();
    if (left <= Duration::zero()) return reason;
    clock.sleep_for(std::min(pause, left));
    pause = std::min<Duration>(2 * pause, std::chrono::seconds(1));
  }
}

// One line for each rank.
std::string to_lines(const SharedVolume& volume) {
  std::string text;
  for (std::size_t r = 0; r < volume.sees.size(); ++r) {
    text += (volume.sees[r] ? kSeen : volume.reasons[r]) + '\n';
  }
  return text;
}

std::optional<SharedVolume> from_lines(const std::string& text, int world_size) {
  SharedVolume volume;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) return std::nullopt;
    std::string line = text.substr(at, end - at);
    at = end + 1;
    volume.sees.push_back(line == kSeen);
    volume.reasons.push_back(volume.sees.back() ? std::string() : std::move(line));
  }
  if (volume.sees.size() != static_cast<std::size_t>(world_size) || !volume.sees.front()) return std::nullopt;
  return volume;
}

SharedVolume ask_all(FileSystem& files, const std::filesystem::path& run, AttemptNumber attempt,
                     RankChannel& channel, const SharedVolumeOptions& options) {
  std::unique_ptr<Directory> directory;
  std::optional<Nonce> nonce;
  try {
    directory = files.open_directory(run, false);
    if (!directory) throw IoError("open", run.native(), ENOENT);
    nonce.emplace(*directory, attempt);
  } catch (const IoError& error) {
    // A run with one writer is slower and equally safe, so this does not end the start.
    log_warning("rank 0 writes the checkpoints alone: it is unknown which other ranks see {} ({})",
                run.native(), what_of(error));
  }
  channel.tell(kNonceMessage, nonce ? nonce->message() : kNoNonce);
  SharedVolume volume{{true}, {{}}};
  for (int r = 1; r < channel.world_size(); ++r) {
    const std::string answer = channel.hear(r, kSightMessage, options.look_for + options.answer);
    volume.sees.push_back(answer == kSeen);
    std::string reason;
    if (!volume.sees.back())
      reason = answer.empty() ? std::string(kNoWord) : printable(answer, kLongestAnswer);
    volume.reasons.push_back(std::move(reason));
  }
  // Each rank has answered, so nobody reads the nonce any more.
  channel.forget(kNonceMessage);
  channel.tell(kAllMessage, to_lines(volume));
  return volume;
}

}  // namespace

SharedVolume find_shared_volume(FileSystem& files, const std::filesystem::path& run, AttemptNumber attempt,
                                RankChannel& channel, Clock& clock, const SharedVolumeOptions& options) {
  if (channel.world_size() == 1) return {{true}, {{}}};
  if (channel.rank() == 0) return ask_all(files, run, attempt, channel, options);
  const std::string message = channel.hear(0, kNonceMessage, options.answer);
  const std::string reason = await_file(files, run, message, clock, options.look_for);
  channel.tell(kSightMessage, reason.empty() ? std::string(kSeen) : printable(reason, kLongestAnswer));
  // Another rank may look for as long as this one did, so wait that much longer.
  const std::string all = channel.hear(0, kAllMessage, options.look_for + options.answer);
  channel.forget(kSightMessage);
  auto volume = from_lines(all, channel.world_size());
  if (!volume) throw Error("rank 0 did not report which ranks see " + run.native(), ExitCode::interrupted);
  return *std::move(volume);
}

}}  // namespace holdfast::v0_2
