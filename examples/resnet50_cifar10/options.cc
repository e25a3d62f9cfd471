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
the same options: it goes on bit for bit where the last committed step was.

  resnet50_cifar10 --data cifar-10-batches-bin --checkpoint-dir runs/first
  resnet50_cifar10 --data synthetic:2000 --width 8 --steps 50 --every 20steps
  resnet50_cifar10 --precision fp16 --channels-last --label-smoothing 0.1
  resnet50_cifar10 --data cifar-10-batches-bin --recipe 94
  holdfast launch --nproc 8 -- resnet50_cifar10 --data cifar-10-batches-bin

With several ranks (holdfast launch, torchrun, srun, mpirun) all take the same options,
rank 0 writes and reports, and a run goes on with any number of them.)";

std::string environment_help() {
  std::string text = "Environment:\n";
  for (const auto& variable : holdfast::env_variables()) {
    text += "  " + std::string(variable.name) + "  " + variable.meaning + "\n";
  }
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
    app_.add_option(
            "--metrics", options_.metrics,
            "Append one JSON line a step to FILE; to FILE.csv, one CSV row a step, with each step once "
            "however often the run is resumed")
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
            "94: what is meant to reach 94 % on CIFAR-10's test pictures: --epochs 30 --batch-size 512 "
            "--stem cifar --nesterov --no-decay-all --label-smoothing 0.1 --channels-last, a fifth of the "
            "steps for the warm-up; on a GPU --precision fp16 --graph --bn fused --data-on device, too. What "
            "is given beside it counts")
        ->check(CLI::IsMember({"94"}).description(""))
        ->type_name("NAME")
        ->default_str("")
        ->group(kGroup);
    app_.add_option("--batch-size", options_.batch_size,
                    "Pictures of one optimizer step, of all ranks together: it stays what it is when the "
                    "number of ranks changes")
        ->check(count)
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--accumulate", accumulate_, "What it was called before")->group("");
    app_.add_option(
            "--optimizer", options_.optimizer,
            "sgd, adam, adamw or lamb, which update all parameters in a few kernels; torch-sgd, "
            "torch-adam or torch-adamw: LibTorch's own. sgd and torch-sgd give the same bits on a CPU")
        ->check(CLI::IsMember(holdfast::optimizer_names()).description(""))
        ->type_name("NAME")
        ->group(kGroup);
    app_.add_option("--lr", options_.lr,
                    "Highest learning rate; default 0.1 per 128 pictures (adam: 0.001, lamb: 0.002)")
        ->check(kNotNegative)
        ->type_name("X")
        ->default_str("")
        ->group(kGroup);
    app_.add_option("--momentum", options_.momentum, "Of sgd")
        ->check(CLI::Range(0.0, 1.0).description(""))
        ->type_name("X")
        ->group(kGroup);
    app_.add_flag("--nesterov,!--no-nesterov", options_.nesterov, "Nesterov's momentum, of sgd")
        ->group(kGroup);
    app_.add_option("--weight-decay", options_.weight_decay,
                    "Default 0.0005 (adam: 0, adamw: 0.05, lamb: 0.01)")
        ->check(kNotNegative)
        ->type_name("X")
        ->default_str("")
        ->group(kGroup);
    app_.add_flag("--decay-all,!--no-decay-all", options_.decay_all,
                  "Weight decay on all parameters, or on none of the biases and batch norms")
        ->group(kGroup);
    app_.add_option("--clip-grad-norm", options_.clip_grad_norm,
                    "Scale gradients down to this norm; 0: never")
        ->check(kNotNegative)
        ->type_name("X")
        ->group(kGroup);
    app_.add_option("--label-smoothing", options_.label_smoothing,
                    "Share of the target spread over all classes, 0.1 say; the test loss has none")
        ->check(CLI::Range(0.0, 1.0).description(""))
        ->type_name("X")
        ->group(kGroup);
    add_precision(kGroup);
    app_.add_option("--schedule", options_.schedule,
                    "cosine (with linear warm-up) or constant (with warm-up)")
        ->transform(
            one_of<ScheduleKind>({{"cosine", ScheduleKind::cosine}, {"constant", ScheduleKind::constant}}))
        ->default_str("cosine")
        ->type_name("NAME")
        ->group(kGroup);
    app_.add_option(
            "--schedule-steps", options_.schedule_steps,
            "Step at which the cosine reaches its floor, lr/100. Default: as many whole epochs as "
            "--epochs or --steps asks for when the run begins; a resumed run keeps the plan it began with, "
            "also when it is made longer")
        ->check(count)
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--warmup-steps", options_.warmup_steps,
                    "Steps of linear warm-up; default: a twentieth of --schedule-steps")
        ->check(between(0, kMost))
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--seed", options_.seed, "Of the weights, the order and the augmentation")
        ->check(between(0, kMost))
        ->type_name("N")
        ->group(kGroup);
    app_.add_option(
            "--stem", options_.stem,
            "imagenet (7x7/2 and a max pool) or cifar (3x3/1: 16 times the work, far better accuracy)")
        ->transform(one_of<holdfast::Stem>(
            {{"imagenet", holdfast::Stem::imagenet}, {"cifar", holdfast::Stem::cifar}}))
        ->default_str(name_of(options_.stem))
        ->type_name("NAME")
        ->group(kGroup);
    app_.add_option("--width", options_.width,
                    "Channels of the stem; 64 is ResNet-50, small values are quick")
        ->check(between(1, 4096))
        ->type_name("N")
        ->group(kGroup);
  }

  void add_precision(const char* group) {
    app_.add_option(
            "--precision", options_.precision,
            "fp32 (exact), tf32 (FP32 in memory, tensor cores; GPUs from A100 on), fp16 (autocast with loss "
            "scaling: steps that overflow are left out; GPUs from P100 on, slow on a CPU) or bf16 (autocast; "
            "GPUs from A100 on, CPUs). Default: tf32 on a GPU that has it, else fp32")
        ->transform(one_of<holdfast::Precision>({{"fp32", holdfast::Precision::fp32},
                                                 {"tf32", holdfast::Precision::tf32},
                                                 {"fp16", holdfast::Precision::fp16},
                                                 {"bf16", holdfast::Precision::bf16}}))
        ->default_str("")
        ->type_name("NAME")
        ->group(group);
    app_.add_option("--loss-scale", options_.loss_scale,
                    "Of fp16's first step; it finds its own way from there (not recorded)")
        ->check(CLI::PositiveNumber.description(""))
        ->type_name("X")
        ->group(group);
    app_.add_flag("--channels-last,!--no-channels-last", options_.channels_last,
                  "Keep pictures and weights as NHWC, which tensor cores and oneDNN's kernels want")
        ->group(group);
    app_.add_option(
            "--bn", options_.bn,
            "Batch norms, with the additions and ReLUs behind them: aten (Torch's operators), fused (own "
            "kernels; slow on a CPU) or cudnn (cuDNN's, GPUs in fp16); the latter two with "
            "--channels-last")
        ->transform(one_of<holdfast::BatchNormKind>({{"aten", holdfast::BatchNormKind::aten},
                                                     {"cudnn", holdfast::BatchNormKind::cudnn},
                                                     {"fused", holdfast::BatchNormKind::fused}}))
        ->default_str("aten")
        ->type_name("NAME")
        ->group(group);
  }

  void add_checkpoints() {
    constexpr auto kGroup = "Checkpoints";
    auto& checkpointer = options_.checkpointer;
    app_.add_option("--checkpoint-dir", checkpointer.directory,
                    "The run's own folder, on a volume that survives")
        ->type_name("DIR")
        ->group(kGroup);
    app_.add_option(
            "--every", every_,
            "Save after a time or a number of steps (30s, 500steps), or as often as pays (auto); may be "
            "repeated")
        ->default_str("auto")
        ->type_name("WHEN")
        ->group(kGroup)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app_.add_option(
            "--keep", keep_,
            "Checkpoints to keep: how many of the newest, at least 2, or policies that add up, such as "
            "last=3,every=1000,best=test_accuracy:max:2,newer=7d (best also by loss and test_loss)")
        ->type_name("WHAT")
        ->group(kGroup);
    app_.add_option("--read-back", checkpointer.writing.read_back,
                    "Read again from the device before a save counts: head (milliseconds) or all (one more "
                    "read of the file, for a volume that you do not trust)")
        ->transform(one_of<holdfast::ReadBack>(
            {{"head", holdfast::ReadBack::head}, {"all", holdfast::ReadBack::all}}))
        ->default_str("head")
        ->type_name("WHAT")
        ->group(kGroup);
    app_.add_option("--write-limit", checkpointer.writing.write_limit,
                    "Write at most so many MB/s, for a volume that others use: a save takes longer, and as "
                    "long its work is at risk. An interruption lifts it. 0: no limit")
        ->check(kNotNegative)
        ->type_name("MB/S")
        ->group(kGroup);
    app_.add_flag("--second-image", checkpointer.writing.second_image,
                  "Keep a second image of the state in memory: a save is then copied while another is being "
                  "written, and a stop does not wait for the disk before it copies")
        ->group(kGroup);
    app_.add_option("--mount", checkpointer.mount,
                    "Mount that DIR lies on: waited for, never replaced by the root disk")
        ->type_name("DIR")
        ->group(kGroup);
    app_.add_option(
            "--home", checkpointer.start.home,
            "Second, safer place of the checkpoints, a directory or rclone:REMOTE:PATH: the start fetches "
            "the newest from there; run `holdfast mirror DIR --to HOME` beside")
        ->type_name("HOME")
        ->group(kGroup);
    app_.add_option("--home-mount", checkpointer.start.home_mount,
                    "Mount that HOME lies on: waited for, never replaced by the root disk")
        ->type_name("DIR")
        ->group(kGroup);
    app_.add_option("--home-wait", home_wait_,
                    "How long the start waits for HOME before the run goes on from DIR alone")
        ->default_str("10min")
        ->type_name("TIME")
        ->group(kGroup);
    app_.add_flag("--allow-fresh", checkpointer.start.allow_fresh,
                  "Start over where checkpoints lie of which none verifies; deletes nothing")
        ->group(kGroup);
    app_.add_flag(
            "--trust-directory", checkpointer.start.trust_directory,
            "Go on although somebody else owns DIR or may write to it, and so could choose the checkpoint")
        ->group(kGroup);
    auto* resume = app_.add_option("--resume-from", checkpointer.start.resume_from,
                                   "Begin at this step or file instead of the newest; deletes nothing");
    auto* init =
        app_.add_option("--init-from", checkpointer.start.init_from,
                        "Take the weights of FILE: a checkpoint, PyTorch or safetensors; all else is fresh");
    resume->type_name("STEP|FILE")->group(kGroup)->excludes(init);
    init->type_name("FILE")->group(kGroup)->excludes(resume);
    app_.add_option("--override", checkpointer.start.overrides,
                    "Accept that this recorded option differs; may be repeated")
        ->type_name("NAME")
        ->group(kGroup)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app_.add_option("--exit-code-interrupted", checkpointer.notices.exit_code_interrupted,
                    "Instead of 75, for launchers that need another")
        ->check(between(0, 255))
        ->type_name("N")
        ->group(kGroup);
  }

  void add_interruptions() {
    constexpr auto kGroup = "Interruptions (free to change)";
    auto& checkpointer = options_.checkpointer;
    app_.add_option("--on-notice", checkpointer.notices.on_notice,
                    "When the machine's end is announced: train-on (save at once, train until the last save "
                    "just fits, save, wait for the end), wait (save and wait) or exit (save and leave, 75). "
                    "What outlives the announced end by a minute trains on. SIGTERM always saves and leaves")
        ->transform(one_of<holdfast::OnNotice>({{"train-on", holdfast::OnNotice::train_on},
                                                {"wait", holdfast::OnNotice::wait},
                                                {"exit", holdfast::OnNotice::exit}}))
        ->default_str("train-on")
        ->type_name("WHAT")
        ->group(kGroup);
    app_.add_option(
            "--notice-file", checkpointer.notices.notice_file,
            "The appearance of FILE announces the end, also when it is there at the start: remove it before "
            "the next one. It may be empty, or JSON such as "
            R"({"action": "stop", "in_seconds": 90})")
        ->type_name("FILE")
        ->group(kGroup);
    app_.add_option(
            "--require-source", checkpointer.notices.require_sources,
            "Do not start while this interruption source does not see (75), or where there is none (78); "
            "may be repeated. "
            "HOLDFAST_REQUIRE_SOURCE adds to it")
        ->check(CLI::IsMember({"cloud", "ec2", "gcp", "azure", "signal", "file", "deadline"}))
        ->type_name("NAME")
        ->group(kGroup)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app_.add_flag("--approve-end", checkpointer.notices.approve_end,
                  "Azure: tell it in the pause before the end that the machine may go at once")
        ->group(kGroup);
    app_.add_option("--max-wall", max_wall_,
                    "The process is to have ended that long after its start (2h, 90min), under holdfast "
                    "supervise all processes of the run together: announced like any other end")
        ->type_name("TIME")
        ->group(kGroup);
    app_.add_option("--on-risk", checkpointer.notices.on_risk,
                    "Shell command to run when the machine may go away soon (EC2's rebalance "
                    "recommendation), which also saves, and saves twice as often for half an hour")
        ->type_name("CMD")
        ->group(kGroup);
  }

  void add_machine(bool cuda_available) {
    constexpr auto kGroup = "Machine (free to change)";
    app_.add_option(
            "--data-on", options_.data_on,
            "Where the pictures lie, which are the same bits on both: host (threads crop, flip and normalise "
            "them) or device (the GPU keeps them as bytes, CIFAR-10's take 184 MB there, and does it itself; "
            "without a GPU the device is the CPU)")
        ->transform(one_of<DataOn>({{"host", DataOn::host}, {"device", DataOn::device}}))
        ->default_str("host")
        ->type_name("WHERE")
        ->group(kGroup);
    app_.add_option("--micro-batch-size", options_.micro_batch_size,
                    "Most pictures that one rank computes at a time: a larger share of --batch-size takes "
                    "several equal passes a step, and gives other bits. 0: no limit")
        ->check(between(0, 1 << 30))
        ->type_name("N")
        ->group(kGroup);
    app_.add_flag(
            "--graph,!--no-graph", options_.graph,
            "Replay forward and backward as CUDA graphs after three micro-batches: quicker where launching "
            "kernels takes longer than computing them, with the same bits. Where that cannot be done, on "
            "a CPU or with several ranks say, a warning says why and steps are made as without")
        ->group(kGroup);
    app_.add_flag(
            "--deterministic,!--no-deterministic", options_.deterministic,
            "Only GPU kernels that give the same bits every time. Without: cuDNN's quickest, and a resumed "
            "run may differ in its last bits. On a CPU all are")
        ->group(kGroup);
    app_.add_option("--workers", options_.workers, "Threads that make batches; 0: the training thread does")
        ->check(between(0, 1024))
        ->type_name("N")
        ->group(kGroup);
    app_.add_option("--threads", options_.threads,
                    "Threads of the CPU's kernels; 0: all cores. Another number gives other bits")
        ->check(between(0, 4096))
        ->type_name("N")
        ->group(kGroup);
    if (cuda_available)
      app_.add_flag("--cuda,!--no-cuda", options_.cuda, "Train on GPUs: each rank on that of its LOCAL_RANK")
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
