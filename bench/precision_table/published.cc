#include "published.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

constexpr char kColumns[] = "model,device,precision,gpus,samples_per_second,source";
constexpr char kOldColumns[] = "model,device,precision,gpus,images_per_second,source";

constexpr char kSpeedUpColumns[] = "model,gpus,of,over,precision,times,source";

// The last field may hold commas.
std::vector<std::string> fields_of(const std::string& line, std::size_t count) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; fields.size() + 1 < count && std::getline(in, field, ',');) fields.push_back(field);
  std::string rest;
  std::getline(in, rest, '\0');
  fields.push_back(rest);
  return fields;
}

// Calls take(line, "FILE, line N: ") for each line behind the one that names the columns.
template <class Take>
void for_lines(const std::filesystem::path& file, const std::vector<std::string>& columns, const Take& take) {
  std::ifstream in(file);
  if (!in) throw UsageError("cannot read " + file.string() + " (--published)");
  bool named = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    const std::string where = file.string() + ", line " + std::to_string(number) + ": ";
    if (named) {
      take(line, where);
    } else if (std::find(columns.begin(), columns.end(), line) == columns.end()) {
      throw UsageError(where + "the columns must be " + columns.front());
    }
    named = true;
  }
}

double positive(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == 0 && std::isfinite(value) && value > 0 ? value : 0;
}

bool half(const std::string& precision) { return precision == "fp16" || precision == "bf16"; }

std::string publisher_of(const Published& one) { return one.source.substr(0, one.source.find(',')); }

std::string words_of(const Published& one) { return one.device + " " + one.precision; }

}  // namespace

std::vector<Published> read_published(const std::filesystem::path& file) {
  std::vector<Published> all;
  for_lines(file, {kColumns, kOldColumns}, [&](const std::string& line, const std::string& where) {
    const auto fields = fields_of(line, 6);
    const double gpus = fields.size() == 6 ? positive(fields[3]) : 0;
    const double speed = fields.size() == 6 ? positive(fields[4]) : 0;
    if (gpus < 1 || gpus != std::floor(gpus) || speed == 0) {
      throw UsageError(where + "it needs six fields, with a number of GPUs and of samples per second");
    }
    all.push_back({.model = fields[0],
                   .device = fields[1],
                   .precision = fields[2],
                   .gpus = static_cast<int>(gpus),
                   .samples_per_second = speed,
                   .source = fields[5]});
  });
  return all;
}

std::vector<PrintedSpeedUp> read_printed_speed_ups(const std::filesystem::path& file) {
  std::vector<PrintedSpeedUp> all;
  for_lines(file, {kSpeedUpColumns}, [&](const std::string& line, const std::string& where) {
    const auto fields = fields_of(line, 7);
    const double gpus = fields.size() == 7 ? positive(fields[1]) : 0;
    const double times = fields.size() == 7 ? positive(fields[5]) : 0;
    if (gpus < 1 || gpus != std::floor(gpus) || times == 0) {
      throw UsageError(where + "it needs seven fields, with a number of GPUs and a speed-up");
    }
    all.push_back({.model = fields[0],
                   .gpus = static_cast<int>(gpus),
                   .of = fields[2],
                   .over = fields[3],
                   .precision = fields[4],
                   .times = times,
                   .source = fields[6]});
  });
  return all;
}

std::vector<std::string> devices_of(const std::vector<Published>& all) {
  std::vector<std::string> devices;
  for (const Published& one : all) {
    if (std::find(devices.begin(), devices.end(), one.device) == devices.end()) devices.push_back(one.device);
  }
  return devices;
}

std::optional<Published> beside(const std::vector<Published>& all, const std::string& model,
                                const std::string& device, const std::string& precision) {
  std::optional<Published> found;
  for (const Published& one : all) {
    if (one.model != model || one.device != device || half(one.precision) != half(precision)) continue;
    if (one.precision == precision) return one;
    if (!found) found = one;
  }
  return found;
}

std::optional<double> speed_up(const std::vector<Published>& all, const std::string& model,
                               const std::string& device, const std::string& over,
                               const std::string& precision) {
  for (const Published& any : all) {
    std::vector<Published> of_one;
    for (const Published& figure : all) {
      if (publisher_of(figure) == publisher_of(any)) of_one.push_back(figure);
    }
    const auto one = beside(of_one, model, device, precision);
    const auto base = beside(of_one, model, over, precision);
    if (one && base) return one->of_one_gpu() / base->of_one_gpu();
  }
  return std::nullopt;
}

std::vector<SpeedUp> speed_ups_of(const std::vector<Published>& all) {
  std::vector<SpeedUp> found;
  const std::vector<std::string> devices = devices_of(all);
  const auto age = [&](const Published& one) {
    return std::find(devices.begin(), devices.end(), one.device) - devices.begin();
  };
  for (const Published& one : all) {
    for (const Published& base : all) {
      if (one.model != base.model || publisher_of(one) != publisher_of(base)) continue;
      const bool of_numbers = one.device == base.device && half(one.precision) && !half(base.precision);
      const bool of_devices = half(one.precision) == half(base.precision) && age(one) > age(base);
      if (!of_numbers && !of_devices) continue;
      found.push_back({.model = one.model,
                       .of = words_of(one),
                       .over = words_of(base),
                       .times = one.of_one_gpu() / base.of_one_gpu()});
    }
  }
  return found;
}

}  // namespace holdfast::bench
