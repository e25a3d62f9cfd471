#include "output.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "format.h"
#include "holdfast/base/error.h"
#include "row_text.h"

namespace holdfast::bench {
namespace {

// GPU goals for ResNet-50.
constexpr double kTableStyleGoal = 2.28;
constexpr double kFairGoal = 1.8;

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(double value) { return number(value, "%.6g", ""); }

std::string ratio_line(const char* kind, double value, std::optional<double> goal) {
  std::string line = formatted("    %-58s %s", kind, number(value, "%.2f").c_str());
  if (goal && std::isfinite(value)) {
    line += formatted("   goal >= %.2f: %s", *goal, value >= *goal ? "met" : "missed");
  } else if (goal) {
    line += formatted("   goal >= %.2f: not measured", *goal);
  }
  return line + "\n";
}

std::string batch_text(const Cell& cell) {
  const std::string batch = std::to_string(cell.batch);
  return cell.accumulation == 1 ? batch : batch + "x" + std::to_string(cell.accumulation);
}

const PeerFigure* peer_of(const Row& row, const std::string& name) {
  for (const PeerFigure& peer : row.peers) {
    if (peer.name == name) return &peer;
  }
  return nullptr;
}

double times_as_fast(const Row& row, const std::string& peer) {
  const PeerFigure* figure = peer_of(row, peer);
  return figure != nullptr ? row.times_as_fast_as(*figure) : kNotMeasured;
}

// Of one GPU, and how many times as fast ours is; NaN where nothing was published.
struct Beside {
  double figure = kNotMeasured;
  double times = kNotMeasured;
};
Beside beside_of(const Row& row, const Table& table, const std::string& device) {
  const auto one = beside(table.published, row.cell.model, device, row.cell.precision);
  if (!one) return {};
  return {.figure = one->of_one_gpu(), .times = row.samples_per_second() / one->of_one_gpu()};
}

// Of the models that have rows here.
std::vector<Published> published_of(const Table& table) {
  std::vector<Published> some;
  for (const Published& one : table.published) {
    const auto same = [&](const Row& row) { return row.cell.model == one.model; };
    if (std::any_of(table.rows.begin(), table.rows.end(), same)) some.push_back(one);
  }
  return some;
}

std::string ratios_text(const Table& table, const std::string& base) {
  std::string text;
  for (const Ratio& ratio : ratios_of(table.rows, base)) {
    if (ratio.why.ends_with(kNotAskedFor)) continue;
    text += base == "tf32" ? "FP16/TF32, " : "FP16/FP32, ";
    text += ratio.model + " (" + table.heading.variant + "), " + ratio.mode;
    if (ratio.accumulation != 1) text += ", " + std::to_string(ratio.accumulation) + " accumulated";
    if (!ratio.why.empty()) {
      text += ": not measured: " + ratio.why + "\n";
      continue;
    }
    text += "\n";
    const bool judged = ratio.base == "tf32" && ratio.model == "resnet50";
    const std::string words = "as the published table compares: " + ratio.base + " NCHW against fp16 NHWC";
    if (std::isfinite(ratio.table_style) || judged) {
      text += ratio_line(words.c_str(), ratio.table_style,
                         judged ? std::optional(kTableStyleGoal) : std::nullopt);
    }
    text += ratio_line("fair: both in their best layout", ratio.fair,
                       judged ? std::optional(kFairGoal) : std::nullopt);
  }
  return text;
}

}  // namespace

std::string heading_line(const Table& table) {
  std::string line = formatted("%-10s %-11s %-5s %-5s %-6s %-5s %7s %10s %-5s %9s %6s", "model", "variant",
                               "type", "order", "mode", "bn", "batch", "a second", "", "TFLOP/s", "used");
  for (const std::string& device : devices_of(table.published)) {
    line += formatted(" %9s %6s", device.c_str(), "times");
  }
  for (const std::string& peer : table.heading.peers)
    line += formatted(" %*s", std::max<int>(7, static_cast<int>(peer.size())), peer.c_str());
  return line + "\n";
}

std::string line_of(const Row& row, const Table& table) {
  const std::string used = number(100 * row.utilisation(), "%.0f %%");
  std::string line =
      formatted("%-10s %-11s %-5s %-5s %-6s %-5s %7s %10s %-5s %9s %6s", row.cell.model.c_str(),
                table.heading.variant.c_str(), row.cell.precision.c_str(), row.cell.layout.c_str(),
                row.cell.mode.c_str(), row.bn.empty() ? "-" : row.bn.c_str(), batch_text(row.cell).c_str(),
                number(row.samples_per_second(), "%.2f").c_str(), row.unit == "images" ? "img/s" : "seq/s",
                number(row.tflops(), "%.3g").c_str(), used.c_str());
  for (const std::string& device : devices_of(table.published)) {
    const Beside one = beside_of(row, table, device);
    line += formatted(" %9s %6s", number(one.figure, "%.1f").c_str(), number(one.times, "%.3g").c_str());
  }
  for (const std::string& peer : table.heading.peers) {
    line += formatted(" %*s", std::max<int>(7, static_cast<int>(peer.size())),
                      number(times_as_fast(row, peer), "%.2f").c_str());
  }
  line += "  " + (row.measured() ? row.note : "not measured: " + row.why);
  for (const PeerFigure& peer : row.peers) {
    if (!peer.why.empty()) line += "; left out: " + peer.name + ": " + peer.why;
    if (!(peer.first_loss_difference <= 1e-4) && peer.measured() && row.cell.precision == "fp32") {
      line +=
          "; the first loss of " + peer.name + " differs by " + number(peer.first_loss_difference, "%.2g");
    }
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string summary_of(const Table& table) {
  std::string text = ratios_text(table, "tf32") + ratios_text(table, "fp32");
  const std::vector<Published> published = published_of(table);
  if (published.empty()) return text;
  text += "published, samples/s of one GPU\n";
  for (const Published& one : published) {
    text +=
        formatted("    %-10s %-6s %-5s %10.1f   (%.6g by %d GPUs; ", one.model.c_str(), one.device.c_str(),
                  one.precision.c_str(), one.of_one_gpu(), one.samples_per_second, one.gpus) +
        one.source + ")\n";
  }
  text += "published speed-ups\n";
  for (const SpeedUp& one : speed_ups_of(published)) {
    text += formatted("    %-10s %-10s over %-10s %6.2f\n", one.model.c_str(), one.of.c_str(),
                      one.over.c_str(), one.times);
  }
  return text;
}

std::string csv_of(const Table& table) {
  const std::vector<std::string> devices = devices_of(table.published);
  std::string text =
      "device,variant,model,precision,layout,mode,batch,accumulation,size,samples_per_second,unit,"
      "seconds_per_step,tflops,utilisation,first_loss,loss,batch_norm,needed_gb,batch_that_fits";
  for (const std::string& device : devices) text += ",published_" + device + ",times_" + device;
  for (const std::string& peer : table.heading.peers) text += ",times_as_fast_as_" + peer;
  text += ",note,why\n";
  for (const Row& row : table.rows) {
    const bool fits = !std::isfinite(row.needed_bytes);
    std::vector<std::string> fields = {table.heading.device,
                                       table.heading.variant,
                                       row.cell.model,
                                       row.cell.precision,
                                       row.cell.layout,
                                       row.cell.mode,
                                       std::to_string(row.cell.batch),
                                       std::to_string(row.cell.accumulation),
                                       std::to_string(row.size),
                                       csv_number(row.samples_per_second()),
                                       row.unit,
                                       csv_number(row.seconds_per_step()),
                                       csv_number(row.tflops()),
                                       csv_number(row.utilisation()),
                                       csv_number(row.first_loss),
                                       csv_number(row.loss),
                                       row.bn,
                                       csv_number(row.needed_bytes / 1e9),
                                       fits ? "" : std::to_string(row.batch_that_fits)};
    for (const std::string& device : devices) {
      const Beside one = beside_of(row, table, device);
      fields.insert(fields.end(), {csv_number(one.figure), csv_number(one.times)});
    }
    for (const std::string& peer : table.heading.peers)
      fields.push_back(csv_number(times_as_fast(row, peer)));
    fields.insert(fields.end(), {row.note, row.why});
    std::string line;
    for (const std::string& field : fields) line += (line.empty() ? "" : ",") + csv_field(field);
    text += line + "\n";
  }
  return text;
}

std::string json_of(const Table& table) {
  using nlohmann::ordered_json;
  const auto number_or_null = [](double value) {
    return std::isfinite(value) ? ordered_json(value) : ordered_json();
  };
  ordered_json all = {{"bench", "precision_table"},
                      {"device", table.heading.device},
                      {"variant", table.heading.variant},
                      {"machine", table.heading.machine},
                      {"how", table.heading.how}};
  all["rows"] = ordered_json::array();
  for (const Row& row : table.rows) {
    ordered_json one = ordered_json::parse(text_of(row));
    for (const std::string& device : devices_of(table.published)) {
      const Beside published = beside_of(row, table, device);
      if (!std::isfinite(published.figure)) continue;
      one["published"][device] = {{"samples_per_second", published.figure},
                                  {"times", number_or_null(published.times)}};
    }
    all["rows"].push_back(std::move(one));
  }
  all["ratios"] = ordered_json::array();
  for (const char* base : {"tf32", "fp32"}) {
    for (const Ratio& ratio : ratios_of(table.rows, base)) {
      ordered_json one = {{"model", ratio.model},
                          {"mode", ratio.mode},
                          {"accumulation", ratio.accumulation},
                          {"of", "fp16/" + ratio.base}};
      one["table_style"] = number_or_null(ratio.table_style);
      one["fair"] = number_or_null(ratio.fair);
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
                                {"samples_per_second", one.samples_per_second},
                                {"source", one.source}});
  }
  all["published_speed_ups"] = ordered_json::array();
  for (const SpeedUp& one : speed_ups_of(table.published)) {
    all["published_speed_ups"].push_back(
        {{"model", one.model}, {"of", one.of}, {"over", one.over}, {"times", one.times}});
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
