#include "holdfast/ranks/store_messages.h"

#include <cstring>
#include <stdexcept>

#include "holdfast/ranks/keyed_hash.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// Little-endian, as all machines that this library supports.
void put(std::string& bytes, std::size_t number) {
  const auto value = static_cast<std::uint32_t>(number);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::size_t number_at(const std::string& bytes, std::size_t at) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

constexpr std::size_t kBytesOfNumber = sizeof(std::uint32_t);

}  // namespace

std::string packed(const Message& message) {
  std::size_t length = 1;
  for (const std::string& word : message.words) length += kBytesOfNumber + word.size();
  // The receiver would refuse it and close the connection, and that error would be harder to understand.
  if (length > kLongestMessage) throw std::runtime_error("a message of more than 1 GiB for the run's store");
  std::string bytes;
  bytes.reserve(kBytesOfNumber + length);
  put(bytes, length);
  bytes += static_cast<char>(message.kind);
  for (const std::string& word : message.words) {
    put(bytes, word.size());
    bytes += word;
  }
  return bytes;
}

std::optional<Message> take_message(std::string& bytes, std::size_t limit) {
  if (bytes.size() < kBytesOfNumber) return std::nullopt;
  const std::size_t length = number_at(bytes, 0);
  if (length < 1 || length > limit) throw std::runtime_error("not a message of a run's store");
  if (bytes.size() < kBytesOfNumber + length) return std::nullopt;
  Message message;
  const std::size_t end = kBytesOfNumber + length;
  const auto kind = static_cast<std::uint8_t>(bytes[kBytesOfNumber]);
  // The highest kind; an unknown one would be a value that no switch expects.
  if (kind > static_cast<std::uint8_t>(Kind::failed))
    throw std::runtime_error("not a message of a run's store");
  message.kind = static_cast<Kind>(kind);
  for (std::size_t at = kBytesOfNumber + 1; at < end;) {
    // By subtraction: a hostile length must not overflow the sum.
    if (end - at < kBytesOfNumber || end - at - kBytesOfNumber < number_at(bytes, at)) {
      throw std::runtime_error("not a message of a run's store");
    }
    const std::size_t size = number_at(bytes, at);
    message.words.push_back(bytes.substr(at + kBytesOfNumber, size));
    at += kBytesOfNumber + size;
  }
  bytes.erase(0, end);
  return message;
}

std::string proof_of_client(const std::string& secret, const std::string& server_nonce,
                            const std::string& client_nonce) {
  // The two texts differ, so that a proof of one side can never serve as the other's.
  return keyed_hash(secret, "holdfast store, client: " + server_nonce + client_nonce);
}

std::string proof_of_server(const std::string& secret, const std::string& server_nonce,
                            const std::string& client_nonce) {
  return keyed_hash(secret, "holdfast store, server: " + client_nonce + server_nonce);
}

}}  // namespace holdfast::v0_2
