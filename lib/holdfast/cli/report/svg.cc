#include "holdfast/cli/report/svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "holdfast/base/utf8.h"

namespace holdfast { inline namespace v0_2 {
namespace {

struct NamedColor {
  const char* rule;  // a selector and a property; % is the colour
  const char* light;
  const char* dark;
};

// Checked for readers who see few colours: blue against orange and red, which differ in brightness too.
constexpr std::array<NamedColor, 20> kColors{{
    {".page-fill{fill:%}", "#ffffff", "#14181f"},   {".ink,.title,.label,.end{fill:%}", "#1f2733", "#e4e8ee"},
    {".muted{fill:%}", "#667085", "#98a2b3"},       {".grid{stroke:%}", "#e7eaf0", "#29303b"},
    {".axis{stroke:%}", "#98a2b3", "#667085"},      {".cut{stroke:%}", "#c9504a", "#e5837d"},
    {".first{stroke:%}", "#1668b8", "#62adf2"},     {".first-fill{fill:%}", "#1668b8", "#62adf2"},
    {".second{stroke:%}", "#c2691c", "#eba45c"},    {".second-fill{fill:%}", "#c2691c", "#eba45c"},
    {".third{stroke:%}", "#4a9bd9", "#2f7fc4"},     {".third-fill{fill:%}", "#8fc1e3", "#3d6f96"},
    {".fourth{stroke:%}", "#2a8f5b", "#63c795"},    {".fifth{stroke:%}", "#8a57c2", "#b990e6"},
    {".sixth{stroke:%}", "#a8861a", "#d6b84a"},     {".kept-fill{fill:%}", "#1668b8", "#4c97dc"},
    {".lost-fill{fill:%}", "#c9504a", "#dd6a64"},   {".startup-fill{fill:%}", "#b8bec8", "#5b6472"},
    {".paused-fill{fill:%}", "#e3c567", "#b99a3f"}, {".commit-fill{fill:%}", "#ffffff", "#14181f"},
}};

constexpr const char* kLayout =
    "text{font:13px system-ui,-apple-system,\"Segoe UI\",\"DejaVu Sans\",sans-serif}"
    ".title{font-size:17px;font-weight:600}.label{font-weight:600}.small{font-size:10px}"
    ".end{text-anchor:end}.right{text-anchor:end}.middle{text-anchor:middle}"
    ".first,.second,.third,.fourth,.fifth,.sixth{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-"
    "linecap:round}"
    ".dashed{stroke-dasharray:7 5}.thick{stroke-width:4;stroke-linecap:butt}"
    ".dot{stroke-width:5}.band{fill-opacity:.16}.grid,.axis{stroke-width:1}"
    ".cut{stroke-width:1;stroke-dasharray:3 3;stroke-opacity:.75}.commit-fill{fill-opacity:.7}";

std::string rules(bool dark) {
  std::string text;
  for (const NamedColor& color : kColors) {
    // A rule for each colour in both palettes: styles inside of a picture cannot use the variables of a page.
    const std::string_view rule = color.rule;
    const std::size_t at = rule.find('%');
    text.append(rule.substr(0, at)).append(dark ? color.dark : color.light).append(rule.substr(at + 1));
  }
  return text;
}

std::string titled(std::string_view title) {
  return title.empty() ? "/>\n" : "><title>" + svg_escaped(title) + "</title>";
}

}  // namespace

// An apostrophe needs no escape, because attributes stand in double quotes.
std::string svg_escaped(std::string_view text, std::size_t most) {
  std::string out;
  for (const char c : printable(text, most)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string svg_number(double value) {
  std::array<char, 64> text{};
  // A picture has no place for more; a number that is none would make it invalid.
  const double bounded = std::isfinite(value) ? std::clamp(value, -1e6, 1e6) : 0;
  std::snprintf(text.data(), text.size(), "%.1f", bounded);
  std::string number = text.data();
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  // snprintf() keeps the sign of a small negative number that it rounds to 0.
  return number == "-0" ? "0" : number;
}

std::string svg_style() {
  return kLayout + rules(false) + "@media(prefers-color-scheme:dark){" + rules(true) + "}";
}

void SvgPicture::text(double x, double y, std::string_view classes, std::string_view text) {
  body_.append("<text x=\"").append(svg_number(x)).append("\" y=\"").append(svg_number(y));
  body_.append("\" class=\"").append(classes).append("\">").append(svg_escaped(text)).append("</text>\n");
}

void SvgPicture::rectangle(double x, double y, double width, double height, std::string_view classes,
                           std::string_view title) {
  body_.append("<rect x=\"").append(svg_number(x)).append("\" y=\"").append(svg_number(y));
  // A narrower bar could not be seen.
  body_.append("\" width=\"").append(svg_number(std::max(width, 0.5))).append("\" height=\"");
  body_.append(svg_number(height)).append("\" class=\"").append(classes).append("\"").append(titled(title));
  if (!title.empty()) body_ += "</rect>\n";
}

void SvgPicture::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  path("M" + svg_number(x1) + " " + svg_number(y1) + "L" + svg_number(x2) + " " + svg_number(y2), classes);
}

void SvgPicture::path(std::string_view path, std::string_view classes, std::string_view title) {
  body_.append("<path d=\"")
      .append(path)
      .append("\" class=\"")
      .append(classes)
      .append("\"")
      .append(titled(title));
  if (!title.empty()) body_ += "</path>\n";
}

std::string SvgPicture::open(std::string_view attributes) const {
  const std::string width = std::to_string(width_);
  const std::string height = std::to_string(height_);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " + height + "\" " +
         std::string(attributes) + ">\n";
}

std::string SvgPicture::document() const {
  return open("width=\"" + std::to_string(width_) + "\" height=\"" + std::to_string(height_) + "\"") +
         "<style>" + svg_style() + "</style>\n<rect width=\"100%\" height=\"100%\" class=\"page-fill\"/>\n" +
         body_ + "</svg>\n";
}

// Without styles: a page with many pictures has them once, by svg_style().
std::string SvgPicture::element(std::string_view label) const {
  return open("role=\"img\" aria-label=\"" + svg_escaped(label) + "\"") + body_ + "</svg>\n";
}

}}  // namespace holdfast::v0_2
