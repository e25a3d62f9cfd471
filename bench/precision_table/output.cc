#include "output.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "format.h"
#include "goals.h"
#include "holdfast/base/error.h"
#include "row_text.h"

namespace holdfast::bench {
namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string csv_number(double value) { return number(value, "%.6g", ""); }

std::string ratio_line(const char* kind, double value, std::optional<double> goal) {
  std::string line = formatted("    %-58s %s", kind, number(value, "%.2f").c_str());
  return line + (goal ? "   " + verdict(value, *goal) : "") + "\n";
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

// The published generations: each device over the first, in the row's numbers.
struct Generation {
  std::string name;  // "A100/V100"
  double times = kNotMeasured;
};
std::vector<Generation> generations_of(const Row& row, const Table& table) {
  std::vector<Generation> all;
  const std::vector<std::string> devices = devices_of(table.published);
  for (std::size_t i = 1; i < devices.size(); ++i) {
    const auto times = speed_up(table.published, row.cell.model, devices[i], devices[0], row.cell.precision);
    all.push_back({.name = devices[i] + "/" + devices[0], .times = times.value_or(kNotMeasured)});
  }
  return all;
}

// What was published of the same ratio, device by device: FP16 over exactly these numbers.
struct PublishedRatio {
  std::string device;
  double times = 0;
};
std::vector<PublishedRatio> published_ratios(const Ratio& ratio, const Table& table) {
  std::vector<PublishedRatio> all;
  for (const std::string& device : devices_of(table.published)) {
    for (const SpeedUp& one : speed_ups_of(table.published)) {
      if (one.model == ratio.model && one.of == device + " fp16" && one.over == device + " " + ratio.base) {
        all.push_back({device, one.times});
      }
    }
  }
  return all;
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
    if (ratio.global != 0) {
      text += ", updates of " + std::to_string(ratio.global);
    } else if (ratio.accumulation != 1) {
      text += ", " + std::to_string(ratio.accumulation) + " accumulated";
    }
    std::string published;
    for (const PublishedRatio& one : published_ratios(ratio, table)) {
      published += ratio_line(("published: " + one.device + ", fp16 over " + base).c_str(), one.times, {});
    }
    if (!ratio.why.empty()) {
      text += ": not measured: " + ratio.why + "\n" + published;
      continue;
    }
    text += "\n";
    const bool judged = ratio.base == "tf32" && ratio.model == "resnet50";
    std::string words = "as the published table compares: " + ratio.base + " NCHW against fp16 NHWC";
    if (!ratio.norms.empty()) words += ", " + ratio.norms;
    if (std::isfinite(ratio.table_style) || judged) {
      text += ratio_line(words.c_str(), ratio.table_style,
                         judged && ratio.norms.empty() ? std::optional(kTableStyleGoal) : std::nullopt);
    }
    text += ratio_line("fair: both in their best layout", ratio.fair,
                       judged ? std::optional(kFairGoal) : std::nullopt);
    text += published;
  }
  return text;
}

std::string goals_text(const Table& table) {
  std::string text;
  for (const Row& row : table.rows) {
    for (const PeerFigure& peer : row.peers) {
      const auto goal = goal_of(row.cell, peer.name, table.heading.gpu);
      if (!goal) continue;
      const double times = row.times_as_fast_as(peer);
      text += formatted("    %-30s %7s x Python %-12s   ", name_of(row.cell).c_str(),
                        number(times, "%.2f").c_str(), peer.name.c_str()) +
              verdict(times, *goal) + "\n";
    }
  }
  if (!text.empty()) text = "beside Python (" + table.heading.variant + ")\n" + text;
  return text + goals_left_open(table.rows, table.heading.gpu);
}

}  // namespace

std::string heading_line(const Table& table) {
  std::string line = formatted("%-10s %-11s %-5s %-5s %-6s %-5s %7s %10s %-5s %9s %6s", "model", "variant",
                               "type", "order", "mode", "bn", "batch", "a second", "", "TFLOP/s", "used");
  for (const std::string& device : devices_of(table.published)) {
    line += formatted(" %9s %6s", device.c_str(), "times");
  }
  for (const Generation& one : generations_of({}, table)) line += formatted(" %9s", one.name.c_str());
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
  for (const Generation& one : generations_of(row, table)) {
    line += formatted(" %*s", std::max<int>(9, static_cast<int>(one.name.size())),
                      number(one.times, "%.2f").c_str());
  }
  for (const std::string& peer : table.heading.peers) {
    line += formatted(" %*s", std::max<int>(7, static_cast<int>(peer.size())),
                      number(times_as_fast(row, peer), "%.2f").c_str());
  }
  line += "  " + (row.measured() ? row.note : "not measured: " + row.why);
  const auto add = [&line](const std::string& words) { line += (line.ends_with("  ") ? "" : "; ") + words; };
  for (const PeerFigure& peer : row.peers) {
    if (!peer.why.empty()) add("left out: " + peer.name + ": " + peer.why);
    if (!peer.measured() && !std::isfinite(peer.first_loss_difference)) continue;
    add("the first loss of " + peer.name + " differs by " +
        number(peer.first_loss_difference, "%.2g", "what is no number"));
    if (row.disagrees_with(peer)) line += formatted(", more than %g", kLargestLossDifference);
  }
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

std::string summary_of(const Table& table) {
  std::string text = ratios_text(table, "tf32") + ratios_text(table, "fp32") + goals_text(table);
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
  for (const PrintedSpeedUp& one : table.printed) {
    const auto same = [&](const Published& figure) { return figure.model == one.model; };
    if (std::none_of(published.begin(), published.end(), same)) continue;
    text += formatted("    %-10s %-10s over %-10s %6.2f   (of %d GPUs; printed so: ", one.model.c_str(),
                      (one.of + " " + one.precision).c_str(), (one.over + " " + one.precision).c_str(),
                      one.times, one.gpus) +
            one.source + ")\n";
  }
  return text;
}

std::string disagreements_of(const Table& table) {
  std::string rows;
  for (const Row& row : table.rows) {
    for (const PeerFigure& peer : row.peers) {
      if (!row.disagrees_with(peer)) continue;
      rows += (rows.empty() ? "" : ", ") + name_of(row.cell) + " (" + peer.name + ": " +
              number(peer.first_loss_difference, "%.2g", "no number") + ")";
    }
  }
  if (rows.empty()) return "";
  return "first losses differ from Python's by more than " + formatted("%g", kLargestLossDifference) + ": " +
         rows + ": compare examples/models with bench/peers, no figure of these rows counts";
}

std::string csv_of(const Table& table) {
  const std::vector<std::string> devices = devices_of(table.published);
  std::string text =
      "device,variant,model,precision,layout,mode,batch,accumulation,size,samples_per_second,unit,"
      "seconds_per_step,tflops,utilisation,first_loss,loss,batch_norm,needed_gb,batch_that_fits";
  for (const std::string& device : devices) text += ",published_" + device + ",times_" + device;
  for (const Generation& one : generations_of({}, table)) text += ",published_" + one.name;
  for (const std::string& peer : table.heading.peers) {
    text += ",times_as_fast_as_" + peer + ",first_loss_difference_" + peer;
  }
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
    for (const Generation& one : generations_of(row, table)) fields.push_back(csv_number(one.times));
    for (const std::string& peer : table.heading.peers) {
      fields.push_back(csv_number(times_as_fast(row, peer)));
      const PeerFigure* figure = peer_of(row, peer);
      fields.push_back(csv_number(figure != nullptr ? figure->first_loss_difference : kNotMeasured));
    }
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
  ordered_json all = {{"bench", "precision_table"},       {"device", table.heading.device},
                      {"variant", table.heading.variant}, {"machine", table.heading.machine},
                      {"how", table.heading.how},         {"build", table.heading.build},
                      {"options", table.heading.options}};
  all["rows"] = ordered_json::array();
  for (const Row& row : table.rows) {
    ordered_json one = ordered_json::parse(text_of(row));
    for (const std::string& device : devices_of(table.published)) {
      const Beside published = beside_of(row, table, device);
      if (!std::isfinite(published.figure)) continue;
      one["published"][device] = {{"samples_per_second", published.figure},
                                  {"times", number_or_null(published.times)}};
    }
    for (const Generation& generation : generations_of(row, table)) {
      if (std::isfinite(generation.times)) one["published_speed_ups"][generation.name] = generation.times;
    }
    for (std::size_t i = 0; i < row.peers.size(); ++i) {
      const auto goal = goal_of(row.cell, row.peers[i].name, table.heading.gpu);
      if (!goal) continue;
      one["peers"][i]["goal"] = *goal;
      const double times = row.times_as_fast_as(row.peers[i]);
      one["peers"][i]["met"] = std::isfinite(times) ? ordered_json(times >= *goal) : ordered_json();
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
      if (ratio.global != 0) one["global"] = ratio.global;
      one["table_style"] = number_or_null(ratio.table_style);
      one["fair"] = number_or_null(ratio.fair);
      for (const PublishedRatio& theirs : published_ratios(ratio, table)) {
        one["published"][theirs.device] = theirs.times;
      }
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
  all["printed_speed_ups"] = ordered_json::array();
  for (const PrintedSpeedUp& one : table.printed) {
    all["printed_speed_ups"].push_back({{"model", one.model},
                                        {"gpus", one.gpus},
                                        {"of", one.of},
                                        {"over", one.over},
                                        {"precision", one.precision},
                                        {"times", one.times},
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
