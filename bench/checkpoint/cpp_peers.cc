#include "cpp_peers.h"

#include <hdf5.h>
#include <torch/serialize/output-archive.h>

#include <functional>

#include "holdfast/base/error.h"
#include "ours.h"
#include "volume.h"

namespace holdfast::bench {
namespace {

double timed(const std::filesystem::path& folder,
             const std::function<void(const std::filesystem::path& file)>& write) {
  const std::filesystem::path temporary = folder / "temporary";
  const double begin = now();
  write(temporary);
  make_durable(temporary, folder / "final");
  const double seconds = now() - begin;
  std::filesystem::remove(folder / "final");
  return seconds;
}

hid_t checked(hid_t id) {
  if (id < 0) throw Error("libhdf5 refused to write (its own message is above)", ExitCode::io_failed);
  return id;
}

}  // namespace

double torch_save(TrainingState& state, const std::filesystem::path& folder) {
  return timed(folder, [&](const std::filesystem::path& file) {
    torch::serialize::OutputArchive all;
    for (std::size_t i = 0; i < state.copies().size(); ++i) {
      torch::serialize::OutputArchive model;
      torch::serialize::OutputArchive optimizer;
      state.copies()[i].net->save(model);
      state.copies()[i].optimizer->save(optimizer);
      all.write("model" + std::to_string(i), model);
      all.write("optimizer" + std::to_string(i), optimizer);
    }
    all.save_to(file.string());
  });
}

double hdf5_write(TrainingState& state, const std::filesystem::path& folder) {
  return timed(folder, [&](const std::filesystem::path& path) {
    const hid_t file = checked(::H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
    const hid_t links = checked(::H5Pcreate(H5P_LINK_CREATE));
    ::H5Pset_create_intermediate_group(links, 1);
    for (const auto& [name, tensor] : state.named_tensors()) {
      const std::vector<hsize_t> shape(tensor.sizes().begin(), tensor.sizes().end());
      const hid_t type = tensor.scalar_type() == at::kLong ? H5T_NATIVE_INT64 : H5T_NATIVE_FLOAT;
      const hid_t space = checked(::H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr));
      const hid_t set =
          checked(::H5Dcreate2(file, name.c_str(), type, space, links, H5P_DEFAULT, H5P_DEFAULT));
      checked(::H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor.const_data_ptr()));
      ::H5Dclose(set);
      ::H5Sclose(space);
    }
    ::H5Pclose(links);
    checked(::H5Fclose(file));
  });
}

}  // namespace holdfast::bench
