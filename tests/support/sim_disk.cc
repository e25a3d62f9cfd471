#include "support/sim_disk.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>

#include "holdfast/snapshot/digest.h"

namespace holdfast::test {
namespace {

using BlockPtr = std::shared_ptr<const SimBlock>;

constexpr std::size_t kSector = 512;
constexpr unsigned kAllSectors = 0xff;

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  const Digest digest = digest_of(bytes);
  std::uint64_t word = 0;
  std::memcpy(&word, &digest, sizeof word);
  return word;
}

const std::array<std::byte, kSimBlock> kZeros{};

std::uint64_t zeros_hash() {
  static const std::uint64_t hash = hash_bytes(kZeros);
  return hash;
}

const std::array<std::byte, kSimBlock>& bytes_of(const BlockPtr& block) {
  return block ? block->bytes : kZeros;
}

template <class Fill>
BlockPtr make_block(Fill&& fill) {
  auto block = std::make_shared<SimBlock>();
  fill(block->bytes);
  block->hash = hash_bytes(block->bytes);
  block->used = kSimBlock;
  for (std::uint64_t word = 0; block->used > 0; block->used -= sizeof word) {
    std::memcpy(&word, block->bytes.data() + block->used - sizeof word, sizeof word);
    if (word != 0) break;
  }
  while (block->used > 0 && block->bytes[block->used - 1] == std::byte{0}) --block->used;
  return block;
}

// One object per text, kept until the process ends: names are compared and hashed by pointer.
const SimName* name_of(std::string_view text) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<SimName>, std::less<>> all;
  thread_local std::map<std::string, const SimName*, std::less<>> mine;
  if (const auto found = mine.find(text); found != mine.end()) return found->second;
  const std::lock_guard lock(mutex);
  auto& name = all[std::string(text)];
  if (name == nullptr) {
    name = std::make_unique<SimName>(
        SimName{std::string(text), mix(hash_bytes(std::as_bytes(std::span(text))) + 1)});
  }
  return mine[std::string(text)] = name.get();
}

std::uint64_t blocks_of(std::uint64_t size) { return (size + kSimBlock - 1) / kSimBlock; }

auto entry_of(const SimInode& directory, const SimName* name) {
  return std::find_if(directory.names.begin(), directory.names.end(),
                      [&](const auto& entry) { return entry.first == name; });
}

void remove_name(SimInode& directory, const SimName* name, SimDisk::Node target) {
  const auto entry = entry_of(directory, name);
  if (entry != directory.names.end() && entry->second == target) directory.names.erase(entry);
}

void set_name(SimInode& directory, const SimName* name, SimDisk::Node target) {
  const auto entry = entry_of(directory, name);
  if (entry == directory.names.end()) {
    directory.names.emplace_back(name, target);
  } else {
    directory.names[static_cast<std::size_t>(entry - directory.names.begin())].second = target;
  }
}

}  // namespace

SimDisk::SimDisk() {
  auto root = std::make_shared<SimInode>();
  root->kind = FileKind::directory;
  now_.push_back(root);
  durable_ = now_;
}

std::optional<SimDisk::Node> SimDisk::find(Node directory, std::string_view name) const {
  const SimInode& inode = *now_[directory];
  const auto entry = std::find_if(inode.names.begin(), inode.names.end(),
                                  [&](const auto& candidate) { return candidate.first->text == name; });
  return entry == inode.names.end() ? std::nullopt : std::optional(entry->second);
}

std::uint64_t SimDisk::content_hash(Node file) const {
  const SimInode& inode = *now_[file];
  if (inode.hash != 0) return inode.hash;
  std::uint64_t hash = mix(inode.size + 1);
  for (std::size_t i = 0; i < blocks_of(inode.size); ++i) {
    const bool whole = i < inode.blocks.size() && inode.blocks[i];
    hash = mix(hash ^ (whole ? inode.blocks[i]->hash : zeros_hash()));
  }
  return inode.hash = hash;
}

std::uint64_t SimDisk::hash() const {
  const std::function<std::uint64_t(Node)> of = [&](Node node) -> std::uint64_t {
    const SimInode& inode = *now_[node];
    if (inode.kind != FileKind::directory) return content_hash(node);
    std::uint64_t sum = 0x68d1;
    for (const auto& [name, child] : inode.names) sum += mix(name->hash ^ mix(of(child)));
    return sum;
  };
  return mix(of(kRoot));
}

SimInode& SimDisk::writable(Inodes& inodes, Node node) {
  std::shared_ptr<SimInode>& inode = inodes[node];
  if (inode.use_count() != 1) inode = std::make_shared<SimInode>(*inode);
  inode->hash = 0;
  return *inode;
}

void SimDisk::apply(Inodes& inodes, const Operation& operation, unsigned sectors) {
  SimInode& inode = writable(inodes, operation.node);
  switch (operation.kind) {
    case Operation::Kind::link:
      set_name(inode, operation.name, operation.target);
      return;
    case Operation::Kind::rename:
      remove_name(inode, operation.source, operation.target);
      set_name(inode, operation.name, operation.target);
      return;
    case Operation::Kind::unlink:
      remove_name(inode, operation.name, operation.target);
      return;
    case Operation::Kind::resize:
      if (operation.number < inode.size) {
        inode.size = operation.number;
        clip(inode);
      }
      inode.size = operation.number;
      return;
    case Operation::Kind::write:
      if (inode.blocks.size() <= operation.number) inode.blocks.resize(operation.number + 1);
      BlockPtr& block = inode.blocks[operation.number];
      if (sectors == kAllSectors) {
        block = operation.block;
      } else {
        block = make_block([&](auto& bytes) {
          bytes = bytes_of(block);
          for (std::size_t i = 0; i < kSimBlock / kSector; ++i) {
            if ((sectors >> i & 1U) == 0) continue;
            std::memcpy(bytes.data() + i * kSector, operation.block->bytes.data() + i * kSector, kSector);
          }
        });
      }
      return;
  }
}

// Bytes beyond the size do not exist, and are zeros if the file grows again.
void SimDisk::clip(SimInode& inode) {
  if (inode.blocks.size() > blocks_of(inode.size)) inode.blocks.resize(blocks_of(inode.size));
  const std::uint64_t rest = inode.size % kSimBlock;
  if (rest == 0 || inode.blocks.size() < blocks_of(inode.size) || !inode.blocks.back()) return;
  if (inode.blocks.back()->used <= rest) return;
  const auto& last = inode.blocks.back()->bytes;
  inode.blocks.back() = make_block([&](auto& bytes) {
    bytes = last;
    std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(rest), bytes.end(), std::byte{0});
  });
}

void SimDisk::record(Operation operation) {
  apply(now_, operation, kAllSectors);
  open_.push_back(std::move(operation));
}

SimDisk::Node SimDisk::make(Node directory, std::string_view name, FileKind kind) {
  auto inode = std::make_shared<SimInode>();
  inode->kind = kind;
  now_.push_back(inode);
  durable_.push_back(std::move(inode));
  const Node node = static_cast<Node>(now_.size() - 1);
  record({.kind = Operation::Kind::link, .node = directory, .target = node, .name = name_of(name)});
  return node;
}

void SimDisk::rename(Node directory, std::string_view from, std::string_view to) {
  record({.kind = Operation::Kind::rename,
          .node = directory,
          .target = *find(directory, from),
          .name = name_of(to),
          .source = name_of(from)});
}

void SimDisk::unlink(Node directory, std::string_view name) {
  record({.kind = Operation::Kind::unlink,
          .node = directory,
          .target = *find(directory, name),
          .name = name_of(name)});
}

void SimDisk::resize(Node file, std::uint64_t size) {
  if (now_[file]->size == size) return;
  record({.kind = Operation::Kind::resize, .node = file, .number = size});
}

void SimDisk::write(Node file, std::span<const std::byte> data, std::uint64_t offset) {
  const std::uint64_t end = offset + data.size();
  if (end > now_[file]->size) resize(file, end);
  while (!data.empty()) {
    const std::uint64_t index = offset / kSimBlock;
    const std::uint64_t within = offset % kSimBlock;
    const std::size_t count = std::min<std::uint64_t>(data.size(), kSimBlock - within);
    const auto& blocks = now_[file]->blocks;
    const BlockPtr old = index < blocks.size() ? blocks[index] : nullptr;
    BlockPtr block = make_block([&](auto& bytes) {
      if (count < kSimBlock) bytes = bytes_of(old);
      std::memcpy(bytes.data() + within, data.data(), count);
    });
    record({.kind = Operation::Kind::write, .node = file, .number = index, .block = std::move(block)});
    data = data.subspan(count);
    offset += count;
  }
}

std::size_t SimDisk::read(Node file, std::span<std::byte> to, std::uint64_t offset) const {
  const SimInode& inode = *now_[file];
  if (offset >= inode.size) return 0;
  const std::size_t all = std::min<std::uint64_t>(to.size(), inode.size - offset);
  for (std::size_t done = 0; done < all;) {
    const std::uint64_t index = (offset + done) / kSimBlock;
    const std::uint64_t within = (offset + done) % kSimBlock;
    const std::size_t count = std::min<std::uint64_t>(all - done, kSimBlock - within);
    const auto& bytes = index < inode.blocks.size() ? bytes_of(inode.blocks[index]) : kZeros;
    std::memcpy(to.data() + done, bytes.data() + within, count);
    done += count;
  }
  return all;
}

void SimDisk::sync_data(Node file) {
  durable_[file] = now_[file];
  std::erase_if(open_, [&](const Operation& open) { return open.node == file && !open.is_name(); });
}

void SimDisk::sync_names(Node directory) {
  durable_[directory] = now_[directory];
  std::erase_if(open_, [&](const Operation& open) { return open.node == directory && open.is_name(); });
}

void SimDisk::flip_bit(Node file, std::uint64_t byte) {
  for (Inodes* inodes : {&now_, &durable_}) {
    SimInode& inode = writable(*inodes, file);
    BlockPtr& block = inode.blocks.at(byte / kSimBlock);
    block = make_block([&](auto& bytes) {
      bytes = bytes_of(block);
      bytes[byte % kSimBlock] ^= std::byte{1};
    });
  }
}

std::size_t SimDisk::cut_operations() const { return std::min(open_.size(), kCutOperations); }

std::uint64_t SimDisk::cut_writes() const {
  std::uint64_t bits = 0;
  const std::size_t older = open_.size() - cut_operations();
  for (std::size_t i = older; i < open_.size(); ++i) {
    if (open_[i].kind == Operation::Kind::write) bits |= std::uint64_t{1} << (i - older);
  }
  return bits;
}

SimDisk SimDisk::after_power_cut(const PowerCut& cut) const {
  SimDisk left;
  left.now_ = durable_;
  const std::size_t older = open_.size() - cut_operations();
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const std::uint64_t bit = i < older ? 0 : std::uint64_t{1} << (i - older);
    if (i >= older && (cut.kept & bit) == 0) continue;
    unsigned sectors = kAllSectors;
    if (open_[i].kind == Operation::Kind::write && (cut.torn & bit) != 0) {
      sectors = 1 + mix(cut.tear_seed + i) % 254;
    }
    apply(left.now_, open_[i], sectors);
  }
  for (std::size_t i = older; i < open_.size(); ++i) {
    if (!open_[i].is_name() && left.now_[open_[i].node] != durable_[open_[i].node]) {
      clip(*left.now_[open_[i].node]);
    }
  }
  left.durable_ = left.now_;
  return left;
}

std::string SimDisk::describe_cut(const PowerCut& cut) const {
  std::string text;
  const std::size_t older = open_.size() - cut_operations();
  for (std::size_t i = older; i < open_.size(); ++i) {
    const Operation& operation = open_[i];
    const std::uint64_t bit = std::uint64_t{1} << (i - older);
    text += (cut.kept & bit) == 0 ? "  lost  " : (cut.torn & bit) != 0 ? "  torn  " : "  kept  ";
    switch (operation.kind) {
      case Operation::Kind::link:
        text += "name " + operation.name->text;
        break;
      case Operation::Kind::rename:
        text += "rename " + operation.source->text + " -> " + operation.name->text;
        break;
      case Operation::Kind::unlink:
        text += "unlink " + operation.name->text;
        break;
      case Operation::Kind::resize:
        text += "inode " + std::to_string(operation.node) + ", size " + std::to_string(operation.number);
        break;
      case Operation::Kind::write:
        text += "inode " + std::to_string(operation.node) + ", block " + std::to_string(operation.number);
        break;
    }
    text += '\n';
  }
  return text;
}

}  // namespace holdfast::test
