// What exports to one --to have left in its folder: the files of an earlier export that the new one does not
// replace, and what a killed one had begun. A loader that takes every *.safetensors would mix their weights.
//
// An earlier export's files are those that its index names, and no others. While an export runs, a hidden
// list beside it (".holdfast-export-of-<name>") names what it makes and removes, for the case of a kill. Only
// names that an export to this --to can have count; what else stands in an index or a list is left alone.
//
// Errors: UsageError before anything changes; IoError. Threads: one. Durability: the list is synced.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "holdfast/io/file_system.h"
#include "holdfast/io/line_file.h"

namespace holdfast { inline namespace v0_2 {

class ExportRemains {
 public:
  // `made`: names of the files that the new export makes. `sharded`: the format has shards and an index.
  // Throws UsageError for a file that would stay and cannot go: without `force` any, and always what no
  // export wrote.
  ExportRemains(Directory& directory, const std::filesystem::path& to, const std::vector<std::string>& made,
                bool sharded, bool force);
  ~ExportRemains();
  ExportRemains(const ExportRemains&) = delete;
  ExportRemains& operator=(const ExportRemains&) = delete;

  // Removes the temporary files of a killed export, and begins the list.
  void begin();
  // Before `temporary` is made.
  void note(const std::string& temporary);
  // Before the first file gets its name. A loader must find no index that names shards of two exports.
  void publishing();
  // The new files are complete: the earlier ones and the list go.
  void finish();

 private:
  bool is_shard(const std::string& name) const;
  void read_index();
  void read_list();
  void add(const std::string& name);

  Directory& directory_;
  std::filesystem::path to_;
  std::string name_;
  std::vector<std::string> made_;
  bool force_;
  std::vector<std::string>
      stale_;  // names of earlier exports that the new one does not make; the index first
  std::vector<std::string> temporaries_;  // of a killed export
  std::unique_ptr<LineFile> list_;
  bool published_ = false;
  bool killed_ = false;  // an earlier export has left its list
};

}}  // namespace holdfast::v0_2
