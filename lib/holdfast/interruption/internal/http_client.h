// Asks a metadata service of the local machine over plain HTTP. Whatever the service does, a request is over
// when its time is, and its answer is small: no proxy, no redirection, no signals, no name that takes longer
// than the request may.
//
// Errors: none; what went wrong is in the answer. Only bad_alloc is thrown.
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

namespace holdfast::inline v1::internal {

inline constexpr Duration kRequestLimit = std::chrono::seconds(1);
inline constexpr std::size_t kMostBody = 16u << 10;

struct HttpRequest {
  const char* method = "GET";  // GET, PUT, POST
  std::string url;             // http://…
  std::vector<std::string> headers = {};
  std::string body = {};           // of a PUT or POST
  Duration limit = kRequestLimit;  // for all of it, the name's look-up and the connection included
};

struct HttpAnswer {
  // 0: none arrived, not to the end, or a body over kMostBody; `failure` has words for it.
  int status = 0;
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // names in lower case
  std::string failure = {};
  bool cancelled = false;
  bool timed_out = false;

  // Of the first such header; the name in lower case.
  std::optional<std::string_view> header(std::string_view name) const;
};

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Connections are kept for the next request.
  HttpAnswer ask(const HttpRequest& request);
  // Ends the request that is under way within milliseconds, and every later one before it begins.
  void cancel();
  bool cancelled() const;

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace holdfast::inline v1::internal
