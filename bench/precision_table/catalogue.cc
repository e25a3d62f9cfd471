#include "catalogue.h"

#include <algorithm>
#include <cmath>

#include "holdfast/base/error.h"

namespace holdfast::bench {

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"resnet50", "images", true, true, 25.6e6, 1, 192, 384, 224, 448},
      {"resnet152", "images", true, true, 60.2e6, 1, 96, 192, 112, 200},
      {"inception3", "images", true, true, 23.8e6, 1, 192, 384, 224, 360},
      {"inception3-aux", "images", true, true, 27.2e6, 1, 192, 384, 224, 360, 0, false},
      {"inception4", "images", true, true, 42.7e6, 1, 48, 96, 56, 112},
      {"vgg16", "images", true, false, 138.4e6, 1, 192, 384, 224, 448},
      {"alexnet", "images", true, false, 61.1e6, 1, 1536, 3072, 1792, 3584},
      {"ssd300", "images", true, true, 20.0e6, 1, 96, 192, 112, 224},
      {"ssd300-matched", "images", true, true, 20.0e6, 1, 96, 192, 112, 224, 0, false},
      {"ssd300-vgg", "images", true, false, 35.6e6, 1, 96, 192, 112, 224, 0, false},
      {"bert-128", "sequences", false, false, 336.2e6, 2, 32, 64, 64, 64, 65536},
      {"bert-512", "sequences", false, false, 336.2e6, 2, 8, 8, 8, 16, 32768},
  };
  return all;
}

const Kind& kind_of(const std::string& model) {
  for (const Kind& kind : kinds()) {
    if (kind.name == model) return kind;
  }
  throw UsageError("there are no published batch sizes for '" + model + "'");
}

std::int64_t batch_of(const std::string& model, const std::string& precision, int memory, double scale) {
  const Kind& kind = kind_of(model);
  const bool half = precision == "fp16" || precision == "bf16";
  const std::int64_t batch =
      memory == 32 ? (half ? kind.half_32 : kind.full_32) : (half ? kind.half_40 : kind.full_40);
  return std::max<std::int64_t>(kind.has_layouts ? 2 : 1, std::llround(static_cast<double>(batch) * scale));
}

Update update_of(std::int64_t global, std::int64_t most) {
  const auto parts = [global](std::int64_t of) { return (global + of - 1) / of; };
  const std::int64_t passes =
      std::max(parts(std::max<std::int64_t>(1, most)), std::min(global, kLeastPasses));
  return {.batch = parts(passes), .accumulation = passes};
}

}  // namespace holdfast::bench
