#include "holdfast/interruption/internal/http_client.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "holdfast/base/mutex.h"
#include "holdfast/interruption/internal/curl.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Longest sleep without a check; curl's own timers and cancel() end it earlier.
constexpr int kPollEvery = 1000;  // ms

struct Arriving {
  HttpAnswer& answer;
  std::size_t most;  // bytes of the body
  std::size_t header_bytes = 0;
  bool no_memory = false;
};

// Exceptions must not pass through the C library. Any other count than `size` makes curl end the transfer.
template <class Work>
std::size_t guarded(Arriving& arriving, std::size_t size, const Work& work) noexcept {
  try {
    return work() ? size : 0;
  } catch (...) {
    arriving.no_memory = true;
    return 0;
  }
}

std::size_t take_body(char* data, std::size_t one, std::size_t size, void* user) {
  auto& arriving = *static_cast<Arriving*>(user);
  return guarded(arriving, one * size, [&] {
    if (arriving.answer.body.size() + size > arriving.most) {
      arriving.answer.too_long = true;
      return false;
    }
    arriving.answer.body.append(data, size);
    return true;
  });
}

std::size_t take_header(char* data, std::size_t one, std::size_t size, void* user) {
  auto& arriving = *static_cast<Arriving*>(user);
  return guarded(arriving, one * size, [&] {
    // All headers together are limited; a hostile server could send them without end.
    arriving.header_bytes += size;
    if (arriving.header_bytes > kMostBody) {
      arriving.answer.too_long = true;
      return false;
    }
    const std::string_view line(data, size);
    const auto colon = line.find(':');
    // The status line and the empty line at the end have no colon.
    if (colon == std::string_view::npos) return true;
    std::string name(line.substr(0, colon));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    arriving.answer.headers.emplace_back(std::move(name), trimmed(line.substr(colon + 1)));
    return true;
  });
}

// Child processes must not inherit the connection.
int keep_from_children(void*, curl_socket_t descriptor, curlsocktype) {
  fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  return CURL_SOCKOPT_OK;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::optional<std::string_view> HttpAnswer::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

struct HttpClient::Handles {
  const Curl* curl = nullptr;
  CURL* easy = nullptr;
  CURLM* multi = nullptr;
  Mutex mutex;
  // Only this pointer may be used by another thread; curl's handles belong to the asking one.
  CURLM* to_wake HOLDFAST_GUARDED_BY(mutex) = nullptr;  // `multi`, for cancel()
  std::atomic<bool> cancelled{false};

  bool open(std::string& why);
  void describe(const HttpRequest& request, curl_slist* headers, Arriving& arriving) const;
  CURLcode perform(bool& interrupted) const;
};

HttpClient::HttpClient() : handles_(std::make_unique<Handles>()) {}

HttpClient::~HttpClient() {
  if (handles_->easy != nullptr) handles_->curl->easy_cleanup(handles_->easy);
  if (handles_->multi != nullptr) handles_->curl->multi_cleanup(handles_->multi);
}

void HttpClient::cancel() {
  // The flag first: the thread that is woken looks at it once and may sleep again.
  handles_->cancelled = true;
  const MutexLock lock(handles_->mutex);
  if (handles_->to_wake != nullptr) handles_->curl->multi_wakeup(handles_->to_wake);
}

bool HttpClient::cancelled() const { return handles_->cancelled; }

bool HttpClient::Handles::open(std::string& why) {
  // Kept from request to request, so that the connection stays open.
  if (multi != nullptr && easy != nullptr) return true;
  curl = load_curl(why);
  if (curl == nullptr) return false;
  if (easy == nullptr) easy = curl->easy_init();
  if (multi == nullptr) multi = curl->multi_init();
  {
    const MutexLock lock(mutex);
    to_wake = multi;
  }
  if (multi == nullptr || easy == nullptr) why = "libcurl has no memory or no descriptors";
  return multi != nullptr && easy != nullptr;
}

void HttpClient::Handles::describe(const HttpRequest& request, curl_slist* headers,
                                   Arriving& arriving) const {
  const auto set = [this](CURLoption option, auto value) { curl->easy_setopt(easy, option, value); };
  // Sets all options again, so that nothing of an earlier request, such as its token, remains.
  curl->easy_reset(easy);
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(request.limit).count();
  set(CURLOPT_URL, request.url.c_str());
  // Without this, curl would use SIGALRM for name look-ups and disturb the program's handlers.
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(limit));
  // A long poll may wait for its answer, but not for the connection.
  const auto connect = std::chrono::ceil<std::chrono::milliseconds>(std::min(request.limit, kRequestLimit));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect.count()));
  set(CURLOPT_PROXY, "");  // ignores the environment's proxy too
  // A redirect could lead the token to another server.
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  // A server that answers without a status line is not the one that was asked.
  set(CURLOPT_HTTP09_ALLOWED, 0L);
  set(CURLOPT_TCP_NODELAY, 1L);
  set(CURLOPT_USERAGENT, "holdfast");
  set(CURLOPT_SOCKOPTFUNCTION, keep_from_children);
#if LIBCURL_VERSION_NUM >= 0x075700
  // A name look-up that does not end in time is abandoned, not waited for.
  set(CURLOPT_QUICK_EXIT, 1L);
#endif
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, static_cast<void*>(&arriving));
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, static_cast<void*>(&arriving));
  if (std::string_view(request.method) != "GET") {
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
    set(CURLOPT_POSTFIELDS, request.body.c_str());
    // PUT with a body is a POST with another method for curl.
    set(CURLOPT_CUSTOMREQUEST, request.method);
  }
}

CURLcode HttpClient::Handles::perform(bool& interrupted) const {
  curl->multi_add_handle(multi, easy);
  int running = 1;
  while (running > 0 && !interrupted) {
    if (curl->multi_perform(multi, &running) != CURLM_OK) break;
    interrupted = cancelled;
    if (running > 0 && !interrupted) curl->multi_poll(multi, nullptr, 0, kPollEvery, nullptr);
  }
  // What stays if the loop was left before the transfer ended.
  CURLcode code = CURLE_ABORTED_BY_CALLBACK;
  int left = 0;
  while (const CURLMsg* message = curl->multi_info_read(multi, &left)) {
    if (message->msg == CURLMSG_DONE) code = message->data.result;
  }
  curl->multi_remove_handle(multi, easy);
  return code;
}

HttpAnswer HttpClient::ask(const HttpRequest& request) {
  HttpAnswer answer;
  Handles& handles = *handles_;
  if (handles.cancelled) {
    answer.cancelled = true;
    return answer;
  }
  if (!handles.open(answer.failure)) return answer;
  curl_slist* headers = nullptr;
  const auto free_headers = [&handles](curl_slist* list) { handles.curl->slist_free_all(list); };
  for (const std::string& header : request.headers) {
    headers = handles.curl->slist_append(headers, header.c_str());
  }
  // Without this, curl may wait a second for the service to accept a body.
  headers = handles.curl->slist_append(headers, "Expect:");
  const std::unique_ptr<curl_slist, decltype(free_headers)> held(headers, free_headers);

  Arriving arriving{.answer = answer, .most = request.most};
  handles.describe(request, headers, arriving);
  bool interrupted = false;
  const CURLcode code = handles.perform(interrupted);
  if (arriving.no_memory) throw std::bad_alloc();
  answer.cancelled = interrupted;
  answer.timed_out = code == CURLE_OPERATION_TIMEDOUT;
  if (code == CURLE_OK && !interrupted) {
    long status = 0;
    handles.curl->easy_getinfo(handles.easy, CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
  } else if (answer.too_long) {
    answer.failure = "an answer of more than " + std::to_string(request.most >> 10) + " KiB";
  } else if (answer.timed_out) {
    answer.failure = "no answer in time";
  } else {
    answer.failure = handles.curl->easy_strerror(code);
  }
  return answer;
}

}}}  // namespace holdfast::v0_2::internal
