// Gloo's connections, to be broken when a partner is lost: c10d has no other way to end a collective of Gloo
// that waits for one, before its time-out of minutes. Gloo does not show its sockets, so they are those that
// came to be while it connected. One that another thread opened in that moment is taken for Gloo's; it would
// be broken when the run has lost a rank, and has ended.
//
// Errors: none. Threads: any.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace holdfast::inline v1 {

class Connections {
 public:
  // The process's own, by number and both ends. Not the store's, which have that port at one end: rank 0's
  // takes clients at any time.
  static std::set<std::string> all(int store_port);
  // Those that are there now and were not then.
  void add_since(const std::set<std::string>& before, int store_port);
  // Both sides learn of it. A number that has become another socket's is left alone.
  void shut() noexcept;

 private:
  std::mutex mutex_;
  std::set<std::string> own_;
  bool shut_ = false;
};

}  // namespace holdfast::inline v1
