// A checkpoint's state while parts of a pickle replace its own (state_import.h), and what the values of a
// pickle are as attributes.
//
// Errors: PickleRefusal. Threads: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "holdfast/format/internal/pickle/pickle_archive.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// The keys of a dict that are texts.
using TextMembers = std::unordered_map<std::string_view, const PickleValue*>;
TextMembers text_members(const PickleValue& dict);
// With the type of `like`; nullopt: the value has another type.
std::optional<AttributeValue> value_like(const PickleValue& value, const AttributeValue& like);
// For messages: "a list", "a tensor".
std::string_view kind_text(const PickleValue& value);

class ImportDraft {
 public:
  ImportDraft(const CheckpointIndex& like, PickleArchive& archive);

  // nullptr: the checkpoint has no such tensor.
  const TensorSpec* find(std::string_view name) const;
  // The tensor is not part of the new state, unless something takes it afterwards.
  void drop(const std::string& name) { dropped_.insert(name); }
  // The file's tensor becomes `name`. Refuses one that is like none of `wanted`; empty: any.
  void take(const std::string& name, const PickleValue& value, const std::vector<TensorSpec>& wanted);
  // The file's tensor is read under a name that is not part of the state: to compare it with another one.
  void read_beside(const std::string& name, const PickleTensor& tensor);
  // A number of the file becomes a tensor.
  void make(const TensorSpec& spec, double value);
  // A number, or a tensor with one; nullopt: something else.
  std::optional<double> number(const std::string& name, const PickleValue& value) const;

  const CheckpointIndex& like() const { return like_; }
  const TorchIndex& index() const { return index_; }
  // Those of the new state: the checkpoint's in their order, then new ones.
  std::vector<TensorSpec> tensors() const;

  Attributes attributes;  // of the new state
  std::map<std::string, std::vector<std::byte>, std::less<>> made;
  std::set<std::string> ignored_options;

 private:
  void add(const TensorSpec& spec);

  const CheckpointIndex& like_;
  PickleArchive& archive_;
  TorchIndex index_;
  std::unordered_map<std::string_view, const TensorSpec*> by_name_;
  std::set<std::string, std::less<>> dropped_;
  std::vector<TensorSpec> added_;
};

}}}  // namespace holdfast::v0_2::internal
