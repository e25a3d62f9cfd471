// A training state whose every byte follows from its step, so that whoever loads it knows whether it was one
// step boundary. Between begin_update() and after_step(), and during an evaluation, memory holds no boundary.
//
// Errors: load() throws Error for a state that is no boundary. Threads: as in SnapshotSource.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/base/error.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "support/vector_copies.h"

namespace holdfast::simulation {

class SteppedState final : public SnapshotSource {
 public:
  // rank −1: alone.
  explicit SteppedState(int rank)
      : rank_(rank), weight_(600), momentum_(600), count_(40), own_(rank < 0 ? 0 : 16) {
    fill(0);
  }
  std::int64_t step() const { return step_; }
  std::int64_t loaded() const { return loaded_; }  // -1: nothing

  // Half of an update of every tensor, and the other half.
  void begin_update() { fill(step_ + 1, 0, 2); }
  StepReport end_update() {
    fill(step_ + 1);
    return {.applied = Cursor{0, 4 * (step_ + 1)}, .loss = 1.0 / static_cast<double>(step_ + 2)};
  }
  void evaluate() { fill(1'000'000 + step_); }
  void restore() { fill(step_); }

  std::vector<TensorSpec> describe() override {
    std::vector<TensorSpec> specs;
    for (const Piece& piece : pieces()) {
      specs.push_back(
          {piece.name, piece.type, {static_cast<std::int64_t>(piece.bytes.size() / size_of(piece.type))}});
    }
    return specs;
  }
  TensorRole role(const TensorSpec& tensor) const override {
    return {.sharing = tensor.name == "rng/own"             ? Sharing::own
                       : tensor.name.starts_with("buffer/") ? Sharing::first
                                                            : Sharing::same,
            .trained = !tensor.name.starts_with("buffer/") && tensor.name != "rng/own",
            .weight = tensor.name.starts_with("model/")};
  }
  Attributes attributes() override {
    Attributes attributes;
    attributes.set("step", step_);
    return attributes;
  }
  std::unique_ptr<LateCopy> copy(const ImageLayout& layout, std::span<std::byte> image, Part part) override {
    const auto all = pieces();
    if (part == Part::own) {
      std::memcpy(layout.slot(0, image).data(), own_.data(), own_.size() * 8);
      return nullptr;
    }
    auto late = std::make_unique<test::VectorCopies>();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto slot = layout.slot(i, image);
      if (part == Part::late) {
        if (all[i].late) late->add(all[i].name, all[i].bytes, slot);
      } else if (part != Part::early || !all[i].late) {
        const ByteRange wanted = layout.wanted(i);
        if (wanted.size() > 0)
          std::memcpy(slot.data() + wanted.begin, all[i].bytes.data() + wanted.begin, wanted.size());
      }
    }
    if (part == Part::late) return late;
    return nullptr;
  }
  Position advance(const StepReport& /*report*/) override { return {++step_, DataEnd::none}; }
  Position position() const override { return {step_, DataEnd::none}; }
  void learn(const StepNews& news) override { early_.insert(news.early.begin(), news.early.end()); }
  void check(std::span<const TensorSpec>, const Attributes&, const Overrides&) override {}
  void load(const Snapshot& snapshot, const LoadOptions& options) override {
    const std::int64_t step = snapshot.attributes.get_int("step");
    fill(step);
    std::string wrong;
    for (const Piece& piece : pieces()) {
      const auto bytes = snapshot.find(piece.name);
      if (!bytes || bytes->size() != piece.bytes.size()) {
        wrong += " " + piece.name + " is missing";
      } else if (std::memcmp(bytes->data(), piece.bytes.data(), bytes->size()) != 0 &&
                 options.new_rank == 0) {
        wrong += " " + piece.name;
      }
    }
    if (!wrong.empty())
      torn = "step " + std::to_string(step) + " was loaded with a state of no boundary:" + wrong;
    step_ = loaded_ = step;
  }
  std::string torn;  // not empty: what was loaded was no boundary

 private:
  struct Piece {
    std::string name;
    DType type;
    std::span<std::byte> bytes;
    bool late;
  };
  std::vector<Piece> pieces() {
    const auto bytes = [](auto& values) { return std::as_writable_bytes(std::span(values)); };
    std::vector<Piece> pieces = {{"model/weight", DType::float32, bytes(weight_), true},
                                 {"optimizer/momentum/weight", DType::float32, bytes(momentum_), true},
                                 {"buffer/count", DType::int64, bytes(count_), false}};
    if (!own_.empty()) pieces.push_back({"rng/own", DType::uint64, bytes(own_), false});
    for (Piece& piece : pieces) piece.late = piece.late && !early_.contains(piece.name);
    return pieces;
  }
  static std::uint64_t mixed(std::int64_t step, std::size_t i, int kind) {
    std::uint64_t z = static_cast<std::uint64_t>(step) * 0x9e3779b97f4a7c15 + i * 0xbf58476d1ce4e5b9 +
                      static_cast<std::uint64_t>(kind);
    z = (z ^ (z >> 30)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  void fill(std::int64_t step, std::size_t first = 0, std::size_t stride = 1) {
    for (std::size_t i = first; i < weight_.size(); i += stride) {
      weight_[i] = static_cast<float>(mixed(step, i, 1) % 100'000);
      momentum_[i] = static_cast<float>(mixed(step, i, 2) % 100'000);
    }
    for (std::size_t i = first; i < count_.size(); i += stride)
      count_[i] = static_cast<std::int64_t>(mixed(step, i, 3) >> 1);
    for (std::size_t i = first; i < own_.size(); i += stride) own_[i] = mixed(step, i, 10 + rank_);
  }

  const int rank_;
  std::int64_t step_ = 0, loaded_ = -1;
  std::vector<float> weight_, momentum_;
  std::vector<std::int64_t> count_;
  std::vector<std::uint64_t> own_;
  std::set<std::string> early_;
};

}  // namespace holdfast::simulation
