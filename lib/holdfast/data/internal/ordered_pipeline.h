// Turns tickets into results on several threads and delivers the results in the tickets' order.
//
// `take` returns the next ticket, under the lock (nullopt: no more). `make` runs without it, on any worker.
// At most `depth` results are taken and not delivered. Without workers next() makes each result itself. No
// thread polls.
//
// Errors: next() throws what `make` threw, at its place in the order, and again at each later call. Threads:
// next() and the destructor belong to one thread. The destructor waits for running calls of `make`.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/owner_process.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

template <class Ticket, class Result>
class OrderedPipeline {
 public:
  using Take = std::function<std::optional<Ticket>()>;
  using Make = std::function<Result(const Ticket&)>;

  OrderedPipeline(Take take, Make make, int workers, int depth)
      : take_(std::move(take)), make_(std::move(make)), slots_(static_cast<std::size_t>(std::max(1, depth))) {
    threads_.reserve(static_cast<std::size_t>(std::max(0, workers)));
    try {
      for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {
      stop();  // if a thread cannot start, the others must not keep running
      throw;
    }
  }

  ~OrderedPipeline() { stop(); }
  OrderedPipeline(const OrderedPipeline&) = delete;
  OrderedPipeline& operator=(const OrderedPipeline&) = delete;

  std::optional<std::pair<Ticket, Result>> next() {
    std::unique_lock lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    if (threads_.empty()) {
      if (!inline_ticket_) inline_ticket_ = take_();
      if (!inline_ticket_) return std::nullopt;
      try {
        Result result = make_(*inline_ticket_);
        return std::pair(*std::exchange(inline_ticket_, std::nullopt), std::move(result));
      } catch (...) {
        failure_ = std::current_exception();
        throw;
      }
    }
    Slot& slot = slots_[delivered_ % slots_.size()];
    changed_.wait(lock, [&] { return slot.ready || (exhausted_ && delivered_ == taken_); });
    if (!slot.ready) return std::nullopt;
    if (slot.failure) {
      failure_ = slot.failure;
      std::rethrow_exception(failure_);
    }
    std::pair<Ticket, Result> out(std::move(*slot.ticket), std::move(*slot.result));
    slot = Slot{};
    ++delivered_;
    changed_.notify_all();
    return out;
  }

 private:
  struct Slot {
    std::optional<Ticket> ticket;
    std::optional<Result> result;
    std::exception_ptr failure;
    bool ready = false;
  };

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || (!exhausted_ && taken_ - delivered_ < slots_.size()); });
      if (stopping_) return;
      std::optional<Ticket> ticket = take_();
      if (!ticket) {
        exhausted_ = true;
        changed_.notify_all();
        continue;
      }
      Slot& slot = slots_[taken_++ % slots_.size()];
      lock.unlock();
      std::optional<Result> result;
      std::exception_ptr failure;
      try {
        result.emplace(make_(*ticket));
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      // The slot is this worker's alone until `ready`: at most as many results are taken as there are
      // slots.
      slot.ticket = std::move(ticket);
      slot.result = std::move(result);
      slot.failure = std::move(failure);
      slot.ready = true;
      changed_.notify_all();
    }
  }

  void stop() {
    if (!process_.is_this_one()) {
      for (std::thread& thread : threads_) abandon(thread);
      threads_.clear();
      abandon(changed_);
      return;
    }
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  const OwnerProcess process_ = {};
  Take take_;
  Make make_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  std::uint64_t taken_ = 0;
  std::uint64_t delivered_ = 0;
  bool exhausted_ = false;
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::optional<Ticket> inline_ticket_;
  std::vector<std::thread> threads_;
};

}}}  // namespace holdfast::v0_2::internal
