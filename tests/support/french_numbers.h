// While it lives, the program's locale groups digits by a space, as fr_FR does: 1 234 567.
//
// Errors: none. Threads: none beside it may write or read numbers by streams.
#pragma once

#include <locale>
#include <string>

namespace holdfast::test {

class FrenchNumbers {
 public:
  FrenchNumbers() : before_(std::locale::global(std::locale(std::locale(), new Grouped))) {}
  ~FrenchNumbers() { std::locale::global(before_); }
  FrenchNumbers(const FrenchNumbers&) = delete;
  FrenchNumbers& operator=(const FrenchNumbers&) = delete;

 private:
  struct Grouped : std::numpunct<char> {
    char do_thousands_sep() const override { return ' '; }
    std::string do_grouping() const override { return "\3"; }
  };
  std::locale before_;
};

}  // namespace holdfast::test
