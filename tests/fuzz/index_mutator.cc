#include "index_mutator.h"

#include <array>
#include <limits>
#include <utility>

#include "holdfast/base/error.h"

namespace holdfast::test {
namespace {

// Numbers at which arithmetic breaks, and numbers near the one that is there.
std::uint64_t number(std::uint64_t around, std::uint64_t file_length, std::mt19937& random) {
  constexpr std::array<std::uint64_t, 10> kEdges = {0,          1,
                                                    4096,       8192,
                                                    1ull << 31, 1ull << 32,
                                                    1ull << 62, std::numeric_limits<std::int64_t>::max(),
                                                    1ull << 63, std::numeric_limits<std::uint64_t>::max()};
  switch (random() % 5) {
    case 0:
      return kEdges[random() % kEdges.size()];
    case 1:
      return kEdges[random() % kEdges.size()] - around;
    case 2:
      return file_length - random() % 3 + random() % 3;
    case 3:
      return around ^ std::uint64_t{1} << random() % 64;
    default:
      return around + random() % 17 - 8;
  }
}

std::string name(std::mt19937& random) {
  constexpr std::array kParts = {"model", "a", "b",         "..",  ".",    "",
                                 "meta",  "é", "fc.weight", "rng", "\x7f", "x/y"};
  std::string text = kParts[random() % kParts.size()];
  for (unsigned parts = random() % 3; parts > 0; --parts)
    text += std::string("/") + kParts[random() % kParts.size()];
  if (random() % 16 == 0) text += std::string(random() % 1100, 'n');
  if (random() % 16 == 0) text += '\0';
  return text;
}

std::int64_t integer(std::mt19937& random) {
  return static_cast<std::int64_t>(number(random(), random(), random));
}

AttributeValue value(std::mt19937& random) {
  switch (random() % 7) {
    case 0:
      return random() % 2 == 0;
    case 1:
      return integer(random);
    case 2:
      return std::numeric_limits<double>::quiet_NaN();
    case 3:
      return name(random);
    case 4:
      return std::vector<std::int64_t>{integer(random), 5, 1, 7, integer(random)};
    case 5:
      return std::vector<double>(random() % 5, -0.0);
    default:
      return std::vector<std::string>{name(random), name(random)};
  }
}

void mutate_attributes(CheckpointIndex& index, std::mt19937& random) {
  constexpr std::array kNames = {"run.attempt",       "run.ancestry", "run.loss",    "run.finite",
                                 "run.overrides",     "run.time",     "run.metrics", "run.metric_steps",
                                 "run.metric_values", "step"};
  std::string key = random() % 3 == 0 ? name(random) : kNames[random() % kNames.size()];
  try {
    if (random() % 4 == 0) {
      index.attributes.erase(key);
    } else {
      index.attributes.set(std::move(key), value(random), random() % 2 == 0 ? Role::decides : Role::record);
    }
  } catch (const Error&) {  // not a name for an attribute
  }
}

void mutate_tensor(IndexedTensor& tensor, std::uint64_t file_length, std::mt19937& random) {
  auto& shape = tensor.spec.shape;
  switch (random() % 7) {
    case 0:
      tensor.offset = number(tensor.offset, file_length, random);
      break;
    case 1:
      tensor.spec.name = name(random);
      break;
    case 2:
      tensor.spec.dtype = static_cast<DType>(random() % 17);
      break;
    case 3:
      shape.insert(shape.begin(), random() % 3);
      break;
    case 4:
      if (!shape.empty()) shape.pop_back();
      break;
    case 5:
      if (!shape.empty()) shape[random() % shape.size()] = integer(random);
      break;
    default:
      tensor.digest.bytes[random() % 16] ^= std::byte{1};
  }
  try {  // the writer asks for the length
    static_cast<void>(tensor.spec.bytes());
  } catch (const Error&) {
    shape = {1};
  }
}

void mutate_stretches(CheckpointIndex& index, std::uint64_t file_length, std::mt19937& random) {
  auto& stretches = index.stretches;
  if (stretches.empty()) return stretches.push_back({index.user_block, file_length, {}});
  const std::size_t at = random() % stretches.size();
  const auto here = stretches.begin() + static_cast<std::ptrdiff_t>(at);
  switch (random() % 6) {
    case 0:
      here->offset = number(here->offset, file_length, random);
      break;
    case 1:
      here->length = number(here->length, file_length, random);
      break;
    case 2:
      stretches.erase(here);
      break;
    case 3:
      std::swap(*here, stretches[random() % stretches.size()]);
      break;
    case 4: {  // a tensor takes the beginning of it
      if (here->length < 2) break;
      const std::uint64_t bytes = 1 + random() % (here->length - 1);
      index.tensors.push_back(
          {{name(random), DType::uint8, {static_cast<std::int64_t>(bytes)}}, here->offset, {}});
      here->offset += bytes;
      here->length -= bytes;
      break;
    }
    default: {  // in two
      if (here->length < 2) break;
      const std::uint64_t first = 1 + random() % (here->length - 1);
      const CheckpointIndex::Stretch rest{here->offset + first, here->length - first, {}};
      here->length = first;
      stretches.insert(here + 1, rest);
    }
  }
}

}  // namespace

void mutate_index(CheckpointIndex& index, std::uint64_t file_length, std::mt19937& random) {
  for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
    auto& tensors = index.tensors;
    switch (random() % 8) {
      case 0:
        index.step = integer(random) & std::numeric_limits<std::int64_t>::max();
        break;
      case 1:
        index.attribute_capacity = number(index.attribute_capacity, file_length, random);
        break;
      case 2:
        mutate_attributes(index, random);
        break;
      case 3:
        if (tensors.empty()) break;
        if (random() % 2 == 0) {
          tensors.push_back(tensors[random() % tensors.size()]);
        } else {
          tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(random() % tensors.size()));
        }
        break;
      case 4:
        tensors.push_back(
            {{name(random), static_cast<DType>(random() % 17), {0}}, 0, {}});  // empty ones are free
        break;
      case 5:
        mutate_stretches(index, file_length, random);
        break;
      default:
        if (!tensors.empty()) mutate_tensor(tensors[random() % tensors.size()], file_length, random);
    }
  }
}

void mutate_header(internal::Header& header, std::mt19937& random) {
  switch (random() % 5) {
    case 0:
      header.format_version = random() % 4;
      break;
    case 1:
      header.lowest_reader = random() % 4;
      break;
    case 2:
      header.file_length = number(header.file_length, header.file_length, random);
      break;
    case 3:
      header.user_block = number(header.user_block, header.file_length, random);
      break;
    default:
      header.index_length = number(header.index_length, header.file_length, random);
  }
}

}  // namespace holdfast::test
