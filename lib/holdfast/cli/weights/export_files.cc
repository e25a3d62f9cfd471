#include "holdfast/cli/weights/export_files.h"

#include "holdfast/base/error.h"
#include "holdfast/base/text.h"
#include "holdfast/base/utf8.h"
#include "holdfast/cli/files/examine.h"
#include "holdfast/format/hdf5_export.h"
#include "holdfast/format/state_dict.h"
#include "holdfast/format/torch_export.h"
#include "holdfast/format/weight_shards.h"

namespace holdfast { inline namespace v0_2 {
namespace {

std::optional<DType> dtype_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (name == "bf16" || name == "bfloat16") return DType::bfloat16;
  throw UsageError("--dtype " + printable(name) + ": bf16 is the only type to convert to");
}

std::vector<ExportedTensor> whole_state(const CheckpointIndex& index) {
  std::vector<ExportedTensor> tensors;
  for (std::size_t i = 0; i < index.tensors.size(); ++i) tensors.push_back({index.tensors[i].spec.name, i});
  return tensors;
}

void check_combination(const ExportRequest& request, ExportFormat format) {
  if (request.all && (!request.dtype.empty() || !request.ema.empty())) {
    throw UsageError("--all exports the training state as it is: --dtype and --ema are for weights alone");
  }
  // safetensors holds a flat list of tensors: it has no place for counters and nested dicts.
  if (request.all && format == ExportFormat::safetensors) {
    throw UsageError("--all needs a file of PyTorch or HDF5: name one that ends in .pt or .h5");
  }
  // Only for safetensors the loaders of other libraries agree on an index beside the shards.
  if (!request.shard.empty() && format != ExportFormat::safetensors) {
    throw UsageError("--shard is for safetensors: name a file that ends in .safetensors");
  }
}

}  // namespace

ExportFormat export_format(const std::filesystem::path& to) {
  const std::string ending = to.extension().string();
  // Hugging Face names its files of PyTorch "pytorch_model.bin".
  if (ending == ".pt" || ending == ".pth" || ending == ".bin") return ExportFormat::torch;
  if (ending == ".h5" || ending == ".hdf5") return ExportFormat::hdf5;
  return ExportFormat::safetensors;
}

Export::Export(const ExportRequest& request, const CheckpointIndex& index, const Digest& state)
    : request_(request),
      index_(index),
      state_(state),
      format_(export_format(request.to)),
      as_(dtype_of(request.dtype)) {
  check_combination(request, format_);
  const std::string part = request.ema.empty() ? request.module : request.ema;
  if (request.all) {
    tensors_ = whole_state(index);
  } else if (request.ema.empty()) {
    tensors_ = state_dict_of(index, part);
  } else {
    tensors_ = averaged_state_dict_of(index, part, request.module);
  }
  if (tensors_.empty()) {
    throw Error(shown(request.file) + ": there is no " + (request.ema.empty() ? "module '" : "average '") +
                    printable(part) + "' in it (holdfast show lists the tensors)",
                ExitCode::unreadable);
  }
  const std::string name = request.to.filename().string();
  if (!request.shard.empty()) {
    const auto most = parse_bytes(request.shard);
    if (!most || *most == 0) throw UsageError("--shard " + printable(request.shard) + ": a size such as 5GB");
    WeightShards split = split_weights(index, tensors_, *most, as_);
    // A single shard is an ordinary file and needs no index.
    if (split.shards.size() > 1) {
      for (std::size_t i = 0; i < split.shards.size(); ++i) {
        names_.push_back(shard_name(name, i, split.shards.size()));
      }
      shard_index_ = shard_index(split, name);
      shards_ = std::move(split.shards);
    }
  }
  names_.push_back(shards_.empty() ? name : index_name(name));
}

std::string Export::what() const {
  std::string count = format_count(static_cast<std::int64_t>(tensors_.size())) + " tensors";
  if (request_.all) return count;
  return count + " of '" + printable(request_.ema.empty() ? request_.module : request_.ema) + "'";
}

std::optional<Rejection> Export::write(const File& from, Directory& directory, ReadMode mode,
                                       ExportRemains& remains,
                                       std::vector<std::unique_ptr<NewFile>>& made) const {
  const auto add = [&](const std::string& name) -> File& {
    const std::string temporary = NewFile::new_temporary();
    remains.note(temporary);
    made.push_back(std::make_unique<NewFile>(directory, name, temporary));
    return made.back()->file();
  };
  if (shards_.empty()) return write_one(from, tensors_, add(names_.back()), mode);
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (auto rejection = write_one(from, shards_[i], add(names_[i]), mode)) return rejection;
    made.back()->complete();  // a process may have only so many files open
  }
  // The index comes last, because run_export() publishes in this order.
  add(names_.back()).write_at(std::as_bytes(std::span(shard_index_)), 0);
  return std::nullopt;
}

std::optional<Rejection> Export::write_one(const File& from, const std::vector<ExportedTensor>& tensors,
                                           File& to, ReadMode mode) const {
  switch (format_) {
    case ExportFormat::torch: {
      const TorchPickle pickle =
          request_.all ? torch_training_state(index_) : torch_state_dict(index_, tensors, as_);
      return export_torch(from, index_, pickle, to, mode);
    }
    case ExportFormat::hdf5:
      // In HDF5 each tensor lies in a group. The names of a whole state begin with one, the keys of weights
      // do not.
      return export_hdf5(from, index_, tensors, request_.all ? std::string_view() : kModelModule, to, mode,
                         as_);
    case ExportFormat::safetensors:
      break;
  }
  // Loaders of other libraries refuse a file that does not name its "format".
  const std::map<std::string, std::string> metadata{
      {"format", "pt"}, {"holdfast_state", to_hex(state_)}, {"holdfast_step", std::to_string(index_.step)}};
  return export_safetensors(from, index_, tensors, metadata, to, mode, as_);
}

}}  // namespace holdfast::v0_2
