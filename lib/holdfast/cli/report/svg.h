// The one writer of SVG pictures: elements, text, and colours for light and dark screens.
//
//   SvgPicture picture(860, 200);
//   picture.text(20, 30, "title", "Loss");
//   picture.rectangle(20, 50, 100, 12, "kept-fill");
//   file << picture.document();
//
// Colours are classes, chosen by the reader's prefers-color-scheme; svg_style() lists them. Pictures have no
// script, no font and no link. Texts are escaped, and control characters replaced.
// Errors: none. Threads: one thread.
#pragma once

#include <string>
#include <string_view>

namespace holdfast { inline namespace v0_2 {

// Escaped for XML and HTML, at most `most` bytes, without control characters.
std::string svg_escaped(std::string_view text, std::size_t most = 400);
// With one decimal at most.
std::string svg_number(double value);
// The style sheet of all pictures, for light and dark.
std::string svg_style();

class SvgPicture {
 public:
  SvgPicture(int width, int height) : width_(width), height_(height) {}

  // `classes`: those of svg_style(), separated by blanks.
  void text(double x, double y, std::string_view classes, std::string_view text);
  // `title` shows when the pointer rests on it. A length below half a pixel is drawn as half a pixel.
  void rectangle(double x, double y, double width, double height, std::string_view classes,
                 std::string_view title = {});
  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  // `path`: the commands of a path element.
  void path(std::string_view path, std::string_view classes, std::string_view title = {});

  void set_height(int height) { height_ = height; }
  // A file of its own.
  std::string document() const;
  // For a page that has svg_style(). `label` is read aloud instead of the picture.
  std::string element(std::string_view label) const;

 private:
  std::string open(std::string_view attributes) const;

  int width_;
  int height_;
  std::string body_;
};

}}  // namespace holdfast::v0_2
