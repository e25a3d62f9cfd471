// Calls other sinks on a thread of its own, so that no disk makes the training wait. Adds events that come by
// time: the figures of the process and its GPUs, and the status of the run's saves.
//
//   BackgroundSinks metrics(std::move(sinks), {.status = [&] { return status_of(checkpointer); }});
//   TrainerParts{…, .sinks = {&console, &metrics}}
//
// A step costs one lock and one copy of the event, no system call (docs/metrics.md#cost). If the sinks fall
// behind by kMostWaiting events, newer steps and histograms are dropped, which is logged once.
// Errors: none; a sink that throws is logged once and gets nothing more.
// Threads: the methods by one thread; `status` runs on this object's thread, after begin(). end() and the
// destructor wait for the sinks up to `patience`; after that they leave the thread behind, with a warning.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "holdfast/base/clock.h"
#include "holdfast/base/export.h"
#include "holdfast/metrics/sink.h"

namespace holdfast { inline namespace v0_2 {

struct BackgroundOptions {
  Duration system_every = std::chrono::seconds(10);      // SystemEvent and StatusEvent; costs about 0.1 ms
  Duration look_every = std::chrono::milliseconds(500);  // longest delay of an event
  Duration patience = std::chrono::seconds(5);
  std::function<StatusEvent()> status = {};  // empty: no StatusEvent
};

class HOLDFAST_EXPORT BackgroundSinks final : public MetricSink {
 public:
  static constexpr std::size_t kMostWaiting = 16'384;

  explicit BackgroundSinks(std::vector<std::unique_ptr<MetricSink>> sinks, BackgroundOptions options = {});
  ~BackgroundSinks() override;
  BackgroundSinks(const BackgroundSinks&) = delete;
  BackgroundSinks& operator=(const BackgroundSinks&) = delete;

  void begin(const BeginEvent& event) override;
  void step(const StepEvent& event) override;
  void evaluation(const EvaluationEvent& event) override;
  void histogram(const HistogramEvent& event) override;
  // Nothing waits before the last save.
  void finish() override {}
  void end(const EndEvent& event) override;
  // Waits for this object's thread, which writes and syncs what it was told.
  std::function<void()> row_sync() override;

 private:
  class Worker;
  class Door;
  void push(Event event) noexcept;
  void close() noexcept;

  std::unique_ptr<Worker> worker_;
  std::shared_ptr<Door> door_;
};

}}  // namespace holdfast::v0_2
