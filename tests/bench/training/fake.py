#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a step of training takes in torch eager on a device, by tensors that have no bytes.

    fake.py NETWORK cpu|cuda fp32|bf16

MemTracker counts the step as torch's allocator would see it, on the CUDA device in its units of 512
bytes; bf16 is torch.autocast. Prints JSON: `whole`, all bytes at the peak of a step with AdamW (its
state is there already), `moves`, the activations and temporaries among them at the peak of forward
and backward, and `saved`, what autograd saves. No GPU is needed: one_card.c, which less.py preloads,
says that there is one.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "torch"))

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional

import cases

MOVING = ("Activation", "Temp")


def attend(q, k, v, is_causal=False):
    """What scaled_dot_product_attention calls on a card of sm_80 or newer, whose properties it asks for."""
    if torch.is_autocast_enabled("cuda"):
        q, k, v = (t.to(torch.bfloat16) for t in (q, k, v))
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, is_causal)[0]
    return torch.ops.aten._scaled_dot_product_efficient_attention(q, k, v, None, True, 0.0, is_causal)[0]


def pretend():
    """There is one card, which never has to be set up."""
    torch.cuda._lazy_init = lambda: None
    torch.cuda.is_bf16_supported = lambda *args, **more: True
    functional.scaled_dot_product_attention = attend


def like(tensor, device):
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


def place(network, device):
    """The same tensors on the device."""
    for module in network.modules():
        for name, old in list(module._parameters.items()):
            if old is not None:
                module._parameters[name] = torch.nn.Parameter(like(old, device))
        for name, old in list(module._buffers.items()):
            if old is not None:
                module._buffers[name] = like(old, device)
    return network


def loss_of(out, labels):
    if labels.is_floating_point():
        return functional.mse_loss(out, labels)
    if out.ndim == 3:
        out, labels = out.flatten(0, 1), labels.flatten()
    return functional.cross_entropy(out, labels)


class Step:
    def __init__(self, network, x, labels, device, precision):
        self.network, self.x, self.labels = network, x, labels
        self.device, self.precision = device, precision
        self.optimizer = torch.optim.AdamW(network.parameters(), foreach=False)

    def run(self, updates=True):
        with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
            loss = loss_of(self.network(self.x), self.labels)
        loss.backward()
        if updates:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def peak(self, moves):
        tracker = MemTracker()
        tracker.track_external(self.network, self.optimizer)
        with tracker:
            self.run(not moves)
        peak = tracker.get_tracker_snapshot("peak")[torch.device(self.device, *[0] * (self.device == "cuda"))]
        named = {getattr(key, "value", key): size for key, size in peak.items()}
        return sum(named[key] for key in MOVING) if moves else named["Total"]

    def saved(self):
        """Each storage once, without parameters and buffers."""
        kept = {t.untyped_storage()._cdata for t in [*self.network.parameters(), *self.network.buffers()]}
        seen, alive = {}, []

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in kept:
                seen[storage._cdata] = storage.nbytes()
                alive.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            self.run(False)
        return sum(seen.values())


def main():
    name, device, precision = sys.argv[1:4]
    if device == "cuda":
        pretend()
    make, samples, *_ = {**cases.NETWORKS, **cases.COUNTED}[name]
    with FakeTensorMode():
        network = place(make(), device)
        x, labels = (like(sample, device) for sample in samples())
        step = Step(network, x, labels, device, precision)
        step.run()  # the optimizer's state is there
        found = {"parameters": sum(p.numel() for p in network.parameters()), "saved": step.saved()}
        step.optimizer.zero_grad()
        found["whole"] = step.peak(False)
        for parameter in network.parameters():  # gradients that are there always move no peak
            parameter.grad = torch.zeros_like(parameter)
        found["moves"] = step.peak(True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
