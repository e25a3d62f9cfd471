// What ranks print, as one log: every line of theirs goes to our standard output or error, with its rank
// before it ("[3] …") and by one write(2), so that lines do not mix. Lines longer than 64 KiB are cut into
// such pieces; a last one without its newline gets one. What cannot be written (nobody reads any more) is
// dropped: a log never ends a training.
//
//   RankOutput output({0, 1});
//   …start processes with output.out(i), output.error(i)…
//   output.begin();   // closes our copies of these, and reads on a thread
//   output.finish();  // when the processes have ended: to the end, as far as it has come
//
// Errors: IoError when there are no descriptors left. Threads: one, beside its own.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace holdfast::inline v1 {

class RankOutput {
 public:
  explicit RankOutput(const std::vector<int>& ranks);
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  int out(std::size_t process) const { return streams_[2 * process].write_end; }
  int error(std::size_t process) const { return streams_[2 * process + 1].write_end; }
  void begin();
  void finish();

 private:
  struct Stream {
    int read_end = -1;
    int write_end = -1;
    int target = -1;
    std::string prefix;
    std::string line;  // the beginning of one that has not ended
  };

  void read_all();
  static void take(Stream& stream, const char* bytes, std::size_t count);
  static void end(Stream& stream);

  std::vector<Stream> streams_;
  std::atomic<bool> finishing_ = false;
  std::thread thread_;
};

}  // namespace holdfast::inline v1
