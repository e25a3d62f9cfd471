#include "holdfast/interruption/sources.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/interruption/cloud_source.h"
#include "holdfast/interruption/deadline_source.h"
#include "holdfast/interruption/file_source.h"

namespace holdfast { inline namespace v0_2 {
namespace {

bool is_cloud(std::string_view name) { return name == "cloud" || find_provider(name) != nullptr; }

std::vector<std::string_view> source_names() {
  std::vector<std::string_view> names{"signal", "file", "deadline", "cloud"};
  for (const CloudProvider& provider : cloud_providers()) names.push_back(provider.name);
  return names;
}

// nullopt: the variable is not set.
std::optional<std::vector<std::string>> source_list(const EnvVariable& variable) {
  const auto text = env_text(variable);
  if (!text) return std::nullopt;
  const auto known = source_names();
  std::vector<std::string> picked;
  std::string_view rest = *text;
  for (std::size_t end = 0; end != std::string_view::npos;) {
    end = rest.find(',');
    const std::string_view word = rest.substr(0, end);
    if (end != std::string_view::npos) rest.remove_prefix(end + 1);
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      std::string names;
      for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
      throw UsageError("environment variable " + std::string(variable.name) + "=" + *text +
                       ": there is no source \"" + std::string(word) + "\"; there are " + names);
    }
    picked.emplace_back(word);
  }
  return picked;
}

// "LOCAL_RANK=3" if another process of this host asks the provider.
std::optional<std::string> not_the_first_on_this_host() {
  // Every rank would ask the same service; one answer for each host is enough.
  for (const EnvVariable& variable : {kEnvLocalRank, kEnvOpenMpiLocalRank, kEnvSlurmLocalId}) {
    if (const auto rank = env_text(variable)) {
      return rank == "0" ? std::nullopt : std::optional(variable.name + ("=" + *rank));
    }
  }
  return std::nullopt;
}

class Maker {
 public:
  Maker(const SourceOptions& options, Clock& clock)
      : options_(options), clock_(clock), picked_(source_list(kEnvSources)) {}

  std::vector<std::unique_ptr<Source>> make() {
    if (picked_) {
      log_info("interruption sources by {}: {}; the others are off{}", kEnvSources.name,
               env_text(kEnvSources).value_or(""),
               names("signal") || !options_.signals ? "" : ", and signals are heard in any case");
    }
    // Whatever the list says: it chooses what is polled, and who narrows it does not want to be deaf.
    if (options_.signals) {
      sources_.push_back(std::make_unique<SignalSource>(clock_, options_.term_grace, options_.system_root));
    }
    if (wants("file")) files();
    if (wants("deadline")) deadline();
    clouds();
    return std::move(sources_);
  }

 private:
  bool names(std::string_view name) const {
    return picked_ && std::find(picked_->begin(), picked_->end(), name) != picked_->end();
  }
  bool wants(std::string_view name) const { return !picked_ || names(name); }

  void files() {
    std::vector<std::filesystem::path> files = options_.notice_files;
    if (const auto more = env_text(kEnvNoticeFile)) files.emplace_back(*more);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto end = files.begin() + static_cast<std::ptrdiff_t>(i);
      // A file that is named twice would be reported twice.
      if (std::find(files.begin(), end, files[i]) != end) continue;
      sources_.push_back(std::make_unique<FileSource>(files[i], clock_));
    }
  }

  void deadline() {
    // Without `signals` the program handles SIGUSR1 itself.
    const DeadlineOptions found{.max_wall = options_.max_wall,
                                .started = supervised_since(clock_),
                                .job_end = slurm_job_end(clock_),
                                .after_signal = options_.signals ? deadline_signal() : std::nullopt};
    if (found.max_wall || found.job_end || found.after_signal)
      sources_.push_back(std::make_unique<DeadlineSource>(clock_, found));
  }

  void clouds() {
    // A list of sources is exact: "cloud" must then be in it.
    const bool found_out = picked_ ? names("cloud") : options_.cloud;
    std::vector<const CloudProvider*> named;
    for (const CloudProvider& provider : cloud_providers()) {
      if (names(provider.name)) named.push_back(&provider);
    }
    if (!found_out && named.empty()) return;
    if (const auto rank = not_the_first_on_this_host()) {
      log_info("the provider's notices are heard by another process of this host ({})", *rank);
      return;
    }
    for (const CloudProvider* const provider : named) {
      auto source = make_cloud_source(*provider, clock_, of_clouds());
      if (source) sources_.push_back(std::move(source));
    }
    if (!found_out) return;
    check_endpoints();
    sources_.push_back(std::make_unique<CloudSource>(clock_, options_.system_root, of_clouds()));
  }

  CloudOptions of_clouds() const {
    return {.azure_approve = options_.azure_approve, .blind_after = options_.blind_after};
  }

  // Checked now, so that a malformed variable ends the start and not the source later on its thread.
  static void check_endpoints() {
    for (const CloudProvider& provider : cloud_providers()) {
      metadata_endpoint(provider);
      switched_off(provider);
    }
  }

  const SourceOptions& options_;
  Clock& clock_;
  const std::optional<std::vector<std::string>> picked_;
  std::vector<std::unique_ptr<Source>> sources_;
};

}  // namespace

std::vector<std::string> required_sources(const std::vector<std::string>& by_program) {
  std::vector<std::string> required = source_list(kEnvRequireSource).value_or(std::vector<std::string>());
  for (const std::string& name : by_program) {
    if (std::find(required.begin(), required.end(), name) == required.end()) required.push_back(name);
  }
  // Another process of this host asks the provider, so this one can never see it.
  if (not_the_first_on_this_host()) {
    std::erase_if(required, [](const std::string& name) { return is_cloud(name); });
  }
  return required;
}

std::vector<EnvVariable> source_variables() {
  std::vector<EnvVariable> variables;
  for (const CloudProvider& provider : cloud_providers()) {
    variables.push_back(provider.address);
    variables.insert(variables.end(), provider.others.begin(), provider.others.end());
  }
  return variables;
}

std::vector<std::unique_ptr<Source>> make_sources(const SourceOptions& options, Clock& clock) {
  return Maker(options, clock).make();
}

}}  // namespace holdfast::v0_2
