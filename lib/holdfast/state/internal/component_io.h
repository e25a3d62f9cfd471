// The writers and readers that a user's Stateful component sees. TrainState runs a component's save() again
// for each purpose, with another writer: for the tensors' specs, for their bytes, for the attributes.
//
// Errors: UsageError for a name that is written twice or cannot be stored; readers as in stateful.h. Threads:
// the training thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/snapshot/snapshot.h"
#include "holdfast/snapshot/snapshot_source.h"
#include "holdfast/state/internal/cuda_tensors.h"
#include "holdfast/state/stateful.h"

namespace holdfast { inline namespace v0_2 { namespace internal {

// Base of all writers: puts the component's name before each name. Each purpose overrides what it needs.
class ComponentWriter : public StateWriter {
 public:
  explicit ComponentWriter(std::string component) : component_(std::move(component)) {}
  void put_tensor(std::string_view name, const at::Tensor& tensor) final {
    take_tensor(component_ + "/" + std::string(name), tensor);
  }
  void environment(std::string_view name, AttributeValue value) final {
    take_attribute("environment." + component_ + "." + std::string(name), std::move(value), Role::record);
  }

 protected:
  virtual void take_tensor(std::string /*name*/, const at::Tensor& /*tensor*/) {}
  virtual void take_attribute(std::string /*name*/, AttributeValue /*value*/, Role /*role*/) {}
  virtual void take_option(std::string /*name*/) {}

 private:
  void attribute(std::string_view name, AttributeValue value, Role role) final {
    take_attribute(component_ + "." + std::string(name), std::move(value), role);
  }
  void declare_option(std::string_view name) final { take_option(component_ + "." + std::string(name)); }

  std::string component_;
};

class SpecWriter final : public ComponentWriter {
 public:
  SpecWriter(std::string component, std::vector<TensorSpec>& out)
      : ComponentWriter(std::move(component)), out_(out) {}

 private:
  void take_tensor(std::string name, const at::Tensor& tensor) override;
  std::vector<TensorSpec>& out_;
};

// Copies the tensors of one part into the image. Tensors in CUDA memory are late, all others are early.
class ImageWriter final : public ComponentWriter {
 public:
  ImageWriter(std::string component, const ImageLayout& layout, std::span<std::byte> image, Part part)
      : ComponentWriter(std::move(component)), layout_(layout), image_(image), part_(part) {}
  // Passes late tensors to `devices`, which copies them, instead of copying them here.
  ImageWriter(std::string component, const ImageLayout& layout, std::span<std::byte> image,
              CudaTensors& devices)
      : ComponentWriter(std::move(component)),
        layout_(layout),
        image_(image),
        part_(Part::late),
        devices_(&devices) {}
  std::size_t seen() const { return seen_; }
  bool seen_in_cuda() const { return seen_in_cuda_; }

 private:
  void take_tensor(std::string name, const at::Tensor& tensor) override;
  const ImageLayout& layout_;
  std::span<std::byte> image_;
  Part part_;
  CudaTensors* devices_ = nullptr;
  std::size_t seen_ = 0;
  bool seen_in_cuda_ = false;
};

class AttributeWriter final : public ComponentWriter {
 public:
  AttributeWriter(std::string component, Attributes& out, std::vector<std::string>& options)
      : ComponentWriter(std::move(component)), out_(out), options_(options) {}

 private:
  void take_attribute(std::string name, AttributeValue value, Role role) override;
  void take_option(std::string name) override { options_.push_back(std::move(name)); }
  Attributes& out_;
  std::vector<std::string>& options_;
};

// A component's whole state in memory. TrainState restores it if another component fails to load.
struct ComponentBackup {
  Attributes attributes;
  std::map<std::string, at::Tensor, std::less<>> tensors;
};

class BackupWriter final : public ComponentWriter {
 public:
  BackupWriter(std::string component, ComponentBackup& out)
      : ComponentWriter(std::move(component)), out_(out) {}

 private:
  void take_tensor(std::string name, const at::Tensor& tensor) override;
  void take_attribute(std::string name, AttributeValue value, Role role) override;
  ComponentBackup& out_;
};

class ComponentReader : public StateReader {
 public:
  ComponentReader(std::string component, const Attributes& attributes)
      : component_(std::move(component)), attributes_(attributes) {}

  bool has(std::string_view name) const final { return attributes_.has(full(name)); }
  bool get_bool(std::string_view name) const final { return attributes_.get_bool(full(name)); }
  std::int64_t get_int(std::string_view name) const final { return attributes_.get_int(full(name)); }
  double get_double(std::string_view name) const final { return attributes_.get_double(full(name)); }
  std::string get_string(std::string_view name) const final { return attributes_.get_string(full(name)); }
  std::vector<std::int64_t> get_ints(std::string_view name) const final {
    return attributes_.get_ints(full(name));
  }
  std::vector<double> get_doubles(std::string_view name) const final {
    return attributes_.get_doubles(full(name));
  }
  std::vector<std::string> get_strings(std::string_view name) const final {
    return attributes_.get_strings(full(name));
  }
  bool has_tensor(std::string_view name) const final { return holds(tensor_name(name)); }
  at::Tensor get_tensor(std::string_view name) const final;

 protected:
  virtual bool holds(const std::string& name) const = 0;
  virtual at::Tensor copy(const std::string& name) const = 0;  // a new tensor; requires holds()

 private:
  std::string full(std::string_view name) const { return component_ + "." + std::string(name); }
  std::string tensor_name(std::string_view name) const { return component_ + "/" + std::string(name); }

  std::string component_;
  const Attributes& attributes_;
};

class SnapshotReader final : public ComponentReader {
 public:
  SnapshotReader(std::string component, const Snapshot& snapshot)
      : ComponentReader(std::move(component), snapshot.attributes), snapshot_(snapshot) {}

 private:
  bool holds(const std::string& name) const override;
  at::Tensor copy(const std::string& name) const override;
  const Snapshot& snapshot_;
};

class BackupReader final : public ComponentReader {
 public:
  BackupReader(std::string component, const ComponentBackup& backup)
      : ComponentReader(std::move(component), backup.attributes), backup_(backup) {}

 private:
  bool holds(const std::string& name) const override;
  at::Tensor copy(const std::string& name) const override;
  const ComponentBackup& backup_;
};

}}}  // namespace holdfast::v0_2::internal
