#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention of queries that see no key: what onnxruntime computes, and FlexAttention as ONNX says.

    masked.py [--target c] ULLAGE [CASE]...

Attention of ai.onnx gives zeros there, whatever hides the keys and whatever the query holds (ONNX's
correction 8068 of opsets 23 and 24); GroupQueryAttention too; com.microsoft's Attention and
MultiHeadAttention, FlexAttention, and a Softmax that is spelled out give NaN, and zeros where
Where(IsNaN(...)) stands after it. The cases of an opset are one model. Exit: 0 ok, 1 results differ
or a command failed, 77 a Python package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

import contributed
import numpy as np
from contributed import F16, F32
from onnx import TensorProto, helper, numpy_helper

B, H, Q, K, D = 2, 2, 3, 5, 8
LONG = 300  # keys are more than one tile
rng = np.random.default_rng(39)
NEVER = F32(-np.inf)
LOWEST = np.finfo(F32).min


def random(*shape):
    return rng.standard_normal(shape).astype(F32)


def first_hidden(*shape):
    """True except in the first row of the first sequence."""
    mask = np.ones(shape, bool)
    mask[(0, ..., 0, slice(None)) if len(shape) > 2 else 0] = False
    return mask


def added(mask, number=NEVER):
    return np.where(mask, F32(0), number).astype(F32)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class Case:
    def __init__(self, name, nodes, feeds, outputs, opset=23, want=None, weights=None):
        def own(value):
            return value and f"{name}_{value}"

        self.name, self.opset = name, opset
        self.feeds = {own(key): value for key, value in feeds.items()}
        self.weights = {own(key): value for key, value in (weights or {}).items()}
        self.outputs = [own(output) for output in outputs]
        self.want = want  # None: what onnxruntime gives
        self.nodes = [helper.make_node(op, [own(i) for i in inputs], [own(o) for o in made],
                                       **attributes)
                      for op, inputs, made, attributes in nodes]


def attention(name, mask=None, lengths=None, past=0, opset=23, dtype=F32, keys=K, queries=Q,
              change=None, mode=None, **attributes):
    """`change` is applied to the dictionary of arrays."""
    feeds = {"q": random(B, H, queries, D), "k": random(B, H, keys, D), "v": random(B, H, keys, D)}
    inputs = ["q", "k", "v", "", "", "", ""]
    if mask is not None:
        feeds["m"] = mask
        inputs[3] = "m"
    if past:
        feeds.update(pk=random(B, H, past, D), pv=random(B, H, past, D))
        inputs[4:6] = "pk", "pv"
    if lengths is not None:
        feeds["n"] = np.array(lengths, np.int64)
        inputs[6] = "n"
    if change:
        change(feeds)
    feeds = {key: value.astype(dtype) if value.dtype == F32 else value
             for key, value in feeds.items()}
    while not inputs[-1]:
        inputs.pop()
    made = ["y"] + (["pk2", "pv2"] if past else ["", ""] if mode is not None else [])
    if mode is not None:
        attributes["qk_matmul_output_mode"] = mode
        made.append("s")
    return Case(name, [("Attention", inputs, made, attributes)], feeds, [m for m in made if m],
                24 if lengths is not None else opset)


def hidden(key, place, number):
    def change(feeds):
        feeds[key][place] = number
    return change


def numbers(name, mask, mode):
    """As ONNX's reference says: onnxruntime takes -inf and the lowest number for the same."""
    case = attention(name, mask, mode=mode)
    q, k, v = (case.feeds[f"{name}_{key}"] for key in "qkv")
    scores = q @ k.swapaxes(2, 3) / np.sqrt(F32(D)) + (
        added(mask) if mask.dtype == bool else mask)
    hides = np.isneginf(scores).all(-1, keepdims=True)
    weights = np.where(hides, F32(0), softmax(np.where(hides, F32(0), scores)))
    case.want = {"y": weights @ v, "s": scores}
    return case


def standard():
    rows, row = first_hidden(B, 1, Q, K), first_hidden(Q, K)
    yield attention("bool", rows)
    yield attention("row", row)
    yield attention("each_head", first_hidden(B, H, Q, K))
    yield attention("float", added(rows))
    yield numbers("lowest", added(rows, LOWEST), mode=2)
    yield numbers("bool_mode2", rows, mode=2)
    yield attention("half", added(rows), dtype=F16)
    yield attention("half_bool", rows, dtype=F16)
    yield attention("double", rows, dtype=np.float64)
    yield attention("causal", rows & (np.arange(K) > 1), is_causal=1)
    yield attention("causal_float", added(rows & (np.arange(K) > 1)), is_causal=1)
    yield attention("capped", rows, softcap=2.0)
    yield attention("cached", first_hidden(B, 1, Q, K + 4), past=4)
    yield attention("cached_causal", added(first_hidden(B, 1, Q, K + 4)), past=4, is_causal=1)
    yield attention("all", np.zeros((Q, K), bool))
    for mode in range(4):
        if mode != 2:
            yield attention(f"mode{mode}", rows, mode=mode)
        yield attention(f"mode{mode}_float", added(rows), mode=mode)
    yield attention("long", first_hidden(B, 1, Q, LONG), keys=LONG)
    yield attention("long_late", np.broadcast_to(np.arange(LONG) > 280, (Q, LONG)), keys=LONG)
    yield attention("long_cached", added(first_hidden(B, 1, Q, LONG + K)), past=LONG)
    yield attention("one_query", first_hidden(B, 1, 1, LONG), keys=LONG, queries=1)
    nan = (0, slice(None), 0)
    yield attention("nan_query", rows, change=hidden("q", nan, np.nan))
    yield attention("inf_query", rows, change=hidden("q", nan, np.inf))
    yield attention("nan_long", first_hidden(B, 1, Q, LONG), keys=LONG,
                    change=hidden("q", nan, np.nan))
    yield attention("nan_seen", ~rows, change=hidden("q", nan, np.nan))
    yield attention("nan_unmasked", change=hidden("q", nan, np.nan))


def lengths():
    yield attention("none", lengths=[0, 4])
    yield attention("none_half", lengths=[0, 4], dtype=F16)
    yield attention("ends", lengths=[2, 4], is_causal=1)
    yield attention("ends_all", lengths=[K, 1], is_causal=1)
    yield attention("masked_ends", first_hidden(B, 1, Q, K), lengths=[4, 4], is_causal=1)
    yield attention("masked_length", np.broadcast_to(np.arange(K) > 2, (Q, K)), lengths=[3, 4])
    yield attention("long_ends", lengths=[LONG - 20, 2], is_causal=1, keys=LONG)
    yield attention("long_none", lengths=[0, LONG], keys=LONG)


def flat(x):
    return x.transpose(0, 2, 1, 3).reshape(B, -1, H * D).copy()


def microsoft():
    """A filter or a bias of -inf leaves NaN; a finite filter leaves a mean."""
    com = {"domain": "com.microsoft", "num_heads": H}
    keep = np.ones((B, K), np.int32)
    keep[0] = 0
    q, k, v = flat(random(B, H, Q, D)), flat(random(B, H, K, D)), flat(random(B, H, K, D))
    for name, value in (("filter", None), ("filter_inf", float("-inf"))):
        more = com if value is None else {**com, "mask_filter_value": value}
        yield Case(name, [("MultiHeadAttention", ["q", "k", "v", "", "m"], ["y"], more)],
                   {"q": q, "k": k, "v": v, "m": keep}, ["y"])
        x, w = random(B, K, H * D), random(H * D, 3 * H * D) / 4
        yield Case(f"{name}_packed", [("Attention", ["x", "w", "b", "m"], ["y"], more)],
                   {"x": x, "w": w, "b": random(3 * H * D), "m": keep}, ["y"])
        if value is None:  # onnxruntime's -inf is nearer to 0 where it is causal
            yield Case("filter_causal", [("Attention", ["x", "w", "b", "m"], ["y"],
                                   {**more, "unidirectional": 1})],
                       {"x": x, "w": w, "b": random(3 * H * D), "m": keep}, ["y"])
    for name, bias in (("bias", added(first_hidden(B, H, Q, K))),
                       ("bias_lowest", added(first_hidden(B, H, Q, K), LOWEST))):
        yield Case(name, [("MultiHeadAttention", ["q", "k", "v", "", "", "a"], ["y"], com)],
                   {"q": q, "k": k, "v": v, "a": bias}, ["y"])
    for smooth in range(2):
        bias = added(first_hidden(B, 1, 1, 4))
        yield Case(f"group{smooth}",
                   [("GroupQueryAttention", ["q", "k", "v", "pk", "pv", "n", "t", "", "", "", "a"],
                     ["y", "nk", "nv"], {**com, "kv_num_heads": 1, "smooth_softmax": smooth})],
                   {"q": random(B, 1, H * D), "k": random(B, 1, D), "v": random(B, 1, D),
                    "pk": random(B, 1, 3, D), "pv": random(B, 1, 3, D),
                    "n": np.full(B, 3, np.int32), "a": bias}, ["y"],
                   weights={"t": np.array(4, np.int32)})


def spelled(name, keys, flush, mask):
    nodes = [("MatMul", ["q", "k"], ["s"], {}), ("Add", ["s", "m"], ["t"], {}),
             ("Softmax", ["t"], ["p"], {"axis": -1})]
    feeds = {"q": random(B, H, Q, D), "k": random(B, H, D, keys), "v": random(B, H, keys, D),
             "m": mask}
    if flush:
        feeds["zero"] = np.zeros((), F32)
        nodes += [("IsNaN", ["p"], ["n"], {}), ("Where", ["n", "zero", "p"], ["w"], {})]
    nodes.append(("MatMul", ["w" if flush else "p", "v"], ["y"], {}))
    return Case(name, nodes, feeds, ["y"])


def flex():
    """score_mod hides all keys of a query: the softmax is spelled out in its definition."""
    q, k, v = random(B, H, Q, D), random(B, H, K, D), random(B, H, K, D)
    bias = added(first_hidden(Q, K))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["s", "bias"], ["o"])], "mod",
        [value("s", TensorProto.FLOAT, [B, H, Q, K])], [value("o", TensorProto.FLOAT, [B, H, Q, K])],
        [helper.make_tensor("bias", TensorProto.FLOAT, bias.shape, bias.ravel())])
    with np.errstate(invalid="ignore"):
        want = softmax(q @ k.swapaxes(2, 3) / np.sqrt(F32(D)) + bias) @ v
    yield Case("flex", [("FlexAttention", ["q", "k", "v"], ["y"],
                         {"domain": "ai.onnx.preview", "score_mod": graph})],
               {"q": q, "k": k, "v": v}, ["y"], 24, {"y": want})


def written_out():
    for keys in (K, LONG):
        mask = added(first_hidden(B, 1, Q, keys))
        for flush in (False, True):
            yield spelled(f"spelled{keys}_{flush:d}", keys, flush, mask)


def build(cases, opset):
    nodes = [node for case in cases for node in case.nodes]
    feeds = {name: array for case in cases for name, array in case.feeds.items()}
    outputs = [output for case in cases for output in case.outputs]
    graph = helper.make_graph(
        nodes, "masked",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for k, v in feeds.items()], [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(array, name) for case in cases
         for name, array in case.weights.items()])
    domains = {"": opset, "com.microsoft": 1, "ai.onnx.preview": 1}
    model = helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid(domain, version) for domain, version in domains.items()])
    return model, feeds, outputs


def expect(cases, opset):
    want = {}
    known = [case for case in cases if case.want is None]
    if known:
        model, feeds, outputs = build(known, opset)
        want = contributed.expect(model, feeds, outputs)
    for case in cases:
        for key, value in (case.want or {}).items():
            want[f"{case.name}_{key}"] = value
    return want


def run(ullage, target, cases, opset, folder):
    """A text for each output that is wrong."""
    want = expect(cases, opset)
    model, feeds, outputs = build(cases, opset)
    for value in model.graph.output:
        array = want[value.name]
        value.CopyFrom(helper.make_tensor_value_info(
            value.name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    path, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    command = [ullage, "compile", "--target", target, "--cflags", "-O1", path, "-o", program]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        command = [program, "--output-dir", os.path.join(folder, "out")]
        for i, (name, array) in enumerate(feeds.items()):
            np.save(os.path.join(folder, f"{i}.npy"), array)
            command += ["--input", f"{name}={folder}/{i}.npy"]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return [f"opset {opset}: exit {done.returncode}: {done.stderr.strip()}"]
    wrong = []
    for case in cases:
        for output in case.outputs:
            got = np.load(os.path.join(folder, "out", f"{output}.npy"))
            like = contributed.Case(case.name, "", [],
                                    limit=2e-3 if got.dtype == F16 else 1e-4)
            text = contributed.difference(like, got, want[output])
            if not text and not np.array_equal(np.isinf(got), np.isinf(want[output])):
                text = "infinite in one of them"
            if text:
                wrong.append(f"{output}: {text}")
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*")
    options = parser.parse_args()
    cases = [case for make in (standard, lengths, microsoft, flex, written_out) for case in make()]
    unknown = set(options.cases) - {case.name for case in cases}
    if unknown:
        parser.error(f"no case is called {', '.join(sorted(unknown))}")
    cases = [case for case in cases if not options.cases or case.name in options.cases]
    failed = 0
    for opset in sorted({case.opset for case in cases}):
        with tempfile.TemporaryDirectory() as folder:
            of = [case for case in cases if case.opset == opset]
            for text in run(options.ullage, options.target, of, opset, folder):
                failed += 1
                print(f"FAIL {text}")
    print(f"{len(cases)} cases, {failed} wrong")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
