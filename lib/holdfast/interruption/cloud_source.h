// Finds out which provider this machine belongs to (detect_cloud()), and then acts as that provider's source.
// The look is at the first poll, on the source's own thread. A machine without evidence sends no packet.
//
// Errors: bad_alloc. Threads: as source.h says; may_block().
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "holdfast/interruption/cloud_providers.h"

namespace holdfast { inline namespace v0_2 {

class CloudSource final : public Source {
 public:
  explicit CloudSource(Clock& clock = Clock::real(), std::filesystem::path system_root = "/",
                       CloudOptions options = {});
  ~CloudSource() override;

  // "cloud" until the provider is known.
  std::string_view name() const override;
  std::vector<Notice> poll() override;
  Duration interval() const override;
  bool may_block() const override { return true; }
  void cancel() override;
  SourceFigures figures() const override;

 private:
  Source* provider() const;

  struct State;
  std::unique_ptr<State> state_;
};

}}  // namespace holdfast::v0_2
