#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the ONNX models of this folder: well-known networks with seeded random weights.

    python models/make.py resnet50                      build/models/resnet50.onnx, batch 1
    python models/make.py bert_base --batch N --seq L   symbolic dimensions N and L
    python models/make.py swin_t --small -o swin.onnx   the same structure, few channels and layers
    python models/make.py all --small --check           every network, each run in onnxruntime
    python models/make.py resnet50 --type bf16          itself in bfloat16, weights and all
    python models/make.py bert_base --type fp16 --islands   as converters write it: Casts around f32
    python models/make.py gpt2_xl --hollow              its graph, to be planned; its weights are zeros
    python models/make.py gpt2 --dropout 0.1            as it is trained (gpt2, bert_base)

The graphs follow PyTorch's exporter: its names, its opsets, its shape arithmetic. Weights are
random but scaled as in a trained network, so activations neither vanish nor blow up; --check
runs the model on random inputs and says so if they do.
"""

import argparse
import importlib
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "scripts")]

import environment  # noqa: E402

environment.need("numpy", "onnx")

import onnx  # noqa: E402
from lib_net import Net  # noqa: E402

# name -> (module, opset, what build() takes besides the Net)
NETWORKS = {
    "resnet50": ("resnet50", 17, {}),
    "mobilenet_v2": ("mobilenet_v2", 17, {}),
    "mobilenet_v3": ("mobilenet_v3", 17, {}),
    "densenet121": ("densenet121", 17, {}),
    "inception_v3": ("inception_v3", 17, {}),
    "efficientnet_b0": ("efficientnet_b0", 17, {}),
    "shufflenet_v2": ("shufflenet_v2", 17, {}),
    "convnext_t": ("convnext_t", 17, {}),
    "ds_cnn": ("ds_cnn", 17, {}),
    "regnet_y_400mf": ("regnet_y_400mf", 17, {}),
    "unet": ("unet", 17, {}),
    "deeplab_v3": ("deeplab_v3", 17, {}),
    "fcn": ("fcn", 17, {}),
    "vit_b16": ("vit_b16", 17, {}),
    "swin_t": ("swin_t", 14, {}),
    "bert_base": ("bert_base", 14, {}),
    "bert_base_ln": ("bert_base", 17, {}),
    "gpt2": ("gpt2", 13, {}),
    "lstm": ("recurrent", 14, {"cell": "LSTM"}),
    "lstm_bi": ("recurrent", 14, {"cell": "LSTM", "both": True}),
    "gru": ("recurrent", 14, {"cell": "GRU"}),
    "gru_bi": ("recurrent", 14, {"cell": "GRU", "both": True}),
    "qdq_convnet": ("qdq_convnet", 13, {}),
    "integer_net": ("integer_net", 13, {}),
}
# Too large for tests: for plans, by --hollow.
LARGE = {
    "gpt2_medium": ("gpt2", 13, {"width": 1024, "heads": 16, "layers": 24}),
    "gpt2_large": ("gpt2", 13, {"width": 1280, "heads": 20, "layers": 36}),
    "gpt2_xl": ("gpt2", 13, {"width": 1600, "heads": 25, "layers": 48}),
    "bert_large": ("bert_base", 14, {"width": 1024, "heads": 16, "layers": 24}),
}


def dimension(text):
    return int(text) if text.isdigit() else text


def build(name, batch=1, seq=None, small=False, hollow=False, dropout=0):
    module, opset, options = {**NETWORKS, **LARGE}[name]
    net = Net(name, batch, seq, small, opset, hollow, dropout)
    importlib.import_module(module).build(net, **options)
    if dropout and not any(node.op_type == "Dropout" for node in net.nodes):
        raise ValueError(f"{name} has no Dropout")
    return net


def make(name, batch=1, seq=None, small=False, dtype=None, islands=False, dropout=0):
    model = build(name, batch, seq, small, dropout=dropout).model()
    if dtype is None:
        return model
    from lib_half import half

    return half(model, dtype, islands)


def save_hollow(name, path, batch, seq, small=False, dropout=0):
    """A model whose weights are zeros that take no disk, to be planned."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    net = build(name, batch, seq, small, hollow=True, dropout=dropout)
    model = net.model(os.path.basename(path) + ".data")
    net.save_holes(path + ".data")
    onnx.save(model, path + ".part")
    os.replace(path + ".part", path)


def save(model, path, external=False):
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    data = os.path.basename(path) + ".data"
    beside = os.path.join(os.path.dirname(os.path.abspath(path)), data)
    if os.path.exists(beside):
        os.remove(beside)  # onnx appends to it
    if external:
        onnx.save(model, path, save_as_external_data=True, location=data, size_threshold=1024)
    else:
        onnx.save(model, path + ".part")  # then renamed: another test may be reading the old one
        os.replace(path + ".part", path)


def check(path):
    """Checker, shape inference, a run on random inputs; returns what it saw, or raises."""
    import numpy as np
    from lib_run import random_inputs, reference

    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path, load_external_data=False)
    begin = time.time()
    outputs = reference(path, random_inputs(model, seed=1))
    seconds = time.time() - begin
    others = reference(path, random_inputs(model, seed=2))
    stats = []
    for name, array in outputs.items():
        if array.dtype.kind != "f":
            stats.append(f"{name} {array.dtype} {array.shape}")
            continue
        std = float(array.std())
        if not np.isfinite(array).all() or not 1e-3 < std < 1e3:
            raise ValueError(f"{path}: output {name}: std {std:g}; the weights are badly scaled")
        moved = float(np.abs(array - others[name]).mean()) / std
        if moved < 0.02:
            raise ValueError(f"{path}: output {name} hardly depends on the inputs ({moved:g})")
        stats.append(f"{name} {list(array.shape)} mean {array.mean():.3g} std {std:.3g}"
                     f" moves by {moved:.2g} std between inputs")  # fmt: skip
    return f"{len(model.graph.node)} nodes, {seconds:.2f} s; " + "; ".join(stats[:2])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", nargs="?", help='a network, or "all"')
    parser.add_argument("-o", "--output", help="file, or folder for all (build/models)")
    parser.add_argument("--batch", type=dimension, default=1, help="a number, or a name")
    parser.add_argument("--seq", type=dimension, help="sequence length: a number, or a name")
    parser.add_argument("--small", action="store_true", help="same structure, scaled down")
    parser.add_argument("--hollow", action="store_true",
                        help="weights are zeros in a file that takes no disk: for plans")
    parser.add_argument("--dropout", type=float, default=0, help="the ratio of nn.Dropout")
    parser.add_argument("--type", choices=["fp16", "bf16"], help="of the model itself")
    parser.add_argument("--islands", action="store_true",
                        help="with --type: inputs, outputs and normalisations stay float32")
    parser.add_argument("--external", action="store_true", help="weights in a file beside")
    parser.add_argument("--check", action="store_true", help="run it in onnxruntime")
    parser.add_argument("--list", action="store_true", help="print the names")
    args = parser.parse_args()
    if args.list:
        print("\n".join(NETWORKS))
        return
    if args.name != "all" and args.name not in {**NETWORKS, **LARGE}:
        parser.error(f"no such network: {args.name}; --list prints them, but for "
                     f"the large ones: {', '.join(LARGE)}")
    folder = os.path.join(HERE, "..", "build", "models")
    names = list(NETWORKS) if args.name == "all" else [args.name]
    if args.name == "all" and args.output:
        folder = args.output
    for name in names:
        path = os.path.join(folder, name + ("_small" if args.small else "") + ".onnx")
        if args.name != "all" and args.output:
            path = args.output
        if args.hollow:
            save_hollow(name, path, args.batch, args.seq, args.small, args.dropout)
        else:
            model = make(name, args.batch, args.seq, args.small, args.type, args.islands,
                         args.dropout)
            save(model, path, args.external)
        size = os.path.getsize(path) / 2**20
        line = f"{os.path.normpath(path)}: {size:.1f} MiB"
        print(line + (f"; {check(path)}" if args.check else ""), flush=True)


if __name__ == "__main__":
    main()
