// The words of an SVG chart.
//
// Threads: free functions, pure.
#pragma once

#include <string>

namespace holdfast::bench {

inline std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else {
      out += c;
    }
  }
  return out;
}

// `style`: attributes of the element, such as text-anchor="end".
inline std::string text_at(int x, int y, const std::string& style, const std::string& text) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" " + style + ">" +
         escaped(text) + "</text>\n";
}

}  // namespace holdfast::bench
