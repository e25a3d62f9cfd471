// The table for people and for programs.
//
// Errors: writing functions throw Error, which names the file. Threads: one thread.
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
  std::string build = {};               // of this program and its peers (kept_rows.h)
  std::string options = {};             // all that figures depend on
};

struct Table {
  Heading heading = {};
  std::vector<Row> rows = {};
  std::vector<Published> published = {};
  std::vector<PrintedSpeedUp> printed = {};
};

// Column names, and one line per row, printed as rows are measured. After our figure come those of one GPU of
// each published device and our speed relative to them; then the published devices' speed relative to the
// first one, and our speed relative to each peer.
std::string heading_line(const Table& table);
std::string line_of(const Row& row, const Table& table);

// FP16 compared with TF32 (and FP32), ours compared with the peers and their goals (goals.h), the published
// figures, and the speed-ups between them.
std::string summary_of(const Table& table);

// The rows whose first FP32 losses differ from their peers', in one line; empty: none.
std::string disagreements_of(const Table& table);

std::string csv_of(const Table& table);
std::string json_of(const Table& table);
// Bars of samples per second on one GPU, grouped by model, with the published ones.
std::string chart_of(const Table& table);

void write_text(const std::filesystem::path& file, const std::string& text);

}  // namespace holdfast::bench
