# SPDX-License-Identifier: Apache-2.0
"""The networks that tests/bench/latency measures, and where each file comes from.

Those of models/make.py and models/quantized.py are made under build/models where they are missing
or older than the scripts; PP-OCRv4's text detection comes from a package (scripts/fetch_ocr.sh);
torchvision's are exported by a Python that has torch: that of ULLAGE_TORCH_PYTHON, or /usr/bin/python3.
"""

import argparse
import dataclasses
import math
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "..", "ref"), os.path.join(ROOT, "scripts")]

import compare_ort  # noqa: E402
import demo_ocr  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from lib_run import random_inputs  # noqa: E402

MODELS = os.path.join(ROOT, "build", "models")
OCR_FILE, OCR_SIDE = "ch_PP-OCRv4_det_infer.onnx", 640
MAKE_SECONDS = 1200
SKIPPED = 77


class Failure(Exception):
    """A network that cannot be measured; the text is one line."""


class Skip(Exception):
    """A network that this machine lacks something for; the text is one line."""


@dataclasses.dataclass(frozen=True)
class Group:
    """What is wanted of a row: time over that of `base`, the geometric mean of these ratios, and
    whether memory is measured against what is stored. None: only shown."""

    time: float | None
    mean: float | None
    base: str = "faster"  # of the peers, or the name of one
    stored: bool = False


GROUPS = {
    "float": Group(time=1.0, mean=0.85),
    "quantized": Group(time=1.15, mean=0.95, stored=True),
    "int4": Group(time=0.9, mean=None, base="onnxruntime", stored=True),
    "bf16": Group(time=None, mean=None),
}


@dataclasses.dataclass(frozen=True)
class Network:
    label: str
    group: str
    source: str  # make, quantized, ocr or torch
    name: str = ""
    seq: int | None = None  # length of sequence, where it is not that of make.py (BERT's is 128)
    how: str = ""  # torch's exporter
    precision: str = "f32"

    def options(self):
        return ["--precision", self.precision] if self.precision != "f32" else []


def made(*names):
    return [Network(name, "float", "make", name) for name in names]


NETWORKS = [
    *made("resnet50", "mobilenet_v2", "densenet121", "efficientnet_b0", "convnext_t", "swin_t",
          "vit_b16", "unet", "bert_base"),
    Network("gpt2", "float", "make", "gpt2", 128),
    Network("ppocr_det", "float", "ocr"),
    Network("torch_resnet50", "float", "torch", "resnet50", how="traced"),
    Network("torch_mnasnet", "float", "torch", "mnasnet1_0", how="traced"),
    Network("torch_densenet121", "float", "torch", "densenet121", how="captured"),
    Network("torch_convnext", "float", "torch", "convnext_tiny", how="captured"),
    *[Network(name, "quantized", "quantized", name) for name in
      ("resnet50_qdq", "mobilenet_v2_qdq", "efficientnet_b0_qdq", "unet_qdq", "bert_base_qdq",
       "bert_base_dynamic")],
    Network("gpt2_int4", "int4", "quantized", "gpt2_int4", 128),
    Network("gpt2_int4_token", "int4", "quantized", "gpt2_int4", 1),
    *[Network(name + "_bf16", "bf16", "make", name, seq, precision="bf16") for name, seq in
      (("resnet50", None), ("convnext_t", None), ("swin_t", None), ("vit_b16", None),
       ("bert_base", None), ("gpt2", 128))],
]  # fmt: skip


def run_checked(command, what, seconds, **rest):
    """Standard output of a process; Failure with its first lines of error."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=seconds, check=False, **rest)  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise Failure(f"{what}: not done after {seconds} s") from late
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["no message"]
    if done.returncode == SKIPPED:
        raise Skip(f"{what}: {lines[-1]}")
    if done.returncode != 0:
        raise Failure(f"{what}: exit {done.returncode}: {' '.join(lines[:2])[:300]}")
    return done.stdout


def stale(path):
    """Whether a file is missing, or older than a script of models/."""
    folder = os.path.join(ROOT, "models")
    scripts = [os.path.join(folder, entry) for entry in os.listdir(folder) if entry[-3:] == ".py"]
    newest = max(os.path.getmtime(script) for script in scripts)
    return not os.path.exists(path) or os.path.getmtime(path) < newest


def find_quantized(network):
    length = f"_s{network.seq}" if network.seq else ""
    path = os.path.join(MODELS, f"{network.name}{length}.onnx")
    if stale(path):
        script = os.path.join(ROOT, "models", "quantized.py")
        command = [sys.executable, script, network.name, "-o", path]
        command += ["--seq", str(network.seq)] if network.seq else []
        run_checked(command, "quantized.py", MAKE_SECONDS)
    return path


def find_torch(network):
    path = os.path.join(MODELS, f"torch_{network.name}_{network.how}.onnx")
    if not os.path.exists(path):
        os.makedirs(MODELS, exist_ok=True)
        python = os.environ.get("ULLAGE_TORCH_PYTHON", "/usr/bin/python3")
        script, part = os.path.join(HERE, "torch_export.py"), path + ".part"
        run_checked([python, script, network.name, network.how, part], python, MAKE_SECONDS)
        os.replace(part, path)
    return path


def find_network(network):
    """(file, shapes of inputs that the model leaves open)"""
    if network.source == "make":
        request = argparse.Namespace(model=network.name, small=False, batch=1, seq=network.seq)
        return compare_ort.model_path(request), {}
    if network.source == "quantized":
        return find_quantized(network), {}
    if network.source == "torch":
        return find_torch(network), {}
    script = os.path.join(ROOT, "scripts", "fetch_ocr.sh")
    folder = run_checked([script], "fetch_ocr.sh", MAKE_SECONDS).strip()
    return os.path.join(folder, OCR_FILE), {"x": [1, 3, OCR_SIDE, OCR_SIDE]}


def page(side):
    """Lines of what looks like letters, as PP-OCR's detection takes a picture: in noise a trained
    network sees no text, and its outputs, all next to zero, would compare badly."""
    rng = np.random.default_rng(1)
    picture = np.full((side, side, 3), 240, np.uint8)
    for top in range(32, side - 64, 80):
        for left in range(32, side - 64, 28):
            letter = np.kron(rng.random((7, 5)) < 0.5, np.ones((4, 4), bool))
            picture[top : top + 28, left : left + 20][letter] = 30
    return demo_ocr.normalized(picture, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def make_inputs(path, shapes):
    if os.path.basename(path) == OCR_FILE:
        return {"x": page(OCR_SIDE)}
    return random_inputs(onnx.load(path, load_external_data=False), seed=1, shapes=shapes)


def open_sizes(path, shapes):
    """{symbolic dimension: size}, from whole shapes by input."""
    found = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, shapes.get(value.name, ()), strict=False):
            if dim.dim_param:
                found[dim.dim_param] = size
    return found


def stored_weight_bytes(path):
    """Bytes of all constants as the file stores them."""
    graph = onnx.load(path, load_external_data=False).graph
    tensors = list(graph.initializer)
    for node in graph.node:
        tensors += [entry.t for entry in node.attribute if entry.HasField("t")]
    halves = {onnx.TensorProto.INT4, onnx.TensorProto.UINT4}
    total = 0
    for tensor in tensors:
        count = math.prod(tensor.dims)
        size = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        total += (count + 1) // 2 if tensor.data_type in halves else count * size
    return total
