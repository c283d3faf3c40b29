#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators of 16 bits, folded and run: the same bits.

    folded.py ULLAGE [CASE]...

ONNX's tests of one node, a few of each operator, operators of com.microsoft that are written out as
several nodes, chains of nodes, and maps of all 65,536 values, each in f16 and in bf16: a program of
target c has the floats as inputs, another as initializers, so that all of it is folded. Maps also for
a processor without fused multiply-add. In float32, where a last bit is never lost, single nodes
alone: chains are folded node by node, and its products add up as the vectors of the processor do.
Exit: 0 ok, 1 bits differ or a command failed, 77 a Python
package is missing.
"""

import glob
import os
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"folded.py: skipped: {error}")
    sys.exit(77)

import contributed

NODES = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "node")
OPSET = 24
EACH = 2  # tests of an operator
RANDOM_CHAINS = 60
LEAST = 1000  # cases that are supported
MAPS = ("Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish"
        " LeakyRelu Log Mish Neg Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign"
        " Sqrt Swish Tan Tanh ThresholdedRelu").split()
PAIRS = "Add Sub Mul Div Pow Max Min Mean Sum PRelu Mod".split()
LINES = "Softmax LogSoftmax LpNormalization LayerNormalization RMSNormalization MeanVarianceNormalization".split()
SUMS = "ReduceSum ReduceMean ReduceL1 ReduceL2 ReduceLogSumExp ReduceSumSquare".split()
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
RANDOM = {"Bernoulli", "Dropout", "RandomNormalLike", "RandomUniformLike", "Multinomial"}
rng = np.random.default_rng(9)


class Case:
    """Nodes of one test; inputs by name, of which floats are given at run time."""

    def __init__(self, name, nodes, arrays, outputs, kind):
        def own(value):
            return value and f"{self.name}_{value}"

        self.name, self.dtype = f"{name}_{kind}", DTYPES[kind]
        self.arrays = {own(key): array.astype(self.dtype) if array.dtype == np.float32 else array
                       for key, array in arrays.items()}
        self.outputs = [own(output) for output in outputs if output]
        self.nodes = []
        for node in nodes:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.name = ""
            copy.ClearField("input")
            copy.ClearField("output")
            copy.input.extend(own(value) for value in node.input)
            copy.output.extend(own(value) for value in node.output)
            self.nodes.append(copy)


def read(path):
    tensor = onnx.TensorProto()
    with open(path, "rb") as file:
        tensor.ParseFromString(file.read())
    return numpy_helper.to_array(tensor)


def node_tests(kind):
    seen = {}
    for folder in sorted(glob.glob(os.path.join(NODES, "test_*"))):
        path = os.path.join(folder, "model.onnx")
        if not os.path.exists(path):
            continue
        model = onnx.load(path)
        graph = model.graph
        version = {o.domain: o.version for o in model.opset_import}.get("", 0)
        node = graph.node[0] if len(graph.node) == 1 else None
        if node is None or node.domain or node.op_type in RANDOM or graph.initializer or any(
                a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.TENSOR)
                for a in node.attribute):
            continue
        try:
            newest = onnx.defs.get_schema(node.op_type, OPSET).since_version
        except onnx.defs.SchemaError:
            continue
        if not all(o.type.HasField("tensor_type") for o in (*graph.input, *graph.output)):
            continue
        types = {i.type.tensor_type.elem_type for i in graph.input}
        if (version < newest or version > OPSET or TensorProto.FLOAT not in types or
                types & {TensorProto.STRING, TensorProto.FLOAT16, TensorProto.DOUBLE} or
                seen.get(node.op_type, 0) == EACH):
            continue
        seen[node.op_type] = seen.get(node.op_type, 0) + 1
        arrays = {value.name: read(os.path.join(folder, "test_data_set_0", f"input_{i}.pb"))
                  for i, value in enumerate(graph.input)}
        if sum(array.size for array in arrays.values()) < 1 << 14:
            yield Case(os.path.basename(folder)[5:], [node], arrays, node.output, kind)


def contributed_tests(kind):
    for name in ("fused", "norm"):
        for case in contributed.FAMILIES[name]():
            node, feeds, weights = case.parts()
            if all(array.dtype != np.uint8 for array in weights.values()):
                yield Case(f"{name}_{case.name}", [node], {**feeds, **weights}, node.output, kind)


def random(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def chain(name, kind, *rows, scale=3.0, also=()):
    """Rows of operator, inputs, result and attributes; a, b: [4, 32], w: [32], m: [32, 32]. The outputs
    are the last result and `also`."""
    a, b = (rng.uniform(-scale, scale, (4, 32)).astype(np.float32) for _ in range(2))
    arrays = {"a": a, "b": b, "w": random(32), "m": random(32, 32) / 6}
    nodes = [helper.make_node(op, inputs.split(), [made], **attributes)
             for op, inputs, made, attributes in rows]
    used = {i for node in nodes for i in node.input}
    return Case(name, nodes, {k: v for k, v in arrays.items() if k in used},
                [*also, rows[-1][2]], kind)


def chains(kind):
    large = 60000.0  # two are more than f16 has
    skip = {"domain": "com.microsoft"}
    yield chain("skip_rms", kind, ("SkipSimplifiedLayerNormalization", "a b w", "y", skip),
                scale=large)
    yield chain("skip_layer", kind, ("SkipLayerNormalization", "a b w", "y", skip), scale=large)
    yield chain("add_rms", kind, ("Add", "a b", "s", {}), ("RMSNormalization", "s w", "y", {}),
                scale=large)
    yield chain("add_mul", kind, ("Add", "a b", "s", {}), ("Mul", "s b", "t", {}),
                ("Sub", "t a", "u", {}), ("Tanh", "u", "y", {}))
    yield chain("softmax", kind, ("Mul", "a b", "s", {}), ("Softmax", "s", "y", {}))
    yield chain("product", kind, ("MatMul", "a m", "s", {}), ("Add", "s w", "t", {}),
                ("Relu", "t", "y", {}))
    yield chain("norm_behind", kind, ("LayerNormalization", "a w", "s", {}), ("Mul", "s b", "y", {}))
    yield chain("sum", kind, ("Mul", "a a", "s", {}), ("ReduceSum", "s", "y", {"keepdims": 1}))
    yield chain("written", kind, ("Div", "a b", "s", {}), ("Reciprocal", "s", "y", {}), also=["s"])
    yield chain("read_twice", kind, ("Sigmoid", "a", "s", {}), ("Gelu", "s", "t", {}),
                ("Div", "t s", "u", {}), ("Pow", "u b", "y", {}))
    yield chain("in_front", kind, ("LayerNormalization", "a w", "s", {}), ("HardSigmoid", "s", "t", {}),
                ("RMSNormalization", "t w", "u", {}), ("Add", "u s", "y", {}))
    yield chain("mixed", kind, ("Reciprocal", "a", "s", {}), ("RMSNormalization", "s w", "t", {}),
                ("Cast", "t", "u", {"to": TensorProto.FLOAT}), ("Exp", "u", "v", {}),
                ("CastLike", "v a", "y", {}))
    yield chain("other_half", kind, ("Sigmoid", "a", "s", {}), ("Cast", "s", "y", {
        "to": TensorProto.FLOAT16 if kind == "bf16" else TensorProto.BFLOAT16}), also=["s"])
    for i in range(RANDOM_CHAINS):
        yield random_chain(f"random{i}", kind)


def cancelling(kind):
    """A product in two sums, of which one has another product, and the other is next to nothing: what is
    left of it is how the product was rounded."""
    draw = np.random.default_rng(12)
    a, b = (draw.uniform(-1, 1, (64, 128)).astype(DTYPES[kind]).astype(np.float32) for _ in range(2))
    first = [helper.make_node("Exp", ["a"], ["p"]), helper.make_node("Mul", ["p", "b"], ["q"]),
             helper.make_node("Exp", ["b"], ["r"]), helper.make_node("Mul", ["r", "a"], ["s"])]
    for name, operands in (("front", ["q", "s"]), ("behind", ["s", "q"])):
        last = [helper.make_node("Add", operands, ["t"]), helper.make_node("Sub", ["s", "c"], ["u"])]
        yield Case(f"cancelling_{name}", first + last, {"a": a, "b": b, "c": np.exp(b) * a}, ["t", "u"], kind)


def maps(kind):
    """All values that the type has."""
    every = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[kind]).reshape(256, 256)
    for op in MAPS:
        yield Case(f"all_{op}", [helper.make_node(op, ["x"], ["y"])], {"x": every}, ["y"], kind)
    tanh = helper.make_node("Gelu", ["x"], ["y"], approximate="tanh")
    yield Case("all_Gelu_tanh", [tanh], {"x": every}, ["y"], kind)


def many(kind):
    """One node, thousands of random values."""
    draw = np.random.default_rng(11)

    def normal(*shape):
        return (draw.standard_normal(shape) * 3).astype(np.float32)

    def case(name, op, arrays, **attributes):
        return Case(f"many_{name}", [helper.make_node(op, list(arrays), ["y"], **attributes)], arrays, ["y"], kind)

    for op in PAIRS:
        arrays = {"a": normal(64, 128), "b": normal(64, 128)}
        yield case(op, op, arrays, **({"fmod": 1} if op == "Mod" else {}))
    for op in LINES[:3]:
        yield case(op, op, {"x": normal(64, 300)})
    yield case("columns", "Softmax", {"x": normal(64, 300)}, axis=0)
    for op in LINES[3:5]:
        yield case(op, op, {"x": normal(64, 300), "w": normal(300)})
    image, four = normal(2, 16, 12, 12), (normal(16), normal(16))
    yield case(LINES[5], LINES[5], {"x": image})
    for op in SUMS:
        for axis in (0, 1):
            yield case(f"{op}_{axis}", op, {"x": normal(64, 300), "axes": np.array([axis], np.int64)})
    weights = normal(24, 16, 3, 3)
    yield case("Conv", "Conv", {"x": image, "w": weights, "b": normal(24)}, pads=[1] * 4)
    yield case("depthwise", "Conv", {"x": image, "w": weights[:16, :1]}, group=16)
    yield case("ConvTranspose", "ConvTranspose", {"x": image, "w": weights[:16]}, strides=[2, 2])
    yield case("AveragePool", "AveragePool", {"x": image}, kernel_shape=[3, 3])
    yield case("BatchNormalization", "BatchNormalization",
               {"x": image, "s": four[0], "b": four[1], "m": normal(16), "v": abs(normal(16)) + 1})
    yield case("InstanceNormalization", "InstanceNormalization", {"x": image, "s": four[0], "b": four[1]})
    yield case("GroupNormalization", "GroupNormalization", {"x": image, "s": four[0], "b": four[1]}, num_groups=4)
    yield case("MatMul", "MatMul", {"a": normal(40, 64), "b": normal(64, 48)})
    yield case("Gemm", "Gemm", {"a": normal(40, 64), "b": normal(48, 64), "c": normal(48)}, transB=1, alpha=0.7)
    yield case("Attention", "Attention", {"q": normal(1, 4, 16, 32), "k": normal(1, 4, 24, 32),
                                          "v": normal(1, 4, 24, 32)})
    for op, gates in (("RNN", 1), ("LSTM", 4), ("GRU", 3)):
        yield case(op, op, {"x": normal(5, 3, 8), "w": normal(1, 16 * gates, 8) / 9, "r": normal(1, 16 * gates, 16) / 9},
                   hidden_size=16)


def places(kind):
    """One node that computes places, in floats, from indexes of loops or from boxes and grids."""
    draw = np.random.default_rng(13)

    def normal(*shape):
        return (draw.standard_normal(shape) * 3).astype(np.float32)

    def case(name, op, arrays, inputs=None, **attributes):
        return Case(f"places_{name}", [helper.make_node(op, inputs or list(arrays), ["y"], **attributes)], arrays, ["y"], kind)

    image, grid = normal(2, 3, 12, 12), draw.uniform(-1.5, 1.5, (2, 16, 16, 2)).astype(np.float32)
    corners = np.sort(draw.uniform(0, 12, (5, 2, 2)), 1).reshape(5, 4).astype(np.float32)
    boxes = {"x": image, "r": corners, "b": np.array([0, 1, 0, 1, 1], np.int64)}
    for align in (0, 1):
        for shape in ((4, 3, 7, 8), (4, 3, 33, 40), (4, 3, 5, 16, 9)):
            d = len(shape) - 2
            yield case(f"AffineGrid_{d}_{shape[-1]}_{align}", "AffineGrid",
                       {"t": normal(4, d, d + 1), "s": np.array(shape, np.int64)}, align_corners=align)
        for mode in ("linear", "cubic"):
            for padding in ("zeros", "border", "reflection"):
                yield case(f"GridSample_{mode}_{padding}_{align}", "GridSample", {"x": image, "g": grid},
                           mode=mode, padding_mode=padding, align_corners=align)
    for mode in ("avg", "max"):
        for count in (0, 2):
            yield case(f"RoiAlign_{mode}_{count}", "RoiAlign", boxes, mode=mode, output_height=5, output_width=5,
                       sampling_ratio=count, spatial_scale=0.7)
    for mode in ("linear", "cubic"):
        for way in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"):
            for size in ((7, 8), (16, 16), (5, 3)):
                arrays = {"x": image, "s": np.array((2, 3, *size), np.int64)}
                yield case(f"Resize_{mode}_{way}_{size[0]}", "Resize", arrays, ["x", "", "", "s"], mode=mode,
                           coordinate_transformation_mode=way)
    yield case("DeformConv", "DeformConv", {"x": normal(1, 3, 6, 6), "w": normal(3, 3, 3, 3), "o": normal(1, 18, 4, 4) / 3})
    yield case("RotaryEmbedding", "RotaryEmbedding", {"x": normal(2, 4, 6, 16), "c": normal(50, 8), "s": normal(50, 8),
                                                      "p": draw.integers(0, 50, (2, 6))})


def of_integers(kind):
    """Models whose only values of 16 bits are those that attributes say."""
    half = TensorProto.FLOAT16 if kind == "f16" else TensorProto.BFLOAT16
    firsts = {"dequantized": ("DequantizeLinear", ["q", "s"], "d", {"output_dtype": half}),
              "cast": ("Cast", ["q"], "d", {"to": half})}
    for name, first in firsts.items():
        rows = [("Constant", [], "s", {"value_float": 0.037}), first,
                ("Reciprocal", ["d"], "m", {}), ("Sub", ["m", "d"], "t", {}), ("Sin", ["t"], "u", {}),
                ("Cast", ["u"], "y", {"to": TensorProto.FLOAT})]
        nodes = [helper.make_node(op, inputs, [made], **attributes)
                 for op, inputs, made, attributes in rows]
        case = Case(name, nodes, {"q": np.arange(1, 128, dtype=np.int8)}, ["y"], kind)
        case.dtype = np.int8
        yield case


def nested(kind):
    """Chains in branches and in the body of a loop, of constants and of what is computed from these outside."""
    rows = [("Mul", "a b", "s", {}), ("Sub", "s a", "t", {})]
    inner = [("Mul", "t b", "p", {}), ("Add", "p a", "q", {}), ("Tanh", "q", "r", {}), ("Exp", "t", "e", {})]
    for op in ("If", "Loop"):
        case = chain(f"nested_{op}", kind, *rows)
        prefix = f"nested_{op}_{kind}_"
        nodes = [helper.make_node(name, [prefix + i for i in inputs.split()], [prefix + made], **attributes)
                 for name, inputs, made, attributes in inner]
        outs = [helper.make_empty_tensor_value_info(prefix + made) for made in ("r", "e")]
        if op == "If":
            case.arrays[prefix + "given"] = np.array(True)
            other = [helper.make_node("Neg", [prefix + i], [prefix + i + "_n"]) for i in ("a", "t")]
            neg = [helper.make_empty_tensor_value_info(prefix + i + "_n") for i in ("a", "t")]
            case.nodes.append(helper.make_node("If", [prefix + "given"], [prefix + "y", prefix + "z"],
                                               then_branch=helper.make_graph(nodes, "then", [], outs),
                                               else_branch=helper.make_graph(other, "else", [], neg)))
        else:
            ins = [helper.make_tensor_value_info(prefix + "i", TensorProto.INT64, []),
                   helper.make_tensor_value_info(prefix + "c", TensorProto.BOOL, [])]
            go = [helper.make_node("Constant", [], [prefix + "d"], value=numpy_helper.from_array(np.array(True)))]
            body = helper.make_graph(nodes + go, "body", ins, [helper.make_tensor_value_info(prefix + "d", TensorProto.BOOL, []), *outs])
            case.arrays |= {prefix + "times": np.array(2, np.int64), prefix + "on": np.array(True)}
            case.nodes.append(helper.make_node("Loop", [prefix + "times", prefix + "on"], [prefix + "y", prefix + "z"], body=body))
        case.outputs = [prefix + "y", prefix + "z"]
        yield case


def random_chain(name, kind):
    """Up to 8 nodes on what is there already: maps, sums, norms, products, Casts to 32 bits and back."""
    made, rows = ["a", "b"], []
    for i in range(rng.integers(2, 9)):
        x, y, result = made[-1], str(rng.choice(made)), f"n{i}"
        op = str(rng.choice(["Relu", "Tanh", "Neg", "Gelu", "Reciprocal", "Sigmoid", "Add", "Sub", "Mul",
                             "Div", "Max", "Softmax", "LogSoftmax", "LayerNormalization",
                             "RMSNormalization", "LpNormalization", "ReduceMean", "MatMul", "Cast"]))
        if op == "Cast":
            rows += [("Cast", x, f"wide{i}", {"to": TensorProto.FLOAT}), ("Exp", f"wide{i}", f"exp{i}", {}),
                     ("CastLike", f"exp{i} a", result, {})]
        elif op == "ReduceMean":
            rows += [(op, x, f"mean{i}", {"keepdims": 1}), ("Sub", f"{y} mean{i}", result, {})]
        else:
            inputs = {"MatMul": f"{x} m", "LayerNormalization": f"{x} w", "RMSNormalization": f"{x} w"}
            two = op in ("Add", "Sub", "Mul", "Div", "Max")
            rows.append((op, inputs.get(op, f"{x} {y}" if two else x), result, {}))
        made.append(result)
    return chain(name, kind, *rows, scale=float(rng.choice([1, 3, 200])),
                 also=[value for value in made[2:-1] if rng.random() < 0.2])


def build(cases, folded):
    inputs, weights, outputs, feeds = [], [], [], {}
    for case in cases:
        for name, array in case.arrays.items():
            if (not folded and array.dtype == case.dtype) or name.endswith("_given"):
                feeds[name] = array
                inputs.append(helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
            else:
                weights.append(numpy_helper.from_array(np.asarray(array), name))
        outputs += [helper.make_empty_tensor_value_info(o) for o in case.outputs]
    graph = helper.make_graph([node for case in cases for node in case.nodes], "folded", inputs,
                              outputs, weights)
    return helper.make_model(graph, ir_version=11, opset_imports=[
        helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]), feeds


def run(ullage, cases, folded, folder, options):
    """The outputs' bytes by name, or what went wrong."""
    model, feeds = build(cases, folded)
    path, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    with open(path, "wb") as file:
        file.write(model.SerializeToString())
    given = []
    for i, (name, array) in enumerate(feeds.items()):
        given += ["--input", f"{name}={folder}/{i}.npy"]
        np.save(os.path.join(folder, f"{i}.npy"),
                array.view("V2") if array.dtype == ml_dtypes.bfloat16 else array)
    for command in ([ullage, "compile", "--target", "c", *options, path, "-o", program],
                    [program, "--output-dir", folder, *given]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return f"exit {done.returncode}: {done.stderr.strip()}"
    return {o: np.load(os.path.join(folder, f"{o}.npy")) for case in cases for o in case.outputs}


def supported(ullage, cases, folder):
    """Those that are compiled at all, found by halving."""
    path = os.path.join(folder, "probe.onnx")
    with open(path, "wb") as file:
        file.write(build(cases, False)[0].SerializeToString())
    done = subprocess.run([ullage, "inspect", path], capture_output=True, text=True)
    if done.returncode == 0 and "unsupported" not in done.stdout:
        return cases
    if len(cases) < 2:
        return []
    half = len(cases) // 2
    return supported(ullage, cases[:half], folder) + supported(ullage, cases[half:], folder)


def compare(cases, ran, folded):
    failed = 0
    for case in cases:
        for output in case.outputs:
            a, b = ran[output], folded[output]
            kind = case.dtype if a.dtype == np.dtype("V2") else a.dtype
            x, y = a.view(kind).ravel(), b.view(kind).ravel()
            differs = a.shape != b.shape or a.dtype != b.dtype
            at = [] if differs else np.flatnonzero((a.ravel() != b.ravel()) &
                                                   ~((x != x) & (y != y)))  # one NaN is as any
            if not differs and len(at) == 0:
                continue
            failed += 1
            print(f"FAIL {output}: {len(at)} of {a.size}: "
                  + ", ".join(f"{x[i]} runs, {y[i]} folded" for i in at[:3]))
    return failed


def check_trained(ullage, kind, folder):
    """A trainer folds as a program does: the first loss is that of the other program's result."""
    draw = np.random.default_rng(10)
    a, b = (draw.standard_normal(32).astype(DTYPES[kind]) * DTYPES[kind](scale) for scale in (300, 3))
    c = (0.5 - a.astype(np.float32) * b.astype(np.float32)).astype(DTYPES[kind])  # cancels: roundings are what is left
    x = draw.standard_normal((4, 32)).astype(np.float32)
    nodes = [helper.make_node("Mul", ["a", "b"], ["m"]), helper.make_node("Add", ["m", "c"], ["s"]),
             helper.make_node("Cast", ["s"], ["t"], to=TensorProto.FLOAT), helper.make_node("Mul", ["x", "w"], ["p"]),
             helper.make_node("Add", ["p", "t"], ["y"])]
    weights = [numpy_helper.from_array(array, name) for array, name in ((a, "a"), (b, "b"), (c, "c"))]
    weights.append(numpy_helper.from_array(np.ones(32, np.float32), "w"))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)], weights)
    names = ("m.onnx", "x.npy", "zeros.npy", "y.npy", "program")
    model, given, zeros, made, program = (os.path.join(folder, name) for name in names)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10), model)
    np.save(given, x)
    np.save(zeros, np.zeros_like(x))
    said = []
    for words, run_words in (([], ["--input", f"x={given}", "--output", f"y={made}"]),
                             (["--train", "--loss", "mse", "--optimizer", "sgd"],
                              ["--data", given, "--labels", zeros, "--steps", "1"])):
        for command in ([ullage, "compile", model, "-o", program, "--target", "c", *words], [program, *run_words]):
            said.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    loss, want = float(said[-1].split("loss ")[1].split(",")[0]), float(np.mean(np.load(made) ** 2))
    if abs(loss - want) > 1e-5 * want:
        print(f"FAIL trained {kind}: loss {loss}, not {want}")
    return abs(loss - want) > 1e-5 * want


def main():
    ullage, wanted = sys.argv[1], sys.argv[2:]
    failed = count = 0
    for kind in DTYPES:
        with tempfile.TemporaryDirectory() as folder:
            makers = (many, places) if kind == "f32" else (
                node_tests, contributed_tests, chains, cancelling, maps, many, places)
            cases = [case for make in makers for case in make(kind) if not wanted or case.name.rsplit("_", 1)[0] in wanted]
            cases = supported(ullage, cases, folder)
            count += len(cases)
            plain = [case for case in cases if case.name.startswith(("all_", "many_"))]
            unrolled = [case for case in cases if case.name.startswith("places_")]
            models = [(cases, "-O3", ()), (unrolled, "-O1", ()), (plain, "-O1", ("--march", "none"))]
            if kind != "f32":
                models += [([case], "-O3", ()) for make in (of_integers, nested) for case in make(kind)]
            for model, flags, options in models:
                if not model:
                    continue
                results = [run(ullage, model, folded, folder, ("--cflags", flags, *options)) for folded in (False, True)]
                for result in results:
                    if isinstance(result, str):
                        sys.exit(f"FAIL {kind}: {result}")
                failed += compare(model, *results)
            failed += kind != "f32" and check_trained(ullage, kind, folder)
    print(f"{count} cases, {failed} differ")
    few = count == 0 or (not wanted and count < LEAST)
    if few:
        print(f"FAIL: {count} cases are too few: models are refused, or no case has such a name")
    return failed != 0 or few


if __name__ == "__main__":
    sys.exit(main())
