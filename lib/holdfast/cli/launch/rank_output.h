// Merges the output of several processes into one log: each line goes to our standard output or error with
// the process's label in front (a rank: "[3] …"), by one write(2), so lines do not mix. Longer lines are cut
// into pieces of 64 KiB; a last line without its newline gets one. Text that cannot be written (no reader) is
// dropped: a log never ends a training.
//
//   RankOutput output({"0", "1"});
//   …start processes with output.out(i), output.error(i)…
//   output.begin();   // closes our copies of these, and reads on a thread
//   output.finish();  // after the processes have ended: prints what has arrived
//
// Errors: IoError without free descriptors. Threads: one, beside its own.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace holdfast { inline namespace v0_2 {

class RankOutput {
 public:
  explicit RankOutput(const std::vector<std::string>& labels);
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
    std::string line;  // the beginning of an unfinished line
  };

  void read_all();
  static void take(Stream& stream, const char* bytes, std::size_t count);
  static void end(Stream& stream);

  std::vector<Stream> streams_;
  std::atomic<bool> finishing_ = false;
  std::thread thread_;
};

}}  // namespace holdfast::v0_2
