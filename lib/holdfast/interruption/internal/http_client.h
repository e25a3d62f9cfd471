// Sends a request to a metadata service of this machine over plain HTTP. A request always ends within its
// time limit, and the answer has a limited size. There is no proxy, no redirection, no signal handler, and no
// name look-up beyond the limit.
//
// Errors: in the answer; only bad_alloc is thrown.
// Threads: ask() by one at a time; cancel() by any, also during an ask().
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

inline constexpr Duration kRequestLimit = std::chrono::seconds(1);
inline constexpr std::size_t kMostBody = 16u << 10;  // bytes of one value, and of all headers
// Bytes of a list. Azure lists the events of a whole scale set in one answer, 355 bytes each: a mass eviction
// of 2,900 machines fits.
inline constexpr std::size_t kMostList = 1u << 20;

struct HttpRequest {
  const char* method = "GET";  // GET, PUT, POST
  std::string url;             // http://…
  std::vector<std::string> headers = {};
  std::string body = {};           // for PUT or POST
  Duration limit = kRequestLimit;  // total, including the name look-up and the connection
  std::size_t most = kMostBody;    // bytes of the answer's body
};

struct HttpAnswer {
  // 0: no complete answer arrived, or its body exceeds HttpRequest::most; `failure` says why.
  int status = 0;
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // names in lower case
  std::string failure = {};
  bool cancelled = false;
  bool timed_out = false;
  bool too_long = false;

  // Value of the first header of that name, which is in lower case.
  std::optional<std::string_view> header(std::string_view name) const;
};

// Without blanks and line ends around it.
std::string_view trimmed(std::string_view text);

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Keeps the connection for the next request.
  HttpAnswer ask(const HttpRequest& request);
  // Ends a running request within milliseconds, and makes every later one return at once.
  void cancel();
  bool cancelled() const;

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}}}  // namespace holdfast::v0_2::internal
