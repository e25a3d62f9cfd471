// The two forms in which the published figures' models exist: that of the library whose weights people have,
// and that of the program whose figures were published. Figures of one say nothing about the other: the name
// belongs in every line that shows one.
//
//           torchvision                                       table
//   CNNs    torchvision's; Inception v4: timm's               tf_cnn_benchmarks'
//   SSD300  MLPerf's reference; on VGG-16: torchvision's      tf_cnn_benchmarks'; only on ResNet-34
//   BERT    Hugging Face's BertForPreTraining                 NVIDIA's DeepLearningExamples'
//
// ssd300.h and bert.h say what differs in theirs.
// Errors: UsageError for a word that is neither. Threads: free functions, pure.
#pragma once

#include <string_view>

namespace holdfast::inline v1 {

enum class ModelVariant {
  torchvision,  // layers and initialisation of the library: ResNet v1.5, 1000 classes; SSD300 with 81 or 91;
                // BERT with GELU by erf
  table,        // of the harness behind the published table: ResNet v1, AlexNet at 227 pixels with 384
                // channels in its fourth convolution, Inceptions whose batch norms have no scale, 1001
                // classes; SSD300 with the harness' norms, start and order of channels in its heads, 81
                // classes; BERT with GELU by tanh
};

std::string_view word_of(ModelVariant variant);
ModelVariant parse_variant(std::string_view word);

}  // namespace holdfast::inline v1
