// One line of a ledger: a flat JSON object of at most kLongest bytes, built without an allocation. A text
// that does not fit is cut at the end of a character; another member is left out. The line stays an object.
//
//   {"event":"notice","t":1762430000123,"up_ms":61234,"source":"ec2","kind":"deadline","left_ms":119000}
//
// Errors: none. Threads: one.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "holdfast/base/clock.h"

namespace holdfast { inline namespace v0_2 {

class LedgerLine {
 public:
  static constexpr std::size_t kLongest = 1000;

  // `event` and all member names consist of letters and underscores.
  explicit LedgerLine(std::string_view event) noexcept;

  // Escapes control characters and quotes, and replaces malformed UTF-8.
  LedgerLine& text(std::string_view name, std::string_view value) noexcept;
  LedgerLine& number(std::string_view name, std::int64_t value) noexcept;
  LedgerLine& number(std::string_view name, std::uint64_t value) noexcept;
  LedgerLine& flag(std::string_view name, bool value) noexcept;
  // Written in milliseconds, with three decimals.
  LedgerLine& milliseconds(std::string_view name, Duration value) noexcept;

  // Ends the object. The text is valid while the line lives.
  std::string_view done() noexcept;

 private:
  bool open(std::string_view name, std::size_t value_bytes) noexcept;
  void put(std::string_view bytes) noexcept;

  std::array<char, kLongest> buffer_;
  std::size_t used_ = 0;
  bool closed_ = false;
};

}}  // namespace holdfast::v0_2
