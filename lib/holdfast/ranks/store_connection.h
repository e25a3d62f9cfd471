// A connection to a run's store (store_server.h).
//
// Errors: OtherSecret; StoreClosed if the connection is lost (final) or no answer comes within the timeout;
// StoreFailed. Threads: any, one call at a time; a thread in missing() lets others pass.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/base/mutex.h"
#include "holdfast/ranks/rank_store.h"
#include "holdfast/ranks/sockets.h"
#include "holdfast/ranks/store_messages.h"

namespace holdfast { inline namespace v0_2 {

class StoreServer;

// The server at that address does not know this run's secret.
class HOLDFAST_EXPORT OtherSecret : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class HOLDFAST_EXPORT StoreConnection final : public RankStore {
 public:
  struct Place {
    std::string host;
    std::uint16_t port = 0;
    std::string secret;
  };

  // Retries until `limit` has passed, which is also the timeout of a call. Keeps `server` alive as long as
  // this object.
  StoreConnection(Place place, Duration limit, std::shared_ptr<StoreServer> server = nullptr);

  // Another connection to the same store.
  std::unique_ptr<StoreConnection> again() const;

  void set(const std::string& key, const std::string& value) override;
  void note(const std::string& key, const std::string& value) override;
  void set_all(const std::vector<std::string>& keys, const std::string& value) override;
  std::vector<std::string> get(const std::vector<std::string>& keys) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  void erase(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::vector<std::string> missing(const std::vector<std::string>& keys, Duration limit,
                                   const std::function<bool()>& give_up) override;
  std::optional<std::string> swap(const std::string& key, const std::string& value,
                                  const std::string& read) override;
  void make_will(const std::string& key, const std::string& value) override;
  void withdraw_will() override;

  // Any request: sends it and returns the words of its answer.
  std::vector<std::string> call(Kind kind, std::vector<std::string> words);
  // A request in two halves. finish() returns nullopt if the answer did not arrive within `limit`; it is then
  // still pending.
  void begin(Kind kind, std::vector<std::string> words);
  std::optional<std::vector<std::string>> finish(Duration limit);
  // Ends the connection. Any thread, also while another waits for an answer.
  void shut() noexcept;

 private:
  struct Turn;

  void greet(SteadyTime end) HOLDFAST_REQUIRES(mutex_);
  void send(Kind kind, std::vector<std::string> words) HOLDFAST_REQUIRES(mutex_);
  // nullopt at `end`.
  std::optional<Message> receive(SteadyTime end, std::size_t longest) HOLDFAST_REQUIRES(mutex_);
  std::optional<std::vector<std::string>> answer(SteadyTime end) HOLDFAST_REQUIRES(mutex_);
  // One wait of missing(). nullopt: another thread wants the connection.
  std::optional<std::vector<std::string>> wait_once(const std::vector<std::string>& keys, Duration limit,
                                                    const std::function<bool()>& give_up);
  [[noreturn]] void close(const std::string& why) HOLDFAST_REQUIRES(mutex_);

  const Place place_;
  const Duration limit_;
  const std::shared_ptr<StoreServer> server_;
  Mutex mutex_;
  std::atomic<int> callers_{0};  // threads that want the lock
  Socket socket_;                // only shut() uses it without the lock
  bool closed_ HOLDFAST_GUARDED_BY(mutex_) = false;
  std::string in_ HOLDFAST_GUARDED_BY(mutex_);
};

}}  // namespace holdfast::v0_2
