#include "holdfast/distributed/process_group.h"

#include <algorithm>
#include <csignal>
#include <initializer_list>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <typeinfo>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/log.h"
#include "holdfast/base/owner_process.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/c10d_store.h"
#include "holdfast/distributed/internal/connections.h"
#include "holdfast/distributed/internal/group_evidence.h"
#include "holdfast/distributed/internal/local_address.h"
#include "holdfast/distributed/internal/meeting.h"
#include "holdfast/distributed/internal/nccl_backend.h"
#include "holdfast/distributed/internal/nccl_watch.h"
#include "holdfast/distributed/internal/own_gpus.h"
#include "holdfast/interruption/signal_source.h"
#include "holdfast/interruption/term_grace.h"
#include "holdfast/ranks/pulse.h"
#include "holdfast/ranks/rank_names.h"
#include "holdfast/ranks/roll_call.h"
#include "holdfast/ranks/store_votes.h"

namespace holdfast { inline namespace v0_2 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSpare = 4s;  // added to the longest wait of a call itself
constexpr Duration kParting = 10s;
constexpr Duration kOwnExit = 1s;  // before the end of a grace period
constexpr const char* kRemedy = "; the newest checkpoint stands: start all ranks again";

std::chrono::milliseconds in_ms(Duration duration) {
  return std::chrono::ceil<std::chrono::milliseconds>(duration);
}

std::string gloo_address(const LaunchEnvironment& place) {
  if (const auto name = env_text(kEnvGlooInterface)) {
    const std::string address = address_of_interface(*name);
    if (!address.empty()) return address;
    throw UsageError("environment variable GLOO_SOCKET_IFNAME=" + *name +
                     ": this host has no such interface, or none with an address (ip addr lists them)");
  }
  if (place.one_host()) return "127.0.0.1";
  const std::string address = address_towards(place.master_address, place.master_port);
  if (!address.empty()) return address;
  throw UsageError("no way to MASTER_ADDR=" + place.master_address +
                   " from this host: set it to rank 0's host, or GLOO_SOCKET_IFNAME to the interface to use");
}

c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                            const std::string& name, const GroupOptions& options,
                                            std::initializer_list<Connections*> connections,
                                            const Pulse* pulse, RollCall& roll_call) {
  const LaunchEnvironment& place = options.place;
  const std::string address = gloo_address(place);
  const auto settings = c10d::ProcessGroupGloo::Options::create(in_ms(options.timeout));
  // As c10d's own Gloo groups have.
  settings->threads = 2;
  const auto made = std::make_shared<c10::intrusive_ptr<c10d::Backend>>();
  std::string reason;
  try {
    // What is open before belongs to others and must not be shut down with this group.
    const auto before = Connections::all(place.master_port);
    // Every two ranks connect, at addresses from the store. With a limit: a rank that hangs here must not
    // hold this one.
    within(options.timeout + kSpare,
           [=, rank = place.rank, size = place.world_size] {
             settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
             *made = c10::make_intrusive<c10d::ProcessGroupGloo>(
                 c10::make_intrusive<c10d::PrefixStore>(name + "/", store), rank, size, settings);
           },
           {.hopeless = pulse != nullptr ? &pulse->alarm()->rank : nullptr, .stop = true});
    for (Connections* const one : connections) one->add_since(before, place.master_port);
    return *made;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    reason = brief(error);
  }
  throw GroupError("rank " + std::to_string(place.rank) +
                   " met the other ranks, but cannot connect to all of them from " + address + " (" + reason +
                   "): " + roll_call.who() + ". GLOO_SOCKET_IFNAME chooses another interface");
}

// Gloo writes to connections that a partner may have closed and expects EPIPE, as in a Python program.
void ignore_broken_pipes() {
  struct sigaction now {};
  // A handler that the program has chosen stays.
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

bool is_of_communication(const std::exception& error) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return true;
  if (dynamic_cast<const StoreClosed*>(&error) != nullptr) return true;
  if (dynamic_cast<const StoreFailed*>(&error) != nullptr) return true;
  // Gloo's exception types have no header here, and not all of their texts name Gloo.
  if (std::string_view(typeid(error).name()).find("gloo") != std::string_view::npos) return true;
  const std::string_view text = error.what();
  return text.find("gloo/") != std::string_view::npos || text.find("NCCL") != std::string_view::npos;
}

}  // namespace

struct ProcessGroup::Parts {
  explicit Parts(StoreLine met) : line(std::move(met)) {}

  const OwnerProcess process = {};

  StoreLine line;
  c10::intrusive_ptr<c10d::Store> store;  // c10d's, with the prefix of the line
  const std::shared_ptr<Connections> connections = std::make_shared<Connections>();
  std::shared_ptr<Pulse> pulse;
  std::shared_ptr<RollCall> roll_call;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::shared_ptr<GroupEvidence> evidence;
  int exchanges = 0;
  int votes = 0;
  std::weak_ptr<StoreVotes> newest_votes;
  // An exception that is under way already is not the end of this group.
  int exceptions = std::uncaught_exceptions();
};

// After a disorderly end kernels on the device may wait for partners for ever. Only this destructor ends them
// (nccl_watch.h explains why so late).
struct ProcessGroup::Nccl {
  ~Nccl() {
    try {
      if (backend)
        backend->abort();  // the backend's destructor would wait for collectives that no rank
                           // completes
    } catch (const std::exception& error) {
      log_warning("NCCL did not end its collectives: {}", what_of(error));
    }
  }
  c10::intrusive_ptr<c10d::Backend> backend;  // null: finished in order
  // Each save in flight holds it as well.
  const std::shared_ptr<const void> saves = std::make_shared<char>();
  std::unique_ptr<NcclWatch> watch;
};

ProcessGroup::ProcessGroup(GroupOptions options) : options_(std::move(options)) {
  const LaunchEnvironment& place = options_.place;
  if (!place.remark.empty()) log_warning(place.remark);
  // Before anything can fail, so that every message names its rank.
  set_log_rank(place.rank, place.world_size);
  if (place.world_size == 1 && !options_.even_alone) return;
  ignore_broken_pipes();
  if (options_.device.is_cuda()) prepare_nccl();  // sets the environment before other threads read it
  auto parts = std::make_unique<Parts>(meet(place, options_.start_timeout));
  if (place.world_size > 1) {
    const PulseOptions signs =
        pulse_options(place.world_size, env_duration(kEnvSilence).value_or(options_.silence));
    parts->pulse = std::make_shared<Pulse>(
        std::make_shared<C10dStore>(connect_again(place, parts->line, options_.start_timeout),
                                    place.world_size),
        parts->line.prefix(), place.rank, place.world_size, signs,
        [connections = parts->connections] { connections->shut(); });
    parts->line.heed(parts->pulse->alarm());
  }
  parts->evidence = std::make_shared<GroupEvidence>(parts->pulse);
  parts->roll_call = std::make_shared<RollCall>(parts->line, parts->pulse, place.rank, place.world_size);
  // A connection of its own, because c10d's waits would hold up all other calls.
  parts->store = c10::make_intrusive<c10d::PrefixStore>(parts->line.prefix(),
                                                        connect_again(place, parts->line, options_.timeout));
  const auto gloo = make_gloo(parts->store, "gloo", options_, {parts->connections.get()}, parts->pulse.get(),
                              *parts->roll_call);
  if (options_.device.is_cuda()) {
    try {
      require_own_gpus(parts->line, place,
                       {.name = gpu_of(options_.device),
                        .wants_to_share = env_text(kEnvNcclMultiRank) == "1",
                        .nccl_version = nccl_version()},
                       options_.timeout);
    } catch (const SilentStore& silent) {
      throw GroupError(std::string("rank 0's store went silent while the ranks told their GPUs (") +
                       silent.what() + "): rank 0 has ended or hangs" + kRemedy);
    }
    const auto store = c10::make_intrusive<c10d::PrefixStore>("nccl/", parts->store);
    nccl_ = std::make_unique<Nccl>();
    nccl_->backend = make_nccl(store, place.rank, place.world_size, options_.timeout);
    nccl_->watch = std::make_unique<NcclWatch>(
        NcclWatchQuestions{
            .fault =
                [nccl = nccl_->backend, limit = options_.timeout,
                 alarm = parts->pulse ? parts->pulse->alarm() : nullptr] {
                  return alarm && alarm->rank ? "no sign of life from a rank" : fault_of(*nccl, limit);
                },
            .who = [roll_call = parts->roll_call] { return roll_call->who(); },
            .waits = [nccl = nccl_->backend] { return collectives_pending(*nccl); },
            .saving = [&saves = nccl_->saves] { return saves.use_count() > 1; },
            .told_to_stop = stop_signal_came,
            .keep_evidence = [evidence = parts->evidence](const std::string& why) { evidence->keep(why); },
            .end =
                [](const std::string& who, const std::string& failure) {
                  log_error("{}, while this rank waited for its GPU ({}){}", who, failure, kRemedy);
                  end_interrupted();
                }},
        NcclWatchOptions{.patience = nccl_patience(), .grace = term_grace().time - kOwnExit});
  }
  // The ranks have met. From here on a stop must not end waits: the last save may need the store.
  parts->line.heed_stop(false);
  using Type = c10d::ProcessGroup::BackendType;
  parts->group = c10::make_intrusive<c10d::ProcessGroup>(parts->store, place.rank, place.world_size);
  parts->group->setDefaultBackend(nccl_ ? Type::NCCL : Type::GLOO);
  parts->group->setBackend(c10::DeviceType::CPU, Type::GLOO, gloo);
  if (nccl_) parts->group->setBackend(c10::DeviceType::CUDA, Type::NCCL, nccl_->backend);
  parts_ = std::move(parts);
  if (place.rank == 0 && place.world_size > 1) {
    log_info("{} ranks are here, connected by {}", place.world_size, nccl_ ? "NCCL" : "Gloo");
  }
}

ProcessGroup::~ProcessGroup() {
  if (!parts_) return;
  if (!parts_->process.is_this_one()) {
    leave_to_parent(parts_);
    leave_to_parent(nccl_);
    return;
  }
  // More exceptions than at the start: this destructor runs because one was thrown.
  if (std::uncaught_exceptions() > parts_->exceptions) {
    try {
      // Before rank 0 reads that: its store may end at once.
      if (parts_->pulse) parts_->pulse->end();
      parts_->line.set(gone_key(rank()), "");
    } catch (const std::exception&) {  // the others notice the loss by missing signs of life
    }
    drop();
    return;
  }
  try {
    leave();
  } catch (const std::exception& error) {
    log_warning(what_of(error));
  }
}

const c10::intrusive_ptr<c10d::ProcessGroup>& ProcessGroup::c10d() const {
  static const c10::intrusive_ptr<c10d::ProcessGroup> none;
  return parts_ ? parts_->group : none;
}

std::vector<std::string> ProcessGroup::exchange(const char* what, const std::string& text) {
  // Without partners an exchange would silently have one text.
  if (!parts_ && world_size() > 1) throw UsageError(std::string(what) + ": the ranks have parted already");
  if (!parts_) return {text};
  StoreLine& line = parts_->line;
  const int number = parts_->exchanges++;
  const auto name_of = [](int one) { return "exchange/" + std::to_string(one); };
  try {
    line.bring(name_of(number), rank(), world_size(), text);
    const auto missing = line.absent(name_of(number), world_size(), options_.timeout);
    if (parts_->pulse && !parts_->pulse->lost().empty()) throw GroupError(parts_->roll_call->who() + kRemedy);
    if (!missing.empty()) {
      // Signs of life name the lost rank; the timeout only knows that somebody is missing.
      throw GroupError(ranks_in_words(missing) + " did not come to an exchange (" + what + ") within " +
                       format_duration(options_.timeout) + kRemedy);
    }
    std::vector<std::string> texts;
    for (auto& [from, said] : line.came(name_of(number))) texts.push_back(std::move(said));
    // All ranks are in this exchange, so they have read the texts of the one before.
    if (rank() == 0 && number > 0) line.forget(name_of(number - 1));
    return texts;
  } catch (const SilentStore& silent) {
    throw GroupError(parts_->roll_call->who() + " (" + what + ": " + silent.what() + " from the store)" +
                     kRemedy);
  }
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::connect_apart(const std::string& name, Connections& own) {
  return make_gloo(parts_->store, name, options_, {parts_->connections.get(), &own}, parts_->pulse.get(),
                   *parts_->roll_call);
}

std::shared_ptr<StoreVotes> ProcessGroup::votes_apart() {
  auto votes = std::make_shared<StoreVotes>(
      parts_->line.store(),
      std::make_shared<C10dStore>(connect_again(options_.place, parts_->line, options_.start_timeout),
                                  world_size()),
      parts_->line.prefix() + "votes/" + std::to_string(parts_->votes++) + "/", rank(), world_size(),
      parts_->pulse->alarm());
  parts_->evidence->follow(votes->account());
  parts_->newest_votes = votes;
  return votes;
}

const StoreLine& ProcessGroup::line() const { return parts_->line; }

std::weak_ptr<const void> ProcessGroup::saves() const {
  return nccl_ ? nccl_->saves : std::weak_ptr<const void>();
}

std::shared_ptr<Pulse> ProcessGroup::pulse() const { return parts_->pulse; }

std::shared_ptr<RollCall> ProcessGroup::roll_call() const { return parts_->roll_call; }

void ProcessGroup::leave() {
  if (!parts_) return;
  // A device that failed leaves collectives that no rank will finish.
  throw_if_failed("leaving");
  StoreLine& line = parts_->line;
  std::vector<int> missing;
  std::string lost;
  try {
    line.bring("leaving", rank(), world_size());
    missing = line.absent("leaving", world_size(), options_.timeout);
    if (!missing.empty() && parts_->pulse && !parts_->pulse->lost().empty()) lost = parts_->roll_call->who();
    // Before the store ends: its silence would be taken for a loss.
    if (parts_->pulse) parts_->pulse->end();
    if (missing.empty() && nccl_) {
      // Only if all ranks are here: with one missing, its collectives would never finish.
      finish_nccl(*nccl_->backend, options_.device);
      nccl_->backend.reset();
      nccl_.reset();
    }
    // While the store is there: c10d prints a stack trace for each call to a store that has ended.
    if (const auto votes = parts_->newest_votes.lock()) votes->end();
    // The store ends with rank 0, so rank 0 leaves last: when the others have the answers to all their calls.
    const int others = world_size() - 1;
    if (rank() != 0) line.bring("left", rank(), others);
    if (rank() == 0 && missing.empty() && others > 0) line.wait(gathered("left"), kParting);
  } catch (const SilentStore&) {
    lost = parts_->roll_call->who();
  } catch (...) {
    drop();
    throw;
  }
  drop();
  if (!lost.empty()) throw GroupError(lost + ", while the others were leaving; what was committed stands");
  if (missing.empty()) return;
  throw GroupError(ranks_in_words(missing) + " did not come to leave together within " +
                   format_duration(options_.timeout) + "; what was committed stands");
}

void ProcessGroup::throw_if_lost(const char* what, const std::exception& error) {
  if (!parts_ || !is_of_communication(error)) return;
  const std::string reason = brief(error);
  // Asked before the connections are dropped, because the roll call uses them.
  const std::string who = parts_->roll_call->who();
  drop();
  throw GroupError(who + ", while this rank waited for others (" + what + ": " + reason + ")" + kRemedy);
}

void ProcessGroup::throw_if_failed(const char* what) {
  if (!parts_ || !nccl_) return;
  const std::string failure = nccl_->watch->failure();
  if (failure.empty()) return;
  const std::string who = parts_->roll_call->who();
  drop();
  throw GroupError(who + " (" + what + ": " + failure + ")" + kRemedy);
}

void ProcessGroup::drop() noexcept {
  try {
    // Kernels on the device may wait for ever, so the watch has to end this process.
    if (nccl_) nccl_->watch->unwinding("the ranks have parted in disorder");
  } catch (const std::exception& error) {  // no memory: the watch continues
    log_warning("{}", what_of(error));
  }
  parts_.reset();
}

}}  // namespace holdfast::v0_2
