#include "support/device_source.h"

#include <algorithm>
#include <utility>

#include "holdfast/base/error.h"
#include "support/vector_copies.h"

namespace holdfast::test {
namespace {

enum class Kind { weight, momentum, statistics, stream };

void fill(std::vector<float>& values, Kind kind, std::int64_t step) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<std::int64_t>(kind) * 1000003 + step * 7919 +
                                   static_cast<std::int64_t>(i % 8191));
  }
}

std::span<std::byte> bytes_of(std::vector<float>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

bool DeviceSource::Locked::holds(const std::byte* address) {
  const std::lock_guard lock(mutex);
  const auto after = images.upper_bound(address);
  return after != images.begin() && address < *std::prev(after) + length;
}

DeviceSource::DeviceSource(Options options)
    : options_(options), weight_(options.elements), momentum_(options.elements), statistics_(64), stream_(3) {
  fill(weight_, Kind::weight, 0);
  fill(momentum_, Kind::momentum, 0);
  fill(statistics_, Kind::statistics, 0);
  fill(stream_, Kind::stream, 0);
  for (int i = 0; i < (options.two_devices ? 2 : 1); ++i) devices_.push_back(std::make_unique<FakeDevice>());
}

DeviceSource::~DeviceSource() { drain(); }

void DeviceSource::drain() {
  for (const auto& device : devices_) {
    device->training.drain();
    device->copying.drain();
  }
}

void DeviceSource::forward() {
  ++forwards_;
  fill(stream_, Kind::stream, forwards_);
  device().training.add([this, step = forwards_] { fill(statistics_, Kind::statistics, step); });
}

void DeviceSource::update() {
  ++updates_;
  device().training.add([this, step = updates_] { fill(weight_, Kind::weight, step); });
  if (options_.host_momentum) {
    fill(momentum_, Kind::momentum, updates_);
  } else {
    devices_.back()->training.add([this, step = updates_] { fill(momentum_, Kind::momentum, step); });
  }
}

void DeviceSource::disturb(std::size_t i) {
  device().training.add([this, i] { weight_[i] += 1; });
}

void DeviceSource::disturb_back(std::size_t i) {
  device().training.add([this, i] { weight_[i] -= 1; });
}

void DeviceSource::spoil_if(std::shared_ptr<std::atomic<bool>> wrong) {
  device().training.add([this, flag = std::move(wrong)] {
    if (*flag) weight_[0] += 1;
  });
}

bool DeviceSource::holds_step(std::int64_t step) {
  drain();
  const auto same = [step](const std::vector<float>& values, Kind kind) {
    std::vector<float> wanted(values.size());
    fill(wanted, kind, step);
    return values == wanted;
  };
  return same(weight_, Kind::weight) && same(momentum_, Kind::momentum) &&
         same(statistics_, Kind::statistics) && same(stream_, Kind::stream);
}

std::vector<DeviceSource::Piece> DeviceSource::pieces() {
  const std::size_t second = options_.host_momentum ? kHost : devices_.size() - 1;
  std::vector<Piece> pieces = {{"model/weight", &weight_, 0, true},
                               {"model/statistics", &statistics_, 0, false},
                               {"optimizer/momentum", &momentum_, second, true},
                               {"rng/stream", &stream_, kHost, false}};
  for (Piece& piece : pieces) piece.late = piece.late && !early_.contains(piece.name);
  return pieces;
}

std::vector<TensorSpec> DeviceSource::describe() {
  std::vector<TensorSpec> specs;
  for (const Piece& piece : pieces()) {
    specs.push_back({piece.name, DType::float32, {static_cast<std::int64_t>(piece.values->size())}});
  }
  return specs;
}

std::unique_ptr<LateCopy> DeviceSource::copy(const ImageLayout& layout, std::span<std::byte> image,
                                             Part part) {
  if (on_copy) on_copy();
  if (part == Part::late) {
    ++late_copies;
    return begin(layout, image, NextUpdate::announced);
  }
  if (part == Part::independent) {
    ++independent_copies;
    return begin(layout, image, NextUpdate::unannounced);
  }
  if (part != Part::early) drain();
  const auto all = pieces();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool late = all[i].late || all[i].device != kHost;
    if (part == Part::early && late) continue;
    const auto from = bytes_of(*all[i].values);
    std::copy(from.begin(), from.end(), layout.slot(i, image).begin());
  }
  return nullptr;
}

std::unique_ptr<LateCopy> DeviceSource::begin(const ImageLayout& layout, std::span<std::byte> image,
                                              NextUpdate update) {
  const auto all = pieces();
  auto host = std::make_unique<VectorCopies>();
  std::vector<DeviceShare> shares;
  const auto locked = [locked = locked_](const std::byte* address) { return locked->holds(address); };
  for (std::size_t d = 0; d < devices_.size(); ++d) {
    DeviceShare& share = shares.emplace_back();
    std::vector<std::span<const std::byte>> memory;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].device != d) continue;
      memory.push_back(bytes_of(*all[i].values));
      share.tensors.push_back({all[i].name, sizeof(float), !all[i].late, layout.slot(i, image)});
    }
    share.device = std::make_unique<FakeCopyDevice>(*devices_[d], std::move(memory), locked);
  }
  auto devices = DeviceCopy::begin(std::move(shares), locked(image.data()), update);
  if (!options_.host_momentum) return devices;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].device == kHost && all[i].late) {
      host->add(all[i].name, bytes_of(*all[i].values), layout.slot(i, image));
    }
  }
  return join_copies(std::move(host), std::move(devices), update == NextUpdate::unannounced);
}

SourceTraits DeviceSource::traits() const {
  if (!options_.lock_images) return {.on_device = true};
  const auto lock = [locked = locked_](std::span<std::byte> image) -> std::shared_ptr<void> {
    const std::lock_guard lock(locked->mutex);
    locked->images.insert(image.data());
    locked->length = image.size();
    ++locked->ever;
    return {image.data(), [locked](std::byte* address) {
              const std::lock_guard unlock(locked->mutex);
              locked->images.erase(address);
            }};
  };
  return {.on_device = true, .prepare_image = lock};
}

Attributes DeviceSource::attributes() {
  Attributes attributes;
  attributes.set("step", step_);
  return attributes;
}

void DeviceSource::load(const Snapshot& snapshot, const LoadOptions&) {
  drain();
  for (const Piece& piece : pieces()) {
    const auto bytes = snapshot.find(piece.name).value();
    std::copy(bytes.begin(), bytes.end(), bytes_of(*piece.values).begin());
  }
  step_ = forwards_ = updates_ = snapshot.attributes.get_int("step");
}

}  // namespace holdfast::test
