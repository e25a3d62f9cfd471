// The table for people and for programs.
//
// Errors: the writing functions throw Error naming the file. Threads: one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "published.h"
#include "table.h"

namespace holdfast::bench {

struct Heading {
  std::string device = {};  // its name
  bool gpu = false;
  std::string variant = {};             // "torchvision" or "table"
  std::string machine = {};             // one line: cores, LibTorch
  std::string how = {};                 // one line: optimizers, steps, what was scaled
  std::vector<std::string> peers = {};  // columns of the lines
};

struct Table {
  Heading heading = {};
  std::vector<Row> rows = {};
  std::vector<Published> published = {};
};

// Columns' names, and one line a row; printed while it is measured. Beside our figure stand those of one GPU
// of each published device, with how many times as fast ours is, how many times as fast the published devices
// are as the first of them, and how many times as fast ours is as each peer.
std::string heading_line(const Table& table);
std::string line_of(const Row& row, const Table& table);

// FP16 against TF32 (and FP32) and ours against the peers with the goals (goals.h), the published figures,
// and the speed-ups that they show.
std::string summary_of(const Table& table);

// The rows whose first losses in FP32 are not their peers', in one line; empty: there are none.
std::string disagreements_of(const Table& table);

std::string csv_of(const Table& table);
std::string json_of(const Table& table);
// Bars of samples a second on one GPU, a group a model, the published ones beside ours.
std::string chart_of(const Table& table);

void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace holdfast::bench
