#include "support/memory_source.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "holdfast/base/error.h"
#include "support/vector_copies.h"

namespace holdfast::test {
namespace {

std::uint64_t draw(std::uint64_t& state) {  // splitmix64
  std::uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double uniform(std::uint64_t& state) { return static_cast<double>(draw(state) >> 11) * 0x1p-53; }

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

MemorySource::MemorySource(Options options)
    : options_(options), weight_(options.elements), bias_(7), stream_{options.seed} {
  for (float& value : weight_) value = static_cast<float>(uniform(stream_[0]) - 0.5);
  for (double& value : bias_) value = uniform(stream_[0]) - 0.5;
  if (options_.uneven_buffers) batches_.assign(60'000, 1000 * options_.rank);
  if (options_.mask) mask_ = {0, -std::numeric_limits<float>::infinity(), 0, 0};
  if (options_.rank >= 0)
    own_.assign(options_.streams, 100 * (static_cast<std::uint64_t>(options_.rank) + 1));
}

std::vector<MemorySource::Piece> MemorySource::pieces() {
  std::vector<Piece> pieces = {{"model/weight", DType::float32, bytes_of(weight_), true},
                               {"model/bias", DType::float64, bytes_of(bias_), true},
                               {"model/batches", DType::int64, bytes_of(batches_), false},
                               {"rng/stream", DType::uint64, bytes_of(stream_), false}};
  if (!mask_.empty()) pieces.push_back({"model/mask", DType::float32, bytes_of(mask_), false});
  if (!own_.empty()) pieces.push_back({"rng/own", DType::uint64, bytes_of(own_), false});
  if (!momentum_.empty()) {
    pieces.push_back({"optimizer/momentum/weight", DType::float32, bytes_of(momentum_), true});
  }
  for (Piece& piece : pieces) piece.late = piece.late && !early_.contains(piece.name);
  return pieces;
}

StepReport MemorySource::train() {
  momentum_.resize(weight_.size());
  const double noise = uniform(stream_[0]);
  double loss = 0;
  for (std::size_t i = 0; i < weight_.size(); ++i) {
    const double target = static_cast<double>(i % 13) / 13 + 0.01 * noise;
    const double error = weight_[i] + bias_[i % bias_.size()] - target;
    loss += error * error;
    momentum_[i] = static_cast<float>(0.9 * momentum_[i] + error);
    weight_[i] = static_cast<float>(weight_[i] - options_.learning_rate * 0.1 * momentum_[i]);
    bias_[i % bias_.size()] -= 1e-4 * error;
  }
  ++batches_[0];
  for (std::uint64_t& own : own_) draw(own);
  training_ = true;
  Cursor next = cursor_;
  if (next.samples >= options_.epoch_size) next = {next.epoch + 1, 0};
  next.samples += 4;
  return {.applied = next, .loss = loss / static_cast<double>(weight_.size())};
}

void MemorySource::evaluate() {
  training_ = false;
  batches_[0] += 1000;
  draw(stream_[0]);
  for (std::uint64_t& own : own_) draw(own);
}

std::vector<TensorSpec> MemorySource::describe() {
  if (on_describe) on_describe();
  std::vector<TensorSpec> specs;
  for (const Piece& piece : pieces()) {
    specs.push_back(
        {piece.name, piece.dtype, {static_cast<std::int64_t>(piece.bytes.size() / size_of(piece.dtype))}});
  }
  return specs;
}

TensorRole MemorySource::role(const TensorSpec& tensor) const {
  const bool weight = tensor.name == "model/weight";
  const bool trained = weight || tensor.name == "model/bias" || tensor.name.starts_with("optimizer/");
  return {.sharing = tensor.name == "rng/own"                       ? Sharing::own
                     : trained && (!weight || weight_is_replicated) ? Sharing::same
                                                                    : Sharing::first,
          .trained = trained,
          .weight = tensor.name.starts_with("model/")};
}

std::unique_ptr<LateCopy> MemorySource::copy(const ImageLayout& layout, std::span<std::byte> image,
                                             Part part) {
  const auto all = pieces();
  if (part == Part::own) {
    if (on_own_copy) on_own_copy();
    const auto slot = layout.slot(layout.find("rng/own").value(), image);
    std::copy_n(std::as_bytes(std::span(own_)).begin(), slot.size(), slot.begin());
    return nullptr;
  }
  if (part == Part::late || part == Part::independent) {
    ++late_copies;
    if (on_copy) on_copy();
    auto late = std::make_unique<VectorCopies>();
    late->before = on_late_copy;
    late->after = [this, which = late_copies] { late_copied_ = which; };
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].late) late->add(all[i].name, all[i].bytes, layout.slot(i, image));
    }
    return late;
  }
  ++copies;
  const auto first = layout.slot(0, image);
  copied_over = std::any_of(first.begin(), first.end(), [](std::byte b) { return b != std::byte{0}; });
  if (on_copy) on_copy();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (part == Part::early && all[i].late) continue;
    const auto slot = layout.slot(i, image);
    const ByteRange wanted = layout.wanted(i);
    copied_bytes += wanted.size();
    const auto from = all[i].bytes.subspan(wanted.begin, wanted.size());
    std::copy(from.begin(), from.end(), slot.begin() + static_cast<std::ptrdiff_t>(wanted.begin));
  }
  return nullptr;
}

void MemorySource::wait_for_late_copy() const {
  using namespace std::chrono_literals;
  for (int i = 0; i < 10'000 && late_copied_ != late_copies; ++i) std::this_thread::sleep_for(1ms);
}

Attributes MemorySource::attributes() {
  Attributes attributes;
  attributes.set("step", step_);
  attributes.set("training", training_);
  attributes.set("options.learning_rate", options_.learning_rate);
  attributes.set(kStateOptions, std::vector<std::string>{"options.learning_rate"}, Role::record);
  attributes.set("data.epoch", cursor_.epoch);
  attributes.set("data.samples", cursor_.samples);
  attributes.set("environment.threads", options_.threads, Role::record);
  for (const auto& [name, value] : extra) attributes.set("extra." + name, value);
  return attributes;
}

Position MemorySource::advance(const StepReport& report) {
  if (on_advance) on_advance();
  ++step_;
  if (report.applied) cursor_ = *report.applied;
  return position();
}

void MemorySource::check(std::span<const TensorSpec> tensors, const Attributes& attributes,
                         const Overrides& overrides) {
  for (const TensorSpec& spec : describe()) {
    const auto found = std::find_if(tensors.begin(), tensors.end(),
                                    [&](const auto& other) { return other.name == spec.name; });
    if (found == tensors.end()) throw RefusedError("the checkpoint has no tensor " + spec.name);
    if (*found != spec) throw RefusedError("tensor " + spec.name + " has another type or shape");
  }
  const bool accepted = std::find(overrides.begin(), overrides.end(), "learning_rate") != overrides.end();
  if (!accepted && attributes.get_double("options.learning_rate") != options_.learning_rate) {
    throw RefusedError("option options.learning_rate differs");
  }
}

void MemorySource::load(const Snapshot& snapshot, const LoadOptions& options) {
  if (options.weights_only) return load_weights(snapshot);
  ++loads;
  check(snapshot.layout->tensors(), snapshot.attributes, options.overrides);
  if (snapshot.find("optimizer/momentum/weight")) momentum_.resize(weight_.size());
  for (const Piece& piece : pieces()) {
    const auto bytes = snapshot.find(piece.name).value();
    std::copy(bytes.begin(), bytes.end(), piece.bytes.begin());
  }
  step_ = snapshot.attributes.get_int("step");
  training_ = snapshot.attributes.get_bool("training");
  cursor_ = {snapshot.attributes.get_int("data.epoch"), snapshot.attributes.get_int("data.samples")};
  extra.clear();
  for (const auto& [name, attribute] : snapshot.attributes.with_prefix("extra.")) {
    extra[name.substr(6)] = std::get<std::string>(attribute.value);
  }
  if (options.new_rank > 0) own_ = {static_cast<std::uint64_t>(-options.new_rank)};
}

void MemorySource::load_weights(const Snapshot& snapshot) {
  ++weight_loads;
  for (const Piece& piece : pieces()) {
    if (!piece.name.starts_with("model/")) continue;
    const auto bytes = snapshot.find(piece.name);
    if (!bytes || bytes->size() != piece.bytes.size()) throw RefusedError("no weights " + piece.name);
    std::copy(bytes->begin(), bytes->end(), piece.bytes.begin());
  }
}

}  // namespace holdfast::test
