# What a user may include: `cmake --install` installs these headers and no others. A public header includes public
# headers only (tests/layering). Everything else beside a source serves other modules of the library; what stands in
# <module>/internal serves its own module. holdfast/holdfast.h is the one include of a training loop.
set(HOLDFAST_PUBLIC_base clock env error exit_code export forced_exit freed_memory last_words launch_environment log
    mutex owner_process text thread_annotations)
set(HOLDFAST_PUBLIC_io file_system line_file posix_file_system)
set(HOLDFAST_PUBLIC_snapshot arena arrival attributes cursor digest dtype finite overrides snapshot snapshot_source
    tensor_spec)
set(HOLDFAST_PUBLIC_metrics background console csv event exporters jsonl meter sink)
set(HOLDFAST_PUBLIC_interruption monitor notice signal_source source sources stop_signals term_grace)
set(HOLDFAST_PUBLIC_format reader safetensors_export)
set(HOLDFAST_PUBLIC_store checkpoint_store names retention retention_text run_state verifier)
set(HOLDFAST_PUBLIC_planning cost_model deadline_planner interval_planner save_policy)
set(HOLDFAST_PUBLIC_ledger ledger_reader save_figures)
set(HOLDFAST_PUBLIC_writing save_handle)
set(HOLDFAST_PUBLIC_ranks rank_channel)
set(HOLDFAST_PUBLIC_checkpoint checkpointer checkpointer_options)
set(HOLDFAST_PUBLIC_state module_options module_state optimizer_state own_optimizer rng_state stateful stored_optimizer
    train_state value)
set(HOLDFAST_PUBLIC_precision autocast grad_scaler precision)
set(HOLDFAST_PUBLIC_optim channels_last clip decay_groups ema fused_adam fused_optimizer fused_sgd fused_step lamb
    make_optimizer rate_plan schedule)
set(HOLDFAST_PUBLIC_distributed agreement data_parallel distributed found_inf process_group sharded_optimizer
    sum_over_ranks sync_batch_norm)
set(HOLDFAST_PUBLIC_data augment cifar10 dataset global_batch loader pictures random resident_pictures sample_fields
    sampler synthetic tensor_pool torch_sampler)
set(HOLDFAST_PUBLIC_train captured_pass device_graph step trainer)
