#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch.compile turns a network into for a CUDA device, without one: JSON on standard output.

    inductor.py NETWORK fp32|fp16|bf16 [--train] [--code]

{"torch", "launches", "library_calls", "moved_bytes", "kernels": [[flops, moved bytes], ...]}
--code writes the code to standard error.

The network and its arguments are fake tensors of a CUDA device; inductor lowers, fuses and writes
its code, as far as that; nothing is compiled or run. Counted are the kernels and library calls in
that code, and the bytes and operations that inductor's own scheduler says of each node that it made
(get_read_write_buffers_sizes: each buffer once), operations of products by torch's flop counter. The mode is
torch.compile's default, with frozen weights (BatchNormalization goes into convolutions): to choose
templates of its own for products, max-autotune has to time them. Attention that is spelled out
stays so, since inductor's patterns of it cannot be traced without a device.

--train counts a step of training. AOTAutograd traces the loss and its gradients as one joint graph,
partitions it into forward and backward as torch.compile does by default, and inductor writes the code
of both. Weights are float32; 16 bits are torch.autocast. A call of convolution_backward counts once
for each gradient that it returns; any other call of a library counts once, however many kernels it
launches. The optimizer is torch's fused AdamW, outside of the compiled code. It launches a kernel for
as many tensors and pieces as the arguments of one have room for (MultiTensorApply.cuh), and one that
counts steps.

Written for PyTorch 2.15: what asks the driver for the device is answered here, by an H100's numbers.
"""

import argparse
import collections
import json
import math
import re
import sys
import types
from unittest import mock

import networks
import torch
import torch._inductor.config as config
import torch._inductor.fx_passes.joint_graph as joint_graph
import torch.utils._triton as triton_facts
from torch import nn
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import compile_fx, ir
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import flop_registry

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}

H100 = types.SimpleNamespace(
    name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, warp_size=32,
    regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, gcnArchName="",
    max_threads_per_block=1024, total_memory=80 << 30, L2_cache_size=50 << 20,
    shared_memory_per_block=49152, shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472)  # fmt: skip


def pretend_device():
    """Answers in place of the driver."""

    def always(value):
        return lambda *_, **__: value

    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "set_device": None,
        "get_device_properties": H100, "get_device_capability": (9, 0), "synchronize": None,
        "get_device_name": H100.name, "_lazy_init": None, "_exchange_device": 0,
        "_maybe_exchange_device": 0, "set_rng_state": None,
    }  # fmt: skip
    for name, value in answers.items():
        setattr(torch.cuda, name, always(value))
    torch.cuda.get_rng_state = lambda *_, **__: torch.zeros(16, dtype=torch.uint8)
    for owner in (CudaInterface, CudaInterface.Worker):
        owner.get_device_properties = staticmethod(always(H100))
        owner.current_device = staticmethod(always(0))
    CudaInterface.is_available = staticmethod(always(True))
    CudaInterface.get_compute_capability = staticmethod(always(90))
    triton_facts.triton_hash_with_backend = triton_facts.triton_backend_hash = always("none")
    joint_graph.lazy_init = always(None)
    for name in ("uniform_", "normal_", "kaiming_uniform_", "ones_", "zeros_"):
        setattr(nn.init, name, lambda tensor, *_, **__: tensor)


class Folded(nn.Identity):
    """In place of a BatchNormalization."""


def prepare(module):
    """BatchNormalization goes into the convolution before it, as freezing does; weights of
    convolutions have channels innermost."""
    for part in list(module.modules()):
        before = None
        for child in part.children():
            if isinstance(child, Folded):
                before.bias = nn.Parameter(torch.empty(before.out_channels), False)
            if isinstance(child, nn.Conv2d):
                before = child
                weight = torch.empty(child.weight.shape, memory_format=torch.channels_last)
                child.weight = nn.Parameter(weight, False)


def write_code(module, arguments):
    """[(a graph that inductor lowered, its code)]: one to run, two to train, forward and backward."""
    written = []

    def take(self, code):
        written.append((self, code.value))
        return types.SimpleNamespace(__file__="", call=list)

    GraphLowering._compile_to_module_lines = take
    config.fx_graph_cache = config.joint_graph_constant_folding = False
    config.compile_threads = 1
    torch._functorch.config.enable_autograd_cache = False
    torch._functorch.config.force_non_lazy_backward_lowering = True
    compile_fx.compile_fx(module, arguments)
    return written


def infer(name, dtype):
    nn.BatchNorm2d = Folded
    torch.set_default_dtype(dtype)
    with FakeTensorMode() as mode, torch.no_grad():
        with torch.device("cuda"):
            module, arguments = networks.build(name)
            prepare(module)
        graph = torch.export.export(module, tuple(arguments)).module()
        with mode:
            return write_code(graph, arguments), []


def train(name, dtype):
    """What is written of forward and backward, and the parameters that these give gradients."""
    scalar = mock.patch.object(torch, "tensor", lambda x, **options: torch.full((), x, **options))
    with FakeTensorMode() as mode:
        with torch.device("cuda"), scalar:  # BatchNormalization's counter, without a copy to the device
            module, arguments = networks.build_training(name)
        graph = torch.export.export(module, tuple(arguments)).module()
        with mode, torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            written = write_code(graph, arguments)
    return written, [x for x in module.parameters() if x.requires_grad]


def origin_of(node):
    """What a call of a library computes. Its origins are also those of what it reads: its own is
    the last of the graph."""
    origins = [x for x in getattr(node.node, "origins", ())
               if getattr(x.target, "overloadpacket", None) in flop_registry]  # fmt: skip
    return max(origins, default=None) if node.is_extern() else None


def value_of(x):
    return x.meta["val"]


def size_of(x):
    return x.numel() * x.element_size()


def flops_of(node):
    """Operations of a call of a library, by the formulas of torch's own counter."""
    origin = origin_of(node)
    if origin is None:
        return 0
    args, options = tree_map_only(torch.fx.Node, value_of, (origin.args, origin.kwargs))
    formula = flop_registry[origin.target.overloadpacket]
    return formula(*args, **options, out_val=origin.meta["val"])


def bytes_of(node):
    """By the scheduler, but of a table the rows that are read or added to, where it counts the table."""
    buffers, whole, rows = node.get_read_write_buffer_accesses(True, True), set(), collections.Counter()
    for dep in [] if node.is_extern() else node.read_writes.reads_and_writes():
        if getattr(dep, "is_indirect", bool)():
            rows[dep.name] += math.prod(map(int, dep.size)) * V.graph.get_dtype(dep.name).itemsize
        else:
            whole.add(dep.name)
    before = V.graph.scheduler.mutation_real_name  # by which what is added to is read
    for table in rows.keys() - whole:
        for name in {table, before.get(table)} & buffers.keys():
            buffers[name] = min(buffers[name], rows[table])
    return int(sum(buffers.values()))


def kernels_of(node):
    """[[flops, moved bytes]] of what a node launches: a kernel or a call, but gradients of a convolution
    one by one. A call with several results has a node for each, which launches nothing."""
    if isinstance(node.node, ir.MultiOutput) or type(node).__name__ == "NopKernelSchedulerNode":
        return []
    origin = origin_of(node)
    if origin is None or origin.target is not torch.ops.aten.convolution_backward.default:
        return [[flops_of(node), bytes_of(node)]]
    moved = sum(size_of(value_of(x)) for x in origin.args[:3])  # two are read, one's size is written
    asked = sum(origin.args[-1][:2])
    return [[flops_of(node) // asked, moved]] * asked


# ---- the optimizer ----

PIECE, MAX_PIECES, MAX_TENSORS = 1 << 16, 2240, 252  # MultiTensorApply.cuh of CUDA 13: depth 4


def kernels_of_adamw(parameters):
    """[[flops, moved bytes]]: a kernel ends where its arguments name as many pieces or tensors as they
    can. Parameters and both moments are read and written, gradients read."""
    kernels, pieces, tensors, moved = [[0, 8 * len(parameters)]], 0, 0, 0
    for parameter in parameters:
        tensors, left = tensors + 1, parameter.numel()
        while left > 0:
            piece = min(left, PIECE)
            left, pieces, moved = left - piece, pieces + 1, moved + 7 * 4 * piece
            if pieces == MAX_PIECES or (tensors == MAX_TENSORS and left == 0):
                kernels.append([0, moved])
                pieces, tensors, moved = 0, int(left > 0), 0
    return kernels + [[0, moved]] * (pieces > 0)


# ---- the whole ----


def count(written, parameters):
    kernels = kernels_of_adamw(parameters) if parameters else []
    launches, calls = len(kernels), 0
    for graph, code in written:
        with V.set_graph_handler(graph):
            for node in graph.scheduler.nodes:
                found = kernels_of(node)
                kernels += found
                calls += max(0, len(found) - 1)
        own = len(re.findall(r"^ +triton_\w+\.run\(", code, re.M))
        calls += len(re.findall(r"^ +(?:\w+ = )?(?:extern_kernels\.|torch\.ops\.)\w+", code, re.M))
        launches += own
    return {
        "torch": torch.__version__,
        "launches": launches + calls,
        "library_calls": calls,
        "moved_bytes": sum(moved for _, moved in kernels),
        "kernels": kernels,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("precision", choices=TYPES)
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--code", action="store_true")
    arguments = parser.parse_args()
    pretend_device()
    make = train if arguments.train else infer
    written, parameters = make(arguments.network, TYPES[arguments.precision])
    if arguments.code:
        print("\n".join(code for _, code in written), file=sys.stderr)
    print(json.dumps(count(written, parameters)))


if __name__ == "__main__":
    main()
