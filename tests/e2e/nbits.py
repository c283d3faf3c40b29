#!/usr/bin/env python3
"""Weights of 2 to 8 bits: products and tables against numpy, and against onnxruntime where it has them.

    nbits.py ULLAGE [--target c] [--count 12] [--seed 1]

Random shapes, block sizes, kinds of zero points, biases and group indexes; each program gives what
the unpacked weights give, to rounding, and with --pack none the same bits.
Exit: 0 ok, 1 outputs differ or a command failed, 77 a Python package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    from onnx import TensorProto, helper
except ImportError as error:
    print(f"nbits.py: skipped: {error}")
    sys.exit(77)
try:
    import onnxruntime
except ImportError:
    onnxruntime = None

NEAR = 3e-6  # of the sum of the products' sizes: sums are in another order
E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], "f4")


def pack(values, bits):
    """Along the last axis, the first in the lowest bits, from a byte on."""
    planes = (values[..., None] >> numpy.arange(bits)) & 1
    flat = planes.reshape(*values.shape[:-1], -1).astype("u1")
    return numpy.packbits(flat, axis=-1, bitorder="little")


def tensor(name, array):
    return onnx.numpy_helper.from_array(numpy.ascontiguousarray(array), name)


def product(rng, bits=None):
    """A MatMulNBits: the model, its input, the weights as floats, and the bias."""
    bits = bits or int(rng.choice([2, 3, 4, 4, 4, 5, 6, 7, 8]))
    block = int(rng.choice([16, 32, 64, 128]))
    k, n = int(rng.integers(1, 300)), int(rng.integers(1, 90))
    if rng.random() < 0.5:
        k, n = -(-k // block) * block, -(-n // 16) * 16
    lead = [int(rng.integers(1, 20)) for _ in range(int(rng.integers(0, 3)))]
    blocks = -(-k // block)
    codes = rng.integers(0, 1 << bits, (n, blocks * block))
    codes[:, k:] = 0
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype("f4")
    kind = str(rng.choice(["none", "packed", "float"]))
    zeros = numpy.full((n, blocks), 1 << (bits - 1), "f4")
    flat = bool(rng.integers(0, 2))
    weights = [tensor("b", pack(codes.reshape(n, blocks, block), bits)),
               tensor("s", scales.reshape(-1) if flat else scales)]
    names = ["a", "b", "s", "", "", ""]
    if kind == "packed":
        points = rng.integers(0, 1 << bits, (n, blocks))
        zeros = points.astype("f4")
        packed = pack(points, bits)
        weights.append(tensor("z", packed.reshape(-1) if flat else packed))
        names[3] = "z"
    elif kind == "float":
        zeros = rng.uniform(0, 1 << bits, (n, blocks)).astype("f4")
        weights.append(tensor("z", zeros.reshape(-1) if flat else zeros))
        names[3] = "z"
    groups = numpy.arange(k, dtype="i4") // block
    if rng.random() < 0.2:
        groups = rng.integers(0, blocks, k).astype("i4")
        weights.append(tensor("g", groups))
        names[4] = "g"
    bias = numpy.zeros(n, "f4")
    if rng.random() < 0.5:
        bias = rng.normal(0, 1, n).astype("f4")
        weights.append(tensor("bias", bias))
        names[5] = "bias"
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block)
    return finish(rng, [node], weights, [*lead, k], [*lead, n],
                  (codes[:, :k] - zeros[:, groups]) * scales[:, groups], bias, f"{bits} bits, blocks of {block}, {kind} zeros, {lead}x{k}x{n}")


def finish(rng, nodes, weights, a_shape, y_shape, matrix, bias, text):
    """With a map behind it half of the time."""
    last = "y"
    if rng.random() < 0.5:
        nodes.append(helper.make_node("Relu", ["y"], ["r"]))
        last = "r"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, a_shape)],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, y_shape)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)
    a = rng.normal(0, 1, a_shape).astype("f4")
    want = a.astype("f8") @ matrix.astype("f8").T + bias
    size = numpy.abs(a) @ numpy.abs(matrix).T + numpy.abs(bias)
    return model, a, numpy.maximum(want, 0) if last == "r" else want, size, text


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command[:3]))}: exit {done.returncode}: {done.stderr[-600:]}")


def outputs(ullage, folder, name, options, feeds):
    program, out = os.path.join(folder, "program"), os.path.join(folder, "out")
    run([ullage, "compile", name, "-o", program, "--cflags", "-O1", *options])
    inputs = [word for k, v in feeds.items() for word in ("--input", f"{k}={v}")]
    run([program, *inputs, "--output-dir", out])
    return [numpy.load(os.path.join(out, name)) for name in sorted(os.listdir(out))][0]


def check(ullage, options, case):
    model, a, want, size, text = case
    with tempfile.TemporaryDirectory() as folder:
        path, feed = os.path.join(folder, "m.onnx"), os.path.join(folder, "a.npy")
        onnx.save(model, path)
        numpy.save(feed, a)
        got = outputs(ullage, folder, path, options, {"a": feed})
        plain = outputs(ullage, folder, path, [*options, "--pack", "none"], {"a": feed})
    worst = float(numpy.max(numpy.abs(got - want) / (size + 1e-30))) if got.size else 0
    if got.shape != want.shape or worst > NEAR:
        raise RuntimeError(f"{text}: differs by {worst:.2g} of the products' sizes")
    if got.tobytes() != plain.tobytes():
        raise RuntimeError(f"{text}: --pack none gives other bits")
    return worst


def check_peer(case):
    """What onnxruntime has to say of the same model, where it takes it."""
    model, a, want, size, text = case
    if model.graph.node[0].input[4] != "":  # of zero points and group indexes it takes the latter alone
        return 0
    try:
        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        peer = session.run(None, {"a": a})[0]
    except Exception:  # bits and zero points that its kernels have not
        return 0
    if float(numpy.max(numpy.abs(peer - want) / (size + 1e-30))) > 1e-3:
        raise RuntimeError(f"{text}: onnxruntime computes something else")
    return 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    peers = 0
    for i in range(arguments.count):
        rng = numpy.random.default_rng([arguments.seed, i])
        case = product(rng)
        print(f"{i}: {case[-1]}", flush=True)
        peers += check_peer(case) if onnxruntime is not None else 0
        check(os.path.abspath(arguments.ullage), ["--target", arguments.target, "--threads", "2"] if arguments.target == "cpu" else ["--target", arguments.target], case)
    print(f"{arguments.count} cases, {peers} of them by onnxruntime too")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        print(f"nbits.py: {error}", file=sys.stderr)
        sys.exit(1)
