// Gloo's sockets, which are shut down when a rank is lost. c10d has no other way to end a collective of Gloo
// before its timeout of minutes. Gloo does not show its sockets, so these are the sockets that appeared while
// it connected. A socket that another thread opened meanwhile counts as Gloo's. It is shut down only after a
// rank was lost, when the run ends.
//
// Errors: none. Threads: any.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace holdfast { inline namespace v0_2 {

class Connections {
 public:
  // The sockets of this process, by number and both ends. Without those of the store (that port at one end),
  // because rank 0's store accepts clients at any time.
  static std::set<std::string> all(int store_port);
  // Adds the sockets that exist now and were not in `before`.
  void add_since(const std::set<std::string>& before, int store_port);
  // Shuts them down, which both sides notice. Ignores a number that belongs to another socket by now.
  void shut() noexcept;

 private:
  std::mutex mutex_;
  std::set<std::string> own_;
  bool shut_ = false;
};

}}  // namespace holdfast::v0_2
