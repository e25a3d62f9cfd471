// What torch.amp.GradScaler of PyTorch 2.11.0 did, recorded by record_grad_scaler.py.
//
// Threads: constants.
#pragma once

#include <array>
#include <cstdint>

namespace holdfast::test {

struct RecordedStep {
  std::uint32_t scale;  // after update(), a float's bits; as are the others
  int growth_tracker;
  bool skipped;
  std::array<std::uint32_t, 3> gradient;  // after unscale_; 0 where it was not finite
  std::array<std::uint32_t, 3> weight;    // after step
};

// Factors that are no powers of two: init 3000, growth 1.9, backoff 0.45, interval 3.
inline constexpr std::array<RecordedStep, 24> kOddFactors = {{
    {0x453b8000U, 1, false, {0xbfd55555U, 0x00000000U, 0x3fd55555U}, {0x3f955555U, 0xbf000000U, 0x3daaaaabU}},
    {0x453b8000U, 2, false, {0x3f2aaaabU, 0xbfaaaaabU, 0x3eaaaaabU}, {0x3fa00000U, 0xbebbbbbcU, 0xbdccccccU}},
    {0x45b22000U, 0, false, {0xbf2aaaabU, 0x3f800000U, 0xbf800000U}, {0x3fb22222U, 0xbeb17e4bU, 0xbe28f5c1U}},
    {0x45b22000U, 1, false, {0x3fd55556U, 0xbeaaaaabU, 0x3faaaaabU}, {0x3fad1eb8U, 0xbe9735eeU, 0xbeb6b2dbU}},
    {0x45205000U, 0, true, {0, 0, 0}, {0x3fad1eb8U, 0xbe9735eeU, 0xbeb6b2dbU}},
    {0x44904800U, 0, true, {0, 0, 0}, {0x3fad1eb8U, 0xbe9735eeU, 0xbeb6b2dbU}},
    {0x44904800U, 1, false, {0x3faaaaabU, 0xbf2aaaabU, 0x3f800000U}, {0x3f978a94U, 0xbe3ad889U, 0xbf2125d2U}},
    {0x44904800U, 2, false, {0x00000000U, 0x3fd55556U, 0xbeaaaaabU}, {0x3f841edaU, 0xbe7d7e9eU, 0xbf576ed7U}},
    {0x45091133U, 0, false, {0xbfaaaaabU, 0x3eaaaaabU, 0xbfd55556U}, {0x3f83b55eU, 0xbeadce50U, 0xbf5d9f7dU}},
    {0x4476b88fU, 0, true, {0, 0, 0}, {0x3f83b55eU, 0xbeadce50U, 0xbf5d9f7dU}},
    {0x4476b88fU, 1, false, {0xbeaaaaabU, 0x3faaaaabU, 0xbf2aaaabU}, {0x3f879ab2U, 0xbf0e3671U, 0xbf52209bU}},
    {0x4476b88fU, 2, false, {0xbfd55555U, 0x00000000U, 0x3fd55555U}, {0x3fa071a0U, 0xbf3ffdccU, 0xbf7272adU}},
    {0x44ea6288U, 0, false, {0x3f2aaaabU, 0xbfaaaaabU, 0x3eaaaaabU}, {0x3fae4421U, 0xbf4aa8afU, 0xbf8c08f0U}},
    {0x4452f247U, 0, true, {0, 0, 0}, {0x3fae4421U, 0xbf4aa8afU, 0xbf8c08f0U}},
    {0x4452f247U, 1, false, {0x3fd55556U, 0xbeaaaaabU, 0x3faaaaabU}, {0x3fa55f73U, 0xbf4bb9f3U, 0xbfae080bU}},
    {0x4452f247U, 2, false, {0x3eaaaaabU, 0xbfd55556U, 0x00000000U}, {0x3f991a2bU, 0xbf220538U, 0xbfcca0d7U}},
    {0x44c8662aU, 0, false, {0xbf800000U, 0x3f2aaaabU, 0xbfaaaaabU}, {0x3f9adbd1U, 0xbf0d8d3bU, 0xbfd7194aU}},
    {0x44c8662aU, 1, false, {0x3faaaaacU, 0xbf2aaaacU, 0x3f800000U}, {0x3f8b5f6fU, 0xbed42058U, 0xbfed527eU}},
    {0x44c8662aU, 2, false, {0x00000000U, 0x3fd55555U, 0xbeaaaaacU}, {0x3f7adefaU, 0xbee99493U, 0xbffd0e82U}},
    {0x453e610eU, 0, false, {0xbfaaaaacU, 0x3eaaaaacU, 0xbfd55555U}, {0x3f81f568U, 0xbf06fa53U, 0xbff5e264U}},
    {0x44ab5759U, 0, true, {0, 0, 0}, {0x3f81f568U, 0xbf06fa53U, 0xbff5e264U}},
    {0x44ab5759U, 1, false, {0xbeaaaaabU, 0x3faaaaabU, 0xbf2aaaabU}, {0x3f8a4bccU, 0xbf397ae4U, 0xbfe6e55aU}},
    {0x44ab5759U, 2, false, {0xbfd55555U, 0x00000000U, 0x3fd55555U}, {0x3fa72215U, 0xbf66ee9aU, 0xbfeebd59U}},
    {0x4522c62eU, 0, false, {0x3f2aaaabU, 0xbfaaaaabU, 0x3eaaaaabU}, {0x3fb88d9bU, 0xbf6db49bU, 0xbffa10d0U}},
}};

struct RecordedChange {
  int step;
  std::uint32_t scale;
};

// The default options over 9,000 steps, the gradients of 0, 1, 3000 and 5100 not finite.
inline constexpr std::array<RecordedChange, 7> kDefaults = {{
    {0, 0x47000000U},
    {1, 0x46800000U},
    {2001, 0x47000000U},
    {3000, 0x46800000U},
    {5000, 0x47000000U},
    {5100, 0x46800000U},
    {7100, 0x47000000U},
}};

}  // namespace holdfast::test
