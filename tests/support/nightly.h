// HOLDFAST_NIGHTLY=1: tests go much further (tests/run --nightly). Other values mean no.
//
// Threads: any.
#pragma once

#include <cstdlib>
#include <string_view>

namespace holdfast::test {

inline bool nightly() {
  const char* const text = std::getenv("HOLDFAST_NIGHTLY");
  return text != nullptr && std::string_view(text) == "1";
}

}  // namespace holdfast::test
