// The messages between a run's store and its clients: a kind, and words of any bytes.
//
// Layout: 4 bytes: number of bytes that follow; 1 byte: kind; then for each word 4 bytes of length and its
// bytes. Integers have this machine's byte order, because all ranks of a run have the same kind of processor.
//
// Errors: std::runtime_error for malformed messages and for messages longer than `limit`. Threads: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace holdfast { inline namespace v0_2 {

enum class Kind : std::uint8_t {
  // The start of a connection, in this order. Both sides prove that they know the run's secret.
  hello,    // server: nonce
  proof,    // client: its nonce, keyed hash of both
  welcome,  // server: keyed hash of both, in the other order
  refused,  // server: the proof was wrong; then it closes
  // Requests. Each gets an answer.
  set,          // key, value, key, value …
  get,          // keys: their values; `failed` if one is missing
  add,          // key, number: the sum
  append,       // key, value
  compare_set,  // key, expected, desired: the present value
  erase,        // key: "1" if it was there
  check,        // keys: "1" if all are there
  count,        // number of keys
  will,         // key, value: set when this connection ends; no words: withdrawn
  note,         // as set, without an answer
  swap,         // key, value, key to read: its value; no words if it is missing
  await,        // milliseconds, keys: those that are missing. Answered when all are there, or after that time
  enough,       // no words, no answer of its own: ends a wait of this connection
  join,         // name of a vote, number of voters. Answered when all of them have joined
  vote,         // name, ballot: the largest of each number. Answered when all voters have cast
  // Answers.
  done,    // words
  failed,  // reason
};

struct Message {
  Kind kind = Kind::failed;
  std::vector<std::string> words = {};
};

inline constexpr std::size_t kLongestMessage = std::size_t{1} << 30;
inline constexpr std::size_t kLongestGreeting = 256;  // limit before a client has proved itself

std::string packed(const Message& message);
// Removes the first whole message from `bytes` and returns it; nullopt: more bytes must come.
std::optional<Message> take_message(std::string& bytes, std::size_t limit);

// Proofs of the secret.
std::string proof_of_client(const std::string& secret, const std::string& server_nonce,
                            const std::string& client_nonce);
std::string proof_of_server(const std::string& secret, const std::string& server_nonce,
                            const std::string& client_nonce);

}}  // namespace holdfast::v0_2
