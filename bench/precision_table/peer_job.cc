#include "peer_job.h"

#include <ATen/Parallel.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "holdfast/base/error.h"

namespace holdfast::bench {
namespace {

namespace fs = std::filesystem;

// In the order of the logical indices, whatever the layout.
void append(std::ofstream& file, const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().cpu().contiguous();
  file.write(static_cast<const char*>(plain.const_data_ptr()), static_cast<std::streamsize>(plain.nbytes()));
}

const char* type_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return "float32";
  if (tensor.scalar_type() == at::kLong) return "int64";
  throw Error("peers know no tensors of this type");
}

}  // namespace

void write_job(const PeerJob& job, const Training& training, const fs::path& folder) {
  const TrainingOptions& options = training.options();
  const std::string values = (folder / "values").string();
  nlohmann::json words = {{"model", job.model},
                          {"variant", job.variant},
                          {"classes", job.classes},
                          {"tiny", job.tiny},
                          {"device", job.device.str()},
                          {"threads", at::get_num_threads()},
                          {"precision", word_of(options.precision)},
                          {"layout", options.layout},
                          {"accumulation", options.accumulation},
                          {"update", options.update},
                          {"optimizer", options.optimizer.name},
                          {"rate", options.optimizer.rate},
                          {"momentum", options.optimizer.momentum},
                          {"weight_decay", options.optimizer.weight_decay},
                          {"values", values},
                          {"parameters", nlohmann::json::array()},
                          {"inputs", nlohmann::json::array()}};
  std::ofstream file(values, std::ios::binary | std::ios::trunc);
  for (const auto& item : training.work().module->named_parameters()) {
    words["parameters"].push_back({item.key(), item.value().sizes()});
    append(file, item.value());
  }
  for (const Input& input : training.inputs()) {
    words["inputs"].push_back({input.name, type_of(input.value), input.value.sizes()});
    append(file, input.value);
  }
  file.close();
  std::ofstream text(folder / "job.json", std::ios::trunc);
  text << words.dump();
  text.close();
  if (!file || !text) throw Error("cannot write to " + folder.string() + " (TMPDIR)", ExitCode::io_failed);
}

}  // namespace holdfast::bench
