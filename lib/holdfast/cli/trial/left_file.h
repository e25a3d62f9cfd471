// A file that a program leaves, such as its best weights: `holdfast check --output` compares it between
// lives.
//
// Errors: the constructor throws UsageError for what is no file; std::filesystem::filesystem_error.
// Threads: one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace holdfast { inline namespace v0_2 {

class LeftFile {
 public:
  // `name` is looked for beside the run of the trial in `folder`, in that run, and, as a path like others,
  // outside. A file that exists outside is put aside, as `name`.before-check, until this object ends.
  LeftFile(const std::filesystem::path& folder, const std::string& name);
  ~LeftFile();
  LeftFile(const LeftFile&) = delete;
  LeftFile& operator=(const LeftFile&) = delete;

  // What a life has left outside of the trial's folder is removed.
  void begin_anew() const;
  std::optional<std::string> content() const;  // nullopt: there is no such file

 private:
  const std::filesystem::path beside_, in_run_, outside_, aside_;
  bool put_aside_ = false;
};

// Empty: both are the same. Otherwise what differs.
std::string difference_of_files(const std::string& name, const std::string& straight,
                                const std::optional<std::string>& resumed);

}}  // namespace holdfast::v0_2
