#include "holdfast/ranks/internal/share_message.h"

#include <charconv>
#include <utility>

#include "holdfast/base/system/random_bytes.h"
#include "holdfast/base/utf8.h"
#include "holdfast/store/names.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// A message stays short even if an error's text is not.
constexpr std::size_t kLongestReason = 1000;
constexpr std::size_t kDigestText = 2 * sizeof(Digest);
const std::string kNotFinite = "not finite ";

std::string head_of(const SaveTag& tag, std::string_view what) {
  return "holdfast 1 save " + std::to_string(tag.attempt) + ' ' + std::to_string(tag.number) + ' ' +
         std::to_string(tag.step) + ' ' + std::string(what) + '\n';
}

// The store is shared memory of many processes; a digest tells a text of this save from anything else.
std::string with_digest(std::string text) {
  return std::move(text) += to_hex(digest_of(std::as_bytes(std::span(text))));
}

// The text between head and digest.
std::optional<std::string_view> body_of(std::string_view text, const std::string& head) {
  if (text.size() < head.size() + kDigestText || !text.starts_with(head)) return std::nullopt;
  const std::string_view covered = text.substr(0, text.size() - kDigestText);
  const auto digest = digest_from_hex(text.substr(covered.size()));
  if (!digest || digest_of(std::as_bytes(std::span(covered))) != *digest) return std::nullopt;
  // The head names attempt, save and step, so a text of another save is never believed.
  return covered.substr(head.size());
}

// Takes one line from the front, without its newline.
std::optional<std::string_view> take_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<std::string> reason_of(std::string_view line) {
  // printable() may write four letters for one byte.
  if (line.empty() || line.size() > 4 * kLongestReason) return std::nullopt;
  return printable(line, kLongestReason);
}

}  // namespace

std::string to_text(const SaveTag& tag, const BeginMessage& message) {
  return with_digest(head_of(tag, "begin") + to_hex(message.fingerprint) + '\n' + message.temporary + '\n');
}

std::optional<BeginMessage> read_begin(const SaveTag& tag, std::string_view text) {
  auto body = body_of(text, head_of(tag, "begin"));
  if (!body) return std::nullopt;
  const auto fingerprint = take_line(*body);
  const auto name = take_line(*body);
  if (!name || !body->empty()) return std::nullopt;
  const auto digest = digest_from_hex(*fingerprint);
  // This rank is about to write into the file, so only a temporary name of this attempt is accepted.
  if (!digest || parse_temporary_name(*name) != tag.attempt) return std::nullopt;
  return BeginMessage{*digest, std::string(*name)};
}

std::string to_text(const SaveTag& tag, int rank, const ReportMessage& message) {
  std::string text = head_of(tag, "report of " + std::to_string(rank));
  if (!message.failure.empty()) {
    // printable() keeps the reason on one line: the reader takes the message line by line.
    return with_digest(text + (message.refused ? "refused\n" : "failed\n") +
                       printable(message.failure, kLongestReason) + '\n');
  }
  text.reserve(text.size() + kDigestText * (message.digests.size() + 1) + 2 * message.sent.size() + 32);
  text += message.not_finite ? kNotFinite + std::to_string(*message.not_finite) + '\n' : "finite\n";
  for (const Digest& digest : message.digests) text += to_hex(digest);
  text += '\n';
  text += in_hex({reinterpret_cast<const char*>(message.sent.data()), message.sent.size()});
  text += '\n';
  return with_digest(std::move(text));
}

std::optional<ReportMessage> read_report(const SaveTag& tag, int rank, const Share& share,
                                         std::string_view text) {
  auto body = body_of(text, head_of(tag, "report of " + std::to_string(rank)));
  if (!body) return std::nullopt;
  const auto what = take_line(*body);
  const auto first = take_line(*body);
  if (!first) return std::nullopt;
  ReportMessage message;
  message.refused = *what == "refused";
  if (message.refused || *what == "failed") {
    auto reason = reason_of(*first);
    if (!reason || !body->empty()) return std::nullopt;
    message.failure = *std::move(reason);
    return message;
  }
  const auto sent = take_line(*body);
  if (!sent || !body->empty()) return std::nullopt;
  if (*what != "finite") {
    if (!what->starts_with(kNotFinite)) return std::nullopt;
    message.not_finite = number_of(what->substr(kNotFinite.size()));
    if (!message.not_finite) return std::nullopt;
  }
  // The division fixes both lengths, so a report of another division is refused here.
  if (first->size() != kDigestText * share.pieces.size() || sent->size() != 2 * share.sent) {
    return std::nullopt;
  }
  message.digests.reserve(share.pieces.size());
  for (std::size_t i = 0; i < share.pieces.size(); ++i) {
    const auto digest = digest_from_hex(first->substr(kDigestText * i, kDigestText));
    if (!digest) return std::nullopt;
    message.digests.push_back(*digest);
  }
  message.sent.resize(share.sent);
  if (!from_hex(*sent, message.sent)) return std::nullopt;
  return message;
}

std::string to_text(const SaveTag& tag, const EndMessage& message) {
  std::string text = head_of(tag, "end");
  switch (message.kind) {
    case EndMessage::Kind::committed:
      return with_digest(text + "committed\n" + std::to_string(message.bytes) + '\n' + message.text + '\n');
    case EndMessage::Kind::failed:
      text += "failed\n";
      break;
    case EndMessage::Kind::superseded:
      text += "superseded\n";
      break;
    case EndMessage::Kind::alone:
      text += "alone\n";
      break;
  }
  return with_digest(text + printable(message.text, kLongestReason) + '\n');
}

std::optional<EndMessage> read_end(const SaveTag& tag, std::string_view text) {
  auto body = body_of(text, head_of(tag, "end"));
  if (!body) return std::nullopt;
  const auto what = take_line(*body);
  const auto first = take_line(*body);
  if (!first) return std::nullopt;
  EndMessage message;
  if (*what == "committed") {
    const auto bytes = number_of(*first);
    const auto name = take_line(*body);
    // Only a name of a checkpoint: others show it to people and may look for it.
    if (!bytes || !name || !body->empty() || !parse_checkpoint_name(*name)) return std::nullopt;
    return EndMessage{EndMessage::Kind::committed, *bytes, std::string(*name)};
  }
  if (*what == "superseded") {
    message.kind = EndMessage::Kind::superseded;
  } else if (*what == "alone") {
    message.kind = EndMessage::Kind::alone;
  } else if (*what != "failed") {
    return std::nullopt;
  }
  auto reason = reason_of(*first);
  if (!reason || !body->empty()) return std::nullopt;
  message.text = *std::move(reason);
  return message;
}

}}}  // namespace holdfast::v0_2::internal
