// What listening to a metadata service costs: the processor time of the thread that polls, as a share of one
// core, for each provider against the scripted server, with the intervals of a real run; what the first poll
// costs by itself (it loads the HTTP library); and how many requests the training thread made.
//
//   build/release/bin/bench_notice_poller [SECONDS, 30]
#include <time.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

#include "holdfast/base/text.h"
#include "holdfast/cli/rehearsal/metadata_server.h"
#include "holdfast/interruption/cloud_source.h"
#include "holdfast/interruption/monitor.h"

namespace {

using namespace holdfast;

struct Cost {
  std::atomic<std::int64_t> polls{0};
  std::atomic<std::int64_t> on_training_thread{0};
  std::atomic<std::int64_t> first_ns{0};
  std::atomic<std::int64_t> thread_ns{0};  // of the polling thread, at the end of its newest poll
};

std::int64_t thread_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

class Measured final : public Source {
 public:
  Measured(std::unique_ptr<Source> source, Cost& cost, std::thread::id training)
      : source_(std::move(source)), cost_(cost), training_(training) {}

  std::string_view name() const override { return source_->name(); }
  std::vector<Notice> poll() override {
    if (std::this_thread::get_id() == training_) ++cost_.on_training_thread;
    auto news = source_->poll();
    cost_.thread_ns = thread_time();
    if (cost_.polls++ == 0) cost_.first_ns = cost_.thread_ns.load();
    return news;
  }
  Duration interval() const override { return source_->interval(); }
  bool may_block() const override { return source_->may_block(); }
  void cancel() override { source_->cancel(); }

 private:
  std::unique_ptr<Source> source_;
  Cost& cost_;
  std::thread::id training_;
};

void measure(const char* name, Duration time) {
  MetadataServer server;
  for (const auto& [variable, value] : server.environment(name)) setenv(variable.c_str(), value.c_str(), 1);
  Cost cost;
  Monitor monitor;
  monitor.add(std::make_unique<Measured>(make_cloud_source(*find_provider(name), Clock::real()), cost,
                                         std::this_thread::get_id()));
  monitor.start();
  std::this_thread::sleep_for(time);
  monitor.stop();
  const double seconds = std::chrono::duration<double>(time).count();
  const double later = static_cast<double>(cost.thread_ns - cost.first_ns) / 1e9;
  std::printf(
      "%-6s %.4f %% of a core (%lld polls, %lld requests in %.0f s); first poll %.1f ms; requests on the "
      "training thread: %lld\n",
      name, 100 * later / seconds, static_cast<long long>(cost.polls.load()),
      static_cast<long long>(server.requests()), seconds, static_cast<double>(cost.first_ns) / 1e6,
      static_cast<long long>(cost.on_training_thread.load()));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto seconds = argc > 1 ? parse_int(argv[1]) : std::optional<std::int64_t>(30);
  if (argc > 2 || !seconds || *seconds < 1 || *seconds > 86'400) {
    std::fprintf(stderr, "bench_notice_poller [SECONDS]: 1 to 86400\n");
    return 64;
  }
  const Duration time = std::chrono::seconds(*seconds);
  measure("ec2", time);
  measure("gcp", time);
  measure("azure", time);
}
