// A disk that records every operation, so that a test can make any power cut: the model behind SimFileSystem.
//
// - Each change is an *open operation* of its inode until an fsync covers it: data (sizes, and 4 KiB blocks
//   separately) by sync_data of the file, names by sync_names of the directory. Any subset of the open
//   operations may reach the disk, in order: a rename without the create before it, a size without the bytes
//   (zeros), bytes without the size (gone).
// - A rename is atomic. A block may be torn into 512-byte sectors of old and new.
// - after_power_cut() returns the disk after one cut. Inodes are shared until written, so it takes about a
//   microsecond.
//
// Inode numbers mean nothing across disks: hash() covers names, sizes and bytes reached from the root.
// Threads: one thread at a time for a disk and its copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/io/file_system.h"

namespace holdfast::test {

inline constexpr std::uint64_t kSimBlock = 4096;
inline constexpr std::size_t kCutOperations = 64;  // each may be kept or lost separately

struct SimName {
  std::string text;
  std::uint64_t hash = 0;
};

struct SimBlock {
  std::array<std::byte, kSimBlock> bytes;
  std::uint64_t hash = 0;
  std::uint64_t used = 0;  // all bytes from here on are zeros
};

struct SimInode {
  FileKind kind = FileKind::regular;
  std::uint64_t size = 0;
  std::vector<std::shared_ptr<const SimBlock>> blocks;          // nullptr: zeros
  std::vector<std::pair<const SimName*, std::uint32_t>> names;  // of a directory: name, inode
  mutable std::uint64_t hash = 0;                               // of a file's content; 0: unknown
};

// Which of the open operations reached the disk. SimDisk::cut_operations numbers the bits.
struct PowerCut {
  std::uint64_t kept = 0;
  std::uint64_t torn = 0;       // kept block writes that were only partly made
  std::uint64_t tear_seed = 0;  // selects the sectors
};

class SimDisk {
 public:
  using Node = std::uint32_t;
  static constexpr Node kRoot = 0;

  SimDisk();

  const SimInode& at(Node node) const { return *now_[node]; }
  std::optional<Node> find(Node directory, std::string_view name) const;
  // Depends on content only: equal for files with equal bytes.
  std::uint64_t content_hash(Node file) const;
  std::uint64_t hash() const;

  Node make(Node directory, std::string_view name, FileKind kind);
  void rename(Node directory, std::string_view from, std::string_view to);  // replaces an existing name
  void unlink(Node directory, std::string_view name);
  void resize(Node file, std::uint64_t size);
  void write(Node file, std::span<const std::byte> data, std::uint64_t offset);
  std::size_t read(Node file, std::span<std::byte> to, std::uint64_t offset) const;
  void sync_data(Node file);
  void sync_names(Node directory);
  // Damage: permanent at once, unlike any operation.
  void flip_bit(Node file, std::uint64_t byte);

  // Number of operations that a cut decides: the newest kCutOperations of the open ones; bit 0 is the oldest
  // of them. Older ones reached the disk.
  std::size_t cut_operations() const;
  std::uint64_t cut_writes() const;  // bits of the block writes among them
  SimDisk after_power_cut(const PowerCut& cut) const;
  std::string describe_cut(const PowerCut& cut) const;

 private:
  struct Operation {
    enum class Kind { link, rename, unlink, resize, write };
    Kind kind;
    Node node;                        // directory of the name, or file of the data
    Node target = 0;                  // inode of the name
    const SimName* name = nullptr;    // the new name, or the removed one
    const SimName* source = nullptr;  // of a rename
    std::uint64_t number = 0;         // size, or index of the block
    std::shared_ptr<const SimBlock> block = {};
    bool is_name() const { return kind <= Kind::unlink; }
  };
  using Inodes = std::vector<std::shared_ptr<SimInode>>;

  static SimInode& writable(Inodes& inodes, Node node);
  static void apply(Inodes& inodes, const Operation& operation, unsigned sectors);
  static void clip(SimInode& inode);
  void record(Operation operation);

  Inodes now_;
  Inodes durable_;
  std::vector<Operation> open_;  // oldest first
};

}  // namespace holdfast::test
