#include "holdfast/mirror/directory_home.h"

#include <algorithm>
#include <cerrno>

#include "holdfast/base/log.h"
#include "holdfast/mirror/aligned_blocks.h"
#include "holdfast/mirror/kernel_files.h"
#include "holdfast/store/attempt.h"
#include "holdfast/store/claim.h"
#include "holdfast/store/recovery.h"
#include "holdfast/store/standby_sign.h"

namespace holdfast { inline namespace v0_2 {

namespace {

constexpr char kReadBack[] = "read back";  // the operation in the store's IoError

}  // namespace

DirectoryHome::DirectoryHome(const HomeOptions& options, FileSystem& file_system, Verifier& verifier,
                             Pace& pace)
    : name_(without_slashes(options.place)),
      file_system_(file_system),
      verifier_(verifier),
      pace_(pace),
      // A home where nothing verifies must not keep new copies away. A start that fetches refuses it.
      store_(file_system, pace.clock(),
             {.directory = options.place,
              .allow_fresh = true,
              .keep = KeepLast{options.keep},
              .mount = options.mount,
              .makes_room = true,
              .read_back = ReadBack::all},
             verifier) {}

std::unique_ptr<Directory> DirectoryHome::open() const { return file_system_.open_directory(name_, false); }

// After a failed sync this store would never work again, and after an outage its handles may be dead.
template <class Work>
auto DirectoryHome::in_store(const Work& work) {
  if (failed_ && store_.attempt() != 0) store_.open_again();
  failed_ = false;
  try {
    return work();
  } catch (const SupersededError&) {
    throw;
  } catch (...) {
    failed_ = true;
    throw;
  }
}

void DirectoryHome::check_not_superseded() {
  in_store([&] { store_.check_claim(); });
}

AttemptNumber DirectoryHome::highest() {
  const auto run = open();
  return run ? highest_attempt(*run) : 0;
}

AttemptNumber DirectoryHome::claim(AttemptNumber least) {
  // For a further life of the trainer. The store goes on under its first number, and holds a higher claim as
  // well.
  if (store_.attempt() != 0) {
    return in_store([&] { return store_.claim_further(kClaimedByMirror, 0, least); });
  }
  return store_.claim(kClaimedByMirror, 0, least);
}

AttemptNumber DirectoryHome::claim_after(AttemptNumber after, AttemptNumber least) {
  const AttemptNumber highest = this->highest();
  // Less than `after`: a volume that is gone, or a claim that was taken back.
  if (highest < after || (highest > after && !is_own(highest))) return 0;
  const AttemptNumber only = std::max(highest + 1, least);
  try {
    if (store_.attempt() != 0) {
      return in_store([&] { return store_.claim_further(kClaimedByMirror, only, least); });
    }
    return store_.claim(kClaimedByMirror, only, least);
  } catch (const RefusedError&) {
    if (this->highest() <= highest) throw;
    return 0;
  }
}

// From now on no older owner can add a file: what it has not renamed yet is gone. So a list after the claim
// shows all that a later owner may find (store/commit.h, rule 6).
void DirectoryHome::sweep(Directory& run) {
  bool any = false;
  for (const DirectoryEntry& entry : run.list()) {
    const auto attempt = parse_temporary_name(entry.name);
    if (attempt && *attempt < store_.attempt()) any = run.unlink(entry.name) || any;
  }
  if (any) run.sync();
  swept_ = true;
}

std::vector<HomeFile> DirectoryHome::list() {
  std::vector<HomeFile> found;
  const auto run = open();
  // Once a claim lies there, a folder that is missing means trouble, and no empty home.
  if (!run && store_.attempt() != 0) throw IoError("open", name_, ENOENT, "is its volume mounted?");
  if (!run) return found;
  if (store_.attempt() != 0 && !swept_) sweep(*run);
  for (const Candidate& candidate : candidates_in(*run)) {
    const auto status = run->status(candidate.name);
    if (status && status->kind == FileKind::regular) found.push_back({candidate.id, status->size});
  }
  return found;
}

// The name is taken, and the copy is not good: otherwise holds() would have said so. The run directory has a
// good file of the same name.
void DirectoryHome::set_aside_if_damaged(const MirrorSource& source) {
  const auto run = open();
  if (!run) return;
  const std::string name = checkpoint_name(source.id);
  const auto file = run->open(name, OpenMode::read);
  if (!file) return;
  if (verifier_.inspect(*file, Verifier::Depth::full, true).kind != Verdict::Kind::damaged) return;
  if (!store_.set_aside(source.id, true).empty()) {
    log_warning("{}/{} is damaged there; it is renamed to .damaged and copied again", name_, name);
  }
}

void DirectoryHome::put(const MirrorSource& source) {
  try {
    in_store([&] {
      recover();
      set_aside_if_damaged(source);
      unproven_.insert(source.id);
      commit(source);
      unproven_.erase(source.id);
    });
  } catch (const IoError& error) {
    // The caller finds out which of the two files is damaged.
    if (error.operation() == kReadBack) throw CopyDiffers(error.what());
    throw;
  }
}

// Once, before the first commit: it removes what killed attempts left half-written.
void DirectoryHome::recover() {
  if (recovered_) return;
  store_.recover();
  recovered_ = true;
}

void DirectoryHome::commit(const MirrorSource& source, bool again) {
  store_.commit({.step = source.id.step,
                 .bytes = source.bytes,
                 .ancestry = source.ancestry,
                 .write =
                     [&](File& copy) {
                       AlignedBlock block;
                       BlockStream stream(copy);
                       read_blocks(*source.file, source.bytes, block, [&](std::span<const std::byte> bytes) {
                         stream.append(bytes);
                         pace_.moved(bytes.size());
                       });
                       stream.finish();
                     },
                 .copy_of = source.id,
                 .replaces_itself = again});
}

bool DirectoryHome::holds(const MirrorSource& source) {
  const auto run = open();
  const auto file = run ? run->open(checkpoint_name(source.id), OpenMode::read) : nullptr;
  if (!file || file->size() != source.bytes) return false;
  AlignedBlock here;
  AlignedBlock there;
  std::uint64_t done = 0;
  bool same = true;
  read_blocks(*source.file, source.bytes, here, [&](std::span<const std::byte> bytes) {
    if (!same) return;
    const std::size_t got = file->read_uncached_at(there.bytes(), done);
    done += bytes.size();
    same = got >= bytes.size() && std::equal(bytes.begin(), bytes.end(), there.bytes().begin());
    pace_.poll();
  });
  if (same) make_name_durable(source);
  return same;
}

// A process that was killed may have left a name that nobody has synced. One that a sync could not write is
// made once more, by a new copy: the kernel may have dropped it, and then a later sync says nothing about it.
void DirectoryHome::make_name_durable(const MirrorSource& source) {
  in_store([&] {
    store_.check_claim();
    if (unproven_.insert(source.id).second) {
      store_.sync_names();
    } else {
      recover();
      commit(source, true);
    }
    unproven_.erase(source.id);
  });
}

// The store has acknowledged each copy, so its own retention applies rule 4 there.
void DirectoryHome::retire(const MirrorSource&) { store_.apply_retention(); }

void DirectoryHome::read(const HomeFile& wanted, const ByteSink& sink) {
  const auto run = open();
  const std::string name = checkpoint_name(wanted.id);
  const auto file = run ? run->open(name, OpenMode::read) : nullptr;
  if (!file) throw IoError("open", name_ + "/" + name, ENOENT);
  AlignedBlock block;
  read_blocks(*file, wanted.bytes, block, sink);
}

std::unique_ptr<Directory> DirectoryHome::attempts() const {
  const auto run = open();
  return run ? run->open_directory(kAttemptsDirectory, false) : nullptr;
}

std::optional<std::string> DirectoryHome::note(const std::string& name) {
  const auto folder = attempts();
  return folder ? read_note(*folder, name) : std::nullopt;
}

void DirectoryHome::put_note(const std::string& name, const std::string& text) {
  if (const auto folder = attempts()) write_note(*folder, name, text);
}

void DirectoryHome::remove_note(const std::string& name) {
  if (const auto folder = attempts()) folder->unlink(name);
}

void DirectoryHome::put_kernels(Directory& folder) {
  const auto run = open();
  if (run) copy_kernel_files(folder, *run->open_directory(kKernelsDirectory, true));
}

void DirectoryHome::fetch_kernels(Directory& folder) {
  const auto run = open();
  const auto kernels = run ? run->open_directory(kKernelsDirectory, false) : nullptr;
  if (kernels) copy_kernel_files(*kernels, folder);
}

}}  // namespace holdfast::v0_2
