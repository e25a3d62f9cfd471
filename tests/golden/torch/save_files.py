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


class Own:
    def __reduce__(self):
        return print, ("code ran",)


torch.save({"model": {"w": torch.ones(2)}, "args": Own()}, folder + "/own_class.pt")
script = torch.jit.script(model)
torch.jit.save(script, folder + "/script.pt")
