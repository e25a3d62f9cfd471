#include "row_text.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

using nlohmann::ordered_json;

ordered_json number_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

double number_of(const ordered_json& value) { return value.is_null() ? kNotMeasured : value.get<double>(); }

ordered_json peers_of(const Row& row) {
  auto peers = ordered_json::array();
  for (const PeerFigure& peer : row.peers) {
    ordered_json one = {{"peer", peer.name}, {"seconds", peer.seconds}};
    one["ours_times_as_fast"] = number_or_null(row.times_as_fast_as(peer));
    one["first_loss_difference"] = number_or_null(peer.first_loss_difference);
    if (!peer.why.empty()) one["why"] = peer.why;
    peers.push_back(std::move(one));
  }
  return peers;
}

}  // namespace

std::string text_of(const Row& row) {
  ordered_json one = {{"model", row.cell.model},   {"precision", row.cell.precision},
                      {"layout", row.cell.layout}, {"mode", row.cell.mode},
                      {"batch", row.cell.batch},   {"accumulation", row.cell.accumulation},
                      {"unit", row.unit},          {"size", row.size},
                      {"measured", row.measured()}};
  if (row.cell.global != 0) one["global"] = row.cell.global;
  one["samples_per_second"] = number_or_null(row.samples_per_second());
  one["seconds"] = row.seconds;
  one["train_flops_per_sample"] = number_or_null(row.train_flops);
  one["tflops"] = number_or_null(row.tflops());
  one["peak_tflops"] = number_or_null(row.peak_tflops);
  one["utilisation"] = number_or_null(row.utilisation());
  one["first_loss"] = number_or_null(row.first_loss);
  one["loss"] = number_or_null(row.loss);
  one["counts_for_ratios"] = row.counts_for_ratios;
  if (!row.bn.empty()) one["batch_norm"] = row.bn;
  if (!row.note.empty()) one["note"] = row.note;
  if (!row.why.empty()) one["why"] = row.why;
  if (std::isfinite(row.needed_bytes)) {
    one["needed_bytes"] = row.needed_bytes;
    one["batch_that_fits"] = row.batch_that_fits;
  }
  if (!row.peers.empty()) one["peers"] = peers_of(row);
  return one.dump();
}

Row row_of(const std::string& text) {
  try {
    const ordered_json one = ordered_json::parse(text);
    Row row{.cell = {.model = one.at("model"),
                     .precision = one.at("precision"),
                     .layout = one.at("layout"),
                     .mode = one.at("mode"),
                     .batch = one.at("batch"),
                     .accumulation = one.at("accumulation"),
                     .global = one.value("global", std::int64_t{0})},
            .unit = one.at("unit"),
            .size = one.at("size"),
            .bn = one.value("batch_norm", ""),
            .why = one.value("why", ""),
            .note = one.value("note", ""),
            .seconds = one.at("seconds").get<std::vector<double>>(),
            .train_flops = number_of(one.at("train_flops_per_sample")),
            .peak_tflops = number_of(one.at("peak_tflops")),
            .first_loss = number_of(one.at("first_loss")),
            .loss = number_of(one.at("loss")),
            .counts_for_ratios = one.at("counts_for_ratios"),
            .needed_bytes = one.value("needed_bytes", kNotMeasured),
            .batch_that_fits = one.value("batch_that_fits", std::int64_t{0})};
    for (const auto& peer : one.value("peers", ordered_json::array())) {
      row.peers.push_back({.name = peer.at("peer"),
                           .why = peer.value("why", ""),
                           .seconds = peer.at("seconds").get<std::vector<double>>(),
                           .first_loss_difference = number_of(peer.at("first_loss_difference"))});
    }
    return row;
  } catch (const nlohmann::json::exception& error) {
    throw RefusedError(std::string("a row of the recorded table cannot be read: ") + error.what());
  }
}

}  // namespace holdfast::bench
