// Builds ledgers line by line, and a run directory with them.
#pragma once

#include <string>
#include <vector>

#include "holdfast/ledger/goodput.h"
#include "holdfast/store/names.h"
#include "support/memory_file_system.h"

namespace holdfast::test {

// A ledger whose training began `startup` seconds after the process, at the wall time `begin`. All times are
// in seconds since the process began.
class LedgerText {
 public:
  LedgerText(int attempt, int step, int from_attempt, double begin, double startup, const std::string& boot)
      : begin_(begin), startup_(startup) {
    line("start", startup,
         R"("attempt":)" + std::to_string(attempt) + R"(,"step":)" + std::to_string(step) +
             R"(,"from_attempt":)" + std::to_string(from_attempt) + R"(,"startup_ms":)" +
             std::to_string(startup * 1e3) + R"(,"host":"h","boot":")" + boot + '"');
  }
  LedgerText& line(const std::string& event, double up, const std::string& members) {
    text_ += R"({"event":")" + event + R"(","t":)" +
             std::to_string(static_cast<std::int64_t>((begin_ + up - startup_) * 1e3)) + R"(,"up_ms":)" +
             std::to_string(up * 1e3) + (members.empty() ? "" : ",") + members + "}\n";
    return *this;
  }
  LedgerText& progress(double up, int step, double waited = 0) {
    return line("progress", up,
                R"("step":)" + std::to_string(step) + R"(,"waited_ms":)" + std::to_string(waited * 1e3));
  }
  LedgerText& commit(double up, int step, double boundary) {
    return line("commit", up,
                R"("step":)" + std::to_string(step) + R"(,"ms":1000,"bytes":1000,"boundary_ms":)" +
                    std::to_string(boundary * 1e3));
  }
  LedgerText& notice(double up, const std::string& kind, double left) {
    return line("notice", up,
                R"("source":"ec2","kind":")" + kind + R"(","text":"terminate","left_ms":)" +
                    std::to_string(left * 1e3));
  }
  LedgerText& end(double up, const std::string& phase, int code, int step, double ending = 0) {
    return line("end", up,
                R"("phase":")" + phase + R"(","code":)" + std::to_string(code) + R"(,"step":)" +
                    std::to_string(step) + R"(,"reason":"r","ending_ms":)" + std::to_string(ending * 1e3));
  }
  LedgerText& raw(const std::string& text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  double begin_;
  double startup_;
  std::string text_;
};

inline std::vector<LedgerLife> lives_of(const std::vector<std::string>& ledgers) {
  MemoryFileSystem disk;
  const auto run = disk.open_directory("/run", true);
  for (std::size_t i = 0; i < ledgers.size(); ++i) disk.put("/run/" + ledger_name(i + 1), ledgers[i]);
  return read_lives(*run);
}

}  // namespace holdfast::test
