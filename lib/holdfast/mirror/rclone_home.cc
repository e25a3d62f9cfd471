#include "holdfast/mirror/rclone_home.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <random>

#include "holdfast/base/log.h"
#include "holdfast/base/random_bytes.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/mirror/aligned_blocks.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/lineage.h"
#include "holdfast/store/retention.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kTokenDigits = 16;
constexpr Duration kLongestWait = std::chrono::seconds(2);  // after a lost claim
constexpr std::size_t kMostListed = 64u << 20;
constexpr char kDigits[] = "0123456789abcdef";

std::string root_of(const std::string& place) {
  std::string root = place.substr(std::string(kRclonePrefix).size());
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  // A remote on the fly begins with a colon: ":local:/mnt/x".
  const std::size_t colon = root.find(':', 1);
  if (colon == std::string::npos || colon + 1 >= root.size()) {
    throw UsageError("'" + printable(place, 400) +
                     "' is no home: write rclone:REMOTE:PATH, such as rclone:s3:bucket/run1");
  }
  return root;
}

class HeldSource {
 public:
  explicit HeldSource(const std::string& path)
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {
    if (descriptor_ < 0 && errno == ENOENT) throw SourceGone(path + " was deleted before its copy began");
    if (descriptor_ < 0) throw IoError("open", path, errno);
  }
  ~HeldSource() { close(descriptor_); }
  HeldSource(const HeldSource&) = delete;
  HeldSource& operator=(const HeldSource&) = delete;
  std::string path() const {
    return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(descriptor_);
  }

 private:
  const int descriptor_;
};

}  // namespace

std::optional<AttemptNumber> parse_store_claim(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos || name.size() - dot - 1 != kTokenDigits) return std::nullopt;
  if (name.find_first_not_of(kDigits, dot + 1) != std::string::npos) return std::nullopt;
  return parse_claim_name(std::string_view(name).substr(0, dot));
}

RcloneHome::RcloneHome(const HomeOptions& options, Verifier& verifier, Pace& pace)
    : name_(options.place),
      root_(root_of(options.place)),
      keep_(options.keep),
      verifier_(verifier),
      pace_(pace),
      rclone_(pace) {}

std::string RcloneHome::at(const std::string& name) const { return root_ + "/" + name; }

void RcloneHome::fail(const std::string& what, const RcloneEnd& end) const {
  throw HomeError(name_ + ": rclone cannot " + what + " (exit code " + std::to_string(end.code) +
                  (end.said.empty() ? "" : ": " + end.said) + ")");
}

std::vector<RcloneEntry> RcloneHome::entries(const std::string& folder, bool may_be_missing) const {
  std::string text;
  // Modification times and types cost a request a file with some stores.
  const RcloneEnd end = rclone_.run({"lsjson", "--no-modtime", "--no-mimetype", "--files-only", folder}, {},
                                    [&](std::span<const std::byte> bytes) {
                                      if (text.size() + bytes.size() > kMostListed) {
                                        throw HomeError(name_ + " holds too many files for a run directory");
                                      }
                                      text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                                    });
  if (end.missing() && may_be_missing) return {};
  if (!end.ok()) fail("list " + folder, end);
  auto found = rclone_list_from_json(text);
  if (!found) throw HomeError(name_ + ": what rclone lists about " + folder + " is not a list of files");
  std::erase_if(*found, [](const RcloneEntry& entry) { return entry.is_folder; });
  return std::move(*found);
}

std::vector<RcloneHome::Claim> RcloneHome::claims() const {
  std::vector<Claim> found;
  for (const RcloneEntry& entry : entries(at(kAttemptsDirectory), own_ == 0)) {
    if (const auto number = parse_store_claim(entry.name)) found.push_back({*number, entry.name});
  }
  return found;
}

std::vector<HomeFile> RcloneHome::list() {
  std::vector<HomeFile> found;
  // Once a claim lies there, a store that knows no such folder is in trouble, and not empty.
  for (const RcloneEntry& entry : entries(root_, own_ == 0)) {
    const auto id = parse_checkpoint_name(entry.name);
    if (id && entry.bytes >= 0) found.push_back({*id, static_cast<std::uint64_t>(entry.bytes)});
  }
  std::sort(found.begin(), found.end(), [](const HomeFile& a, const HomeFile& b) { return a.id > b.id; });
  return found;
}

AttemptNumber RcloneHome::highest() {
  AttemptNumber highest = 0;
  for (const Claim& claim : claims()) highest = std::max(highest, claim.number);
  for (const HomeFile& file : list()) highest = std::max(highest, file.id.attempt);
  return highest;
}

AttemptNumber RcloneHome::claim(AttemptNumber least) {
  if (own_ != 0) check_not_superseded();
  std::random_device random;
  for (;;) {
    if (const AttemptNumber number = claim_once(least)) return number;
    // Two that lost against each other must not come back at the same moment.
    std::uniform_int_distribution<std::int64_t> wait(0, Duration(kLongestWait).count());
    pace_.wait(Duration(wait(random)));
  }
}

// 0: lost.
AttemptNumber RcloneHome::claim_once(AttemptNumber least) {
  const AttemptNumber number = std::max(highest() + 1, least);
  if (number > kHighestNumber) {
    throw RefusedError(name_ + " holds a file of the last attempt number there is; move that file away");
  }
  // Stores have no exclusive creation. So each writes under a name of its own, and looks: it has lost if
  // another claims the same number or a higher one.
  const std::string name = claim_name(number) + "." + in_hex(random_bytes(kTokenDigits / 2));
  const RcloneEnd end =
      rclone_.run({"rcat", at(std::string(kAttemptsDirectory) + "/" + name)}, claim_text(kClaimedByMirror));
  if (!end.ok()) fail("write a claim", end);
  bool listed = false;
  const std::vector<Claim> all = claims();
  for (const Claim& claim : all) {
    if (claim.name == name) {
      listed = true;
    } else if (claim.number >= number) {
      return 0;
    }
  }
  if (!listed)
    throw HomeError(name_ + " does not list the claim that it has just taken; its listing is not consistent");
  own_ = number;
  own_name_ = name;
  forget_old_claims(all);
  return number;
}

// The highest number stays taken, so nobody can win a number twice.
void RcloneHome::forget_old_claims(const std::vector<Claim>& all) {
  for (const Claim& claim : all) {
    if (claim.number + kAttemptsKept > own_) continue;
    const RcloneEnd end = rclone_.run({"deletefile", at(std::string(kAttemptsDirectory) + "/" + claim.name)});
    if (!end.ok()) return;  // the next start tries again
  }
}

void RcloneHome::check_not_superseded() {
  bool listed = false;
  AttemptNumber highest = 0;
  for (const Claim& claim : claims()) {
    listed = listed || claim.name == own_name_;
    highest = std::max(highest, claim.number);
  }
  if (highest > own_) {
    throw SupersededError(name_ + ": attempt " + std::to_string(highest) + " has taken over from attempt " +
                          std::to_string(own_));
  }
  if (!listed) throw SupersededError(name_ + ": the claim of attempt " + std::to_string(own_) + " is gone");
}

// rclone reads the source through a descriptor of this process: retention may delete its name meanwhile.
void RcloneHome::put(const MirrorSource& source) {
  check_not_superseded();
  const std::string name = checkpoint_name(source.id);
  const HeldSource held(source.path);
  const RcloneEnd end = rclone_.run_limited(
      {"copyto", "--copy-links", "--ignore-times", "--no-traverse", held.path(), at(name)});
  if (!end.ok()) fail("copy " + name, end);
  if (!holds(source)) throw CopyDiffers(name_ + " does not hold the bytes of " + name + " that were written");
  // A copy counts only if nobody has taken HOME over meanwhile.
  check_not_superseded();
}

bool RcloneHome::holds(const MirrorSource& source) {
  const std::string name = checkpoint_name(source.id);
  AlignedBlock block;
  std::uint64_t done = 0;
  std::span<const std::byte> own;
  bool same = true;
  const RcloneEnd end = rclone_.run({"cat", at(name)}, {}, [&](std::span<const std::byte> bytes) {
    while (same && !bytes.empty()) {
      if (own.empty()) {
        const std::uint64_t left = source.bytes - std::min(done, source.bytes);
        const std::size_t got = source.file->read_uncached_at(block.bytes(), done);
        own = block.bytes().first(std::min<std::uint64_t>(got, left));
        done += own.size();
      }
      const std::size_t part = std::min(own.size(), bytes.size());
      same =
          part > 0 && std::equal(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(part), bytes.begin());
      own = own.subspan(part);
      bytes = bytes.subspan(part);
    }
  });
  if (end.missing()) return false;
  if (!end.ok()) fail("read " + name, end);
  if (!same || !own.empty() || done != source.bytes) return false;
  // Equal to the source; and the source is what its own index says.
  verify_source(source);
  verified_[source.id] = source.finite;
  return true;
}

void RcloneHome::verify_source(const MirrorSource& source) {
  const Verdict verdict = verifier_.inspect(*source.file, Verifier::Depth::full, true);
  if (verdict.kind != Verdict::Kind::good) {
    throw CopyDiffers(source.path + " is damaged (" + verdict.reason + "); its copy does not count");
  }
}

// Retention by names: the newest `keep`, and never below two that this process has read back.
void RcloneHome::retire(const MirrorSource& newest) {
  Lineage lineage{.own = newest.id.attempt, .ancestry = newest.ancestry};
  RetentionView view{
      .present = {}, .trusted = verified_, .newest_acknowledged = newest.id, .newest_finite = {}};
  for (const HomeFile& file : list()) {
    if (lineage.contains(file.id)) view.present.push_back(file.id);
  }
  for (const FileId id : view.present) {
    const auto found = verified_.find(id);
    if (found == verified_.end() || !found->second) continue;
    view.newest_finite = id;
    break;
  }
  if (!view.newest_finite) return;  // an older file may be the last one whose state is finite
  for (const FileId id : superfluous(view, KeepLast{keep_})) {
    // Before each deletion, because another machine may own HOME by now.
    check_not_superseded();
    remove(checkpoint_name(id));
    verified_.erase(id);
  }
}

void RcloneHome::remove(const std::string& name) {
  const RcloneEnd end = rclone_.run({"deletefile", at(name)});
  if (!end.ok() && !end.missing()) fail("delete " + name, end);
}

void RcloneHome::read(const HomeFile& file, const ByteSink& sink) {
  const std::string name = checkpoint_name(file.id);
  const RcloneEnd end = rclone_.run({"cat", at(name)}, {}, sink);
  if (!end.ok()) fail("read " + name, end);
}

}}  // namespace holdfast::v0_2
