// A whole run directory: names, kinds and contents that nobody would write, and the store's own walk through
// them: look, claim, recover, commit, retain, and the same by the next attempt. A line of the input is an
// entry:
//
//   <kind> <name> <content>     kind: f a file, d a directory, l a symbolic link; F D L the same in attempts/
//                               content "toy STEP ATTEMPT …" is a checkpoint that verifies (toy_format.h)
//   a l, a f                    what `attempts` itself is: a link, a file
#include <sstream>
#include <utility>

#include "holdfast/base/error.h"
#include "holdfast/base/log.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/lineage.h"
#include "holdfast/store/recovery.h"
#include "memory_budget.h"
#include "support/memory_disk.h"
#include "support/store_life.h"

namespace holdfast::test { namespace {

using Contents = std::map<std::string, std::string>;

const std::filesystem::path kAttempts = kRun / kAttemptsDirectory;

// What a real file system can hold.
bool possible(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

std::vector<std::byte> bytes_of(const std::string& content) {
  std::istringstream words(content);
  std::string word;
  words >> word;
  Toy toy;
  if (word == "toy" && words >> toy.step >> toy.attempt) {
    AttemptNumber attempt = 0;
    std::int64_t step = 0;
    for (int i = 0; i < 4 && words >> attempt >> step; ++i) toy.ancestry[attempt] = step;
    words.clear();
    while (words >> word) {
      if (word == "newer") toy.version = 2;
      if (word == "infinite") toy.finite = false;
    }
    return toy_bytes(toy);
  }
  const auto raw = std::as_bytes(std::span(content));
  return {raw.begin(), raw.end()};
}

void put(MemoryFileSystem& disk, char kind, const std::filesystem::path& path, const std::string& content) {
  switch (kind | 0x20) {
    case 'd':
      disk.put(path / "inside", "x");
      break;
    case 'l':
      disk.link(path);
      break;
    default:
      disk.put(path, bytes_of(content));
  }
}

void fill(MemoryFileSystem& disk, const std::string& input) {
  std::istringstream lines(input);
  std::string line;
  bool attempts_is_odd = false;
  for (int entries = 0; entries < 40 && std::getline(lines, line); ++entries) {
    if (line.size() < 3 || line[1] != ' ') continue;
    const std::size_t end = line.find(' ', 2);
    const std::string name = line.substr(2, end - 2);
    const std::string content = end == std::string::npos ? "" : line.substr(end + 1);
    if (line[0] == 'a') {
      attempts_is_odd = true;
      put(disk, line[2], kAttempts, "");
    } else if (!possible(name) || name == kAttemptsDirectory) {
      continue;
    } else if (std::string_view("fdl").find(line[0]) != std::string_view::npos) {
      if (!disk.exists(kRun / name)) put(disk, line[0], kRun / name, content);
    } else if (std::string_view("FDL").find(line[0]) != std::string_view::npos && !attempts_is_odd) {
      if (!disk.exists(kAttempts / name)) put(disk, line[0], kAttempts / name, content);
    }
  }
}

// Every name beneath the run directory, with what a file holds.
Contents contents(const MemoryFileSystem& disk, const std::filesystem::path& directory = kRun) {
  Contents found;
  for (const std::string& name : disk.names(directory)) {
    const std::filesystem::path path = directory / name;
    found[path.native()] = "(no file)";
    try {
      found[path.native()] = disk.get_text(path);
    } catch (const IoError&) {
      if (disk.exists(path)) found.merge(contents(disk, path));
    }
  }
  return found;
}

bool ours(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().native();
  return parse_checkpoint_name(name) || parse_damaged_name(name) || parse_temporary_name(name) ||
         parse_state_name(name) || parse_claim_name(name) || name == kRunStateName ||
         name.starts_with("ledger-a");
}

// Whatever is not ours stays as it is.
void check_kept(const Contents& before, const Contents& after) {
  for (const auto& [path, content] : before) {
    if (ours(path)) continue;
    const auto found = after.find(path);
    require(found != after.end(), "a file that is not ours is gone");
    require(found->second == content, "a file that is not ours was changed");
  }
}

// Good files of other histories, files of newer formats, links and folders are nobody's to delete.
void check_lineage(const MemoryFileSystem& disk, MemoryFileSystem& before, const Life& life) {
  const Lineage lineage{life.store.attempt(), life.ancestry};
  const auto run = before.open_directory(kRun, false);
  for (const Candidate& candidate : candidates_in(*run)) {
    if (lineage.contains(candidate.id)) continue;
    if (candidate.kind == FileKind::regular) {
      const auto file = run->open(candidate.name, OpenMode::read);
      if (ToyVerifier().inspect(*file, Verifier::Depth::full, false).kind == Verdict::Kind::damaged) continue;
    }
    require(disk.exists(kRun / candidate.name), "a file of another history was deleted");
  }
}

// True when the attempt committed, and there is a number for another.
bool live(MemoryFileSystem& disk, std::int64_t& committed) {
  const Contents before = contents(disk);
  MemoryFileSystem earlier = disk.copy();
  Life life(disk, {.keep = KeepLast{2}});
  const auto run = disk.open_directory(kRun, false);
  const auto status = run->status(kAttemptsDirectory);
  const bool open = status && status->kind == FileKind::directory;
  const auto attempts = open ? run->open_directory(kAttemptsDirectory, false) : nullptr;
  const AttemptNumber highest = highest_attempt(*run, attempts.get());
  try {
    life.store.preflight();
    require(contents(disk) == before, "a look changed something");
    const AttemptNumber number = life.store.claim();
    require(number == highest + 1, "a claim that is not the next number");
    const Selection selection = life.recover();
    for (const Skipped& file : selection.skipped)
      require(!file.reason.empty(), "a file skipped without a reason");
    if (std::cmp_greater(life.step, kHighestNumber - 9)) return false;
    for (std::int64_t more = 1; more <= 3; ++more) {
      committed = life.step + 1;
      life.round(committed);
    }
    require(disk.exists(kRun / name_of_step(committed, number)), "an acknowledged checkpoint is not there");
    check_lineage(disk, earlier, life);
    require(read_run_state(*run)->attempt == number, "another attempt's state is believed");
  } catch (const RefusedError& error) {
    require(std::string_view(error.what()).size() > 10, "a refusal without words");
    check_kept(before, contents(disk));
    return false;
  } catch (const IoError&) {
    check_kept(before, contents(disk));
    return false;
  }
  check_kept(before, contents(disk));
  return highest + 1 < kHighestNumber;
}

}}  // namespace holdfast::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast;
  using namespace holdfast::test;
  set_log_level(LogLevel::off);
  const MemoryBudget budget(budget_for(size) + (std::uint64_t{32} << 20));
  MemoryFileSystem disk;
  disk.put(kRun / "lost+found" / "x", "");
  fill(disk, {reinterpret_cast<const char*>(data), size});
  std::int64_t committed = -1;
  try {
    if (!live(disk, committed)) return 0;
    MemoryFileSystem after = disk.crash();
    Life next(after);
    const Selection found = next.start();
    require(found.newest && found.newest->step == committed,
            "the next attempt does not find what was acknowledged");
  } catch (const SupersededError&) {
    require(false, "superseded, with nobody else there");
  }
  return 0;
}
