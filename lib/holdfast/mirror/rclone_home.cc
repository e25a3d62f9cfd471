#include "holdfast/mirror/rclone_home.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <random>

#include "holdfast/base/log.h"
#include "holdfast/base/system/random_bytes.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/mirror/kernel_files.h"
#include "holdfast/mirror/rclone_s3.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/checkpoint_store.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/lineage.h"
#include "holdfast/store/retention.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// 64 random bits, so that no two machines draw the same name.
constexpr std::size_t kTokenDigits = 16;
constexpr Duration kLongestWait = std::chrono::seconds(2);  // after a lost claim
// One turn of the mirror asks HOME several questions, and each listing costs the store requests.
constexpr Duration kRecent = std::chrono::seconds(1);
// A listing is held in memory, and that of a run directory takes a few KiB.
constexpr std::size_t kMostListed = 64u << 20;
constexpr std::size_t kMostAnswered = 1u << 20;  // about itself: as many remotes as anybody has
constexpr std::size_t kMostNamed = 4096;         // bytes of a claim's name, in the object of its number
constexpr char kDigits[] = "0123456789abcdef";
constexpr char kFrom[] = ".from.";

std::string root_of(const std::string& place) {
  std::string root = without_slashes(place.substr(std::string(kRclonePrefix).size()));
  // A remote on the fly begins with a colon: ":local:/mnt/x".
  const std::size_t colon = root.find(':', 1);
  if (colon == std::string::npos || colon + 1 >= root.size()) {
    throw UsageError("'" + printable(place, 400) +
                     "' is no home: write rclone:REMOTE:PATH, such as rclone:s3:bucket/run1");
  }
  return root;
}

}  // namespace

std::optional<AttemptNumber> parse_store_claim(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos || name.size() - dot - 1 != kTokenDigits) return std::nullopt;
  if (name.find_first_not_of(kDigits, dot + 1) != std::string::npos) return std::nullopt;
  return parse_claim_name(std::string_view(name).substr(0, dot));
}

std::optional<std::pair<AttemptNumber, FileId>> parse_store_mark(const std::string& name) {
  const std::size_t from = name.find(kFrom);
  if (from == std::string::npos) return std::nullopt;
  const auto number = parse_store_claim(name.substr(0, from));
  const auto start = parse_checkpoint_name(name.substr(from + sizeof kFrom - 1));
  if (!number || !start) return std::nullopt;
  return std::pair(*number, *start);
}

RcloneHome::RcloneHome(const HomeOptions& options, CopyVerifier& verifier, Pace& pace)
    : name_(without_slashes(options.place)),
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

const std::vector<RcloneEntry>& RcloneHome::entries(Listing which) {
  if (which == Listing::recent && listed_at_ && pace_.clock().now() <= *listed_at_ + kRecent) return listed_;
  const std::int64_t writes = writes_;
  std::string text;
  // Files and claims at once. Modification times and types cost a request a file with some stores.
  const RcloneEnd end = rclone_.run(
      {"lsjson", "--recursive", "--max-depth=2", "--no-modtime", "--no-mimetype", "--files-only", root_}, {},
      [&](std::span<const std::byte> bytes) {
        if (text.size() + bytes.size() > kMostListed) {
          throw HomeError(name_ + " holds too many files for a run directory");
        }
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      });
  // Once a claim lies there, a store that knows no such folder is in trouble, and not empty.
  const bool empty = end.missing() && own_ == 0;
  if (!empty && !end.ok()) fail("list " + root_, end);
  auto found = rclone_list_from_json(empty ? "[]" : text);
  if (!found) throw HomeError(name_ + ": what rclone lists about " + root_ + " is not a list of files");
  std::erase_if(*found, [](const RcloneEntry& entry) { return entry.is_folder; });
  listed_ = std::move(*found);
  // While rclone lists, the mirror serves its supervisor, which may claim: then the list is older than that
  // claim.
  listed_at_ = writes == writes_ ? std::optional(pace_.clock().now()) : std::nullopt;
  return listed_;
}

std::vector<RcloneHome::Claim> RcloneHome::claims_and_marks(Listing which) {
  const std::string folder = std::string(kAttemptsDirectory) + "/";
  std::vector<Claim> found;
  bool any = false;
  for (const RcloneEntry& entry : entries(which)) {
    if (!entry.path.starts_with(folder)) continue;
    any = true;
    const std::string name = entry.path.substr(folder.size());
    if (const auto number = parse_store_claim(name)) found.push_back({*number, name});
    if (const auto mark = parse_store_mark(name)) found.push_back({mark->first, name, mark->second});
  }
  // An incomplete listing must not look like a claim that somebody removed: that would end the trainer with
  // 76.
  if (!any && own_ != 0) throw HomeError(name_ + " lists no claims at all, though one lies there");
  return found;
}

std::vector<RcloneHome::Claim> RcloneHome::claims(Listing which) {
  std::vector<Claim> found = claims_and_marks(which);
  std::erase_if(found, [](const Claim& claim) { return claim.start.has_value(); });
  return found;
}

std::vector<HomeFile> RcloneHome::list() {
  std::vector<HomeFile> found;
  for (const RcloneEntry& entry : entries(Listing::recent)) {
    const auto id = parse_checkpoint_name(entry.path);
    if (id && entry.bytes >= 0) found.push_back({*id, static_cast<std::uint64_t>(entry.bytes)});
  }
  std::sort(found.begin(), found.end(), [](const HomeFile& a, const HomeFile& b) { return a.id > b.id; });
  return found;
}

std::vector<HomeFile> RcloneHome::starts() {
  std::vector<HomeFile> found = list();
  const std::vector<Claim> all = claims_and_marks(Listing::recent);
  const Claim* mark = nullptr;
  for (const Claim& claim : all) {
    if (claim.start && (mark == nullptr || claim.number > mark->number)) mark = &claim;
  }
  const auto is_marked = [&](const HomeFile& file) { return file.id == *mark->start; };
  if (mark == nullptr || std::none_of(found.begin(), found.end(), is_marked)) return found;
  // An older owner may have uploaded the others after the mark, so they stand back behind it.
  std::stable_partition(found.begin(), found.end(), [&](const HomeFile& file) {
    return file.id.attempt >= mark->number || file.id <= *mark->start;
  });
  return found;
}

void RcloneHome::begin_from(FileId start) {
  const std::string name = std::string(kAttemptsDirectory) + "/" + own_name_ + kFrom + checkpoint_name(start);
  const RcloneEnd end = write(name, claim_text(kClaimedByMirror));
  if (!end.ok()) fail("write " + name, end);
}

AttemptNumber RcloneHome::highest() {
  AttemptNumber highest = 0;
  for (const Claim& claim : claims(Listing::recent)) highest = std::max(highest, claim.number);
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
  const AttemptNumber number = std::max({highest() + 1, least, taken_ + 1});
  if (number > kHighestNumber) {
    throw RefusedError(name_ + " holds a file of the last attempt number there is; move that file away");
  }
  // Not every store has exclusive creation. So each writes under a name of its own, and looks: it has lost if
  // another claims the same number or a higher one.
  const std::string name = claim_name(number) + "." + in_hex(random_bytes(kTokenDigits / 2));
  // Before the request: one that seems to fail may have worked, and must not look like another machine's.
  tried_.insert(name);
  if (!take(number, name)) return 0;
  const RcloneEnd end = write(std::string(kAttemptsDirectory) + "/" + name, claim_text(kClaimedByMirror));
  if (!end.ok()) fail("write a claim", end);
  bool listed = false;
  const std::vector<Claim> all = claims_and_marks(Listing::anew);
  for (const Claim& claim : all) {
    if (claim.start) continue;
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

// Asked once, because each question starts a program.
bool RcloneHome::sends_conditions() {
  if (sends_conditions_) return *sends_conditions_;
  const auto answer = [&](const std::vector<std::string>& question) {
    std::string text;
    const RcloneEnd end = rclone_.run(question, {}, [&](std::span<const std::byte> bytes) {
      if (text.size() < kMostAnswered) text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    return end.ok() ? text : std::string();
  };
  // The version last: it is asked for S3 alone.
  sends_conditions_ = is_s3_remote(root_, root_.starts_with(':') ? "" : answer({"listremotes", "--long"})) &&
                      rclone_sends_conditions(answer({"version"}));
  if (*sends_conditions_) {
    log_debug("{}: each claim begins with a conditional write (If-None-Match)", name_);
  } else {
    log_debug("{}: claims are decided by the list alone; conditional writes need S3 and rclone 1.72", name_);
  }
  return *sends_conditions_;
}

// False: another machine took that number first, so there is no need to claim it. The list behind the claim
// decides in any case: a store may ignore the condition, or refuse it for another reason.
bool RcloneHome::take(AttemptNumber number, const std::string& claim) {
  if (!sends_conditions()) return true;
  const std::string object = std::string(kAttemptsDirectory) + "/" + claim_name(number);
  const RcloneEnd end = write(object, claim, {kOnlyWhereNothingLies});
  if (end.ok()) return true;
  // An own write whose answer got lost is refused when rclone sends it again.
  std::string owner;
  const RcloneEnd read = rclone_.run({"cat", at(object)}, {}, [&](std::span<const std::byte> bytes) {
    if (owner.size() <= kMostNamed) owner.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  if (!read.ok() || parse_store_claim(owner) != number) {
    log_debug("{}: the list alone decides about attempt {}; its conditional write failed: {}", name_, number,
              end.said);
    return true;
  }
  if (tried_.contains(owner)) return true;
  log_debug("{}: attempt {} is taken, by {}", name_, number, owner);
  taken_ = number;
  taken_at_ = pace_.clock().now();
  return false;
}

// The highest number stays taken, so nobody can win a number twice.
void RcloneHome::forget_old_claims(const std::vector<Claim>& all) {
  std::vector<std::string> old;
  const auto add = [&](AttemptNumber number, const std::string& name) {
    if (number + kAttemptsKept <= own_) old.push_back(std::string(kAttemptsDirectory) + "/" + name);
  };
  for (const Claim& claim : all) add(claim.number, claim.name);
  const std::string folder = std::string(kAttemptsDirectory) + "/";
  for (const RcloneEntry& entry : entries(Listing::recent)) {
    if (!entry.path.starts_with(folder)) continue;
    const std::string name = entry.path.substr(folder.size());
    if (const auto number = parse_claim_name(name)) add(*number, name);  // what take() wrote
    if (const auto number = parse_holder_name(name)) add(*number, name);
  }
  for (const std::string& name : old) {
    if (!remove(name).ok()) return;  // the next start tries again
  }
}

void RcloneHome::check_claims(Listing which) {
  AttemptNumber own = own_;
  std::vector<Claim> all = claims(which);
  // While rclone lists, the mirror serves its supervisor, which may claim anew: the list is older than that
  // claim.
  while (own != own_) {
    own = own_;
    all = claims(Listing::anew);
  }
  bool listed = false;
  AttemptNumber highest = 0;
  for (const Claim& claim : all) {
    listed = listed || claim.name == own_name_;
    if (!tried_.contains(claim.name)) highest = std::max(highest, claim.number);
  }
  if (highest > own_) {
    throw SupersededError(name_ + ": attempt " + std::to_string(highest) + " has taken over from attempt " +
                          std::to_string(own_));
  }
  if (!listed) throw SupersededError(name_ + ": the claim of attempt " + std::to_string(own_) + " is gone");
}

// The path of the source is that of an open descriptor: retention may delete its name meanwhile.
void RcloneHome::put(const MirrorSource& source) {
  check_claims(Listing::recent);  // spares the upload of one that is superseded
  const std::string name = checkpoint_name(source.id);
  if (access(source.path.c_str(), R_OK) != 0) {
    if (errno == ENOENT) throw SourceGone(name + " was deleted before its copy began");
    throw IoError("open", source.path, errno);
  }
  // Without rclone's own checksums, which read the source once more: holds() compares every byte of the copy.
  changed();
  const RcloneEnd end = rclone_.run_limited({"copyto", "--copy-links", "--ignore-times", "--ignore-checksum",
                                             "--no-traverse", source.path, at(name)});
  changed();  // a listing may have been made meanwhile, for the supervisor
  if (!end.ok()) fail("copy " + name, end);
  if (!holds(source)) throw CopyDiffers(name_ + " does not hold the bytes of " + name + " that were written");
  // A copy counts only if nobody has taken HOME over meanwhile.
  check_not_superseded();
}

// One pass: the bytes that come are compared with the digests in the head of the source, which is what
// verifies them. So a damaged source differs from its copy too.
bool RcloneHome::holds(const MirrorSource& source) {
  const std::string name = checkpoint_name(source.id);
  const auto copy = verifier_.expect_copy(*source.file);
  if (!copy) throw CopyDiffers(name + " is damaged; its copy does not count");
  const RcloneEnd end =
      rclone_.run({"cat", at(name)}, {}, [&](std::span<const std::byte> bytes) { copy->append(bytes); });
  if (end.missing()) return false;
  if (!end.ok()) fail("read " + name, end);
  if (!copy->is_whole()) return false;
  verified_[source.id] = source.finite;
  return true;
}

void RcloneHome::put_kernels(Directory& folder) { copy_kernels(folder.path(), at(kKernelsDirectory)); }

void RcloneHome::fetch_kernels(Directory& folder) { copy_kernels(at(kKernelsDirectory), folder.path()); }

void RcloneHome::copy_kernels(const std::string& from, const std::string& to) {
  std::string names = "--include=/";
  for (std::size_t i = 0; i < kKernelNameDigits; ++i) names += "[0-9a-f]";
  const RcloneEnd end =
      rclone_.run_limited({"copy", "--max-depth=1", "--ignore-existing", std::move(names),
                           "--max-size=" + std::to_string(kLongestKernelFile) + "B", from, to});
  changed();
  if (!end.ok() && !end.missing()) fail("copy the compiled kernels", end);
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
    check_claims(Listing::recent);
    const RcloneEnd end = remove(checkpoint_name(id));
    if (!end.ok() && !end.missing()) fail("delete " + checkpoint_name(id), end);
    verified_.erase(id);
  }
}

void RcloneHome::changed() {
  // A listing that began before a write must answer no question about it.
  ++writes_;
  listed_at_.reset();
}

RcloneEnd RcloneHome::write(const std::string& name, const std::string& text,
                            std::vector<std::string> options) {
  changed();
  options.insert(options.begin(), "rcat");
  options.push_back(at(name));
  return rclone_.run(options, text);
}

RcloneEnd RcloneHome::remove(const std::string& name) {
  changed();
  return rclone_.run({"deletefile", at(name)});
}

void RcloneHome::read(const HomeFile& file, const ByteSink& sink) {
  const std::string name = checkpoint_name(file.id);
  const RcloneEnd end = rclone_.run({"cat", at(name)}, {}, sink);
  if (!end.ok()) fail("read " + name, end);
}

}}  // namespace holdfast::v0_2
