#include "holdfast/ranks/store_table.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "holdfast/base/text.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// A month: longer waits would overflow the sum with the present time.
constexpr std::int64_t kLongestWait = std::int64_t{30} * 24 * 3600 * 1000;  // ms
constexpr const char* kBroken = "a rank's connection for votes ended";

// The server closes the connection of a client that sends anything else.
void require(bool met) {
  if (!met) throw std::runtime_error("no request");
}

std::int64_t number(const std::string& text) {
  const auto parsed = parse_int(text);
  require(parsed.has_value());
  return *parsed;
}

}  // namespace

void StoreTable::handle(Client client, Message request, SteadyTime now) {
  auto& words = request.words;
  // A client that waits has one thing to say: that it waits no longer.
  require(!waiting_.contains(client) || request.kind == Kind::enough);
  switch (request.kind) {
    case Kind::set:
    case Kind::note:
      require(words.size() % 2 == 0);
      // Several at once, so that the start of a thousand ranks takes one message.
      for (std::size_t i = 0; i < words.size(); i += 2) value(words[i]) = std::move(words[i + 1]);
      // The sender of a note does not wait for an answer.
      if (request.kind == Kind::set) done(client);
      return;
    case Kind::get:
      return read(client, words);
    case Kind::add:
      return add(client, words);
    case Kind::append:
      require(words.size() == 2);
      value(words[0]) += words[1];
      return done(client);
    case Kind::compare_set:
      return compare_set(client, words);
    case Kind::erase:
      require(words.size() == 1);
      return erase(client, words[0]);
    case Kind::check:
      return done(client, {std::all_of(words.begin(), words.end(),
                                       [&](const std::string& key) { return values_.contains(key); })
                               ? "1"
                               : "0"});
    case Kind::count:
      return done(client, {std::to_string(values_.size())});
    case Kind::will:
      require(words.size() == 2 || words.empty());
      wills_.erase(client);
      if (!words.empty()) wills_[client] = {words[0], words[1]};
      return done(client);
    case Kind::swap:
      return swap(client, std::move(words));
    case Kind::await:
      return await(client, std::move(words), now);
    case Kind::enough:
      return enough(client);
    case Kind::join:
    case Kind::vote:
      return vote(client, request);
    default:
      throw std::runtime_error("no request");
  }
}

std::string& StoreTable::value(const std::string& key) {
  const auto [found, made] = values_.try_emplace(key);
  // The key is new, so somebody may wait for it.
  if (made && !waited_.empty()) arrived(key);
  return found->second;
}

// Answers the waits that this key completes.
void StoreTable::arrived(const std::string& key) {
  const auto found = waited_.find(key);
  if (found == waited_.end()) return;
  const std::vector<Wait*> waits = found->second;  // close() changes the original
  for (Wait* const wait : waits) {
    if (--wait->missing > 0) continue;
    for (const auto& [client, end] : wait->clients) {
      ends_.erase({end, client});
      waiting_.erase(client);
      done(client);
    }
    close(*wait);
  }
}

void StoreTable::erase(Client client, const std::string& key) {
  const bool was_there = values_.erase(key) > 0;
  if (const auto found = waited_.find(key); was_there && found != waited_.end()) {
    // A key that is gone is missing again for all that wait for it.
    for (Wait* const wait : found->second) ++wait->missing;
  }
  done(client, {was_there ? "1" : "0"});
}

void StoreTable::read(Client client, const Words& keys) {
  Words values;
  values.reserve(keys.size());
  for (const std::string& key : keys) {
    const auto found = values_.find(key);
    if (found == values_.end()) return reply_(client, {Kind::failed, {"no such key"}});
    values.push_back(found->second);
  }
  done(client, std::move(values));
}

void StoreTable::add(Client client, const Words& words) {
  require(words.size() == 2);
  const auto found = values_.find(words[0]);
  const bool counts = found != values_.end() && !found->second.empty();
  const auto before = counts ? parse_int(found->second) : 0;
  const auto more = parse_int(words[1]);
  std::int64_t sum = 0;
  // Before the key is made: a request that fails must not end the waits for it.
  if (!before || !more || __builtin_add_overflow(*before, *more, &sum)) {
    return reply_(client, {Kind::failed, {"not a number"}});
  }
  done(client, {value(words[0]) = std::to_string(sum)});
}

void StoreTable::compare_set(Client client, const Words& words) {
  require(words.size() == 3);
  const auto found = values_.find(words[0]);
  // As c10d's own store: a missing key equals an empty expectation, and else the expected value comes back.
  const bool equal = found == values_.end() ? words[1].empty() : found->second == words[1];
  if (!equal) return done(client, {found == values_.end() ? words[1] : found->second});
  done(client, {value(words[0]) = words[2]});
}

void StoreTable::swap(Client client, Words words) {
  require(words.size() == 3);
  value(words[0]) = std::move(words[1]);
  const auto found = values_.find(words[2]);
  done(client, found == values_.end() ? Words{} : Words{found->second});
}

void StoreTable::await(Client client, Words words, SteadyTime now) {
  require(!words.empty());
  const std::int64_t limit = std::clamp<std::int64_t>(number(words[0]), 0, kLongestWait);
  words.erase(words.begin());
  // A limit of 0 is a question and no wait.
  if (limit == 0) return done(client, missing_of({.keys = std::move(words)}));
  // Equal lists are one wait, so a thousand ranks that wait for the same keys cost one entry for each key.
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  const auto missing = static_cast<std::size_t>(std::count_if(
      words.begin(), words.end(), [&](const std::string& key) { return !values_.contains(key); }));
  if (missing == 0) return done(client);
  const std::string name = packed({Kind::await, words});
  const auto [found, made] = waits_.try_emplace(name);
  Wait& wait = found->second;
  if (made) {
    wait = {.keys = std::move(words), .missing = missing, .name = name};
    for (const std::string& key : wait.keys) waited_[key].push_back(&wait);
  }
  const SteadyTime end = now + std::chrono::milliseconds(limit);
  wait.clients[client] = end;
  waiting_[client] = &wait;
  ends_.emplace(end, client);
}

// Answers a wait before its end, with what is missing. Nothing if it was answered meanwhile.
void StoreTable::enough(Client client) {
  const auto found = waiting_.find(client);
  if (found == waiting_.end()) return;
  Words missed = missing_of(*found->second);
  forget(client);
  done(client, std::move(missed));
}

void StoreTable::vote(Client client, const Message& request) {
  const auto& words = request.words;
  require(words.size() == 2);
  if (request.kind == Kind::join) {
    const auto voters = static_cast<std::size_t>(std::max<std::int64_t>(number(words[1]), 1));
    BallotBox& box = boxes_.try_emplace(words[0], voters).first->second;
    if (box.broken()) return reply_(client, {Kind::failed, {kBroken}});
    require(box.voters() == voters);
    // Nobody is answered until all have joined: the first vote then finds all voters.
    if (!box.join(client)) return;
    for (const Client member : box.members()) done(member);
    return;
  }
  const auto found = boxes_.find(words[0]);
  Ballot ballot;
  require(found != boxes_.end() && words[1].size() == sizeof ballot);
  if (found->second.broken()) return reply_(client, {Kind::failed, {kBroken}});
  std::memcpy(ballot.data(), words[1].data(), sizeof ballot);
  const auto result = found->second.cast(client, ballot);
  if (!result) return;
  const std::string bytes(reinterpret_cast<const char*>(result->data()), sizeof *result);
  for (const Client member : found->second.members()) done(member, {bytes});
}

void StoreTable::leave(Client client) {
  forget(client);
  if (const auto will = wills_.find(client); will != wills_.end()) {
    // The will is a value like any other, so those who wait for it wake up.
    value(will->second.first) = will->second.second;
    wills_.erase(will);
  }
  for (auto& [name, box] : boxes_) {
    const bool was_whole = !box.broken();
    if (!box.lose(client) || !was_whole) continue;
    // Some of them have no vote pending. They read this at their next vote, as its answer.
    for (const Client member : box.members()) reply_(member, {Kind::failed, {kBroken}});
  }
}

std::optional<SteadyTime> StoreTable::next_end() const {
  if (ends_.empty()) return std::nullopt;
  return ends_.begin()->first;
}

void StoreTable::expire(SteadyTime now) {
  while (!ends_.empty() && ends_.begin()->first <= now) enough(ends_.begin()->second);
}

// Ends a client's wait without an answer.
void StoreTable::forget(Client client) {
  const auto found = waiting_.find(client);
  if (found == waiting_.end()) return;
  Wait& wait = *found->second;
  const auto entry = wait.clients.find(client);
  ends_.erase({entry->second, client});
  wait.clients.erase(entry);
  waiting_.erase(found);
  if (wait.clients.empty()) close(wait);
}

void StoreTable::close(const Wait& wait) {
  for (const std::string& key : wait.keys) {
    const auto found = waited_.find(key);
    std::erase(found->second, &wait);
    if (found->second.empty()) waited_.erase(found);
  }
  waits_.erase(waits_.find(wait.name));
}

StoreTable::Words StoreTable::missing_of(const Wait& wait) const {
  Words missed;
  std::copy_if(wait.keys.begin(), wait.keys.end(), std::back_inserter(missed),
               [&](const std::string& key) { return !values_.contains(key); });
  return missed;
}

}}  // namespace holdfast::v0_2
