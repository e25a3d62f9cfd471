#include "holdfast/format/internal/hdf5_types.h"

#include "holdfast/base/error.h"

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

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

}  // namespace

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

Hdf5Handle hdf5_text_type(std::size_t size) {
  Hdf5Handle type = copy_of(H5T_C_S1);
  check_hdf5(H5Tset_size(type.get(), size), "making a text type");
  // NUL padding, because the JSON text is shorter than its place.
  check_hdf5(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "making a text type");
  check_hdf5(H5Tset_cset(type.get(), H5T_CSET_UTF8), "making a text type");
  return type;
}

bool stored_as_bytes(DType dtype) { return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2; }

}}}  // namespace holdfast::v0_2::internal
