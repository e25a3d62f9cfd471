// What the sources at a provider's metadata service share: Ec2Source, GcpSource, AzureSource.
//
// Errors: bad_alloc. Threads: as source.h says; may_block().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "holdfast/interruption/internal/announced_end.h"
#include "holdfast/interruption/internal/refusals.h"
#include "holdfast/interruption/internal/sight.h"
#include "holdfast/interruption/source.h"

namespace holdfast { inline namespace v0_2 {

class ServiceSource : public Source {
 public:
  std::string_view name() const final { return name_; }
  std::vector<Notice> poll() final;
  bool may_block() const final { return true; }
  SourceFigures figures() const final { return sight_.figures(); }

 protected:
  // `name` outlives the source. `service`: for people, such as "EC2's metadata service". `unknown`: time from
  // the first sight of an end to the end, if no time is believable.
  ServiceSource(Clock& clock, std::string_view name, std::string service, Duration unknown,
                Duration blind_after);

  // Asks the service once. If it runs out of memory, the next one tells its news again.
  virtual std::vector<Notice> look() = 0;
  void at_risk(std::vector<Notice>& news, std::string text) const;

  Clock& clock_;
  internal::Sight sight_;
  internal::AnnouncedEnd end_;
  internal::Refusals refusals_;  // of all paths but the one that announces the end

 private:
  const std::string_view name_;
};

}}  // namespace holdfast::v0_2
