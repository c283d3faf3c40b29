#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention in shapes that tiles do not fit: the same results on every target.

    attention.py [--target cuda] ULLAGE [NAME]...

Heads of odd sizes and of more elements than a tile has, few and many queries and heads, a cache in
front of the keys, masks, grouped heads, elements of 16 bits, the model's own or those of a program
that is rounded to them; each model is compiled for the target and compared with target c. Exit: 0 ok, 1 results differ or a command failed, 77 a Python package is
missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    from onnx import TensorProto, helper, save
except ImportError as error:
    print(f"attention.py: skipped: {error}")
    sys.exit(77)

F32, F16 = TensorProto.FLOAT, TensorProto.FLOAT16
# batch, heads, groups, queries, keys, size, value size, cached keys, causal, mask, type
CASES = {
    "odd": (2, 3, 1, 77, 91, 72, 40, 0, 0, 1, F32),
    "odd_f16": (2, 3, 1, 77, 91, 72, 40, 0, 0, 1, F16),
    "causal": (1, 2, 2, 200, 200, 64, 64, 0, 1, 0, F32),
    "causal_f16": (1, 2, 2, 200, 200, 64, 64, 0, 1, 0, F16),
    "cache": (1, 4, 2, 5, 9, 32, 32, 70, 1, 0, F32),
    "cache_f16": (1, 4, 2, 5, 9, 32, 32, 70, 1, 0, F16),
    "one_query": (2, 4, 4, 1, 130, 64, 64, 0, 0, 1, F32),
    "wide": (1, 1, 1, 70, 50, 128, 128, 0, 0, 0, F32),
    "wide_f16": (1, 1, 1, 70, 50, 128, 96, 0, 0, 0, F16),
    "wider": (1, 2, 2, 40, 50, 160, 160, 0, 0, 0, F32),
    "widest": (1, 2, 1, 20, 50, 256, 250, 0, 1, 1, F32),
    "wider_than_a_tile": (1, 2, 2, 40, 50, 288, 160, 0, 0, 0, F32),
    "wider_than_a_tile_f16": (1, 2, 2, 40, 50, 64, 288, 0, 0, 0, F16),
    # as many heads as each shape of a block of tensor cores asks for
    "128_queries_f16": (8, 32, 32, 120, 77, 16, 32, 0, 1, 0, F16),
    "64_queries_f16": (16, 32, 8, 49, 49, 32, 16, 0, 0, 1, F16),
    "64_queries_wide_f16": (16, 32, 8, 49, 40, 72, 40, 0, 1, 0, F16),
    "64_queries_2_groups_f16": (8, 16, 4, 50, 130, 48, 64, 0, 1, 0, F16),
    "64_queries_2_groups_wide_f16": (8, 16, 4, 50, 70, 48, 128, 0, 0, 1, F16),
    "32_queries_f16": (2, 32, 8, 60, 100, 64, 40, 0, 0, 1, F16),
    "32_queries_wide_f16": (2, 32, 8, 60, 90, 128, 40, 0, 1, 0, F16),
    "64_queries_widest_f16": (8, 16, 4, 50, 70, 160, 256, 0, 1, 0, F16),
    "32_queries_widest_f16": (4, 32, 8, 30, 40, 256, 136, 0, 0, 1, F16),
    "16_queries_widest_f16": (1, 2, 2, 9, 60, 256, 256, 30, 1, 0, F16),
    "odd_widest_f16": (1, 2, 1, 20, 33, 129, 255, 0, 0, 0, F16),
    "one_key_f16": (1, 2, 2, 20, 1, 64, 64, 0, 0, 0, F16),
    "one_query_f16": (1, 4, 2, 1, 1, 64, 64, 300, 1, 0, F16),
    # keys in parts
    "long": (2, 2, 1, 3, 1500, 40, 72, 0, 0, 1, F32),
    "long_f16": (1, 4, 2, 20, 100, 64, 32, 2000, 1, 1, F16),
    "long_cache": (1, 4, 4, 1, 1, 64, 64, 1300, 1, 0, F32),
    "long_cache_f16": (1, 4, 2, 2, 2, 64, 64, 2050, 1, 0, F16),
    "long_widest_f16": (1, 2, 1, 1, 1, 256, 256, 1300, 1, 0, F16),
}
# The same for models of f32, of which programs round what they store.
ROUNDED = {
    "128_queries_fp16": ("128_queries_f16", "fp16"),
    "64_queries_bf16": ("64_queries_f16", "bf16"),
    "64_queries_2_groups_fp16": ("64_queries_2_groups_f16", "fp16"),
    "32_queries_bf16": ("32_queries_f16", "bf16"),
    "odd_fp16": ("odd", "fp16"),
    "causal_bf16": ("causal", "bf16"),
    "cache_bf16": ("cache", "bf16"),
    "wide_bf16": ("wide", "bf16"),
    "one_query_bf16": ("one_query_f16", "bf16"),
    "long_bf16": ("long", "bf16"),
    "64_queries_widest_fp16": ("64_queries_widest_f16", "fp16"),
    "widest_bf16": ("widest", "bf16"),
}


def case_of(name):
    """The case, and the precision of its program."""
    if name not in ROUNDED:
        return CASES[name], "fp32"
    name, precision = ROUNDED[name]
    return CASES[name][:-1] + (F32,), precision


def model(case, path, precision="fp32"):
    """Where a program is to round, what it reads are results of products, which it may round."""
    batch, heads, groups, queries, keys, size, value_size, cache, causal, mask, dtype = case

    def value(name, *dims):
        return helper.make_tensor_value_info(name, dtype, list(dims))

    inputs = [value("q", batch, heads, queries, size), value("k", batch, groups, keys, size),
              value("v", batch, groups, keys, value_size)]
    outputs = [value("y", batch, heads, queries, value_size)]
    names = ["q", "k", "v", "m" if mask else ""]
    if mask:
        inputs.append(value("m", 1, 1, queries, keys + cache))
    if cache:
        inputs += [value("pk", batch, groups, cache, size),
                   value("pv", batch, groups, cache, value_size)]
        outputs += [value("nk", batch, groups, cache + keys, size),
                    value("nv", batch, groups, cache + keys, value_size)]
        names += ["pk", "pv"]
    while names[-1] == "":
        names.pop()
    nodes, weights = [], []
    for i, width in enumerate((size, size, value_size) if precision != "fp32" else ()):
        weights.append(helper.make_tensor(f"w{i}", dtype, [width, width], [
            float(x == y) + (x * 7 + y * 3) % 11 / (16 * width) for x in range(width)
            for y in range(width)]))
        nodes.append(helper.make_node("MatMul", [names[i], f"w{i}"], [f"{names[i]}_of"]))
        names[i] += "_of"
    nodes.append(helper.make_node("Attention", names, [o.name for o in outputs],
                                  is_causal=causal))
    graph = helper.make_graph(nodes, "attention", inputs, outputs, weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        names = options.names or [*CASES, *ROUNDED]
        for name in names:
            path = os.path.join(folder, f"{name}.onnx")
            case, precision = case_of(name)
            model(case, path, precision)
            done = subprocess.run([options.ullage, "verify", "--target", options.target,
                                   "--precision", precision, path], capture_output=True, text=True)
            if done.returncode != 0:
                failed += 1
                print(f"FAIL {name}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    print(f"{len(names) - failed} of {len(names)} agree")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
