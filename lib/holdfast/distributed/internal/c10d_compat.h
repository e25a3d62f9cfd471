// Differences of c10d between LibTorch 2.10 and 2.15 (state/torch_compat.h has the other differences).
//
// All releases have: TCPStore's client, ProcessGroupGloo's constructor and createDeviceForHostname,
// setBackend, broadcast_coalesced, the Logger, rebuild_buckets and initialize_buckets.
//
// Threads: the training thread.
#pragma once

#include <torch/version.h>

#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace holdfast { inline namespace v0_2 { namespace compat {

// Collectives with one tensor per rank; `all` has the shares of all ranks in sequence.
//   2.15   has other names and warns about these
template <class Group>
auto all_gather(Group& group, at::Tensor& all, at::Tensor& share) {
  if constexpr (requires { group.all_gather_single(all, share); }) {
    return group.all_gather_single(all, share);
  } else {
    return group._allgather_base(all, share);
  }
}
template <class Group>
auto reduce_scatter(Group& group, at::Tensor& share, at::Tensor& all) {
  if constexpr (requires { group.reduce_scatter_single(share, all); }) {
    return group.reduce_scatter_single(share, all);
  } else {
    return group._reduce_scatter_base(share, all);
  }
}
// Share r of every rank goes to rank r.
template <class Group>
auto all_to_all(Group& group, at::Tensor& received, at::Tensor& sent) {
  std::vector<std::int64_t> equal;
  if constexpr (requires { group.all_to_all_single(received, sent, equal, equal); }) {
    return group.all_to_all_single(received, sent, equal, equal);
  } else {
    return group.alltoall_base(received, sent, equal, equal);
  }
}

struct ReducerArguments {
  std::vector<at::Tensor> parameters;
  std::vector<std::vector<std::size_t>> buckets;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::int64_t bucket_bytes;
  bool find_unused;
  std::unordered_map<std::size_t, std::string> names;
  std::int64_t first_bucket_bytes;
};

template <class Reducer, class... More>
inline constexpr bool kReducerTakes =
    std::is_constructible_v<Reducer, std::vector<at::Tensor>, std::vector<std::vector<std::size_t>>,
                            c10::intrusive_ptr<c10d::ProcessGroup>, std::vector<bool>, std::int64_t, bool,
                            bool, std::unordered_map<std::size_t, std::string>, std::int64_t, More...>;

// The last arguments of the Reducer's constructor.
//   2.10    whether to skip buckets of unused parameters (no: ranks may disagree), and a reducer written in
//           Python (no).
//   later   also a list of capacities (none). 2.15 adds more, with defaults.
template <class Reducer = c10d::Reducer>
std::shared_ptr<Reducer> make_reducer(ReducerArguments given) {
  std::vector<bool> sparse(given.parameters.size(), false);
  const auto make = [&](auto... more) {
    return std::make_shared<Reducer>(
        std::move(given.parameters), std::move(given.buckets), std::move(given.group), std::move(sparse),
        given.bucket_bytes, given.find_unused,
        /*gradient_as_bucket_view=*/false, std::move(given.names), given.first_bucket_bytes, more...);
  };
  using Capacities = std::vector<std::int64_t>;
  if constexpr (kReducerTakes<Reducer, bool, bool, Capacities>) {
    return make(false, false, Capacities{});
  } else {
    return make(false, false);
  }
}

}}}  // namespace holdfast::v0_2::compat
