// What a store does for a standby, for others that fence nobody off, and for those that tell a standby
// something (home_notes.h).
#include <algorithm>

#include "holdfast/base/error.h"
#include "holdfast/mirror/rclone_home.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr std::size_t kMostNoted = 64 << 10;  // bytes of a small text
// A machine that has written its number writes its claim at once. After this time it has died in between.
constexpr Duration kLateClaim = std::chrono::seconds(30);

std::string in_attempts(const std::string& name) { return std::string(kAttemptsDirectory) + "/" + name; }

}  // namespace

AttemptNumber RcloneHome::claim_after(AttemptNumber after, AttemptNumber least) {
  if (own_ != 0) check_not_superseded();
  const std::vector<Claim> before = claims(Listing::anew);
  bool lost = std::any_of(before.begin(), before.end(), [&](const Claim& claim) {
    return claim.number > after && !tried_.contains(claim.name);
  });
  // A store that is gone, or a claim that was taken back.
  lost = lost || highest() < after;
  // The number above `after` is taken, and its claim may still come: a higher one would end that machine.
  lost = lost || (taken_ > after && pace_.clock().now() < taken_at_ + kLateClaim);
  if (!lost) {
    if (const AttemptNumber number = claim_once(std::max(after + 1, least))) return number;
  }
  // A claim that lost would look like a machine that holds the run.
  for (const Claim& claim : claims(Listing::recent)) {
    if (!tried_.contains(claim.name) || claim.name == own_name_) continue;
    const RcloneEnd end = remove(in_attempts(claim.name));
    if (!end.ok() && !end.missing()) fail("delete a claim that lost", end);
  }
  return 0;
}

bool RcloneHome::is_own(AttemptNumber highest) {
  bool own = false;
  for (const Claim& claim : claims(Listing::recent)) {
    if (claim.number < highest) continue;
    if (!tried_.contains(claim.name)) return false;
    own = true;
  }
  return own;
}

std::optional<std::string> RcloneHome::note(const std::string& name) {
  std::string text;
  // Without --no-traverse rclone lists the folder, too, at twelve times the price of a read.
  const RcloneEnd end =
      rclone_.run({"cat", "--no-traverse", at(in_attempts(name))}, {}, [&](std::span<const std::byte> bytes) {
        if (text.size() <= kMostNoted) text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      });
  if (end.missing()) return std::nullopt;
  if (!end.ok()) fail("read " + name, end);
  // rclone ends with 0 for some stores that have no such object.
  if (text.empty()) return std::nullopt;
  return text;
}

void RcloneHome::put_note(const std::string& name, const std::string& text) {
  const RcloneEnd end = write(in_attempts(name), text);
  if (!end.ok()) fail("write " + name, end);
}

void RcloneHome::remove_note(const std::string& name) {
  const RcloneEnd end = remove(in_attempts(name));
  if (!end.ok() && !end.missing()) fail("delete " + name, end);
}

}}  // namespace holdfast::v0_2
