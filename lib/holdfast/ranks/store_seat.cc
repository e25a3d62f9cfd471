#include "holdfast/ranks/store_seat.h"

#include <exception>
#include <stdexcept>
#include <utility>

#include "holdfast/ranks/rank_store.h"

namespace holdfast { inline namespace v0_2 {
namespace {

constexpr const char* kClosed = "this rank has left the run's store";

}  // namespace

StoreSeat::StoreSeat(std::shared_ptr<StoreServer> server)
    : server_(std::move(server)),
      number_(server_->take_seat([this](const Message& answer) { hear(answer); })) {}

void StoreSeat::hear(const Message& answer) {
  const MutexLock lock(mutex_);
  answers_.push_back(answer);
  wake_.notify_all();
}

void StoreSeat::begin(Kind kind, std::vector<std::string> words) {
  {
    const MutexLock lock(mutex_);
    if (closed_) throw StoreClosed(kClosed);
  }
  try {
    server_->handle(number_, {kind, std::move(words)});
  } catch (const std::runtime_error& error) {
    shut();
    throw StoreClosed(std::string("the run's store: ") + error.what());
  }
}

std::optional<std::vector<std::string>> StoreSeat::finish(Duration limit) {
  const MutexLock lock(mutex_);
  const auto ready = [this]() HOLDFAST_REQUIRES(mutex_) { return closed_ || !answers_.empty(); };
  if (!ready() && !wake_.wait_for(mutex_, limit, ready)) return std::nullopt;
  if (closed_) throw StoreClosed(kClosed);
  Message answer = std::move(answers_.front());
  answers_.pop_front();
  if (answer.kind == Kind::done) return std::move(answer.words);
  throw StoreFailed("the store: " + (answer.words.empty() ? std::string("no answer") : answer.words.front()));
}

void StoreSeat::shut() noexcept {
  {
    const MutexLock lock(mutex_);
    if (std::exchange(closed_, true)) return;
    wake_.notify_all();
  }
  try {
    server_->leave_seat(number_);
  } catch (const std::exception&) {  // without memory the others notice by their time limit
  }
}

}}  // namespace holdfast::v0_2
