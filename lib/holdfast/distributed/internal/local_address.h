// By which address of this host another one reaches it. A host's own name is no answer: Debian maps it to
// 127.0.1.1.
//
// Errors: empty when there is none; whoever asks says what to do. Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast::inline v1 {

// The source address of what this host sends to `host`: nothing is sent. Where that is this host itself by a
// loopback address, the first other address that it has.
std::string address_towards(const std::string& host, std::uint16_t port);
std::string address_of_interface(const std::string& name);

}  // namespace holdfast::inline v1
