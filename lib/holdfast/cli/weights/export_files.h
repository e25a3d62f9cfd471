// What `holdfast export` writes: which tensors, in which format, into how many files.
//
// Errors: UsageError for what the format cannot do; Error if the checkpoint lacks what is asked for; damage
// is a value. Threads: one.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "holdfast/cli/files/new_file.h"
#include "holdfast/cli/weights/export_remains.h"
#include "holdfast/format/reader.h"
#include "holdfast/format/safetensors_export.h"

namespace holdfast { inline namespace v0_2 {

struct ExportRequest {
  std::filesystem::path file;
  std::filesystem::path to;
  std::filesystem::path base;  // has what `file` records by digest alone; empty: none
  std::string module = "model";
  std::string ema;    // the averaged weights: name of the part that holds them; empty: the weights
  std::string dtype;  // empty: as they are
  std::string shard;  // "5GB"; empty: one file
  bool all = false;   // the whole training state
  bool force = false;
  double read_limit = 0;  // MB/s; 0: none
  bool json = false;
};

// By the name's ending: .pt, .pth and .bin for PyTorch, .h5 and .hdf5 for HDF5, everything else safetensors.
enum class ExportFormat { safetensors, torch, hdf5 };
ExportFormat export_format(const std::filesystem::path& to);

class Export {
 public:
  // Checks the request against the format and the checkpoint; `index` outlives it. `state`: the training
  // state's digest.
  Export(const ExportRequest& request, const CheckpointIndex& index, const Digest& state);

  // Names of the new files, the one that --to names last.
  const std::vector<std::string>& names() const { return names_; }
  // The format has shards and an index.
  bool can_shard() const { return format_ == ExportFormat::safetensors; }
  std::size_t tensors() const { return tensors_.size(); }
  std::string what() const;  // "4 tensors of 'model'", for people
  // Writes all of them under temporary names. A Rejection if `from` is damaged.
  std::optional<Rejection> write(const File& from, Directory& directory, ReadMode mode,
                                 ExportRemains& remains, std::vector<std::unique_ptr<NewFile>>& made) const;

 private:
  std::optional<Rejection> write_one(const File& from, const std::vector<ExportedTensor>& tensors, File& to,
                                     ReadMode mode) const;

  const ExportRequest& request_;
  const CheckpointIndex& index_;
  const Digest state_;
  ExportFormat format_;
  std::optional<DType> as_;
  std::vector<ExportedTensor> tensors_;
  std::vector<std::vector<ExportedTensor>> shards_;  // more than one: --shard
  std::string shard_index_;
  std::vector<std::string> names_;
};

}}  // namespace holdfast::v0_2
