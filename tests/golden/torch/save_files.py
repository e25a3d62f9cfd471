"""save_files.py FOLDER: what torch.save writes in Python. `make` beside it runs it with the torch of its choice."""
import sys
from collections import OrderedDict

import torch

folder = sys.argv[1]


def net():
    torch.manual_seed(1)
    return torch.nn.Sequential(OrderedDict(conv=torch.nn.Conv2d(1, 2, 3), norm=torch.nn.BatchNorm2d(2), head=torch.nn.Linear(2, 3)))


model = net()
with torch.no_grad():
    for number, parameter in enumerate(model.parameters()):
        parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) / 8 + number)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
for parameter in model.parameters():
    parameter.grad = torch.ones_like(parameter)
optimizer.step()
schedule.step()

torch.save(model.state_dict(), folder + "/state_dict.pt")
torch.save({"epoch": 3, "model_state_dict": model.state_dict(), "optimizer_state_dict": optimizer.state_dict(),
            "schedule": schedule.state_dict(), "loss": 0.5, "note": "é", "big": 2 ** 40, "none": None,
            "flags": (True, False), "sizes": [1, 2, 70000]}, folder + "/checkpoint.pt")
torch.save(dict(model.named_parameters()), folder + "/parameters.pt")
base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
torch.save({"transposed": base.t(), "rows": base[1:3], "column": base[:, 2], "one": base[3, 5], "whole": base,
            "expanded": base[:1, :1].expand(2, 3), "empty": torch.empty(0, 3), "scalar": torch.tensor(7),
            "last": base.reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)}, folder + "/views.pt")
types = {name: torch.arange(3).to(getattr(torch, name)) for name in
         ("uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128", "bool", "float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64")}
torch.save(types, folder + "/types.pt")
torch.save({"a": torch.ones(2)}, folder + "/legacy.pt", _use_new_zipfile_serialization=False)

# What torch.load(weights_only=True) opens, beside the weights: plain values of schedules and of programs.
schedules = torch.optim.lr_scheduler
torch.save({"model": model.state_dict(), "multi_step": schedules.MultiStepLR(optimizer, [2, 4]).state_dict(),
            "sequential": schedules.SequentialLR(optimizer, [schedules.LinearLR(optimizer), schedules.MultiStepLR(
                optimizer, [2])], [2]).state_dict(), "set": {1, 2}, "no_set": set(), "bytes": b"abc\xff", "no_bytes": b"",
            "bytearray": bytearray(b"ab\xff"), "complex": 1 + 2j, "large": 2 ** 127, "negative": -2 ** 70,
            "layout": torch.strided, "scheme": torch.per_tensor_affine, "type": torch.uint4, "size": torch.Size([1, 2]),
            "device": torch.device("cpu"), "keys": {None: 1, (1, 2): 3, 1.5: 2, b"a": 3, True: 2}}, folder + "/plain.pt")
marked = torch.nn.Parameter(torch.ones(2))
marked.tensor_model_parallel = True
noted = torch.full((2,), 3.0)
noted.note = {"a": 1}
torch.save({"parameter": marked, "buffer": torch.nn.Buffer(torch.full((2,), 2.0)), "tensor": noted},
           folder + "/attributes.pt")
# Types that are stored as bytes under their names.
torch.save({name: torch.arange(8, dtype=torch.uint8).reshape(2, 4).view(getattr(torch, name)) for name in
            ("float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2", "bits8")}, folder + "/bytes.pt")
# Tensors that no checkpoint holds, beside weights.
torch.save({"model": model.state_dict(), "sparse": torch.eye(2).to_sparse(), "csr": torch.eye(2).to_sparse_csr(),
            "quantized": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
            "channels": torch.quantize_per_channel(torch.ones(2, 2), torch.ones(2), torch.zeros(2), 0, torch.quint8),
            "meta": torch.empty(2, device="meta"), "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
            "jagged": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            "half_complex": torch.zeros(2, dtype=torch.complex32), "conj": torch.ones(2, dtype=torch.complex64).conj()},
           folder + "/no_weights.pt")


class Own:
    def __reduce__(self):
        return print, ("code ran",)


torch.save({"model": {"w": torch.ones(2)}, "args": Own()}, folder + "/own_class.pt")
script = torch.jit.script(model)
torch.jit.save(script, folder + "/script.pt")
