// Writes a checkpoint's tensors as a .pt file that PyTorch's torch.load opens, without PyTorch: a stored zip
// archive with a pickle (docs/interop.md). It needs no weights_only=False and no allow-listed class, and
// torch.load(mmap=True) finds every tensor aligned.
//
//   const TorchPickle pickle = torch_state_dict(index, state_dict_of(index));
//   auto rejection = export_torch(file, index, pickle, new_file);
//
// Every byte is verified against the checkpoint's digests on the way. Memory stays at 16 MiB, and 200 bytes a
// tensor. Errors: damage of the checkpoint is a value, and `to` is then invalid; IoError.
// Threads: one. Durability: none; the caller syncs `to`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "holdfast/format/safetensors_export.h"

namespace holdfast { inline namespace v0_2 {

// What torch.load returns, and the bytes of its tensors.
struct TorchPickle {
  // A tensor of the checkpoint, or a small one with these bytes.
  struct Storage {
    std::optional<std::size_t> tensor = {};
    std::vector<std::byte> bytes = {};
  };
  std::string pickle = {};
  std::vector<Storage> storages = {};
  std::optional<DType> as = {};  // replaces floating-point types; bfloat16 or none
};

// A dict of tensors, for module.load_state_dict(). Two keys of one tensor share its memory.
TorchPickle torch_state_dict(const CheckpointIndex& index, const std::vector<ExportedTensor>& tensors,
                             std::optional<DType> as = {});
// The whole training state as nested dicts, in the shape that PyTorch's trainers save: {"model": state dict,
// "optimizer": {"state": …, "param_groups": …}, "schedule": {…}, "step": …, "epoch": …}.
TorchPickle torch_training_state(const CheckpointIndex& index);

// Requires that `to` is new and empty.
std::optional<Rejection> export_torch(const File& from, const CheckpointIndex& index,
                                      const TorchPickle& pickle, File& to, ReadMode mode = ReadMode::cached);

}}  // namespace holdfast::v0_2
