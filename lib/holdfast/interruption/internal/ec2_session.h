// Requests to EC2's metadata service, with their tokens. docs/interruption_sources.md#ec2 has the protocol.
//
// Errors: bad_alloc; other failures are in the reading. Threads: get() by one; cancel() by any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "holdfast/base/clock.h"
#include "holdfast/interruption/internal/http_client.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Ec2Reading {
  enum class Kind {
    body,
    nothing,  // 404: the service has no such item
    unknown,  // the request failed; `failure` has the reason
    refused,  // 403
    cancelled,
  };
  Kind kind = Kind::unknown;
  std::string body = {};
  std::string failure = {};
  bool too_long = false;
  std::optional<WallTime> service_now = {};  // time of the service's own clock
};

class Ec2Session {
 public:
  Ec2Session(Clock& clock, std::string endpoint, Duration request_limit);

  // `path` below /latest/meta-data/. `most`: bytes of the answer.
  Ec2Reading get(std::string_view path, std::size_t most = kMostBody);
  void cancel() { client_.cancel(); }

 private:
  enum class Token { there, none, refused, cancelled };

  Token have_token();
  HttpAnswer ask(std::string_view path, std::size_t most);
  void hint_at_hops();

  Clock& clock_;
  const std::string endpoint_;
  const Duration limit_;
  HttpClient client_;
  std::string token_;
  SteadyTime refresh_at_{};  // when to fetch a new token; without a token, when to try again
  std::string token_failure_;
  bool hinted_ = false;
};

}}}  // namespace holdfast::v0_2::internal
