#include "kept_rows.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/digest.h"
#include "row_text.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string build_of(const fs::path& peers) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(peers, ignored)) {
    if (entry.path().extension() == ".py") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  files.emplace_back("/proc/self/exe");
  std::vector<Digest> digests;
  for (const fs::path& file : files) {
    const std::string text = text_in(file);
    digests.push_back(digest_of(std::as_bytes(std::span(text))));
  }
  return to_hex(combine_digests(digests));
}

std::vector<Row> kept_rows(const fs::path& json, const std::string& build, const std::string& options) {
  std::vector<Row> rows;
  try {
    const auto all = nlohmann::ordered_json::parse(text_in(json));
    if (all.value("build", "") != build || all.value("options", "") != options) return {};
    for (const auto& one : all.at("rows")) {
      Row row = row_of(one.dump());
      if (row.measured()) rows.push_back(std::move(row));
    }
  } catch (const nlohmann::json::exception&) {
    return {};  // there is none, or it was cut off
  } catch (const Error&) {
    return {};  // of another release
  }
  return rows;
}

}  // namespace holdfast::bench
