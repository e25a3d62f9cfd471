#include "options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <limits>
#include <map>

#include "holdfast/base/env.h"
#include "holdfast/base/error.h"
#include "holdfast/base/exit_code.h"
#include "holdfast/base/text.h"
#include "holdfast/interruption/sources.h"
#include "holdfast/optim/make_optimizer.h"
#include "holdfast/store/retention_text.h"
#include "settle.h"

namespace example {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

// Checks without a description, which would crowd the help. An error message explains a wrong value.
CLI::Validator between(std::int64_t low, std::int64_t high) { return CLI::Range(low, high).description(""); }
const CLI::Validator kNotNegative = CLI::Validator(CLI::NonNegativeNumber).description("");

template <class T>
CLI::Validator one_of(const std::map<std::string, T>& choices) {
  return CLI::CheckedTransformer(choices).description("");
}

constexpr const char* kAbout =
    R"(Trains ResNet-50 on CIFAR-10 and survives whatever happens to the machine.

Stop it at any moment (Ctrl-C, SIGTERM, kill -9, a power cut) and start it again with
the same options: it resumes at the last committed step, bit for bit.

  resnet50_cifar10 --data cifar-10-batches-bin --checkpoint-dir runs/first
  resnet50_cifar10 --data synthetic:2000 --width 8 --steps 50 --every 20steps
  resnet50_cifar10 --precision fp16 --channels-last --label-smoothing 0.1
  resnet50_cifar10 --data cifar-10-batches-bin --recipe 94
  holdfast launch --nproc 8 -- resnet50_cifar10 --data cifar-10-batches-bin

Several ranks (holdfast launch, torchrun, srun, mpirun) all take the same options.
Rank 0 writes and reports. A run can resume with any number of ranks.)";

std::string environment_help() {
  std::string text = "Environment:\n";
  const auto add = [&](const auto& variables) {
    for (const auto& variable : variables) {
      text += "  " + std::string(variable.name) + "  " + variable.meaning + "\n";
    }
  };
  add(holdfast::env_variables());
  add(holdfast::source_variables());
  text += "\nExit codes, and whether to start again:\n";
  for (const auto& row : holdfast::exit_code_rows()) {
    if (*row.again == '\0') continue;  // of tools alone
    text += "  " + std::to_string(static_cast<int>(row.code)) + "  " + row.meaning + ": " + row.again + "\n";
  }
  return text + "The last line on standard output is the result: complete … or interrupted ….";
}

holdfast::SaveEvery parse_every(const std::string& text) {
  if (const auto every = holdfast::parse_save_every(text)) return *every;
  throw holdfast::UsageError("--every " + text +
                             ": say a time, a number of steps, or auto, e.g. 30s, 5min, 500steps");
}

// The name under which a flag is recorded: data.batch_size, schedule.after.cosine.steps.
std::string recorded_name(std::string flag) {
  flag.erase(0, std::min(flag.find_first_not_of('-'), flag.size()));
  std::replace(flag.begin(), flag.end(), '-', '_');
  if (flag == "schedule_steps") return "steps";  // of the warm-up and of the cosine after it
  if (flag == "warmup_steps") return "warmup.steps";
  return flag;
}

class Parser {
 public:
  Parser(Options& options, bool cuda_available) : options_(options), app_(kAbout, "resnet50_cifar10") {
    app_.option_defaults()->always_capture_default();
    app_.get_formatter()->column_width(34);
    app_.footer(environment_help());
    add_work();
    add_recipe();
    add_checkpoints();
    add_interruptions();
    add_machine(cuda_available);
  }

  bool parse(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      std::cout << app_.help();
      return false;
    } catch (const CLI::ParseError& error) {
      std::string text = error.what();
      std::replace(text.begin(), text.end(), '\n', ' ');
      throw holdfast::UsageError(text + " (resnet50_cifar10 --help explains the options)");
    }
    if (app_.count("--accumulate") > 0) {
      throw holdfast::UsageError(
          "--accumulate is no option any more: --batch-size counts the pictures of a whole step now, and "
          "--micro-batch-size those of one pass; for --batch-size 32 --accumulate 4 say --batch-size 128 "
          "--micro-batch-size 32");
    }
    options_.checkpointer.keep = holdfast::parse_retention(keep_);
    if (app_.count("--every") > 0) {
      options_.checkpointer.every.clear();
      for (const auto& text : every_) options_.checkpointer.every.push_back(parse_every(text));
    }
    if (app_.count("--max-wall") > 0) {
      options_.checkpointer.notices.max_wall = holdfast::parse_duration(max_wall_);
      if (!options_.checkpointer.notices.max_wall || options_.checkpointer.notices.max_wall->count() <= 0) {
        throw holdfast::UsageError("--max-wall " + max_wall_ + ": say a time, e.g. 2h, 90min");
      }
    }
    if (app_.count("--home-wait") > 0) {
      const auto wait = holdfast::parse_duration(home_wait_);
      if (!wait) throw holdfast::UsageError("--home-wait " + home_wait_ + ": say a time, e.g. 30s, 10min");
      options_.checkpointer.start.home_wait = std::chrono::ceil<std::chrono::seconds>(*wait);
    }
    for (auto& name : options_.checkpointer.start.overrides) name = recorded_name(name);
    settle(options_, [this](const char* flag) { return app_.count(flag) > 0; });
    return true;
  }

 private:
  void add_work() {
    constexpr auto kGroup = "Work";
    app_.add_option("--data", options_.data,
                    "Folder with CIFAR-10's binary batches, or synthetic[:COUNT] pictures")
        ->type_name("DIR")
        ->group(kGroup);
    auto* epochs = app_.add_option("--epochs", options_.epochs, "Train for N passes over the data, in total");
    auto* steps = app_.add_option("--steps", options_.steps, "Train until optimizer step N, in total");
    epochs->check(between(1, 1'000'000'000))->type_name("N")->group(kGroup)->excludes(steps);
    steps->check(between(1, kMost))->type_name("N")->group(kGroup)->excludes(epochs);
    app_.add_flag("--eval,!--no-eval", options_.evaluate, "Measure the test accuracy after each epoch")
        ->group(kGroup);
    app_.add_option("--metrics", options_.metrics,
                    "Append one JSON line per step to FILE. If FILE ends in .csv: one CSV row per step, and "
                    "no step twice after a resume")
        ->type_name("FILE")
        ->group(kGroup);
    app_.add_option("--tensorboard", options_.tensorboard,
                    "Write event files for TensorBoard into DIR, one for each attempt")
        ->type_name("DIR")
        ->group(kGroup);
    app_.add_option("--tensorboard-histograms", options_.tensorboard_histograms,
                    "Add histograms of all weights and gradients every N steps; 0: never")
        ->check(between(0, kMost))
        ->type_name("N")
        ->group(kGroup);
    app_.add_option(
            "--prometheus", options_.prometheus,
            "Replace FILE (….prom) every 10 s, for the textfile collector of Prometheus' node_exporter")
        ->type_name("FILE")
        ->group(kGroup);
  }

  void add_recipe() {
    constexpr auto kGroup = "Recipe (recorded; a change on resume is refused unless overridden)";
    const auto count = between(1, 1 << 30);
    app_.add_option(
            "--recipe", options_.recipe,
            "94: options for 30 quick epochs on CIFAR-10, called after their goal: --epochs 30 --batch-size "
            "512 "
            "--stem cifar --nesterov --no-decay-all --label-smoothing 0.1 --channels-last, with a fifth of "
            "the "
            "steps for the warm-up. On a GPU also --precision fp16 --graph --bn fused --data-on device. "
            "Measured: 89.73 % of the test pictures after 59.2 s on one H200, on CIFAR-10 saved as JPEG "
            "(quality 75, 4:2:0); not measured on the original pictures. An option that you give yourself "
            "replaces the recipe's")
        ->check(CLI::IsMember({"94"}).description(""))
        ->type_name("NAME")
        ->default_str("")
        ->group(kGroup);
    app_.add_option("--batch-size", options_.batch_size,
                    "Pictures of one optimizer step, of all ranks together. It does not change with the "
                    "number of ranks")
        ->check(count)
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--accumulate", accumulate_, "What it was called before")->group("");
    app_.add_option("--optimizer", options_.optimizer,
                    "sgd, adam, adamw and lamb update all parameters in a few kernels. torch-sgd, torch-adam "
                    "and torch-adamw are LibTorch's. sgd and torch-sgd give the same bits on a CPU")
        ->check(CLI::IsMember(holdfast::optimizer_names()).description(""))
        ->type_name("NAME")
        ->group(kGroup);
    app_.add_option("--lr", options_.lr,
                    "Highest learning rate. Default: 0.1 per 128 pictures (adam: 0.001, lamb: 0.002)")
        ->check(kNotNegative)
        ->type_name("X")
        ->default_str("")
        ->group(kGroup);
    app_.add_option("--momentum", options_.momentum, "Momentum of sgd")
        ->check(CLI::Range(0.0, 1.0).description(""))
        ->type_name("X")
        ->group(kGroup);
    app_.add_flag("--nesterov,!--no-nesterov", options_.nesterov, "Use Nesterov's momentum with sgd")
        ->group(kGroup);
    app_.add_option("--weight-decay", options_.weight_decay,
                    "Weight decay. Default: 0.0005 (adam: 0, adamw: 0.05, lamb: 0.01)")
        ->check(kNotNegative)
        ->type_name("X")
        ->default_str("")
        ->group(kGroup);
    app_.add_flag("--decay-all,!--no-decay-all", options_.decay_all,
                  "Apply weight decay to all parameters. --no-decay-all: not to biases and batch norms")
        ->group(kGroup);
    app_.add_option("--clip-grad-norm", options_.clip_grad_norm,
                    "Scale gradients down to this norm; 0: never")
        ->check(kNotNegative)
        ->type_name("X")
        ->group(kGroup);
    app_.add_option("--label-smoothing", options_.label_smoothing,
                    "Share of the target that is spread over all classes, for example 0.1. The test loss "
                    "does without")
        ->check(CLI::Range(0.0, 1.0).description(""))
        ->type_name("X")
        ->group(kGroup);
    add_precision(kGroup);
    app_.add_option("--schedule", options_.schedule, "cosine or constant, each after a linear warm-up")
        ->transform(
            one_of<ScheduleKind>({{"cosine", ScheduleKind::cosine}, {"constant", ScheduleKind::constant}}))
        ->default_str("cosine")
        ->type_name("NAME")
        ->group(kGroup);
    app_.add_option("--schedule-steps", options_.schedule_steps,
                    "Step at which the cosine reaches its lowest rate, lr/100. Default: the whole epochs "
                    "that --epochs or --steps asks for when the run begins. A resumed run keeps that plan, "
                    "even if it is made longer")
        ->check(count)
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--warmup-steps", options_.warmup_steps,
                    "Steps of linear warm-up. Default: a twentieth of --schedule-steps")
        ->check(between(0, kMost))
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--seed", options_.seed,
                    "Seed of the weights, of the order of the pictures and of the augmentation")
        ->check(between(0, kMost))
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--stem", options_.stem,
                    "imagenet: 7x7, stride 2, and a max pool. cifar: 3x3, stride 1, with 16 times the work "
                    "and far better accuracy")
        ->transform(one_of<holdfast::Stem>(
            {{"imagenet", holdfast::Stem::imagenet}, {"cifar", holdfast::Stem::cifar}}))
        ->default_str(name_of(options_.stem))
        ->type_name("NAME")
        ->group(kGroup);
    app_.add_option("--width", options_.width,
                    "Channels of the stem. 64 is ResNet-50, small values are quick")
        ->check(between(1, 4096))
        ->type_name("N")
        ->group(kGroup);
  }

  void add_precision(const char* group) {
    app_.add_option(
            "--precision", options_.precision,
            "fp32: exact. tf32: FP32 in memory, computed on tensor cores (GPUs from A100 on). fp16: autocast "
            "with loss scaling, which skips steps that overflow (GPUs from P100 on, slow on a CPU). bf16: "
            "autocast (GPUs from A100 on, CPUs). Default: tf32 on a GPU that has it, else fp32")
        ->transform(one_of<holdfast::Precision>({{"fp32", holdfast::Precision::fp32},
                                                 {"tf32", holdfast::Precision::tf32},
                                                 {"fp16", holdfast::Precision::fp16},
                                                 {"bf16", holdfast::Precision::bf16}}))
        ->default_str("")
        ->type_name("NAME")
        ->group(group);
    app_.add_option("--loss-scale", options_.loss_scale,
                    "Loss scale of the first step in fp16. The scaler adapts it after that (not recorded)")
        ->check(CLI::PositiveNumber.description(""))
        ->type_name("X")
        ->group(group);
    app_.add_flag(
            "--channels-last,!--no-channels-last", options_.channels_last,
            "Keep pictures and weights as NHWC, the layout that suits tensor cores and oneDNN's kernels")
        ->group(group);
    app_.add_option("--bn", options_.bn,
                    "Batch norms, with the additions and ReLUs after them. aten: Torch's operators. fused: "
                    "Holdfast's kernels, which need --channels-last and are slow on a CPU")
        ->transform(one_of<holdfast::BatchNormKind>(
            {{"aten", holdfast::BatchNormKind::aten}, {"fused", holdfast::BatchNormKind::fused}}))
        ->default_str("aten")
        ->type_name("NAME")
        ->group(group);
  }

  void add_checkpoints() {
    constexpr auto kGroup = "Checkpoints";
    auto& checkpointer = options_.checkpointer;
    app_.add_option("--checkpoint-dir", checkpointer.directory,
                    "Folder for the checkpoints of this run alone, on a volume that outlives the machine")
        ->type_name("DIR")
        ->group(kGroup);
    app_.add_option("--every", every_,
                    "Save after a time or a number of steps (30s, 500steps), or at the interval that loses "
                    "least time (auto). May be repeated")
        ->default_str("auto")
        ->type_name("WHEN")
        ->group(kGroup)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app_.add_option(
            "--keep", keep_,
            "Checkpoints to keep: a number of the newest, at least 2, or policies that add up, such as "
            "last=3,every=1000,best=test_accuracy:max:2,newer=7d. best also takes loss and test_loss")
        ->type_name("WHAT")
        ->group(kGroup);
    app_.add_option("--read-back", checkpointer.writing.read_back,
                    "What each save reads again from the device before it counts. head: takes milliseconds. "
                    "all: one more read of the file, for a volume that you do not trust")
        ->transform(one_of<holdfast::ReadBack>(
            {{"head", holdfast::ReadBack::head}, {"all", holdfast::ReadBack::all}}))
        ->default_str("head")
        ->type_name("WHAT")
        ->group(kGroup);
    app_.add_option("--write-limit", checkpointer.writing.write_limit,
                    "Write at most this many MB/s, for a volume that others use. A save takes longer, so a "
                    "sudden end loses more work. An announced end lifts the limit. 0: no limit")
        ->check(kNotNegative)
        ->type_name("MB/S")
        ->group(kGroup);
    app_.add_flag("--second-image", checkpointer.writing.second_image,
                  "Keep a second image of the state in memory. Then one save is copied while another is "
                  "being written, and a stop copies without a wait for the disk")
        ->group(kGroup);
    app_.add_option("--mount", checkpointer.mount,
                    "Mount point that DIR lies on. The start waits for this mount and never uses the root "
                    "disk instead")
        ->type_name("DIR")
        ->group(kGroup);
    app_.add_option("--home", checkpointer.start.home,
                    "Second, safer place of the checkpoints: a directory or rclone:REMOTE:PATH. The start "
                    "fetches the newest from there. Run `holdfast mirror DIR --to HOME` at the same time")
        ->type_name("HOME")
        ->group(kGroup);
    app_.add_option("--home-mount", checkpointer.start.home_mount,
                    "Mount point that HOME lies on. The start waits for this mount and never uses the root "
                    "disk instead")
        ->type_name("DIR")
        ->group(kGroup);
    app_.add_option("--home-wait", home_wait_,
                    "Longest wait of the start for HOME. After that the run goes on from DIR alone")
        ->default_str("10min")
        ->type_name("TIME")
        ->group(kGroup);
    app_.add_flag("--allow-fresh", checkpointer.start.allow_fresh,
                  "Start over if checkpoints exist but none verifies. Deletes nothing")
        ->group(kGroup);
    app_.add_flag(
            "--trust-directory", checkpointer.start.trust_directory,
            "Go on although another user owns DIR or may write to it. That user could choose the checkpoint")
        ->group(kGroup);
    auto* resume =
        app_.add_option("--resume-from", checkpointer.start.resume_from,
                        "Resume from this step or file instead of the newest, once: a start goes on with the "
                        "newest if that has grown from there. STEP@WORD with a new word: once more. "
                        "Deletes nothing");
    auto* init = app_.add_option(
        "--init-from", checkpointer.start.init_from,
        "Load the weights of FILE: a checkpoint, PyTorch or safetensors. All else starts fresh");
    resume->type_name("STEP|FILE")->group(kGroup)->excludes(init);
    init->type_name("FILE")->group(kGroup)->excludes(resume);
    app_.add_option("--override", checkpointer.start.overrides,
                    "Accept that this recorded option differs. May be repeated")
        ->type_name("NAME")
        ->group(kGroup)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app_.add_option("--exit-code-interrupted", checkpointer.notices.exit_code_interrupted,
                    "Exit code of an interrupted run, for launchers that need another than 75")
        ->check(between(0, 255))
        ->type_name("N")
        ->group(kGroup);
  }

  void add_interruptions() {
    constexpr auto kGroup = "Interruptions (free to change)";
    auto& checkpointer = options_.checkpointer;
    app_.add_option("--on-notice", checkpointer.notices.on_notice,
                    "What to do when a notice announces the machine's end. train-on: save at once, train "
                    "until the last save just fits, save, and wait for the end. wait: save and wait. exit: "
                    "save and exit with 75. If the machine still runs a minute after the announced end, the "
                    "training goes on. SIGTERM always saves and exits")
        ->transform(one_of<holdfast::OnNotice>({{"train-on", holdfast::OnNotice::train_on},
                                                {"wait", holdfast::OnNotice::wait},
                                                {"exit", holdfast::OnNotice::exit}}))
        ->default_str("train-on")
        ->type_name("WHAT")
        ->group(kGroup);
    app_.add_option("--notice-file", checkpointer.notices.notice_file,
                    "FILE announces the end when it appears, or if it exists at the start. Remove it before "
                    "the next start. It may be empty, or JSON such as "
                    R"({"action": "stop", "in_seconds": 90})")
        ->type_name("FILE")
        ->group(kGroup);
    app_.add_option("--require-source", checkpointer.notices.require_sources,
                    "Refuse to start while this interruption source does not answer (75), or if this machine "
                    "has no such source (78). May be repeated. HOLDFAST_REQUIRE_SOURCE adds to it")
        ->check(CLI::IsMember({"cloud", "ec2", "gcp", "azure", "signal", "file", "deadline"}))
        ->type_name("NAME")
        ->group(kGroup)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app_.add_flag("--approve-end", checkpointer.notices.approve_end,
                  "Azure: tell it, in the pause before the end, that the machine may go at once")
        ->group(kGroup);
    app_.add_option("--max-wall", max_wall_,
                    "Time from the start of the process to its end, at most (2h, 90min). Under holdfast "
                    "supervise: of all processes of the run together. This end is announced like any other")
        ->type_name("TIME")
        ->group(kGroup);
    app_.add_option("--on-risk", checkpointer.notices.on_risk,
                    "Shell command to run when the machine may go away soon (EC2's rebalance "
                    "recommendation). The run then also saves at once, and twice as often for half an hour")
        ->type_name("CMD")
        ->group(kGroup);
  }

  void add_machine(bool cuda_available) {
    constexpr auto kGroup = "Machine (free to change)";
    app_.add_option("--data-on", options_.data_on,
                    "Where the pictures lie. Both places give the same bits. host: threads crop, flip and "
                    "normalise them. device: the GPU keeps them as bytes (184 MB for CIFAR-10) and does that "
                    "work. Without a GPU the device is the CPU")
        ->transform(one_of<DataOn>({{"host", DataOn::host}, {"device", DataOn::device}}))
        ->default_str("host")
        ->type_name("WHERE")
        ->group(kGroup);
    app_.add_option("--micro-batch-size", options_.micro_batch_size,
                    "Most pictures that one rank computes at a time. A larger share of --batch-size takes "
                    "several equal passes per step, and gives other bits. 0: no limit")
        ->check(between(0, 1 << 30))
        ->type_name("N")
        ->group(kGroup);
    app_.add_flag(
            "--graph,!--no-graph", options_.graph,
            "Replay forward and backward as CUDA graphs after three micro-batches, with the same bits. "
            "Quicker if launching kernels takes longer than computing them. If graphs are impossible, for "
            "example on a CPU or with several ranks, a warning says why, and the steps run without them")
        ->group(kGroup);
    app_.add_flag(
            "--deterministic,!--no-deterministic", options_.deterministic,
            "Use only GPU kernels that give the same bits every time. --no-deterministic: cuDNN's quickest, "
            "with which a resumed run may differ in its last bits. A CPU's kernels are all deterministic")
        ->group(kGroup);
    app_.add_option("--workers", options_.workers,
                    "Threads that make batches. 0: the training thread makes them")
        ->check(between(0, 1024))
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--threads", options_.threads,
                    "Threads of the CPU's kernels. 0: all cores. Another number gives other bits")
        ->check(between(0, 4096))
        ->type_name("N")
        ->group(kGroup);
    if (cuda_available)
      app_.add_flag("--cuda,!--no-cuda", options_.cuda,
                    "Train on GPUs. Each rank takes the GPU of its LOCAL_RANK")
          ->group(kGroup);
  }

  Options& options_;
  CLI::App app_;
  std::vector<std::string> every_;
  std::string keep_ = "3";
  std::string accumulate_;
  std::string home_wait_;
  std::string max_wall_;
};

}  // namespace

std::optional<Options> parse_options(int argc, const char* const* argv, bool cuda_available) {
  Options options;
  apply_machine_defaults(options, cuda_available);
  if (!Parser(options, cuda_available).parse(argc, argv)) return std::nullopt;
  return options;
}

const char* name_of(ScheduleKind kind) { return kind == ScheduleKind::cosine ? "cosine" : "constant"; }
const char* name_of(holdfast::Stem stem) { return stem == holdfast::Stem::imagenet ? "imagenet" : "cifar"; }

}  // namespace example
