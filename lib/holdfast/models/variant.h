// The two forms in which the published figures' models exist. Figures of one say nothing about the other: the
// name belongs in every line that shows one.
//
// Errors: UsageError for a word that is neither. Threads: free functions, pure.
#pragma once

#include <string_view>

namespace holdfast::inline v1 {

enum class ModelVariant {
  torchvision,  // layers and initialisation of torchvision, of timm for Inception v4; ResNet v1.5, 1000
                // classes
  table,        // of the harness behind the published table (tf_cnn_benchmarks): ResNet v1, AlexNet at 227
                // pixels with 384 channels in its fourth convolution, Inceptions whose batch norms have no
                // scale, 1001 classes
};

std::string_view word_of(ModelVariant variant);
ModelVariant parse_variant(std::string_view word);

}  // namespace holdfast::inline v1
