# SPDX-License-Identifier: Apache-2.0
"""What torch takes for a step of training, on the CPU: bytes saved for the backward pass, the peak,
both with a checkpoint on every block, what min-cut would keep, and time."""

import copy
import time
import warnings

import torch
import torch._functorch.config
import torch._inductor.lowering  # its decompositions want it
from functorch.compile import aot_module, nop
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import networks

MOVING = ("Activation", "Temp")


def loss_of(out, labels):
    if out.dtype == labels.dtype:
        return functional.mse_loss(out, labels)
    if out.ndim == 3:
        out, labels = out.flatten(0, 1), labels.flatten()
    return functional.cross_entropy(out, labels)


def export(network, x, path):
    """As it is set, to train or to run."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(network, (x,), path, training=torch.onnx.TrainingMode.PRESERVE,
                          do_constant_folding=False, opset_version=17, input_names=["x"],
                          output_names=["y"], dynamo=False)


def step(network, x, labels, optimizer=None):
    loss = loss_of(network(x), labels)
    loss.backward()
    if optimizer:
        optimizer.step()
        optimizer.zero_grad()


def saved_bytes(network, x, labels):
    """Bytes of the tensors that autograd saves, each storage once, without parameters and buffers."""
    kept = {t.untyped_storage().data_ptr() for t in [*network.parameters(), *network.buffers()]}
    seen, alive = {}, []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in kept:
            seen[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss_of(network(x), labels).backward()
    return sum(seen.values())


def tracked(network, optimizer, x, labels, moves):
    """At the peak of a step: activations and temporaries of forward and backward, or everything."""
    tracker = MemTracker()
    tracker.track_external(network, optimizer)
    with tracker:
        step(network, x, labels, None if moves else optimizer)
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    named = {getattr(key, "value", key): size for key, size in peak.items()}
    return sum(named[key] for key in MOVING) if moves else named["Total"]


def peak_bytes(network, x, labels):
    """(activations and temporaries, everything) at the peak, with AdamW."""
    optimizer = torch.optim.AdamW(network.parameters(), foreach=False)
    step(network, x, labels, optimizer)  # the optimizer's state is there
    whole = tracked(network, optimizer, x, labels, False)
    for parameter in network.parameters():  # gradients that are there always move no peak
        parameter.grad = torch.zeros_like(parameter)
    return tracked(network, optimizer, x, labels, True), whole


def flops(network, x, labels):
    with FlopCounterMode(display=False) as counter:
        loss_of(network(x), labels).backward()
    return counter.get_total_flops()


def memory(make, x, labels):
    network = make()
    result = {"parameters": sum(p.numel() for p in network.parameters()),
              "saved": saved_bytes(network, x, labels)}
    network.zero_grad()
    work = flops(network, x, labels)
    network.zero_grad()
    result["peak"], result["whole"] = peak_bytes(network, x, labels)
    networks.run_block = lambda block, *inputs: checkpoint(block, *inputs, use_reentrant=False)
    network.zero_grad()
    result["blocks_extra"] = flops(network, x, labels) / work - 1
    result["blocks_peak"], _ = peak_bytes(make(), x, labels)
    networks.run_block = lambda block, *inputs: block(*inputs)
    return result


# ---- min-cut ----


def owner(node):
    """Where what a view shows was made."""
    while node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
        arguments = node.target._schema.arguments
        if not arguments or arguments[0].alias_info is None or arguments[0].alias_info.is_write:
            break
        node = node.args[0]
    return node


def graph_flops(module):
    total = 0
    for node in module.graph.nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if node.op == "call_function" and packet in flop_registry:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
            total += flop_registry[packet](*args, **kwargs, out_val=node.meta["val"])
    return total


def min_cut(make, x, labels, budget):
    """(bytes that torch.compile would keep under an activation_memory_budget, extra FLOPs)"""
    result = []

    class Whole(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = make()

        def forward(self, x, labels):
            return loss_of(self.network(x), labels)

    def partition(joint, inputs, *, num_fwd_outputs, **more):
        work = graph_flops(joint)
        forward, backward = min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **more)
        saved = {owner(n) for n in forward.graph.output_node().args[0][num_fwd_outputs:]
                 if isinstance(n, torch.fx.Node)}
        tensors = [n.meta["val"] for n in saved if n.op == "call_function"]
        result.append(sum(t.numel() * t.element_size() for t in tensors
                          if isinstance(t, torch.Tensor)))
        result.append((graph_flops(forward) + graph_flops(backward)) / work - 1)
        return forward, backward

    with torch._functorch.config.patch(activation_memory_budget=budget):
        aot_module(Whole(), fw_compiler=nop, bw_compiler=nop, partition_fn=partition,
                   decompositions=select_decomp_table())(x, labels)
    return result


# ---- time ----


class Timed:
    def __init__(self, make, x, labels):
        self.network, self.data = make(), (x, labels)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), fused=True)

    def measure(self, threads, seconds):
        """Wall and processor seconds of a step."""
        torch.set_num_threads(threads)
        step(self.network, *self.data, self.optimizer)
        runs, wall, cpu = 0, time.monotonic(), time.process_time()
        while runs < 2 or time.monotonic() - wall < seconds:
            step(self.network, *self.data, self.optimizer)
            runs += 1
        return (time.monotonic() - wall) / runs, (time.process_time() - cpu) / runs


def copy_of(network):
    return lambda: copy.deepcopy(network)
