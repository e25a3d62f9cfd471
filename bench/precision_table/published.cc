#include "published.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

constexpr char kColumns[] = "model,device,precision,gpus,images_per_second,source";

// The last field may hold commas.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; fields.size() < 5 && std::getline(in, field, ',');) fields.push_back(field);
  std::string rest;
  std::getline(in, rest, '\0');
  fields.push_back(rest);
  return fields;
}

double positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == 0 && std::isfinite(value) && value > 0 ? value : 0;
}

}  // namespace

std::vector<Published> read_published(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) throw UsageError("cannot read " + file.string() + " (--published)");
  std::vector<Published> all;
  bool named = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    const std::string where = file.string() + ", line " + std::to_string(number) + ": ";
    if (!named) {
      if (line != kColumns) throw UsageError(where + "the columns must be " + kColumns);
      named = true;
      continue;
    }
    const auto fields = fields_of(line);
    const double gpus = fields.size() == 6 ? positive(fields[3]) : 0;
    const double speed = fields.size() == 6 ? positive(fields[4]) : 0;
    if (gpus < 1 || gpus != std::floor(gpus) || speed == 0) {
      throw UsageError(where + "it needs six fields, with a number of GPUs and of images per second");
    }
    all.push_back({.model = fields[0],
                   .device = fields[1],
                   .precision = fields[2],
                   .gpus = static_cast<int>(gpus),
                   .images_per_second = speed,
                   .source = fields[5]});
  }
  return all;
}

}  // namespace holdfast::bench
