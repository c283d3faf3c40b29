#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch.compile makes of a network for a CUDA device, without one: JSON on standard output.

    inductor.py NETWORK fp32|fp16|bf16

{"torch", "launches", "library_calls", "moved_bytes", "kernels": [[flops, moved bytes], ...]}

The network and its arguments are fake tensors of a CUDA device; inductor lowers, fuses and writes
its code, as far as that; nothing is compiled or run. Counted are the kernels and library calls in
that code, and the bytes and operations that inductor's own scheduler says of each node that it made
(get_read_write_buffers_sizes: each buffer once), operations of products by torch's flop counter. The mode is
torch.compile's default, with frozen weights (BatchNormalization goes into convolutions): to choose
templates of its own for products, max-autotune has to time them. Attention that is spelled out
stays so, since inductor's patterns of it cannot be traced without a device.

Written for PyTorch 2.15: what asks the driver for the device is answered here, by an H100's numbers.
"""

import json
import re
import sys
import types

import networks
import torch
import torch._inductor.config as config
import torch._inductor.fx_passes.joint_graph as joint_graph
import torch.utils._triton as triton_facts
from torch import nn
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import compile_fx
from torch._inductor.exc import InductorError
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
    nn.BatchNorm2d = Folded
    for name in ("uniform_", "normal_", "kaiming_uniform_", "ones_", "zeros_"):
        setattr(nn.init, name, lambda tensor, *_, **__: tensor)


class WrittenError(Exception):
    """The code is written: nothing behind that is wanted."""


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


def write_code(name, dtype):
    """The lowered graph and its code."""
    written = {}
    whole = GraphLowering.codegen

    def codegen(self):
        written["code"], written["graph"] = whole(self), self
        raise WrittenError

    GraphLowering.codegen = codegen
    config.fx_graph_cache = config.joint_graph_constant_folding = False
    torch._functorch.config.enable_autograd_cache = False
    torch.set_default_dtype(dtype)
    with FakeTensorMode() as mode, torch.no_grad():
        with torch.device("cuda"):
            module, arguments = networks.build(name)
            prepare(module)
        graph = torch.export.export(module, tuple(arguments)).module()
        try:
            with mode:
                compile_fx.compile_fx(graph, arguments)
        except InductorError:
            if "code" not in written:
                raise
    code = written["code"][0]
    return written["graph"], getattr(code, "value", code)


def origin_of(node):
    """What a call of a library computes. Its origins are also those of what it reads: its own is
    the last of the graph."""
    origins = [x for x in getattr(node.node, "origins", ())
               if getattr(x.target, "overloadpacket", None) in flop_registry]  # fmt: skip
    return max(origins, default=None) if node.is_extern() else None


def value_of(x):
    return x.meta["val"]


def flops_of(node):
    """Of a call of a library, by the formulas of torch's own counter."""
    origin = origin_of(node)
    if origin is None:
        return 0
    args, options = tree_map_only(torch.fx.Node, value_of, (origin.args, origin.kwargs))
    formula = flop_registry[origin.target.overloadpacket]
    return formula(*args, **options, out_val=origin.meta["val"])


def bytes_of(node):
    """By the scheduler, but of a table the rows that are read, where it counts the table; and of a
    call with several results, of which it counts nothing, what it reads and its first result."""
    moved = int(node.get_read_write_buffers_sizes())
    origin = origin_of(node)
    if origin is not None and moved == 0:
        tensors = [value_of(x) for x in origin.all_input_nodes]
        first = origin.meta["val"]
        tensors.append(first[0] if isinstance(first, (list, tuple)) else first)
        return sum(x.numel() * x.element_size() for x in tensors)
    if node.is_extern():
        return moved
    results = sum(V.graph.get_dep_size_hint(dep) for dep in node.read_writes.writes)
    for dep in node.read_writes.reads:
        if getattr(dep, "is_indirect", bool)():
            moved -= max(0, V.graph.get_dep_size_hint(dep) - results)
    return moved


def count(graph, code):
    kernels = []
    with V.set_graph_handler(graph):
        for node in graph.scheduler.nodes:
            if type(node).__name__ != "NopKernelSchedulerNode":
                kernels.append([flops_of(node), bytes_of(node)])
    own = len(re.findall(r"^ +triton_\w+\.run\(", code, re.M))
    calls = len(re.findall(r"^ +(?:\w+ = )?(?:extern_kernels\.|torch\.ops\.)\w+", code, re.M))
    return {
        "torch": torch.__version__,
        "launches": own + calls,
        "library_calls": calls,
        "moved_bytes": sum(moved for _, moved in kernels),
        "kernels": kernels,
    }


def main():
    name, precision = sys.argv[1:3]
    pretend_device()
    graph, code = write_code(name, TYPES[precision])
    if len(sys.argv) > 3:
        print(code, file=sys.stderr)
    print(json.dumps(count(graph, code)))


if __name__ == "__main__":
    main()
