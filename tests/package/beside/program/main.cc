// Logs with a library of its own (OWN) and with Holdfast, which must not bind to the other.
#ifdef OWN
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#endif

#include <cstdio>
#include <string>

#include "holdfast/base/log.h"

#ifdef OWN
#include <sstream>

struct Point {
  int x, y;
};
template <>
struct fmt::formatter<Point> : fmt::formatter<int> {
  auto format(const Point& p, fmt::format_context& out) const {
    return fmt::format_to(out.out(), "({}; {})", p.x, p.y);
  }
};

static bool own_log_works() {
  static_assert(SPDLOG_VERSION >= SPDLOG_TO_VERSION(1, 17, 0) && FMT_VERSION >= 120000);
  std::ostringstream text;
  spdlog::logger own("own", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  own.set_pattern("%n %l %v");
  own.warn("{:>6.2f} {} {:#x}", 3.14159, Point{1, 2}, 255);
  std::printf("%s", text.str().c_str());
  return text.str() == "own warning   3.14 (1; 2) 0xff\n";
}
#else
static bool own_log_works() { return true; }
#endif

int main() {
  const std::string text = holdfast::format_log("{} {:.2f} {}", {7, 3.14159, "x"});
  holdfast::log_info("{:.1f} and {}", 0.25, text);
  return text == "7 3.14 x" && own_log_works() ? 0 : 1;
}
