# What one of the benches wrote for its peer: parameters by name, then inputs.
import numpy
import torch


def read(file, shape, kind="float32"):
    values = numpy.fromfile(file, dtype=kind, count=int(numpy.prod(shape)))
    return torch.from_numpy(values).reshape(shape)


def read_values(job, net):
    """Gives the net its weights, by name; returns the inputs by name."""
    with open(job["values"], "rb") as file, torch.no_grad():
        ours = dict(net.named_parameters())
        if {name: list(value.shape) for name, value in ours.items()} != dict(job["parameters"]):
            raise SystemExit("the peer's parameters are not ours")
        for name, shape in job["parameters"]:
            ours[name].copy_(read(file, shape))
        return {name: read(file, shape, kind) for name, kind, shape in job["inputs"]}
