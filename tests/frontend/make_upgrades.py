#!/usr/bin/env python3
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
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
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


def main():
    shutil.rmtree(OUT, ignore_errors=True)
    for part in (attributes_to_inputs, softmaxes, resizes, others):
        part()


main()
