#include "holdfast/checkpoint/internal/arena_pool.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace holdfast::inline v1::internal {

struct ArenaPool::Core {
  std::mutex mutex;
  std::condition_variable returned;
  int limit = 1;
  int held = 0;
  std::shared_ptr<const FilePlan> plan;
  std::vector<std::shared_ptr<Arena>> free;  // with room for `limit`: giving back allocates nothing

  void give_back(std::shared_ptr<Arena> arena, const FilePlan* made_for) noexcept {
    {
      const std::lock_guard lock(mutex);
      --held;
      const bool keep =
          made_for == plan.get() && std::cmp_less(free.size() + static_cast<unsigned>(held), limit);
      if (keep) free.push_back(std::move(arena));
    }
    returned.notify_all();  // an arena that is not kept is unmapped here, outside the lock
  }
};

ArenaPool::ArenaPool(int limit) : core_(std::make_shared<Core>()) {
  core_->limit = limit;
  core_->free.reserve(static_cast<std::size_t>(limit));
}

void ArenaPool::use_plan(std::shared_ptr<const FilePlan> plan) {
  std::vector<std::shared_ptr<Arena>> old;
  old.reserve(static_cast<std::size_t>(core_->limit));
  const std::lock_guard lock(core_->mutex);
  old.swap(core_->free);
  core_->plan = std::move(plan);
}

void ArenaPool::offer(std::shared_ptr<Arena> arena) {
  const std::lock_guard lock(core_->mutex);
  if (!core_->plan || arena.use_count() != 1 || arena->size() != core_->plan->layout->length()) return;
  if (core_->held != 0 || !core_->free.empty()) return;
  put_stretches(*core_->plan, *arena);
  core_->free.push_back(std::move(arena));
}

bool ArenaPool::ready() const {
  const std::lock_guard lock(core_->mutex);
  return core_->held < core_->limit;
}

bool ArenaPool::wait_ready(std::chrono::nanoseconds wait) const {
  std::unique_lock lock(core_->mutex);
  return core_->returned.wait_for(lock, wait, [&] { return core_->held < core_->limit; });
}

std::shared_ptr<Arena> ArenaPool::take() {
  std::shared_ptr<Arena> arena;
  std::shared_ptr<const FilePlan> plan;
  {
    const std::lock_guard lock(core_->mutex);
    plan = core_->plan;
    if (!core_->free.empty()) {
      arena = std::move(core_->free.back());
      core_->free.pop_back();
    }
    ++core_->held;
  }
  try {
    if (!arena) arena = make_(*plan);
    if (prepare_ && !arena->attached()) arena->attach(prepare_(arena->bytes()));
  } catch (...) {
    const std::lock_guard lock(core_->mutex);
    --core_->held;
    throw;
  }
  Arena* const raw = arena.get();
  return {raw,
          [core = core_, plan, arena](Arena*) mutable { core->give_back(std::move(arena), plan.get()); }};
}

}  // namespace holdfast::inline v1::internal
