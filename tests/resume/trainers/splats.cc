// 3-D Gaussian splatting in small (Kerbl et al., 2023). A row of the six tensors is a Gaussian. Rows are
// cloned, split and pruned during the training, and Adam's moments follow them by hand.
#include <ATen/ATen.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/normalization.h>
#include <torch/nn/module.h>
#include <torch/optim/adam.h>
#include <torch/serialize.h>
#include <torch/utils.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/holdfast.h"  // holdfast
#include "resume/trainers/trainers.h"

namespace trainers {
namespace {

constexpr long kPixels = 16, kViews = 8, kRefine = 14, kReset = 33, kRaise = 20;
constexpr double kGrow = 2e-3, kLarge = 0.2, kPale = 0.03, kHuge = 1.6;

constexpr std::array kNames = {"means", "scales", "rotations", "opacities", "sh0", "shN"};
constexpr std::array kRates = {1e-2, 1e-2, 1e-2, 5e-2, 2e-2, 1e-3};

struct Rendered {
  at::Tensor picture;
  at::Tensor places;  // of the centers in the picture; their gradients decide what grows
  at::Tensor radii;
};

struct Splats : torch::nn::Module {
  explicit Splats(long rows) {
    register_parameter("means", torch::randn({rows, 3}) * 0.5);
    register_parameter("scales", torch::full({rows, 3}, std::log(0.2)) + torch::randn({rows, 3}) * 0.3);
    register_parameter("rotations", torch::randn({rows, 4}));
    register_parameter("opacities", torch::zeros({rows}));
    register_parameter("sh0", torch::rand({rows, 3}));
    register_parameter("shN", torch::zeros({rows, 3, 3}));
  }

  at::Tensor& operator[](const std::string& name) { return parameters_[name]; }

  at::Tensor axes() {
    const auto q = at::unbind(torch::nn::functional::normalize((*this)["rotations"]), 1);
    const at::Tensor w = q[0], x = q[1], y = q[2], z = q[3];
    const at::Tensor turn = at::stack({1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                                       2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                                       2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)},
                                      1);
    return turn.reshape({-1, 3, 3}) * (*this)["scales"].exp().unsqueeze(1);
  }

  Rendered render(long view, long degree) {
    const double angle = 6.2832 * double(view) / kViews;
    const at::Tensor camera = torch::tensor({std::cos(angle), 0.0, std::sin(angle), 0.0, 1.0, 0.0,
                                             -std::sin(angle), 0.0, std::cos(angle)},
                                            at::kFloat)
                                  .reshape({3, 3});
    const at::Tensor seen = (*this)["means"].matmul(camera.t());
    at::Tensor places = seen.slice(1, 0, 2);
    if (places.requires_grad()) places.retain_grad();
    const at::Tensor flat = camera.matmul(axes()).slice(1, 0, 2);
    const at::Tensor covariance = flat.matmul(flat.transpose(1, 2)) + 1e-3 * torch::eye(2);
    const auto entries = at::unbind(covariance.flatten(1).unsqueeze(1), 2);  // xx, xy, yx, yy
    const at::Tensor determinant = entries[0] * entries[3] - entries[1] * entries[2];

    const at::Tensor line = torch::linspace(-1.5, 1.5, kPixels);
    const at::Tensor grid = at::stack(at::meshgrid({line, line}, "xy"), 2).reshape({1, -1, 2});
    const auto away = at::unbind(grid - places.unsqueeze(1), 2);
    const at::Tensor distance = (entries[3] * away[0] * away[0] - 2 * entries[1] * away[0] * away[1] +
                                 entries[0] * away[1] * away[1]) /
                                determinant;
    const at::Tensor nearest_first = seen.select(1, 2).argsort();
    const at::Tensor covers = ((*this)["opacities"].sigmoid().unsqueeze(1) * (-0.5 * distance).exp())
                                  .clamp_max(0.99)
                                  .index_select(0, nearest_first);
    const at::Tensor reaches = (1 - covers).cumprod(0) / (1 - covers);
    at::Tensor colours = (*this)["sh0"];
    if (degree > 0) colours = colours + (*this)["shN"].matmul(camera.select(0, 2));
    return {.picture = (reaches * covers).t().matmul(colours.index_select(0, nearest_first)),
            .places = places,
            .radii = 3 * at::max(entries[0], entries[3]).detach().flatten().sqrt()};
  }
};

// Puts other rows in the place of a parameter, and `moved` makes Adam's moments for them.
template <class Moved>
void replace(Splats& splats, torch::optim::Adam& adam, std::size_t part, const at::Tensor& rows,
             const Moved& moved) {
  at::Tensor& parameter = splats[kNames[part]];
  std::unique_ptr<torch::optim::OptimizerParamState> slots;
  if (const auto old = adam.state().find(parameter.unsafeGetTensorImpl()); old != adam.state().end()) {
    auto& moments = static_cast<torch::optim::AdamParamState&>(*old->second);
    moments.exp_avg(moved(moments.exp_avg()));
    moments.exp_avg_sq(moved(moments.exp_avg_sq()));
    slots = std::move(old->second);
    adam.state().erase(old);
  }
  parameter = rows.detach().requires_grad_();
  adam.param_groups()[part].params()[0] = parameter;
  if (slots != nullptr) adam.state()[parameter.unsafeGetTensorImpl()] = std::move(slots);
}

// What was seen of each row since the last refinement.
struct Statistics {
  at::Tensor gradients, times, radii;
  explicit Statistics(long rows) { *this = {torch::zeros(rows), torch::zeros(rows), torch::zeros(rows)}; }
  Statistics(at::Tensor sum, at::Tensor count, at::Tensor most)
      : gradients(std::move(sum)), times(std::move(count)), radii(std::move(most)) {}

  void add(const Rendered& rendered) {
    const at::Tensor length = rendered.places.grad().norm(2, 1);
    gradients += length;
    times += (length > 0).to(at::kFloat);
    radii = at::max(radii, rendered.radii);
  }
};

void refine(Splats& splats, torch::optim::Adam& adam, Statistics& seen) {
  const at::NoGradGuard no_grad;
  const at::Tensor sizes = splats["scales"].exp();
  const at::Tensor grows = seen.gradients / seen.times.clamp_min(1) > kGrow, large = sizes.amax(1) > kLarge;
  const at::Tensor stays = (splats["opacities"].sigmoid() > kPale) & (seen.radii < kHuge);
  const at::Tensor kept = (stays & ~(grows & large)).nonzero().flatten();
  const at::Tensor cloned = (stays & grows & ~large).nonzero().flatten();
  const at::Tensor split = (stays & grows & large).nonzero().flatten().repeat(2);
  const at::Tensor rows = at::cat({kept, cloned, split});
  const at::Tensor shift =
      splats.axes().index_select(0, split).matmul(torch::randn({split.size(0), 3, 1})).squeeze(2);
  for (std::size_t part = 0; part < kNames.size(); ++part) {
    at::Tensor values = splats[kNames[part]].index_select(0, rows);
    at::Tensor halves = values.slice(0, rows.size(0) - split.size(0));
    if (part == 0) halves += shift;
    if (part == 1) halves -= std::log(1.6);
    replace(splats, adam, part, values, [&](const at::Tensor& moment) {
      at::Tensor moved = moment.index_select(0, rows);
      moved.slice(0, kept.size(0)).zero_();
      return moved;
    });
  }
  seen = Statistics(rows.size(0));
}

void reset_opacities(Splats& splats, torch::optim::Adam& adam) {
  replace(splats, adam, 3, splats["opacities"].detach().clamp_max(std::log(0.1 / 0.9)),
          [](const at::Tensor& moment) { return at::zeros_like(moment); });
}

std::vector<at::Tensor> photographs() {
  const at::NoGradGuard no_grad;
  Splats scene(40);
  std::vector<at::Tensor> pictures;
  for (long view = 0; view < kViews; ++view) pictures.push_back(scene.render(view, 0).picture);
  return pictures;
}

int train_splats(long steps, const std::string& directory) {
  torch::manual_seed(1);
  const std::vector<at::Tensor> pictures = photographs();
  Splats splats(24);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (std::size_t part = 0; part < kNames.size(); ++part)
    groups.emplace_back(std::vector<at::Tensor>{splats[kNames[part]]},
                        std::make_unique<torch::optim::AdamOptions>(kRates[part]));
  torch::optim::Adam adam(groups, torch::optim::AdamOptions().eps(1e-15));
  Statistics seen(24);
  long degree = 0;
  std::vector<long> views;
  std::mt19937_64 engine(7);
  holdfast::TrainState state;                                                     // holdfast
  state.add("splats", splats, {.may_change_shape = true});                        // holdfast
  state.add("adam", adam);                                                        // holdfast
  state.value("seen", std::tie(seen.gradients, seen.times, seen.radii));          // holdfast
  state.value("views", std::tie(views, engine));                                  // holdfast
  state.value("degree", degree);                                                  // holdfast
  state.rates_follow_position();                                                  // holdfast
  holdfast::Checkpointer checkpointer(state, {.directory = directory + "/run"});  // holdfast
  checkpointer.resume();                                                          // holdfast
  // was: for (long step = 0; step < steps; ++step) {
  for (long step = state.step(); step < steps; ++step) {
    if (step > 0 && step % kRaise == 0) degree = 1;
    for (long view = 0; views.empty() || view % kViews > 0; ++view) views.push_back(view);
    const auto drawn = views.begin() + long(engine() % views.size());
    const long view = *drawn;
    views.erase(drawn);
    adam.param_groups()[0].options().set_lr(kRates[0] * std::pow(0.01, double(step) / 3000));
    adam.zero_grad();
    const Rendered rendered = splats.render(view, degree);
    const at::Tensor loss = torch::nn::functional::l1_loss(rendered.picture, pictures[view]);
    loss.backward();
    adam.step();
    seen.add(rendered);
    if (step % kRefine == kRefine - 1) refine(splats, adam, seen);
    if (step % kReset == kReset - 1) reset_opacities(splats, adam);
    const double value = loss.item<double>();
    std::printf("step %ld loss %.9g rows %ld\n", step, value, splats["means"].size(0));
    if (checkpointer.after_step({.loss = value}).stop) return checkpointer.finish();  // holdfast
  }
  torch::save(splats.parameters(), directory + "/splats.pt");
  // was: return 0;
  return checkpointer.finish();
}

}  // namespace

int splats(long steps, const std::string& directory) {
  // was: return train_splats(steps, directory);
  return holdfast::run([&] { return train_splats(steps, directory); });
}

}  // namespace trainers
