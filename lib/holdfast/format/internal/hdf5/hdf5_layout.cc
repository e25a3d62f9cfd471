#include "holdfast/format/internal/hdf5/hdf5_layout.h"

#include <algorithm>
#include <unordered_set>

#include "holdfast/base/error.h"
#include "holdfast/base/mutex.h"
#include "holdfast/base/utf8.h"
#include "holdfast/format/internal/hdf5/hdf5_handle.h"
#include "holdfast/format/internal/hdf5/root_attributes.h"
#include "holdfast/format/layout.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

constexpr const char* kSettings = "choosing settings";

Hdf5Handle properties(hid_t kind) { return {H5Pcreate(kind), H5Pclose, kSettings}; }

// Every group of the file, parents before children, in the order of their first tensor.
std::vector<std::string> groups_of(std::span<const TensorSpec> tensors) {
  std::vector<std::string> groups{std::string(kMetaGroup)};
  std::unordered_set<std::string_view> known;
  for (const TensorSpec& tensor : tensors) {
    const std::string_view name = tensor.name;
    for (std::size_t slash = name.find('/'); slash != std::string_view::npos;
         slash = name.find('/', slash + 1)) {
      if (known.insert(name.substr(0, slash)).second) groups.emplace_back(name.substr(0, slash));
    }
  }
  return groups;
}

Hdf5Handle copy_of(hid_t type) { return {H5Tcopy(type), H5Tclose, "copying a type"}; }

// Bit 15 is the sign, then come `exponent` bits, then the mantissa.
Hdf5Handle two_byte_float(std::size_t exponent, std::size_t bias) {
  Hdf5Handle type = copy_of(H5T_IEEE_F32LE);
  // The sign bit is bit 15, so 15 bits are left for exponent and mantissa.
  const std::size_t mantissa = 15 - exponent;
  // Fields first: libhdf5 refuses to shrink a type below the bits that its fields use.
  check_hdf5(H5Tset_fields(type.get(), 15, mantissa, exponent, 0, mantissa), "making a 2-byte float");
  check_hdf5(H5Tset_size(type.get(), 2), "making a 2-byte float");
  check_hdf5(H5Tset_ebias(type.get(), bias), "making a 2-byte float");
  return type;
}

Hdf5Handle boolean() {
  // h5py's convention for truth values: an enumeration of FALSE and TRUE.
  Hdf5Handle type(H5Tenum_create(H5T_STD_I8LE), H5Tclose, "making the bool type");
  signed char value = 0;
  check_hdf5(H5Tenum_insert(type.get(), "FALSE", &value), "making the bool type");
  value = 1;
  check_hdf5(H5Tenum_insert(type.get(), "TRUE", &value), "making the bool type");
  return type;
}

Hdf5Handle complex(hid_t part, std::size_t part_size) {
  // h5py and NumPy name the parts of a complex number r and i.
  Hdf5Handle type(H5Tcreate(H5T_COMPOUND, 2 * part_size), H5Tclose, "making a complex type");
  check_hdf5(H5Tinsert(type.get(), "r", 0, part), "making a complex type");
  check_hdf5(H5Tinsert(type.get(), "i", part_size, part), "making a complex type");
  return type;
}

// Element types in libhdf5's terms. A test compares what h5py reads of each.
Hdf5Handle hdf5_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return boolean();
    case DType::uint8:
    // HDF5's tools have no 8-bit floats. The attribute `dtype` of the dataset names them.
    case DType::float8_e4m3fn:
    case DType::float8_e5m2:
      return copy_of(H5T_STD_U8LE);
    case DType::int8:
      return copy_of(H5T_STD_I8LE);
    case DType::int16:
      return copy_of(H5T_STD_I16LE);
    case DType::int32:
      return copy_of(H5T_STD_I32LE);
    case DType::int64:
      return copy_of(H5T_STD_I64LE);
    case DType::float16:
      return two_byte_float(5, 15);
    case DType::bfloat16:
      return two_byte_float(8, 127);
    case DType::float32:
      return copy_of(H5T_IEEE_F32LE);
    case DType::float64:
      return copy_of(H5T_IEEE_F64LE);
    case DType::complex64:
      return complex(H5T_IEEE_F32LE, 4);
    case DType::complex128:
      return complex(H5T_IEEE_F64LE, 8);
    case DType::uint16:
      return copy_of(H5T_STD_U16LE);
    case DType::uint32:
      return copy_of(H5T_STD_U32LE);
    case DType::uint64:
      return copy_of(H5T_STD_U64LE);
  }
  throw Error("element type without an HDF5 type");
}

// A UTF-8 text type of `size` bytes, padded with NUL.
Hdf5Handle hdf5_text_type(std::size_t size) {
  Hdf5Handle type = copy_of(H5T_C_S1);
  check_hdf5(H5Tset_size(type.get(), size), "making a text type");
  // NUL padding, because the JSON text is shorter than its place.
  check_hdf5(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "making a text type");
  check_hdf5(H5Tset_cset(type.get(), H5T_CSET_UTF8), "making a text type");
  return type;
}

// True for types that HDF5 lacks and stores as bytes; their datasets name the type in an attribute "dtype".
bool stored_as_bytes(DType dtype) { return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2; }

class Layouter {
 public:
  Layouter(const std::string& path, std::uint64_t user_block, std::uint64_t metadata_block,
           std::uint64_t small_data)
      : file_(create(path, user_block, metadata_block, small_data)),
        links_(properties(H5P_LINK_CREATE)),
        groups_(properties(H5P_GROUP_CREATE)),
        datasets_(properties(H5P_DATASET_CREATE)) {
    // Names of parameters may hold any UTF-8; without this h5py would take them for ASCII.
    check_hdf5(H5Pset_char_encoding(links_.get(), H5T_CSET_UTF8), kSettings);
    // Time stamps would make two plans of the same tensors differ.
    check_hdf5(H5Pset_obj_track_times(groups_.get(), false), kSettings);
    check_hdf5(H5Pset_obj_track_times(datasets_.get(), false), kSettings);
    // Contiguous, allocated at once, never filled: libhdf5 assigns an address without writing a tensor's
    // bytes.
    check_hdf5(H5Pset_layout(datasets_.get(), H5D_CONTIGUOUS), kSettings);
    check_hdf5(H5Pset_alloc_time(datasets_.get(), H5D_ALLOC_TIME_EARLY), kSettings);
    check_hdf5(H5Pset_fill_time(datasets_.get(), H5D_FILL_TIME_NEVER), kSettings);
  }

  // One by one, because libhdf5 stores time stamps in groups that it creates on the way.
  void add_group(const std::string& name) {
    const std::string doing = "group '" + printable(name) + "'";
    Hdf5Handle(H5Gcreate2(file_.get(), name.c_str(), links_.get(), groups_.get(), H5P_DEFAULT), H5Gclose,
               doing);
  }

  std::uint64_t add_dataset(const std::string& name, const Hdf5Handle& type,
                            const std::vector<std::int64_t>& shape, std::uint64_t bytes,
                            std::string_view dtype = {}) {
    const std::string doing = "dataset '" + printable(name) + "'";
    const std::vector<hsize_t> dimensions(shape.begin(), shape.end());
    // A shape without dimensions is a scalar, which H5Screate_simple() cannot make.
    const Hdf5Handle space(dimensions.empty() ? H5Screate(H5S_SCALAR)
                                              : H5Screate_simple(static_cast<int>(dimensions.size()),
                                                                 dimensions.data(), nullptr),
                           H5Sclose, doing);
    const Hdf5Handle dataset(H5Dcreate2(file_.get(), name.c_str(), type.get(), space.get(), links_.get(),
                                        datasets_.get(), H5P_DEFAULT),
                             H5Dclose, doing);
    // Foreign readers see uint8 for the 8-bit floats; the attribute tells them the type.
    if (!dtype.empty()) add_text(dataset, "dtype", dtype, doing);
    // For a dataset without bytes H5Dget_offset() returns a meaningless value.
    return bytes == 0 ? 0 : H5Dget_offset(dataset.get());
  }

  // The attributes of the root group, with placeholders as values.
  void add_root_attributes() {
    const Hdf5Handle integer = hdf5_type(DType::int64);
    add_attribute(file_, "step", integer, &kStepPlaceholder, "the file's attributes");
    add_text(file_, "run", run_placeholder(), "the file's attributes");
    add_text(file_, "holdfast_version", version_placeholder(), "the file's attributes");
  }

  void close() { file_.close("closing the file"); }

 private:
  static Hdf5Handle create(const std::string& path, std::uint64_t user_block, std::uint64_t metadata_block,
                           std::uint64_t small_data) {
    const Hdf5Handle creation = properties(H5P_FILE_CREATE);
    check_hdf5(H5Pset_userblock(creation.get(), user_block), kSettings);
    check_hdf5(H5Pset_obj_track_times(creation.get(), false), kSettings);
    const Hdf5Handle access = properties(H5P_FILE_ACCESS);
    // V18 gives superblock version 2, without the consistency flag of later versions.
    check_hdf5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V18, H5F_LIBVER_V18), kSettings);
    check_hdf5(H5Pset_alignment(access.get(), kAlignedFrom, kAlignment), kSettings);
    check_hdf5(H5Pset_meta_block_size(access.get(), metadata_block), kSettings);
    // One block takes all small tensors, so that they lie together and no large tensor loses its alignment.
    check_hdf5(H5Pset_small_data_block_size(access.get(), small_data), kSettings);
    const std::string doing = "creating " + path;
    return {H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose, doing};
  }

  void add_attribute(const Hdf5Handle& object, const char* name, const Hdf5Handle& type, const void* value,
                     const std::string& doing) {
    const Hdf5Handle space(H5Screate(H5S_SCALAR), H5Sclose, doing);
    const Hdf5Handle attribute(
        H5Acreate2(object.get(), name, type.get(), space.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, doing);
    check_hdf5(H5Awrite(attribute.get(), type.get(), value), doing);
  }

  void add_text(const Hdf5Handle& object, const char* name, std::string_view text, const std::string& doing) {
    add_attribute(object, name, hdf5_text_type(text.size()), text.data(), doing);
  }

  Hdf5Handle file_;
  Hdf5Handle links_;
  Hdf5Handle groups_;
  Hdf5Handle datasets_;
};

std::uint64_t small_bytes(std::uint64_t bytes) { return bytes < kAlignedFrom ? bytes : 0; }

}  // namespace

bool hdf5_has_a_lock() {
  hbool_t locked = 0;
  return H5is_library_threadsafe(&locked) >= 0 && locked != 0;
}

Hdf5Layout lay_out_hdf5(ScratchFile& file, std::span<const TensorSpec> tensors,
                        std::uint64_t attribute_capacity, std::uint64_t user_block) {
  // Some distributions ship libhdf5 without its own lock.
  static Mutex mutex;
  const MutexLock lock(mutex);
  const QuietHdf5 quiet;

  const std::vector<std::string> groups = groups_of(tensors);
  // Each object has a header and a link, hence the size of the metadata block.
  const std::uint64_t objects = tensors.size() + groups.size() + 3;  // root, step, json
  std::uint64_t small_data = sizeof(std::int64_t) + small_bytes(attribute_capacity);
  for (const TensorSpec& tensor : tensors) small_data += small_bytes(tensor.bytes());
  Layouter layouter(file.path(), user_block,
                    std::clamp(objects * kMetadataPerObject, kMinMetadataBlock, kMaxMetadataBlock),
                    small_data);

  // The open file needs no name any more, so a crash from here on leaves nothing behind.
  file.drop_name();

  // /meta comes first, so that the head, which is written last, is short.
  Hdf5Layout layout;
  layouter.add_root_attributes();
  for (const std::string& group : groups) layouter.add_group(group);
  const std::string meta = std::string(kMetaGroup) + "/";
  layout.json_offset = layouter.add_dataset(meta + std::string(kJsonDataset),
                                            hdf5_text_type(attribute_capacity), {}, attribute_capacity);
  layout.step_offset = layouter.add_dataset(meta + std::string(kStepDataset), hdf5_type(DType::int64), {},
                                            sizeof(std::int64_t));
  for (const TensorSpec& tensor : tensors) {
    layout.offsets.push_back(
        layouter.add_dataset(tensor.name, hdf5_type(tensor.dtype), tensor.shape, tensor.bytes(),
                             stored_as_bytes(tensor.dtype) ? name_of(tensor.dtype) : std::string_view()));
  }
  // Not left to the destructor: libhdf5 writes its metadata at the close, and a failure must end the plan.
  layouter.close();
  // libhdf5 keeps freed blocks in lists of its own; the image needs that memory more.
  H5garbage_collect();
  return layout;
}

}}}  // namespace holdfast::v0_2::internal
