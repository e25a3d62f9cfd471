// The words of an SVG picture: the report's and the benches'. Threads: pure.
#pragma once

#include <cstdio>
#include <string>

namespace holdfast { inline namespace v1 {

// Escaped for XML.
inline std::string svg_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

inline std::string svg_number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// `style`: attributes of the element, such as text-anchor="end".
inline std::string svg_text(double x, double y, const std::string& style, const std::string& text) {
  return "<text x=\"" + svg_number(x) + "\" y=\"" + svg_number(y) + "\" " + style + ">" + svg_escaped(text) +
         "</text>\n";
}

}}  // namespace holdfast::v1
