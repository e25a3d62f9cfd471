// The two forms of the published models: that of the library whose weights people have, and that of the
// program whose speed was published. Never compare figures of different forms; print the name beside each
// figure.
//
//           torchvision                                       table
//   CNNs    torchvision's; Inception v4: timm's               tf_cnn_benchmarks'
//   SSD300  MLPerf's reference; on VGG-16: torchvision's      tf_cnn_benchmarks'; only on ResNet-34
//   BERT    Hugging Face's BertForPreTraining                 NVIDIA's DeepLearningExamples'
//
// docs/models_and_the_published_table.md lists the differences. Errors: UsageError for an unknown word.
// Threads: free functions, pure.
#pragma once

#include <string_view>

namespace holdfast { inline namespace v0_2 {

enum class ModelVariant {
  // Layers and initial weights of the library: ResNet v1.5, 1000 classes; SSD300 with 81 or 91 classes; BERT
  // with GELU by erf.
  torchvision,
  // Those of the published harness: ResNet v1, AlexNet at 227 pixels with 384 channels in its fourth
  // convolution, Inceptions whose batch norms have no scale, 1001 classes; SSD300 with the harness's norms,
  // initial weights and order of channels in its heads, 81 classes; BERT with GELU by tanh.
  table,
};

std::string_view word_of(ModelVariant variant);
ModelVariant parse_variant(std::string_view word);

}}  // namespace holdfast::v0_2
