// What a run's store keeps, and what it answers: StoreServer without sockets, threads and clocks. The model
// of large runs (tests/crash/large_runs) drives it in virtual time.
//
//   StoreTable table([](Client client, Message answer) { … });
//   table.handle(client, request, now);   // the answer may come later: a wait, a vote
//   table.leave(client);                  // its connection has ended
//
// Waits with equal lists of keys share one entry: a thousand ranks that wait for a thousand keys cost a
// thousand entries, not a million. Errors: std::runtime_error for a malformed request. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/ranks/ballot_box.h"
#include "holdfast/ranks/store_messages.h"

namespace holdfast { inline namespace v0_2 {

class StoreTable {
 public:
  using Client = std::uint64_t;
  using Reply = std::function<void(Client, const Message&)>;

  explicit StoreTable(Reply reply) : reply_(std::move(reply)) {}

  void handle(Client client, Message request, SteadyTime now);
  void leave(Client client);
  // When expire() has something to do next.
  std::optional<SteadyTime> next_end() const;
  void expire(SteadyTime now);

 private:
  using Words = std::vector<std::string>;
  struct Wait {
    Words keys;
    std::size_t missing = 0;
    std::string name = {};                      // the keys, packed
    std::map<Client, SteadyTime> clients = {};  // with the ends of their waits
  };

  void done(Client client, Words words = {}) { reply_(client, {Kind::done, std::move(words)}); }
  std::string& value(const std::string& key);  // made if it is missing
  void erase(Client client, const std::string& key);
  void read(Client client, const Words& keys);
  void add(Client client, const Words& words);
  void compare_set(Client client, const Words& words);
  void swap(Client client, Words words);
  void await(Client client, Words words, SteadyTime now);
  void enough(Client client);
  void vote(Client client, const Message& request);
  void arrived(const std::string& key);
  void forget(Client client);
  void close(const Wait& wait);
  Words missing_of(const Wait& wait) const;

  const Reply reply_;
  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<Client, std::pair<std::string, std::string>> wills_;
  std::unordered_map<std::string, Wait> waits_;                 // by name; entries do not move
  std::unordered_map<std::string, std::vector<Wait*>> waited_;  // by key
  std::unordered_map<Client, Wait*> waiting_;
  std::set<std::pair<SteadyTime, Client>> ends_;  // of waits
  std::map<std::string, BallotBox> boxes_;
};

}}  // namespace holdfast::v0_2
