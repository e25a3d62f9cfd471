#include "holdfast/interruption/service_source.h"

#include <new>
#include <utility>

namespace holdfast { inline namespace v0_2 {

ServiceSource::ServiceSource(Clock& clock, std::string_view name, std::string service, Duration unknown,
                             Duration blind_after)
    : clock_(clock),
      sight_(clock, std::move(service), blind_after),
      end_(clock, name, unknown),
      refusals_(clock),
      name_(name) {}

std::vector<Notice> ServiceSource::poll() {
  try {
    return look();
  } catch (const std::bad_alloc&) {
    // The notices of this poll are lost, so the source must repeat them.
    end_.tell_again();
    throw;
  }
}

void ServiceSource::at_risk(std::vector<Notice>& news, std::string text) const {
  news.push_back({.source = std::string(name_),
                  .kind = NoticeKind::at_risk,
                  .text = std::move(text),
                  .seen = clock_.now()});
}

}}  // namespace holdfast::v0_2
