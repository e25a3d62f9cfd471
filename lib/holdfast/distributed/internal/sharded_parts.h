// The inside of a ShardedOptimizer, for sharded_optimizer.cc (the update) and sharded_checkpoint.cc (whole
// slots from shares, and back).
//
// Threads: the training thread.
#pragma once

#include <torch/optim/optimizer.h>

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/distributed/internal/slices.h"
#include "holdfast/distributed/sharded_optimizer.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/state/optimizer_fields.h"
#include "holdfast/state/whole_tensors.h"

namespace holdfast { inline namespace v0_2 {

struct ShardedOptimizer::Parts final : WholeTensors {
  struct Part {
    Chunk chunk;
    at::Tensor share;        // parameter of the optimizer: this rank's elements
    std::vector<Piece> own;  // the pieces of tensors in it
  };
  struct Group {
    std::vector<at::Tensor> parameters;
    std::vector<std::string> names;
    std::vector<Part> chunks;
    Attributes chosen;  // options at construction
    // How the parameters lay in memory when slots were cut.
    std::vector<std::vector<std::int64_t>> strides;
    void lie_now();
  };
  using Slots = std::vector<std::pair<std::string, at::Tensor>>;

  Parts(torch::optim::Optimizer& given, torch::nn::Module& of, ProcessGroup& ranks,
        const ShardedOptions& chosen)
      : optimizer(&given),
        kind(*kind_of(given)),
        module(&of),
        group(&ranks),
        options(chosen),
        rank(ranks.rank()),
        world(ranks.alone() ? 1 : ranks.world_size()) {}

  std::size_t count(std::size_t group_index) const override { return groups[group_index].parameters.size(); }
  std::span<const Piece> pieces(const at::Tensor& share) const override;

  // Collectives.
  void add_up(at::Tensor& numbers) const override;
  void reduce_scatter(const Group& of, const Part& part, const at::Tensor& gradient) const;
  at::Tensor all_of(const char* what, const Part& part, const at::Tensor& share) const;
  void gather_slots();

  void require_gradients() const;
  void require_layout();
  Slots slots_of(const at::Tensor& share) const;  // defined slots only
  std::int64_t updates(const Group& of) const;    // updates counted; -1: no slots yet
  Attributes options_now(torch::optim::OptimizerOptions& of) const;
  // Values of a checkpoint. RefusedError if parameters of one group differ.
  std::int64_t recorded_updates(const StateReader& in, std::size_t g) const;
  bool has_slot(const StateReader& in, const char* slot, std::size_t g) const;
  static std::vector<at::Tensor> wholes_of(const StateReader& in, const char* slot, const Group& of);
  // Number of elements of a share that belong to tensors; the rest is padding.
  static std::int64_t end_of(const std::vector<Piece>& own) {
    return own.empty() ? 0 : own.back().at + own.back().count;
  }
  // Fills `share` with the elements of whole tensors that `own` lists.
  static void take(const std::vector<at::Tensor>& from, const std::vector<Piece>& own,
                   const at::Tensor& share);

  torch::optim::Optimizer* optimizer;
  const OptimizerKind& kind;
  torch::nn::Module* module;
  ProcessGroup* group;
  ShardedOptions options;
  int rank;
  int world;
  std::vector<Group> groups;
  Slots frozen;  // parameters that were left out, by name
  // Whole slots on the host as of the newest update: "exp_avg/fc.weight". Empty until a save needs them.
  std::map<std::string, at::Tensor> whole;
};

}}  // namespace holdfast::v0_2
