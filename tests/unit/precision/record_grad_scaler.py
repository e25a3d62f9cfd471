#!/usr/bin/env python3
"""Records what torch.amp.GradScaler does, step by step, as the table that grad_scaler_test.cc replays.

    python3 tests/unit/precision/record_grad_scaler.py > tests/unit/precision/recorded_scaler.h

Any torch from 2.3 on will do; nothing is random. Floats are written as their bits.
"""
import struct

import torch

INFS = {4: float("inf"), 5: float("-inf"), 9: float("nan"), 13: float("inf"), 20: float("inf")}
STEPS = 24


def bits(value):
    return "0x%08xU" % struct.unpack("<I", struct.pack("<f", float(value)))[0]


def gradient(step, i):
    """Of parameter i; grad_scaler_test.cc has the same formula."""
    return torch.tensor((step * 7 + i * 5) % 11 - 5, dtype=torch.float32) / 3


def odd_factors():
    """No power of two anywhere, so that every rounding shows; an optimizer, so that skips show."""
    w = torch.tensor([1.0, -0.5, 0.25], requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=3000.0, growth_factor=1.9, backoff_factor=0.45, growth_interval=3)
    for step in range(STEPS):
        x = torch.stack([gradient(step, i) for i in range(3)])
        if step in INFS:
            x[step % 3] = INFS[step]
        optimizer.zero_grad()
        scaler.scale((w * x).sum()).backward()
        scaler.unscale_(optimizer)
        unscaled = w.grad.clone()
        scaler.step(optimizer)
        scaler.update()
        row = [bits(scaler._scale), str(int(scaler._growth_tracker)), "true" if step in INFS else "false"]
        row.append("{" + ", ".join("0" if step in INFS else bits(g) for g in unscaled) + "}")
        row.append("{" + ", ".join(bits(v) for v in w.detach()) + "}")
        yield "    {" + ", ".join(row) + "},"


def defaults():
    """PyTorch's own options over 9,000 steps: only the steps after which the scale is another."""
    w = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.0)
    scaler = torch.amp.GradScaler("cpu")
    known = None
    for step in range(9000):
        w.grad = torch.full((1,), float("inf") if step in (0, 1, 3000, 5100) else 1.0)
        scaler.scale(torch.zeros(()))  # makes the scale
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        if float(scaler._scale) != known:
            known = float(scaler._scale)
            yield "    {%d, %s}," % (step, bits(known))


print(f"""// What torch.amp.GradScaler of PyTorch {torch.__version__.split("+")[0]} did, recorded by record_grad_scaler.py.
//
// Threads: constants.
#pragma once

#include <array>
#include <cstdint>

namespace holdfast::test {{

struct RecordedStep {{
  std::uint32_t scale;  // after update(), a float's bits; as are the others
  int growth_tracker;
  bool skipped;
  std::array<std::uint32_t, 3> gradient;  // after unscale_; 0 where it was not finite
  std::array<std::uint32_t, 3> weight;    // after step
}};

// Factors that are no powers of two: init 3000, growth 1.9, backoff 0.45, interval 3.
inline constexpr std::array<RecordedStep, {STEPS}> kOddFactors = {{{{""")
print("\n".join(odd_factors()))
changes = list(defaults())
print(f"""}}}};

struct RecordedChange {{
  int step;
  std::uint32_t scale;
}};

// The default options over 9,000 steps, the gradients of 0, 1, 3000 and 5100 not finite.
inline constexpr std::array<RecordedChange, {len(changes)}> kDefaults = {{{{""")
print("\n".join(changes))
print("""}};

}  // namespace holdfast::test""")
