#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes quantized networks: those of make.py, put through onnxruntime's own quantizers.

    python models/quantized.py resnet50_qdq             build/models/resnet50_qdq.onnx, batch 1
    python models/quantized.py gpt2_int4 --seq 128      another length of sequence
    python models/quantized.py resnet50_qdq --small     the same structure, few channels
    python models/quantized.py all -o DIR               every one, into a folder

`qdq` and `qoperator` are quantize_static after quant_pre_process: weights int8 and symmetric, per
output channel where the row says so; activations by their least and greatest values over a few
random inputs. `dynamic` is quantize_dynamic, `int4` are MatMulNBits in blocks of 32 (with a weight
that the Gemm of GPT's exporter becomes first). What onnxruntime's quantizers leave in float stays.
The quantizer of 4-bit weights needs onnx_ir besides: scripts/setup_python.sh --with onnx_ir.
"""

import argparse
import logging
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import make  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from lib_run import random_inputs  # noqa: E402
from onnx import helper, numpy_helper  # noqa: E402
from onnxruntime import quantization  # noqa: E402
from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: E402

CALIBRATION_RUNS = 4
BLOCK = 32  # weights that share a scale, in 4 bits

# name -> (network of make.py, method, options of it)
NETWORKS = {
    "resnet50_qdq": ("resnet50", "qdq", {"channels": True}),
    "resnet50_qdq_i8": ("resnet50", "qdq", {"channels": True, "activations": "int8"}),
    "resnet50_qoperator": ("resnet50", "qoperator", {"channels": True}),
    "mobilenet_v2_qdq": ("mobilenet_v2", "qdq", {"channels": True}),
    "mobilenet_v2_qoperator": ("mobilenet_v2", "qoperator", {"channels": True}),
    "efficientnet_b0_qdq": ("efficientnet_b0", "qdq", {"channels": True}),
    "unet_qdq": ("unet", "qdq", {"channels": True}),
    "bert_base_qdq": ("bert_base", "qdq", {"channels": True}),
    "bert_base_dynamic": ("bert_base", "dynamic", {}),
    "gpt2_dynamic": ("gpt2", "dynamic", {}),
    "gpt2_int4": ("gpt2", "int4", {}),
    "ds_cnn_qdq": ("ds_cnn", "qdq", {"channels": True, "activations": "int8"}),
    "ds_cnn_qdq_tensor": ("ds_cnn", "qdq", {"channels": False, "activations": "int8"}),
}


class Reader(quantization.CalibrationDataReader):
    """Hands the calibrator one {input: array} after the other."""

    def __init__(self, batches):
        self.left = list(reversed(batches))

    def get_next(self):
        return self.left.pop() if self.left else None


def random_batches(path):
    model = onnx.load(path, load_external_data=False)
    return [random_inputs(model, seed=100 + i) for i in range(CALIBRATION_RUNS)]


def static(path, out, form, batches, channels=False, activations="uint8"):
    kinds = {"uint8": quantization.QuantType.QUInt8, "int8": quantization.QuantType.QInt8}
    forms = {"qdq": quantization.QuantFormat.QDQ, "qoperator": quantization.QuantFormat.QOperator}
    quant_pre_process(path, path + ".pre.onnx", skip_symbolic_shape=True)
    quantization.quantize_static(
        path + ".pre.onnx", out, Reader(batches), quant_format=forms[form], per_channel=channels,
        activation_type=kinds[activations], weight_type=quantization.QuantType.QInt8)  # fmt: skip


def gemm_to_matmul(model):
    """The quantizer of 4-bit weights sees MatMul alone: Gemm with a weight as it lies becomes
    MatMul and Add, and a MatMul with a transposed table one with a table of its own."""
    graph, nodes = model.graph, []
    weights = {tensor.name: tensor for tensor in graph.initializer}
    made = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        kept = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        if node.op_type == "Gemm" and node.input[1] in weights and not kept.get("transB", 0):
            product = node.output[0] + "_product"
            nodes.append(helper.make_node("MatMul", node.input[:2], [product], node.name))
            nodes.append(helper.make_node("Add", [product, node.input[2]], node.output,
                                          node.name + "_bias"))  # fmt: skip
            continue
        source = made.get(node.input[1]) if node.op_type == "MatMul" else None
        if source is not None and source.op_type == "Transpose" and source.input[0] in weights:
            table = numpy_helper.to_array(weights[source.input[0]])
            name = source.input[0] + "_transposed"
            graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(table.T), name))
            node.input[1] = name
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in graph.node for name in node.input}
    used |= {value.name for value in graph.output}
    live = [node for node in graph.node if any(name in used for name in node.output)]
    del graph.node[:]
    graph.node.extend(live)


def four_bits(path, out):
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    model = onnx.load(path)
    gemm_to_matmul(model)
    quantizer = MatMulNBitsQuantizer(model, bits=4, block_size=BLOCK, is_symmetric=True,
                                     accuracy_level=4)  # fmt: skip
    quantizer.process()
    onnx.save(quantizer.model.model, out)


def quantize(path, out, method, options, batches=None):
    """Quantizes the float32 model at path; out appears whole or not at all. Static methods take
    the ranges of activations from batches, a list of {input: array}, or from random inputs."""
    with tempfile.TemporaryDirectory(prefix="ullage-quantize-") as folder:
        source, part = os.path.join(folder, "float.onnx"), out + ".part"
        os.symlink(os.path.abspath(path), source)
        logging.disable(logging.WARNING)  # the quantizers' advice to preprocess, which was done
        if method == "dynamic":
            quantization.quantize_dynamic(source, part, weight_type=quantization.QuantType.QInt8)
        elif method == "int4":
            four_bits(source, part)
        else:
            static(source, part, method, batches or random_batches(path), **options)
        logging.disable(logging.NOTSET)
    os.replace(part, out)


def make_quantized(name, out, seq=None, small=False):
    network, method, options = NETWORKS[name]
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ullage-quantize-") as folder:
        path = os.path.join(folder, network + ".onnx")
        make.save(make.make(network, 1, seq, small), path)
        quantize(path, out, method, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", help='a quantized network, or "all"; --list prints them')
    parser.add_argument("-o", "--output", help="file, or folder for all (build/models)")
    parser.add_argument("--seq", type=int, help="sequence length")
    parser.add_argument("--small", action="store_true", help="same structure, scaled down")
    args = parser.parse_args()
    if args.name not in NETWORKS and args.name != "all":
        parser.error(f"no such network: {args.name}; there are {', '.join(NETWORKS)}")
    folder = os.path.join(HERE, "..", "build", "models")
    names = list(NETWORKS) if args.name == "all" else [args.name]
    for name in names:
        path = os.path.join(folder, name + ("_small" if args.small else "") + ".onnx")
        if args.output:
            path = os.path.join(args.output, name + ".onnx") if args.name == "all" else args.output
        make_quantized(name, path, args.seq, args.small)
        print(f"{os.path.normpath(path)}: {os.path.getsize(path) / 2**20:.1f} MiB", flush=True)


if __name__ == "__main__":
    main()
