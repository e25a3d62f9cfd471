#include "output.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

// GPU goals for ResNet-50.
constexpr double kTableStyleGoal = 2.28;
constexpr double kFairGoal = 1.8;

template <typename... Values>
std::string formatted(const char* format, Values... values) {
  char text[1024];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string number(double value, const char* format) {
  return std::isfinite(value) ? formatted(format, value) : "-";
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(double value) { return std::isfinite(value) ? formatted("%.6g", value) : ""; }

nlohmann::ordered_json json_number(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

std::string ratio_line(const char* kind, double value, std::optional<double> goal) {
  std::string line = formatted("    %-58s %s", kind, number(value, "%.2f").c_str());
  if (goal && std::isfinite(value)) {
    line += formatted("   goal >= %.2f: %s", *goal, value >= *goal ? "met" : "missed");
  } else if (goal) {
    line += formatted("   goal >= %.2f: not measured", *goal);
  }
  return line + "\n";
}

}  // namespace

std::string heading_line() {
  return formatted("%-10s %-11s %-5s %-5s %-6s %6s %10s %9s %6s  %s\n", "model", "variant", "type", "order",
                   "mode", "batch", "images/s", "TFLOP/s", "used", "");
}

std::string line_of(const Row& row, const std::string& variant) {
  const std::string used =
      std::isfinite(row.utilisation()) ? formatted("%.0f %%", 100 * row.utilisation()) : "-";
  const std::string said = row.measured() ? row.note : "not measured: " + row.why;
  return formatted("%-10s %-11s %-5s %-5s %-6s %6lld %10s %9s %6s  ", row.cell.model.c_str(), variant.c_str(),
                   row.cell.precision.c_str(), row.cell.layout.c_str(), row.cell.mode.c_str(),
                   static_cast<long long>(row.cell.batch), number(row.images_per_second(), "%.2f").c_str(),
                   number(row.tflops(), "%.3g").c_str(), used.c_str()) +
         said + "\n";
}

std::string summary_of(const Table& table) {
  std::string text;
  for (const char* base : {"tf32", "fp32"}) {
    const std::string title = std::string(base) == "tf32" ? "FP16/TF32" : "FP16/FP32";
    for (const Ratio& ratio : ratios_of(table.rows, base)) {
      text += title + ", " + ratio.model + " (" + table.heading.variant + "), " + ratio.mode;
      if (!ratio.why.empty()) {
        text += ": not measured: " + ratio.why + "\n";
        continue;
      }
      text += "\n";
      const bool judged = ratio.base == "tf32" && ratio.model == "resnet50";
      const std::string words = ratio.base + " NCHW against fp16 NHWC";
      text += ratio_line(("as the published table compares: " + words).c_str(), ratio.table_style,
                         judged ? std::optional(kTableStyleGoal) : std::nullopt);
      text += ratio_line("fair: both in their best layout", ratio.fair,
                         judged ? std::optional(kFairGoal) : std::nullopt);
    }
  }
  if (!table.published.empty()) text += "published, images/s of one GPU\n";
  for (const Published& one : table.published) {
    text +=
        formatted("    %-10s %-6s %-5s %10.0f   (%.0f by %d GPUs; ", one.model.c_str(), one.device.c_str(),
                  one.precision.c_str(), one.of_one_gpu(), one.images_per_second, one.gpus) +
        one.source + ")\n";
  }
  return text;
}

std::string csv_of(const Table& table) {
  std::string text =
      "device,variant,model,precision,layout,mode,batch,pixels,images_per_second,seconds_per_step,tflops,"
      "utilisation,loss,note,why\n";
  for (const Row& row : table.rows) {
    const std::string fields[] = {table.heading.device,
                                  table.heading.variant,
                                  row.cell.model,
                                  row.cell.precision,
                                  row.cell.layout,
                                  row.cell.mode,
                                  std::to_string(row.cell.batch),
                                  std::to_string(row.pixels),
                                  csv_number(row.images_per_second()),
                                  csv_number(row.seconds_per_step()),
                                  csv_number(row.tflops()),
                                  csv_number(row.utilisation()),
                                  csv_number(row.loss),
                                  row.note,
                                  row.why};
    std::string line;
    for (const std::string& field : fields) line += (&field == fields ? "" : ",") + csv_field(field);
    text += line + "\n";
  }
  return text;
}

std::string json_of(const Table& table) {
  using nlohmann::ordered_json;
  ordered_json all = {{"bench", "precision_table"},
                      {"device", table.heading.device},
                      {"variant", table.heading.variant},
                      {"machine", table.heading.machine},
                      {"how", table.heading.how}};
  all["rows"] = ordered_json::array();
  for (const Row& row : table.rows) {
    ordered_json one = {{"model", row.cell.model},   {"precision", row.cell.precision},
                        {"layout", row.cell.layout}, {"mode", row.cell.mode},
                        {"batch", row.cell.batch},   {"pixels", row.pixels},
                        {"measured", row.measured()}};
    one["images_per_second"] = json_number(row.images_per_second());
    one["seconds"] = row.seconds;
    one["train_flops_per_image"] = json_number(row.train_flops);
    one["tflops"] = json_number(row.tflops());
    one["peak_tflops"] = json_number(row.peak_tflops);
    one["utilisation"] = json_number(row.utilisation());
    one["loss"] = json_number(row.loss);
    if (!row.note.empty()) one["note"] = row.note;
    if (!row.why.empty()) one["why"] = row.why;
    all["rows"].push_back(std::move(one));
  }
  all["ratios"] = ordered_json::array();
  for (const char* base : {"tf32", "fp32"}) {
    for (const Ratio& ratio : ratios_of(table.rows, base)) {
      ordered_json one = {{"model", ratio.model}, {"mode", ratio.mode}, {"of", "fp16/" + ratio.base}};
      one["table_style"] = json_number(ratio.table_style);
      one["fair"] = json_number(ratio.fair);
      if (!ratio.why.empty()) one["why"] = ratio.why;
      all["ratios"].push_back(std::move(one));
    }
  }
  all["published"] = ordered_json::array();
  for (const Published& one : table.published) {
    all["published"].push_back({{"model", one.model},
                                {"device", one.device},
                                {"precision", one.precision},
                                {"gpus", one.gpus},
                                {"images_per_second", one.images_per_second},
                                {"source", one.source}});
  }
  return all.dump(1) + "\n";
}

void write_text(const std::filesystem::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::trunc);
  out << text;
  out.close();
  if (!out) {
    throw Error("cannot write " + file.string() + "; choose another place with --output",
                ExitCode::io_failed);
  }
}

}  // namespace holdfast::bench
