"""torch.optim.SGD with fused=True, safe with a GradScaler."""
import torch


def fused_sgd(parameters, **options):
    optimizer = torch.optim.SGD(parameters, fused=True, **options)
    # An update that the scaler skips leaves a first momentum uninitialised (torch 2.11), and the next one adds it: NaN.
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer
