#include "holdfast/distributed/process_group.h"

#include <algorithm>
#include <csignal>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <typeinfo>
#include <utility>

#include "holdfast/base/env.h"
#include "holdfast/base/log.h"
#include "holdfast/base/text.h"
#include "holdfast/distributed/internal/connections.h"
#include "holdfast/distributed/internal/local_address.h"
#include "holdfast/distributed/internal/meeting.h"
#include "holdfast/distributed/internal/nccl_backend.h"
#include "holdfast/distributed/internal/nccl_watch.h"
#include "holdfast/distributed/internal/own_gpus.h"
#include "holdfast/distributed/internal/pulse.h"
#include "holdfast/distributed/internal/roll_call.h"

namespace holdfast::inline v1 {
namespace {

using namespace std::chrono_literals;

constexpr Duration kSpare = 4s;  // beyond what a call itself may wait
constexpr Duration kParting = 10s;
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

c10::intrusive_ptr<c10d::Backend> make_gloo(const StoreLine& line, const std::string& name,
                                            const GroupOptions& options, Connections& connections,
                                            const Pulse* pulse, RollCall& roll_call) {
  const LaunchEnvironment& place = options.place;
  const std::string address = gloo_address(place);
  const auto settings = c10d::ProcessGroupGloo::Options::create(in_ms(options.timeout));
  settings->threads = 2;
  const auto made = std::make_shared<c10::intrusive_ptr<c10d::Backend>>();
  std::string reason;
  try {
    const auto before = Connections::all(place.master_port);
    // Everybody connects to everybody, over what the store says: a rank that hangs meanwhile must not hold
    // this one.
    within(
        options.timeout + kSpare,
        [=, store = line.store(), prefix = line.prefix() + name + "/", rank = place.rank,
         size = place.world_size] {
          settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
          *made = c10::make_intrusive<c10d::ProcessGroupGloo>(
              c10::make_intrusive<c10d::PrefixStore>(prefix, store), rank, size, settings);
        },
        pulse != nullptr ? &pulse->alarm()->rank : nullptr);
    connections.add_since(before, place.master_port);
    return *made;
  } catch (const std::exception& error) {
    reason = brief(error);
  }
  throw GroupError("rank " + std::to_string(place.rank) +
                   " met the other ranks, but cannot connect to all of them from " + address + " (" + reason +
                   "): " + roll_call.who() + ". GLOO_SOCKET_IFNAME chooses another interface");
}

// Gloo writes to connections that a partner may have closed, and means to hear of it by the call's error, as
// a Python program does.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

bool is_of_communication(const std::exception& error) {
  if (dynamic_cast<const c10::DistError*>(&error) != nullptr) return true;
  // Gloo's exceptions have no header here, and not all of them say in words whose they are.
  if (std::string_view(typeid(error).name()).find("gloo") != std::string_view::npos) return true;
  const std::string_view text = error.what();
  return text.find("gloo/") != std::string_view::npos || text.find("NCCL") != std::string_view::npos;
}

}  // namespace

struct ProcessGroup::Parts {
  explicit Parts(StoreLine met) : line(std::move(met)) {}

  StoreLine line;
  const std::shared_ptr<Connections> connections = std::make_shared<Connections>();
  std::shared_ptr<Pulse> pulse;
  std::shared_ptr<RollCall> roll_call;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  int exchanges = 0;
  int exceptions = std::uncaught_exceptions();
};

// What is left when the ranks have parted in disorder: kernels on the device wait for partners, and only the
// destructor ends them (nccl_watch.h says why so late).
struct ProcessGroup::Nccl {
  ~Nccl() {
    try {
      if (backend) backend->abort();  // its own destructor would wait for what nobody completes
    } catch (const std::exception& error) {
      log_warning("NCCL did not end its collectives: {}", what_of(error));
    }
  }
  c10::intrusive_ptr<c10d::Backend> backend;  // null: came to its end in order
  std::unique_ptr<NcclWatch> watch;
};

ProcessGroup::ProcessGroup(GroupOptions options) : options_(std::move(options)) {
  const LaunchEnvironment& place = options_.place;
  if (!place.remark.empty()) log_warning(place.remark);
  set_log_rank(place.rank, place.world_size);
  if (place.world_size == 1 && !options_.even_alone) return;
  ignore_broken_pipes();
  if (options_.device.is_cuda()) prepare_nccl();  // the environment, before there are threads
  auto parts = std::make_unique<Parts>(meet(place, options_.start_timeout));
  if (place.world_size > 1) {
    PulseOptions signs;
    signs.looks = static_cast<int>(std::max<std::int64_t>(options_.silence / signs.period, 1));
    parts->pulse = std::make_shared<Pulse>(connect_again(place, options_.start_timeout), parts->line.prefix(),
                                           place.rank, place.world_size, signs,
                                           [connections = parts->connections] { connections->shut(); });
    parts->line.heed(parts->pulse->alarm());
  }
  parts->roll_call = std::make_shared<RollCall>(parts->line, parts->pulse, place.rank, place.world_size);
  const auto gloo =
      make_gloo(parts->line, "gloo", options_, *parts->connections, parts->pulse.get(), *parts->roll_call);
  if (options_.device.is_cuda()) {
    try {
      require_own_gpus(parts->line, place, gpu_of(options_.device), options_.timeout);
    } catch (const SilentStore& silent) {
      throw GroupError(std::string("rank 0's store went silent while the ranks told their GPUs (") +
                       silent.what() + "): rank 0 has ended or hangs" + kRemedy);
    }
    const auto store =
        c10::make_intrusive<c10d::PrefixStore>(parts->line.prefix() + "nccl/", parts->line.store());
    nccl_ = std::make_unique<Nccl>();
    nccl_->backend = make_nccl(store, place.rank, place.world_size, options_.timeout);
    nccl_->watch = std::make_unique<NcclWatch>(
        [nccl = nccl_->backend, limit = options_.timeout,
         alarm = parts->pulse ? parts->pulse->alarm() : nullptr] {
          return alarm && alarm->rank ? "no sign of life from a rank" : fault_of(*nccl, limit);
        },
        [roll_call = parts->roll_call](const std::string& failure) {
          log_error("{}, while this rank waited for its GPU ({}){}", roll_call->who(), failure, kRemedy);
          end_interrupted();
        },
        NcclWatchOptions{.patience = nccl_patience()});
  }
  using Type = c10d::ProcessGroup::BackendType;
  parts->group = c10::make_intrusive<c10d::ProcessGroup>(parts->line.store(), place.rank, place.world_size);
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
  if (std::uncaught_exceptions() > parts_->exceptions) {
    try {
      parts_->line.set("gone/" + std::to_string(rank()), "");
    } catch (const std::exception&) {  // then they see that it is
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
  if (!parts_ && world_size() > 1) throw UsageError(std::string(what) + ": the ranks have parted already");
  if (!parts_) return {text};
  StoreLine& line = parts_->line;
  const int number = parts_->exchanges++;
  const auto keys = keys_of_ranks("exchange/" + std::to_string(number), world_size());
  try {
    line.set(keys[static_cast<std::size_t>(rank())], text);
    // Whoever takes part in this one has read all of the one before the last.
    if (number >= 2) line.erase("exchange/" + std::to_string(number - 2) + "/" + std::to_string(rank()));
    const auto missing = ranks_of_keys(line.missing(keys, options_.timeout));
    if (parts_->pulse && !parts_->pulse->lost().empty()) throw GroupError(parts_->roll_call->who() + kRemedy);
    if (!missing.empty()) {
      throw GroupError(ranks_in_words(missing) + " did not come to an exchange (" + what + ") within " +
                       format_duration(options_.timeout) + kRemedy);
    }
    std::vector<std::string> texts;
    for (const std::string& key : keys) texts.push_back(line.get(key, kSpare));
    return texts;
  } catch (const SilentStore& silent) {
    throw GroupError(parts_->roll_call->who() + " (" + what + ": " + silent.what() + " from the store)" +
                     kRemedy);
  }
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::connect_apart(const std::string& name) {
  return make_gloo(parts_->line, name, options_, *parts_->connections, parts_->pulse.get(),
                   *parts_->roll_call);
}

const StoreLine& ProcessGroup::line() const { return parts_->line; }

std::string ProcessGroup::address() const { return gloo_address(options_.place); }

std::shared_ptr<Pulse> ProcessGroup::pulse() const { return parts_->pulse; }

std::shared_ptr<RollCall> ProcessGroup::roll_call() const { return parts_->roll_call; }

void ProcessGroup::leave() {
  if (!parts_) return;
  throw_if_failed("leaving");
  StoreLine& line = parts_->line;
  std::vector<int> missing;
  std::string lost;
  try {
    line.set("leaving/" + std::to_string(rank()), "");
    missing = ranks_of_keys(line.missing(keys_of_ranks("leaving", world_size()), options_.timeout));
    if (!missing.empty() && parts_->pulse && !parts_->pulse->lost().empty()) lost = parts_->roll_call->who();
    if (parts_->pulse) parts_->pulse->end();
    if (missing.empty() && nccl_) {
      finish_nccl(*nccl_->backend, options_.device);
      nccl_->backend.reset();
      nccl_.reset();
    }
    // The store ends with rank 0, so rank 0 is the last.
    if (rank() != 0) line.set("left/" + std::to_string(rank()), "");
    if (rank() == 0 && missing.empty() && world_size() > 1) {
      auto others = keys_of_ranks("left", world_size());
      others.erase(others.begin());
      line.missing(others, kParting);
    }
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
    if (nccl_) nccl_->watch->tell("the ranks have parted in disorder");
  } catch (const std::exception& error) {  // no memory: the watch goes on looking
    log_warning("{}", what_of(error));
  }
  parts_.reset();
}

}  // namespace holdfast::inline v1
