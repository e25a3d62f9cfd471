// Colors for people at a terminal, and none for programs: `--color=auto|always|never`, NO_COLOR.
//
// Errors: UsageError for another word. Threads: plain values.
#pragma once

#include <string>

namespace CLI {  // NOLINT(readability-identifier-naming): not ours
class App;
}

namespace holdfast { inline namespace v0_2 {

enum class Color { plain, good, warning, bad, label };

class Paint {
 public:
  explicit Paint(bool on = false) : on_(on) {}
  std::string operator()(Color color, const std::string& text) const;

 private:
  bool on_;
};

void add_color(CLI::App& command, std::string& when);
// auto: standard output is a terminal that is not "dumb", and NO_COLOR is not set.
Paint paint_for(const std::string& when);

}}  // namespace holdfast::v0_2
