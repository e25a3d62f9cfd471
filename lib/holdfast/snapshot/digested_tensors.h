// Tensors that a checkpoint records by digest alone: frozen weights that each start of the program has before
// it resumes (state/module_options.h). The file has none of their bytes.
//
// The attribute "model.digest.fc.weight" stands for the tensor "model/fc.weight". Its value is a text: type,
// shape, digest (digest.h), as "float32 [64, 3, 7, 7] 0123456789abcdef0123456789abcdef".
//
// Errors: RefusedError, which names a malformed attribute. Threads: free functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "holdfast/base/export.h"
#include "holdfast/snapshot/attributes.h"
#include "holdfast/snapshot/digest.h"
#include "holdfast/snapshot/tensor_spec.h"

namespace holdfast { inline namespace v0_2 {

struct DigestedTensor {
  TensorSpec spec;
  Digest digest;
};

// "model.digest.fc.weight" for "model/fc.weight".
HOLDFAST_EXPORT std::string digest_attribute(const std::string& tensor);
// Requires a name of two components: "model/fc.weight".
HOLDFAST_EXPORT void put_digested(const DigestedTensor& tensor, Attributes& out);
// All of a checkpoint, sorted by the names of their attributes. Only parts that "state.parts" calls modules
// have them.
HOLDFAST_EXPORT std::vector<DigestedTensor> digested_tensors(const Attributes& recorded);
// True for a name such as "model.digest.fc.weight", of a module that is named `module`.
HOLDFAST_EXPORT bool names_digest(std::string_view attribute, std::string_view module);

}}  // namespace holdfast::v0_2
