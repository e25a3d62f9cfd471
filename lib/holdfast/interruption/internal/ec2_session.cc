#include "holdfast/interruption/internal/ec2_session.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/internal/shown_text.h"
#include "holdfast/interruption/service_time.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Six hours, the longest that IMDSv2 grants.
constexpr std::int64_t kTokenSeconds = 21600;
// Pause between requests for a token if none is given and the service answers without one.
constexpr Duration kTokenAgain = std::chrono::minutes(1);
constexpr std::size_t kLongestToken = 1024;  // EC2's tokens have 56 characters

bool may_be_a_token(std::string_view text) {
  // The token goes into a header, so it must not hold a line end.
  return !text.empty() && text.size() <= kLongestToken &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string words_for(const HttpAnswer& answer) {
  return answer.status == 0 ? answer.failure : "status " + std::to_string(answer.status);
}

}  // namespace

Ec2Session::Ec2Session(Clock& clock, std::string endpoint, Duration request_limit)
    : clock_(clock), endpoint_(std::move(endpoint)), limit_(request_limit), refresh_at_(clock.now()) {}

Ec2Session::Token Ec2Session::have_token() {
  const SteadyTime now = clock_.now();
  if (now < refresh_at_) return token_.empty() ? Token::none : Token::there;
  const HttpAnswer answer =
      client_.ask({.method = "PUT",
                   .url = endpoint_ + "/latest/api/token",
                   .headers = {"X-aws-ec2-metadata-token-ttl-seconds: " + std::to_string(kTokenSeconds)},
                   .limit = limit_});
  if (answer.cancelled) return Token::cancelled;
  // 403 on the token means that the service is switched off, and asking without one would change nothing.
  if (answer.status == 403) return Token::refused;
  if (answer.status == 200 && may_be_a_token(answer.body)) {
    token_ = answer.body;
    const auto header = answer.header("x-aws-ec2-metadata-token-ttl-seconds");
    const auto told = header ? parse_int(*header) : std::nullopt;
    const auto seconds = std::clamp<std::int64_t>(told.value_or(kTokenSeconds), 1, kTokenSeconds);
    // At 90 % of its life, so that no request meets an expired token.
    refresh_at_ = now + std::chrono::seconds(seconds) * 9 / 10;
    token_failure_.clear();
    return Token::there;
  }
  token_failure_ = answer.status == 200 ? "a malformed token" : words_for(answer);
  if (token_.empty()) return Token::none;
  refresh_at_ = now + kTokenAgain;  // the old token is valid for a while longer
  return Token::there;
}

HttpAnswer Ec2Session::ask(std::string_view path, std::size_t most) {
  HttpRequest request{
      .url = endpoint_ + "/latest/meta-data/" + std::string(path), .limit = limit_, .most = most};
  if (!token_.empty()) request.headers.push_back("X-aws-ec2-metadata-token: " + token_);
  return client_.ask(request);
}

Ec2Reading Ec2Session::get(std::string_view path, std::size_t most) {
  using Kind = Ec2Reading::Kind;
  HttpAnswer answer;
  // Twice at most: a second 401 with a fresh token is another fault.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Token token = have_token();
    if (token == Token::cancelled) return {.kind = Kind::cancelled};
    if (token == Token::refused) return {.kind = Kind::refused};
    answer = ask(path, most);
    if (answer.status != 401 || token_.empty()) break;
    token_.clear();  // it expired early; ask for a new one and repeat the request once
    refresh_at_ = clock_.now();
  }
  if (answer.cancelled) return {.kind = Kind::cancelled};
  // Only if no token was given; a token that was given and then refused is another problem.
  const bool no_token = token_.empty() && !token_failure_.empty();
  if (no_token && answer.status != 0) {
    // The service answers without a token, so ask for one rarely: each try may take a second.
    if (answer.status == 200 || answer.status == 404) refresh_at_ = clock_.now() + kTokenAgain;
    hint_at_hops();
  }
  Ec2Reading reading;
  if (const auto date = answer.header("date")) reading.service_now = parse_service_time(*date);
  if (answer.status == 200) {
    reading.kind = Kind::body;
    reading.body = std::move(answer.body);
  } else if (answer.status == 404) {
    reading.kind = Kind::nothing;
  } else if (answer.status == 403) {
    reading.kind = Kind::refused;
  } else {
    reading.failure = words_for(answer);
    reading.too_long = answer.too_long;
    if (no_token && token_failure_ != reading.failure) {
      reading.failure += " for " + std::string(path) + ", and no token (" + shown(token_failure_, 100) + ")";
    }
  }
  return reading;
}

void Ec2Session::hint_at_hops() {
  if (std::exchange(hinted_, true)) return;
  log_warning(
      "EC2's metadata service answers, but gives no token ({}). In a container, raise its hop limit: aws ec2 "
      "modify-instance-metadata-options --http-put-response-hop-limit 2 "
      "--instance-id ID. Until then Holdfast asks without a token",
      shown(token_failure_, 100));
}

}}}  // namespace holdfast::v0_2::internal
