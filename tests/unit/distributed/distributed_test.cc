// What needs no second process. tests/dist has the rest.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "holdfast/distributed/data_parallel.h"
#include "holdfast/distributed/internal/c10d_store.h"
#include "holdfast/distributed/internal/listening.h"
#include "holdfast/distributed/internal/local_address.h"
#include "holdfast/distributed/internal/meeting.h"
#include "holdfast/distributed/internal/own_gpus.h"
#include "holdfast/distributed/internal/replica.h"
#include "holdfast/distributed/process_group.h"
#include "holdfast/distributed/sum_over_ranks.h"
#include "support/captured_log.h"
#include "support/french_numbers.h"
#include "unit/distributed/free_port.h"
#include "unit/state/attributes_only.h"

namespace holdfast { namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string refusal_of(auto&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "not refused";
}

struct Pair : torch::nn::Module {
  Pair() {
    one = register_module("one", torch::nn::Linear(3, 4));
    two = register_module("two", torch::nn::Linear(4, 2));
  }
  at::Tensor loss() { return two->forward(one->forward(at::ones({5, 3}))).square().mean(); }
  torch::nn::Linear one{nullptr}, two{nullptr};
};

TEST(ProcessGroup, AWorldOfOneIsNoGroup) {
  ProcessGroup group({.place = {}});
  EXPECT_TRUE(group.alone());
  EXPECT_FALSE(group.c10d());
  EXPECT_EQ(group.exchange("a test", "mine"), std::vector<std::string>{"mine"});
  EXPECT_EQ(group.guard("a test", [] { return 7; }), 7);
  EXPECT_THROW(group.guard("a test", [] { throw std::runtime_error("gloo/ is mentioned"); }),
               std::runtime_error);
  Pair net;
  DataParallel parallel(net, group);
  parallel.before_forward();
  parallel.backward(net.loss());
  parallel.verify();
  EXPECT_TRUE(parallel.buckets().empty());
  group.leave();
}

// The collectives and the Reducer of a world of one change nothing.
TEST(ProcessGroup, OneRankAloneChangesNoValue) {
  ProcessGroup group({.place = {}, .even_alone = true});
  ASSERT_FALSE(group.alone());
  EXPECT_EQ(group.exchange("a test", "mine"), std::vector<std::string>{"mine"});
  Pair net;
  net.loss().backward();
  const at::Tensor plain = net.one->weight.grad().clone();
  net.zero_grad();
  {
    DataParallel parallel(net, group, {.first_bucket_bytes = 1, .bucket_bytes = 1});
    parallel.before_forward();
    parallel.backward(net.loss());
    EXPECT_TRUE(at::equal(net.one->weight.grad(), plain));
    EXPECT_EQ(parallel.buckets().size(), 4U);
    parallel.verify();
  }
  // An error of the user's own passes as it is.
  EXPECT_THROW(group.guard("a test", [] { at::ones({2}).add_(at::ones({3})); }), c10::Error);
  EXPECT_FALSE(group.alone());
  group.leave();
  EXPECT_TRUE(group.alone());
}

// The Reducer would not average what thaws behind its back: each rank would train it by itself.
TEST(DataParallel, NamesAParameterThatHasThawedOrFrozenSinceItWasMade) {
  ProcessGroup group({.place = {}, .even_alone = true});
  Pair net;
  net.one->bias.set_requires_grad(false);
  {
    DataParallel parallel(net, group);
    parallel.backward(net.loss());
    net.one->bias.set_requires_grad(true);
    parallel.backward(net.loss(), Gradients::accumulate);
    EXPECT_THAT(refusal_of([&] { parallel.backward(net.loss()); }),
                HasSubstr("parameter one.bias takes a gradient now, and was frozen when the DataParallel was "
                          "made"));
  }
  {
    DataParallel anew(net, group);
    anew.backward(net.loss());
    net.two->bias.set_requires_grad(false);
    EXPECT_THAT(refusal_of([&] { anew.backward(net.loss()); }),
                HasSubstr("parameter two.bias is frozen now, and was not"));
  }
  net.two->bias.set_requires_grad(true);
  DataParallel unused(net, group, {.find_unused = true});
  net.two->bias.set_requires_grad(false);
  unused.backward(net.loss());
  group.leave();
}

TEST(SumOverRanks, OfOneRankIsItsOwn) {
  ProcessGroup one({.place = {}}), even({.place = {}, .even_alone = true});
  for (ProcessGroup* const group : {&one, &even}) {
    SumOverRanks sum(*group, "numbers");
    EXPECT_FALSE(sum.pending());
    EXPECT_THAT(refusal_of([&] { sum.wait(); }), HasSubstr("was begun"));
    for (int i = 1; i < 4; ++i) {
      sum.begin(at::full({2}, 0.1 * i, at::kDouble));
      EXPECT_TRUE(sum.pending());
      EXPECT_THAT(refusal_of([&] { sum.begin(at::ones({2})); }), HasSubstr("not waited for"));
      EXPECT_TRUE(at::equal(sum.wait(), at::full({2}, 0.1 * i, at::kDouble)));
    }
    at::Tensor loss = at::ones({2}, at::TensorOptions(at::kDouble).requires_grad(true));
    sum.begin(loss.to(at::kDouble));
    loss.detach().zero_();
    const at::Tensor all = sum.wait();
    EXPECT_TRUE(at::equal(all, at::ones({2}, at::kDouble))) << "a copy of what begin() was given";
    EXPECT_FALSE(all.requires_grad());
    sum.begin(at::ones({1}));  // and left alone
  }
  even.leave();
}

TEST(ProcessGroup, ABrokenConnectionIsNoSignal) {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  ProcessGroup alone({.place = {}});
  struct sigaction now {};
  ASSERT_EQ(sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL) << "a world of one has no connection";
  ProcessGroup group({.place = {}, .even_alone = true});
  ASSERT_EQ(sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
  group.leave();
  std::signal(SIGPIPE, before);
}

TEST(ProcessGroup, WrongChoicesAreNamed) {
  setenv("GLOO_SOCKET_IFNAME", "no-such-interface", 1);
  EXPECT_THAT(refusal_of([] { ProcessGroup({.place = {}, .even_alone = true}); }),
              HasSubstr("GLOO_SOCKET_IFNAME=no-such-interface"));
  unsetenv("GLOO_SOCKET_IFNAME");
#ifndef HOLDFAST_WITH_CUDA  // with it, NCCL's header decides
  EXPECT_THAT(refusal_of([] { ProcessGroup({.place = {}, .device = c10::kCUDA, .even_alone = true}); }),
              HasSubstr("HOLDFAST_CUDA=ON"));
#endif
  ProcessGroup group({.place = {}});
  Pair net;
  EXPECT_THAT(refusal_of([&] { DataParallel(net, group, {.bucket_bytes = 0}); }), HasSubstr("bucket_bytes"));
}

TEST(DataParallelState, GoesThroughAWorldOfOne) {
  ProcessGroup group({.place = {}});
  Pair net;
  DataParallel parallel(net, group, {.compression = GradientCompression::bf16, .bucket_bytes = 4096});
  test::AttributesOnly state;
  state.put("buckets", std::vector<std::int64_t>{1, 3, 2, 2, 0, 1, 1});
  parallel.load(state);
  test::AttributesOnly saved;
  parallel.save(saved);
  EXPECT_EQ(saved.get_ints("buckets"), state.get_ints("buckets")) << "kept for when there are several again";
  EXPECT_EQ(saved.get_string("compression"), "bf16");
  EXPECT_EQ(saved.get_int("bucket_bytes"), 4096);
  for (const std::vector<std::int64_t>& bad :
       {std::vector<std::int64_t>{0}, {2, 1}, {-1, 0}, {1, 0, 3, 1, 2}}) {
    state.put("buckets", bad);
    EXPECT_THAT(refusal_of([&] { parallel.load(state); }), HasSubstr("order of gradient buckets"));
  }
}

// Hosts are restarted each for itself: a rank may be back while the old rank 0 still commits.
TEST(Meeting, ARankOfTheNextStartWaitsUntilTheOldRank0HasEnded) {
  const auto rank_of_two = [port = test::free_port()](int rank) {
    LaunchEnvironment place;
    place.rank = rank;
    place.world_size = 2;
    place.local_world_size = 2;
    place.master_address = "127.0.0.1";
    place.master_port = port;
    place.job = "job";
    return place;
  };
  std::string early;
  {
    std::optional<StoreLine> old_rank_0, new_rank_0;
    std::jthread([&] { old_rank_0 = meet(rank_of_two(0), 5min); }), meet(rank_of_two(1), 5min);
    EXPECT_THAT(refusal_of([&] { meet(rank_of_two(1), 2s); }), HasSubstr("of an earlier start"));
    const auto came = old_rank_0->add("come/1", 0);
    ASSERT_GE(came, 2);
    std::jthread next([&] { early = refusal_of([&] { meet(rank_of_two(1), 5min); }); });
    for (int i = 0; i < 60'000 && old_rank_0->add("come/1", 0) < came + 2; ++i) {
      std::this_thread::sleep_for(1ms);
    }
    old_rank_0.reset();
    EXPECT_EQ(refusal_of([&] { new_rank_0 = meet(rank_of_two(0), 1min); }), "not refused");
  }
  EXPECT_EQ(early, "not refused");
}

TEST(OwnGpus, ThoseThatAreSharedAreNamed) {
  using Gpus = std::vector<std::string>;
  EXPECT_EQ(shared_gpu(Gpus{"a GPU-1", "a GPU-2", "b GPU-1"}), "");
  EXPECT_EQ(shared_gpu(Gpus{"", "", ""}), "") << "not known";
  EXPECT_EQ(shared_gpu(Gpus{"a GPU-2", "a GPU-1", "b GPU-3", "a GPU-1"}),
            "ranks 1 and 3 share one GPU (a GPU-1)");
}

// What each rank hears; empty: nothing is wrong.
class SharedGpus : public testing::Test {
 protected:
  std::vector<std::string> answers_to(const std::string& prefix, const std::vector<RankGpu>& gpus) const {
    std::vector<std::string> answers(gpus.size());
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
      ranks.emplace_back([&, rank] {
        StoreLine line(std::make_shared<C10dStore>(store, 1), prefix);
        LaunchEnvironment place;
        place.rank = static_cast<int>(rank);
        place.world_size = static_cast<int>(gpus.size());
        try {
          require_own_gpus(line, place, gpus[rank], 5min);
        } catch (const Error& error) {
          answers[rank] = std::to_string(static_cast<int>(error.exit_code())) + " " + error.what();
        }
      });
    }
    ranks.clear();
    return answers;
  }
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
};

TEST_F(SharedGpus, AllRanksHearOfItAndItIsNoReasonToStartAgain) {
  EXPECT_THAT(answers_to("own/", {{"a GPU-1"}, {"a GPU-2"}}), testing::Each(""));
  const auto refused = answers_to("shared/", {{"a GPU-1"}, {"a GPU-2"}, {"a GPU-1"}});
  EXPECT_THAT(refused,
              testing::Each(StartsWith("64 ranks 0 and 2 share one GPU (a GPU-1), and NCCL wants one "
                                       "for each: start as many ranks on a host as it has GPUs")));
  EXPECT_TRUE(store->check({"shared/gpu-known/all"})) << "before rank 0 goes";
}

TEST_F(SharedGpus, NewNcclAllowsThemIfAllRanksAskForIt) {
  const RankGpu asks{"a GPU-1", true, 23000}, silent{"a GPU-1", false, 23007};
  test::CapturedLog log;
  EXPECT_THAT(answers_to("all/", {asks, asks}), testing::Each(""));
  EXPECT_THAT(log.text(), HasSubstr("ranks 0 and 1 share one GPU (a GPU-1), as NCCL_MULTI_RANK_GPU_ENABLE=1 "
                                    "allows: this is for tests, and slow"));
  EXPECT_THAT(answers_to("one/", {asks, silent}), testing::Each(HasSubstr("start as many ranks")));
}

TEST_F(SharedGpus, OldNcclDoesNot) {
  EXPECT_THAT(
      answers_to("old/", {{"a GPU-1", true, 22809}, {"a GPU-1", true, 22809}}),
      testing::Each(AllOf(StartsWith("64 ranks 0 and 1 share one GPU"),
                          HasSubstr("NCCL_MULTI_RANK_GPU_ENABLE=1 needs NCCL 2.30 or newer, and NCCL 2.28.9 "
                                    "is loaded (LD_PRELOAD"))));
  EXPECT_THAT(answers_to("unknown/", {{"a GPU-1", true, 0}, {"a GPU-1", true, 0}}),
              testing::Each(HasSubstr("and a library that does not tell its version is loaded")));
}

TEST(Replica, TheFirstDifferenceIsNamed) {
  Pair net;
  net.two->bias.requires_grad_(false);
  const std::string own = layout_text(replica_of(net));
  EXPECT_EQ(
      own,
      "parameter one.weight Float [4, 3]\nparameter one.bias Float [4]\nparameter two.weight Float [2, 4]\n"
      "frozen two.bias Float [2]\n");
  EXPECT_EQ(layout_difference("a\nb\n", "a\nc\n"), "has 'b' where rank 0 has 'c'");
  EXPECT_EQ(layout_difference("a\n", "a\nc\n"), "lacks 'c', which rank 0 has");
  EXPECT_EQ(layout_difference("a\nb\n", "a\n"), "has 'b', which rank 0 lacks");
  torch::nn::BatchNorm1d normal(3);
  EXPECT_THAT(layout_text(replica_of(*normal)), HasSubstr("buffer num_batches_tracked Long []\n"));
  // As elements, not as they lie in memory.
  auto digests = digests_of(replica_of(net));
  net.one->weight.set_data(net.one->weight.detach().t().contiguous().t());
  EXPECT_EQ(digests_of(replica_of(net)), digests);
}

TEST(Replica, IsTheSameWhereAHostsLocaleGroupsDigits) {
  torch::nn::Linear wide(1200, 1);
  const std::string plain = layout_text(replica_of(*wide));
  const test::FrenchNumbers locale;
  EXPECT_EQ(layout_text(replica_of(*wide)), plain);
}

TEST(LocalAddress, OfThisHost) {
  EXPECT_EQ(address_of_interface("no-such-interface"), "");
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  // A host that is this one: by another of its addresses where it has one.
  EXPECT_NE(address_towards("127.0.0.1", 1), "");
}

}}  // namespace holdfast
