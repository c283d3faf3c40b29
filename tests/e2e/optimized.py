#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models as onnxruntime's tools write them: what verify says, on random inputs against onnxruntime.

    optimized.py [--target c] ULLAGE [NAME]...

NAME is MODEL.WAY, by default each of the list: a small network of models/ that onnxruntime's
transformers optimizer has fused (fused, fused_heads), that a session has saved at the extended
level (extended) or with its own layout (all: to be refused with the remedy), that the dynamic
quantizer has quantized (dynamic, and after the optimizer fused_dynamic), or the static one into
operators of its own (qoperator, extended_qoperator). Each must have the operators of com.microsoft
that the list names. Exit: 0 ok, 1 a model failed, 77 a Python package is missing.
"""

import argparse
import logging
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "models"))
try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, quantize_dynamic,
                                          quantize_static)
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    import make
except ImportError as error:
    print(f"optimized.py: skipped: {error}")
    sys.exit(77)

KINDS = {"bert_base": "bert", "bert_base_ln": "bert", "gpt2": "gpt2", "vit_b16": "vit"}
# model, way: operators that must be there
MODELS = {
    "bert_base.fused": "EmbedLayerNormalization Attention SkipLayerNormalization BiasGelu",
    "bert_base_ln.fused_heads": "EmbedLayerNormalization MultiHeadAttention",
    "gpt2.fused": "SkipLayerNormalization FastGelu",
    "vit_b16.fused": "SkipLayerNormalization BiasGelu",
    "bert_base.extended": "",
    "bert_base_ln.extended": "",
    "gpt2.extended": "",
    "vit_b16.extended": "",
    "resnet50.extended": "FusedConv",
    "efficientnet_b0.extended": "",
    "swin_t.extended": "",
    "lstm.extended": "",
    "resnet50.all": "",
    "lstm.dynamic": "DynamicQuantizeLSTM",
    "lstm_bi.dynamic": "DynamicQuantizeLSTM",
    "lstm_bi.dynamic_channels": "DynamicQuantizeLSTM",
    "bert_base.fused_dynamic": "QAttention QEmbedLayerNormalization",
    "bert_base.extended_dynamic": "DynamicQuantizeMatMul",
    "mobilenet_v2.qoperator": "QLinearAdd QGemm",
    "efficientnet_b0.qoperator": "QLinearMul QLinearSigmoid",
    "densenet121.qoperator": "QLinearConcat",
    "mobilenet_v2.extended_qdq": "QGemm QLinearGlobalAveragePool",
}


class Feeds(CalibrationDataReader):
    """A few random inputs of the model."""

    def __init__(self, path):
        rng = np.random.default_rng(3)
        inputs = onnx.load(path).graph.input
        self.feeds = iter([{i.name: self.make(rng, i) for i in inputs} for _ in range(3)])

    @staticmethod
    def make(rng, info):
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        return rng.standard_normal(shape).astype(np.float32)

    def get_next(self):
        return next(self.feeds, None)


def save_optimized(source, path, level):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.optimized_model_filepath = path
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def fuse(source, path, kind, heads):
    options = FusionOptions(kind)
    options.use_multi_head_attention = heads
    optimizer.optimize_model(source, model_type=kind, opt_level=0,
                             optimization_options=options).save_model_to_file(path)


def step(source, path, name, word, rest):
    """One tool of a way."""
    if word == "fused":
        fuse(source, path, KINDS[name], "heads" in rest)
    elif word == "extended":
        save_optimized(source, path, "ORT_ENABLE_EXTENDED")
    elif word == "all":
        save_optimized(source, path, "ORT_ENABLE_ALL")
    elif word == "dynamic":
        quantize_dynamic(source, path, per_channel="channels" in rest,
                         extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT})
    else:
        form = QuantFormat.QDQ if word == "qdq" else QuantFormat.QOperator
        quantize_static(source, path, Feeds(source), quant_format=form)


def steps_of(way):
    """extended_qoperator: the quantizer, then the session."""
    words = [w for w in way.split("_") if w not in ("heads", "channels")]
    if words[0] == "extended":
        words = words[1:] + words[:1]
    return words


def prepare(folder, name, way):
    path = os.path.join(folder, f"{name}.onnx")
    if not os.path.exists(path):
        onnx.save(make.make(name, small=True), path)
    for i, word in enumerate(steps_of(way)):
        before, path = path, os.path.join(folder, f"{name}.{way}.{i}.onnx")
        step(before, path, name, word, way)
    return path


def check(ullage, target, folder, key):
    """What is wrong, or ""."""
    name, way = key.split(".")
    path = prepare(folder, name, way)
    nodes = {n.op_type for n in onnx.load(path).graph.node if n.domain.startswith("com.microsoft")}
    missing = set(MODELS.get(key, "").split()) - nodes
    if missing:
        return f"has no {' '.join(sorted(missing))} but {' '.join(sorted(nodes))}"
    command = [ullage, "verify", "--target", target, path]
    done = subprocess.run(command, capture_output=True, text=True)
    if way == "all":
        good = done.returncode == 3 and "ORT_ENABLE_EXTENDED" in done.stderr
        return "" if good else f"exit {done.returncode}: {done.stderr}"
    print(f"{key}: {' '.join(sorted(nodes))}")
    return "" if done.returncode == 0 else f"exit {done.returncode}: {done.stdout}{done.stderr}"


def main():
    from saturation import skip_where_sums_saturate

    skip_where_sums_saturate("optimized.py")
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    names, failed = options.names or list(MODELS), 0
    with tempfile.TemporaryDirectory() as folder:
        for key in names:
            text = check(options.ullage, options.target, folder, key)
            failed += text != ""
            if text:
                print(f"FAIL {key}: {text}")
    print(f"{len(names) - failed} of {len(names)} pass")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
