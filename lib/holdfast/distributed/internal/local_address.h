// Finds the address of this host by which another host reaches it. The host's own name is not enough: Debian
// maps it to 127.0.1.1.
//
// Errors: returns an empty text if there is none. Threads: any.
#pragma once

#include <cstdint>
#include <string>

namespace holdfast { inline namespace v0_2 {

// The source address of packets from this host to `host`; sends nothing. If that is a loopback address, the
// first other address of this host.
std::string address_towards(const std::string& host, std::uint16_t port);
std::string address_of_interface(const std::string& name);

}}  // namespace holdfast::v0_2
