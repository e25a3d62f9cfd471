#include "holdfast/interruption/cloud_source.h"

#include <utility>

#include "holdfast/base/log.h"
#include "holdfast/base/mutex.h"

namespace holdfast { inline namespace v0_2 {
namespace {

// The poll interval if there is no service to ask.
constexpr Duration kIdle = std::chrono::hours(1);

}  // namespace

struct CloudSource::State {
  Clock& clock;
  std::filesystem::path system_root;
  CloudOptions options;
  bool looked = false;  // used by the source's thread only
  Mutex mutex = {};
  std::unique_ptr<Source> provider HOLDFAST_GUARDED_BY(mutex) = {};
  std::string why_none HOLDFAST_GUARDED_BY(mutex) = {};  // set after the look if there is no provider
  bool cancelled HOLDFAST_GUARDED_BY(mutex) = false;
};

CloudSource::CloudSource(Clock& clock, std::filesystem::path system_root, CloudOptions options)
    : state_(
          new State{.clock = clock, .system_root = std::move(system_root), .options = std::move(options)}) {}

CloudSource::~CloudSource() = default;

// The pointer stays valid: the provider is set once and never replaced.
Source* CloudSource::provider() const {
  const MutexLock lock(state_->mutex);
  return state_->provider.get();
}

std::string_view CloudSource::name() const {
  const Source* const source = provider();
  return source != nullptr ? source->name() : "cloud";
}

std::vector<Notice> CloudSource::poll() {
  // Looks on the source's own thread: reading the firmware's files must not delay the start.
  if (!std::exchange(state_->looked, true)) {
    std::unique_ptr<Source> found;
    const CloudProvider* const cloud = detect_cloud(state_->system_root);
    if (cloud != nullptr) found = make_cloud_source(*cloud, state_->clock, state_->options);
    std::string why_none;
    if (found) {
      log_info("this is a machine of {}: Holdfast polls its notices", found->name());
    } else if (cloud != nullptr) {
      why_none = std::string(cloud->off->name) + " is set";
    } else {
      why_none = "this machine's firmware names none of " + provider_companies();
      log_debug("{}: no provider announces its end", why_none);
    }
    const MutexLock lock(state_->mutex);
    state_->why_none = std::move(why_none);
    state_->provider = std::move(found);
    // cancel() may have come during the look, and must not be lost.
    if (state_->cancelled && state_->provider) state_->provider->cancel();
  }
  Source* const source = provider();
  return source != nullptr ? source->poll() : std::vector<Notice>();
}

Duration CloudSource::interval() const {
  const Source* const source = provider();
  return source != nullptr ? source->interval() : kIdle;
}

void CloudSource::cancel() {
  // Under the lock, so that a provider that appears at this moment is cancelled as well.
  const MutexLock lock(state_->mutex);
  state_->cancelled = true;
  if (state_->provider) state_->provider->cancel();
}

SourceFigures CloudSource::figures() const {
  const MutexLock lock(state_->mutex);
  if (state_->provider) return state_->provider->figures();
  SourceFigures figures;
  figures.why = state_->why_none;
  return figures;
}

}}  // namespace holdfast::v0_2
