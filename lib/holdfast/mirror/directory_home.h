// HOME as a directory on another volume. It is a run directory: the store commits each copy by the rules of
// store/commit.h and reads every byte back, so every command works there, and a trainer can start there.
//
// Errors: as home.h; also RefusedError if the directory holds a number that is the last one. Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "holdfast/mirror/home.h"
#include "holdfast/mirror/pace.h"
#include "holdfast/store/checkpoint_store.h"

namespace holdfast { inline namespace v0_2 {

class DirectoryHome final : public Home {
 public:
  DirectoryHome(const HomeOptions& options, FileSystem& file_system, Verifier& verifier, Pace& pace);

  const std::string& name() const override { return name_; }
  AttemptNumber highest() override;
  AttemptNumber claim(AttemptNumber least) override;
  AttemptNumber claim_after(AttemptNumber after, AttemptNumber least = 0) override;
  bool is_own(AttemptNumber highest) override { return highest != 0 && highest == store_.highest_own(); }
  void check_not_superseded() override;
  std::vector<HomeFile> list() override;
  void put(const MirrorSource& source) override;
  bool holds(const MirrorSource& source) override;
  void retire(const MirrorSource& newest) override;
  void read(const HomeFile& file, const ByteSink& sink) override;
  std::optional<std::string> note(const std::string& name) override;
  void put_note(const std::string& name, const std::string& text) override;
  void remove_note(const std::string& name) override;
  void put_kernels(Directory& folder) override;
  void fetch_kernels(Directory& folder) override;

 private:
  std::unique_ptr<Directory> open() const;
  std::unique_ptr<Directory> attempts() const;
  void sweep(Directory& run);
  template <class Work>
  auto in_store(const Work& work);
  void recover();
  void commit(const MirrorSource& source, bool again = false);
  void make_name_durable(const MirrorSource& source);
  void set_aside_if_damaged(const MirrorSource& source);

  const std::string name_;
  FileSystem& file_system_;
  Verifier& verifier_;
  Pace& pace_;
  CheckpointStore store_;
  bool failed_ = false;        // the last call of the store
  std::set<FileId> unproven_;  // their names may lie there, and no sync of them has succeeded
  bool recovered_ = false;
  bool swept_ = false;
};

}}  // namespace holdfast::v0_2
