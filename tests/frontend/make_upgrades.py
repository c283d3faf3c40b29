#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes upgrade/: one folder for each change of meaning between operator sets, in ONNX's layout of
model.onnx and test_data_set_0, with outputs computed by onnxruntime on the model as it is.

usage: make_upgrades.py [DIR]       DIR defaults to upgrade/ beside this script
Needs onnx and onnxruntime (scripts/setup_python.sh). The folders are in the tree, so that the
tests need no Python.
"""

import os
import shutil
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OUT = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "upgrade")
rng = np.random.default_rng(7)


def random(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def info(name, array):
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype),
                                         array.shape)


def case(name, opset, node, inputs, weights=(), expected=None):
    """Writes a test of one node; a graph's outputs are those of the node, typed by what ran."""
    folder = os.path.join(OUT, name)
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data)
    outs = [o for o in node.output if o]
    graph = helper.make_graph([node], name, [info(k, v) for k, v in inputs.items()],
                              [helper.make_empty_tensor_value_info(o) for o in outs],
                              [numpy_helper.from_array(v, k) for k, v in weights])
    imports = [helper.make_opsetid("", opset)]
    if node.domain:
        imports.append(helper.make_opsetid(node.domain, 1))
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 3 if opset < 9 else 7
    if model.ir_version == 3:
        graph_inputs = [info(k, v) for k, v in weights]
        model.graph.input.extend(graph_inputs)
    if expected is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
        expected = session.run(None, inputs)
    for value, array in zip(model.graph.output, expected):
        value.CopyFrom(info(value.name, array))
    with open(os.path.join(folder, "model.onnx"), "wb") as f:
        f.write(model.SerializeToString(deterministic=True))
    for kind, arrays in (("input", list(inputs.items())), ("output", list(zip(outs, expected)))):
        for i, (key, array) in enumerate(arrays):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as f:
                f.write(numpy_helper.from_array(array, key).SerializeToString())


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, name="n", **attributes)


def attributes_to_inputs():
    x = random(2, 3, 4)
    case("squeeze_11", 11, node("Squeeze", ["x"], ["y"], axes=[0, -1]), {"x": random(1, 3, 1)})
    case("unsqueeze_9", 9, node("Unsqueeze", ["x"], ["y"], axes=[0, 2]), {"x": random(2, 3)})
    for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
               "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"):
        case(f"{op.lower()}_11", 11, node(op, ["x"], ["y"], axes=[-1, 0], keepdims=0),
             {"x": np.abs(x)})
    case("reducesum_all_9", 9, node("ReduceSum", ["x"], ["y"]), {"x": x})
    case("reducemean_13", 13, node("ReduceMean", ["x"], ["y"], axes=[1]), {"x": x})
    case("split_sizes_11", 11, node("Split", ["x"], ["a", "b"], axis=1, split=[1, 2]), {"x": x})
    case("split_equal_9", 9, node("Split", ["x"], ["a", "b"], axis=-1), {"x": x})
    case("split_equal_13", 13, node("Split", ["x"], ["a", "b"], axis=2), {"x": x})
    case("slice_9", 9, node("Slice", ["x"], ["y"], starts=[1, -3], ends=[3, 9999], axes=[1, 2]),
         {"x": x})
    case("slice_no_axes_7", 7, node("Slice", ["x"], ["y"], starts=[0, 1], ends=[1, -1]), {"x": x})
    case("pad_7", 7, node("Pad", ["x"], ["y"], pads=[0, 1, 0, 1, 0, 2], value=1.5), {"x": x})
    case("pad_reflect_9", 9, node("Pad", ["x"], ["y"], mode="reflect", pads=[0, 1, 2, 0, 0, 1]),
         {"x": x})
    case("topk_9", 9, node("TopK", ["x"], ["v", "i"], k=2, axis=-1), {"x": x})
    case("topk_10", 10, node("TopK", ["x", "k"], ["v", "i"], axis=1), {"x": x},
         [("k", np.int64([2]))])
    case("clip_7", 7, node("Clip", ["x"], ["y"], min=-0.5, max=0.25), {"x": x})
    case("clip_6_default", 10, node("Clip", ["x"], ["y"], max=0.25), {"x": x})
    case("dropout_7", 7, node("Dropout", ["x"], ["y"], ratio=0.7), {"x": x})
    case("dropout_10_mask", 10, node("Dropout", ["x"], ["y", "m"], ratio=0.7), {"x": x})
    case("scatter_9", 9, node("Scatter", ["x", "i", "u"], ["y"], axis=1),
         {"x": random(3, 4), "i": np.int64([[1, 2], [0, 3]]), "u": random(2, 2)})


def softmaxes():
    x = random(2, 3, 4)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        case(f"{op.lower()}_default_11", 11, node(op, ["x"], ["y"]), {"x": x})
        case(f"{op.lower()}_last_9", 9, node(op, ["x"], ["y"], axis=2), {"x": x})
        case(f"{op.lower()}_first_7", 7, node(op, ["x"], ["y"], axis=0), {"x": x})
    case("softmax_negative_11", 11, node("Softmax", ["x"], ["y"], axis=-2), {"x": x})


def resizes():
    x = random(1, 2, 4, 6)
    up, down = np.float32([1, 1, 2, 3]), np.float32([1, 1, 0.6, 0.5])
    mixed = np.float32([1, 1, 2, 0.6])
    case("upsample_nearest_7", 7, node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, 2.0, 3.0]),
         {"x": x})
    case("upsample_linear_7", 7,
         node("Upsample", ["x"], ["y"], mode="linear", scales=[1.0, 1.0, 2.0, 2.0]), {"x": x})
    case("upsample_nearest_9", 9, node("Upsample", ["x", "s"], ["y"]), {"x": x}, [("s", up)])
    for kind, scales in (("up", up), ("down", down), ("mixed", mixed)):
        for mode in ("nearest", "linear"):
            case(f"resize_10_{mode}_{kind}", 10, node("Resize", ["x", "s"], ["y"], mode=mode),
                 {"x": x}, [("s", scales)])
    empty = np.float32([])
    case("resize_11_empty_roi", 11, node("Resize", ["x", "r", "s"], ["y"], mode="linear"),
         {"x": x}, [("r", empty), ("s", up)])
    case("resize_11_sizes", 11, node("Resize", ["x", "r", "s", "z"], ["y"], mode="cubic"),
         {"x": x}, [("r", empty), ("s", empty), ("z", np.int64([1, 2, 7, 5]))])


def others():
    x = random(2, 4, 3)
    s, b = random(2), random(2)
    groups = x.reshape(2, 2, -1)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(
        groups.var(2, keepdims=True) + np.float32(1e-5))
    want = (normal * s.reshape(1, 2, 1) + b.reshape(1, 2, 1)).reshape(x.shape).astype(np.float32)
    case("group_normalization_18", 18,
         node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2), {"x": x},
         [("s", s), ("b", b)], [want])
    w = [(k, np.abs(random(4)) + 0.5) for k in ("scale", "bias", "mean", "var")]
    case("batch_normalization_7", 7,
         node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], ["y"], epsilon=1e-3),
         {"x": x}, w)
    index = np.int64([-1, 0, 2, 5])
    want = np.float32([[0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]])
    case("one_hot_9", 9, node("OneHot", ["i", "d", "v"], ["y"]), {"i": index},
         [("d", np.int64([3])), ("v", np.float32([0, 1]))], [want])
    grid = (rng.random((1, 2, 3, 2)) * 2 - 1).astype(np.float32)
    for mode in ("bilinear", "bicubic"):
        case(f"grid_sample_16_{mode}", 16, node("GridSample", ["x", "g"], ["y"], mode=mode),
             {"x": random(1, 1, 4, 4), "g": grid})
    rois = np.float32([[0, 0, 3, 3], [1, 1, 5, 4]])
    case("roi_align_10", 10,
         node("RoiAlign", ["x", "r", "i"], ["y"], output_height=2, output_width=2,
              sampling_ratio=2, spatial_scale=1.0),
         {"x": random(1, 1, 6, 6), "r": rois, "i": np.int64([0, 0])})
    signal = random(1, 6, 1)
    spectrum = np.fft.fft(signal[..., 0])
    want = np.stack([spectrum.real, spectrum.imag], -1).astype(np.float32)
    case("dft_17", 17, node("DFT", ["x"], ["y"], axis=1), {"x": signal}, expected=[want])
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["s_out"]),
         helper.make_node("Identity", ["s_out"], ["o"])], "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("s", "e")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("s_out", "o")])
    init, seq = random(2, 2), random(2, 3, 2)
    total = init[:, None] + np.cumsum(seq, 1)
    case("scan_8", 8, node("Scan", ["", "init", "seq"], ["y", "z"], body=body, num_scan_inputs=1),
         {"init": init, "seq": seq}, expected=[total[:, -1], total])


def microsoft():
    def ms(name, op, inputs, weights=(), outputs=("y",), expected=None, **attributes):
        names = list(inputs) + [k for k, _ in weights]
        made = helper.make_node(op, names, list(outputs), name="n",
                                domain="com.microsoft", **attributes)
        case("ms_" + name, 17, made, inputs, weights, expected)

    x = random(2, 3, 4)
    ms("gelu", "Gelu", {"x": x})
    ms("fast_gelu", "FastGelu", {"x": x}, [("b", random(4))])
    ms("fast_gelu_plain", "FastGelu", {"x": x})
    ms("bias_gelu", "BiasGelu", {"x": x}, [("b", random(4))])
    ms("quick_gelu", "QuickGelu", {"x": x}, alpha=1.5)
    ms("fused_matmul", "FusedMatMul", {"a": random(2, 4, 3), "b": random(2, 5, 4)}, transA=1,
       transB=1, alpha=0.5)
    image = random(1, 2, 5, 5)
    kernel = [("w", random(3, 2, 3, 3)), ("b", random(3))]
    ms("fused_conv_relu", "FusedConv", {"x": image}, kernel, activation="Relu", pads=[1, 1, 1, 1])
    ms("fused_conv_clip", "FusedConv", {"x": image}, kernel, activation="Clip",
       activation_params=[-0.5, 0.75])
    ms("fused_conv_sum", "FusedConv", {"x": image}, kernel + [("z", random(1, 3, 3, 3))],
       activation="LeakyRelu", activation_params=[0.25])
    ms("fused_gemm", "FusedGemm", {"a": random(2, 3)}, [("b", random(4, 3)), ("c", random(4))],
       transB=1, activation="LeakyRelu", activation_alpha=0.125)
    scale, shift, bias = random(4), random(4), random(4)
    ms("skip_layer_norm", "SkipLayerNormalization", {"x": x, "s": random(2, 3, 4)},
       [("g", scale), ("be", shift), ("bi", bias)], epsilon=1e-5)
    ms("skip_layer_norm_sum", "SkipLayerNormalization", {"x": x, "s": random(2, 3, 4)},
       [("g", scale)], outputs=("y", "", "", "sum"), epsilon=1e-5)
    ms("skip_rms_norm", "SkipSimplifiedLayerNormalization", {"x": x, "s": random(2, 3, 4)},
       [("g", scale)], epsilon=1e-5)
    case("simplified_layer_norm", 17,
         node("SimplifiedLayerNormalization", ["x", "s"], ["y"], axis=-1, epsilon=1e-5), {"x": x},
         [("s", scale)])
    q = rng.integers(0, 255, (1, 2, 4, 4)).astype(np.uint8)
    quant = [("xs", np.float32(0.02)), ("xz", np.uint8(120)), ("ys", np.float32(0.0313)),
             ("yz", np.uint8(128))]
    for name, op, more in (("sigmoid", "QLinearSigmoid", {}),
                           ("leaky_relu", "QLinearLeakyRelu", {"alpha": 0.25}),
                           ("global_average_pool", "QLinearGlobalAveragePool", {}),
                           ("average_pool", "QLinearAveragePool", {"kernel_shape": [2, 2]}),
                           ("softmax", "QLinearSoftmax", {"axis": 1, "opset": 12})):
        ms("qlinear_" + name, op, {"x": q}, quant, **more)
    other = rng.integers(0, 255, (1, 2, 4, 4)).astype(np.uint8)
    operands = [("xs", np.float32(0.02)), ("xz", np.uint8(120)), ("b", other)] + [
        ("bs", np.float32(0.01)), ("bz", np.uint8(100)), ("ys", np.float32(0.0313)),
        ("yz", np.uint8(128))]
    ms("qlinear_add", "QLinearAdd", {"x": q}, operands)
    ms("qlinear_mul", "QLinearMul", {"x": q}, operands)
    concat = [("ys", np.float32(0.0313)), ("yz", np.uint8(128)), ("x", q)] + [
        ("xs", np.float32(0.02)), ("xz", np.uint8(120)), ("b", other)] + operands[3:5]
    made = helper.make_node("QLinearConcat", [k for k, _ in concat], ["y"], name="n",
                            domain="com.microsoft", axis=1)
    case("ms_qlinear_concat", 17, made, {"x": q}, [w for w in concat if w[0] != "x"])


def text():
    for mode in ("IDF", "TFIDF"):
        case(f"tfidf_{mode.lower()}", 9,
             node("TfIdfVectorizer", ["x"], ["y"], mode=mode, min_gram_length=1, max_gram_length=2,
                  max_skip_count=1, ngram_counts=[0, 2], ngram_indexes=[0, 1, 2, 3],
                  pool_int64s=[3, 9, 3, 4, 4, 5], weights=[0.5, 2.0, 3.0, 0.25]),
             {"x": np.int64([[3, 4, 3, 4, 5, 5], [9, 9, 1, 2, 3, 7]])})


def before_7():
    x = random(2, 3, 4)
    b = random(3)
    case("add_axis_6", 6, node("Add", ["x", "b"], ["y"], axis=1, broadcast=1), {"x": x},
         [("b", b)], [x + b[:, None]])
    slope = random(3)
    case("prelu_6", 6, node("PRelu", ["x", "s"], ["y"]), {"x": x}, [("s", slope)],
         [np.where(x < 0, x * slope[:, None], x)])
    a, w, c = random(2, 3), random(3, 4), random(4)
    case("gemm_6", 6, node("Gemm", ["a", "w", "c"], ["y"], broadcast=1), {"a": a},
         [("w", w), ("c", c)], [a @ w + c])


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for part in (attributes_to_inputs, softmaxes, resizes, others, microsoft, text, before_7):
        part()


main()
