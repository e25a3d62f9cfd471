#include "python_peers.h"

#include <nlohmann/json.hpp>

#include "../shared/root.h"
#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

using nlohmann::json;

std::filesystem::path python() { return root_folder() / ".deps/peers/bin/python"; }

std::filesystem::path script() { return root_folder() / "bench/peers/checkpoint.py"; }

json answer_of(const std::string& line, const std::string& what) {
  json answer = json::parse(line, nullptr, false);
  if (answer.is_discarded()) throw Error(what + " answered what is no JSON: " + line);
  if (answer.contains("error")) throw Error(what + " failed: " + answer["error"].get<std::string>());
  return answer;
}

}  // namespace

std::string python_peers_missing() {
  const std::string remedy = "; install them with bench/peers/install";
  if (!std::filesystem::exists(python())) return "they are not installed" + remedy;
  for (const char* package : {"torch", "safetensors", "h5py"}) {
    bool found = false;
    std::error_code none;
    for (const auto& version :
         std::filesystem::directory_iterator(python().parent_path().parent_path() / "lib", none)) {
      found = found || std::filesystem::exists(version.path() / "site-packages" / package);
    }
    if (!found) return std::string(package) + " is not installed" + remedy;
  }
  return "";
}

PythonPeers::PythonPeers(const StateSpec& spec, const std::filesystem::path& folder)
    : child_({python().string(), script().string(), "--directory", folder.string(), "--copies",
              std::to_string(spec.copies), "--width", std::to_string(spec.width)},
             {.errors = folder / "errors"}) {
  const json hello = answer_of(child_.read_line(), "bench/peers/checkpoint.py");
  methods_ = hello["methods"].get<std::vector<std::string>>();
  for (const auto& [name, version] : hello["versions"].items()) {
    versions_ += (versions_.empty() ? "" : ", ") + name + " " + version.get<std::string>();
  }
}

PythonPeers::Save PythonPeers::save(const std::string& method) {
  const json answer = answer_of(child_.ask(json{{"do", "save"}, {"method", method}}.dump()), method);
  return {answer["blocked"].get<double>(), answer["durable"].get<double>()};
}

double PythonPeers::steps(int count, const std::optional<std::string>& method) {
  json command = {{"do", "steps"}, {"steps", count}, {"method", nullptr}};
  if (method) command["method"] = *method;
  return answer_of(child_.ask(command.dump()), method.value_or("a training step"))["seconds"].get<double>();
}

}  // namespace holdfast::bench
