#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the models of this folder with onnxruntime's training build, and what it computes of them.

    make.py FOLDER      (needs onnxruntime-training-cpu 1.19, numpy below 2, onnx below 1.17)

FOLDER/NAME holds model.onnx and test_data_set_0 in ONNX's layout, for `ullage verify`:
    mlp, cnn, gpt   training models of onnxruntime.training.artifacts.generate_artifacts, with fixed
                    batches; outputs are theirs, then the buffers of gradients, which begin with numbers
    operators       gradient operators one by one, of random inputs
    adamw           AdamWOptimizer in both modes, SGDOptimizerV2, InplaceClipGradNorm over sequences
FOLDER/loop has the three artifacts of mlp with AdamW as they come (run.py trains with them), and
losses.txt: 20 losses of onnxruntime's own Module and Optimizer.
"""

import importlib.machinery
import os
import sys
from unittest.mock import MagicMock

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper, numpy_helper

for name in ("torch", "torch.nn", "torch.cuda", "torch.optim", "torch.utils", "torch.distributed",
             "torch.onnx", "torch.onnx.symbolic_helper"):  # imported, and not used
    module = MagicMock()
    module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None), []
    module.__version__ = "2.0.0"
    sys.modules.setdefault(name, module)
import onnxruntime  # noqa: E402
from onnxruntime.training import api, artifacts  # noqa: E402

rng = np.random.default_rng(5)
F32 = np.float32


def draw(*shape, scale=0.3):
    return (rng.standard_normal(shape) * scale).astype(F32)


class Net:
    """Nodes of a model, and its weights, of which some are trained."""

    def __init__(self):
        self.nodes, self.weights, self.trained = [], {}, []

    def weight(self, name, value, trained=True):
        self.weights[name] = np.asarray(value)
        self.trained += [name] if trained else []
        return name

    def fixed(self, name, value):
        return self.weight(name, value, False)

    def node(self, op, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"/{outputs[0]}", domain=domain,
                                           **attributes))
        return outputs[0]

    def linear(self, x, name, size, to):
        w = self.weight(f"{name}.w", draw(size, to))
        return self.node("Add", [self.node("MatMul", [x, w], f"{name}.p"),
                                 self.weight(f"{name}.b", draw(to))], f"{name}.y")

    def norm(self, x, name, size):
        self.weight(f"{name}.w", 1 + draw(size))
        self.weight(f"{name}.b", draw(size))
        return self.node("LayerNormalization", [x, f"{name}.w", f"{name}.b"],
                         [f"{name}.y", f"{name}.mean", f"{name}.inverse"], axis=-1)

    def model(self, inputs, output, opset=17):
        graph = helper.make_graph(self.nodes, "net", inputs, [output],
                                  [numpy_helper.from_array(v, k) for k, v in self.weights.items()])
        sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=sets, ir_version=8)


def value(name, dtype, *shape):
    return helper.make_tensor_value_info(name, dtype, shape)


def mlp():
    net = Net()
    x = net.linear("x", "a", 8, 16)
    net.node("Relu", [x], "a.r")
    net.linear("a.r", "b", 16, 5)
    return net, net.model([value("x", T.FLOAT, 6, 8)], value("b.y", T.FLOAT, 6, 5), 15)


def cnn():
    net = Net()
    net.node("Conv", ["x", net.weight("c1.w", draw(8, 3, 3, 3)), net.weight("c1.b", draw(8))], "c1",
             pads=[1] * 4, kernel_shape=[3, 3])
    net.node("BatchNormalization",
             ["c1", net.weight("bn.w", 1 + draw(8)), net.weight("bn.b", draw(8)),
              net.fixed("bn.m", np.zeros(8, F32)), net.fixed("bn.v", np.ones(8, F32))],
             ["n1", "bn.m2", "bn.v2"], training_mode=1)
    net.node("Relu", ["n1"], "r1")
    net.node("MaxPool", ["r1"], "p1", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    net.node("Conv", ["p1", net.weight("c2.w", draw(8, 4, 3, 3)), net.weight("c2.b", draw(8))], "c2",
             pads=[1] * 4, kernel_shape=[3, 3], group=2)
    net.node("Sigmoid", ["c2"], "s2")
    net.node("AveragePool", ["s2"], "p2", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    net.node("LeakyRelu", ["p2"], "l2", alpha=0.2)
    net.node("Concat", ["p2", "l2"], "cc", axis=1)
    net.node("GlobalAveragePool", ["cc"], "g")
    net.node("Flatten", ["g"], "f")
    net.node("Gemm", ["f", net.weight("fc.w", draw(5, 16)), net.weight("fc.b", draw(5))], "y",
             transB=1)
    return net, net.model([value("x", T.FLOAT, 3, 3, 8, 8)], value("y", T.FLOAT, 3, 5))


def gpt(vocabulary=32, length=6, size=16, heads=2):
    net = Net()
    net.node("Gather", [net.weight("wte", draw(vocabulary, size)), "ids"], "te")
    net.node("Slice", [net.weight("wpe", draw(length + 2, size)), net.fixed("zero", [0]),
                       net.fixed("length", [length])], "pe")
    x = net.node("Add", ["te", "pe"], "h0")
    qkv = net.linear(net.norm(x, "n1", size), "qkv", size, 3 * size)
    net.node("Split", [qkv, net.fixed("thirds", [size] * 3)], ["q", "k", "v"], axis=2)
    net.fixed("split", [0, 0, heads, size // heads])
    for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        net.node("Transpose", [net.node("Reshape", [part, "split"], f"{part}.r")], f"{part}.t",
                 perm=perm)
    net.node("MatMul", ["q.t", "k.t"], "scores")
    net.node("Div", ["scores", net.fixed("root", F32((size // heads) ** 0.5))], "scaled")
    net.node("Where", [net.fixed("causal", np.tril(np.ones((1, 1, length, length), bool))), "scaled",
                       net.fixed("never", F32(-1e4))], "masked")
    net.node("Softmax", ["masked"], "p", axis=-1)
    net.node("Transpose", [net.node("MatMul", ["p", "v.t"], "o")], "o.t", perm=[0, 2, 1, 3])
    net.node("Reshape", ["o.t", net.fixed("join", [0, 0, size])], "o.r")
    x = net.node("Add", [x, net.linear("o.r", "proj", size, size)], "h1")
    net.node("Gelu", [net.linear(net.norm(x, "n2", size), "fc", size, 4 * size)], "act",
             domain="com.microsoft")
    x = net.node("Add", [x, net.linear("act", "out", 4 * size, size)], "h2")
    net.node("MatMul", [net.norm(x, "nf", size), net.node("Transpose", ["wte"], "wte.t", perm=[1, 0])],
             "lg")
    net.node("Reshape", ["lg", net.fixed("flat", [-1, vocabulary])], "y")
    return net, net.model([value("ids", T.INT64, 4, length)],
                          value("y", T.FLOAT, 4 * length, vocabulary))


# ---- what onnxruntime computes ----


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                        providers=["CPUExecutionProvider"])


def write(folder, model, feeds, results):
    data = os.path.join(folder, "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    names = [v.name for v in model.graph.input]
    for kind, arrays in (("input", [feeds[n] for n in names]), ("output", results)):
        for i, array in enumerate(arrays):
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                file.write(numpy_helper.from_array(np.asarray(array)).SerializeToString())


def generate(folder, net, model, loss, optimizer):
    artifacts.generate_artifacts(model, requires_grad=net.trained, loss=loss, optimizer=optimizer,
                                 artifact_directory=folder)
    return onnx.load(os.path.join(folder, "training_model.onnx"))


def sample(model_input, classes):
    shape = [d.dim_value for d in model_input.type.tensor_type.shape.dim]
    if model_input.type.tensor_type.elem_type == T.INT64:
        return rng.integers(0, classes, shape)
    if model_input.type.tensor_type.elem_type == T.BOOL:
        return np.zeros(shape, bool)
    return draw(*shape, scale=1)


def make_training(root, name, make, loss):
    net, model = make()
    work = os.path.join(root, "work", name)
    os.makedirs(work, exist_ok=True)
    training = generate(work, net, model, loss, artifacts.OptimType.AdamW)
    size = model.graph.output[0].type.tensor_type.shape.dim
    for v in training.graph.input:  # labels have the batch's name for a dimension
        dims = v.type.tensor_type.shape.dim
        for d in dims:
            if not d.HasField("dim_value"):
                d.dim_value = size[0].dim_value
    feeds = {v.name: net.weights.get(v.name) for v in training.graph.input}
    for v in training.graph.input:
        if feeds[v.name] is None:
            feeds[v.name] = sample(v, 5)
    probe = onnx.ModelProto()
    probe.CopyFrom(training)
    del probe.graph.output[1:]
    buffers = []
    for node in probe.graph.node:
        if node.op_type == "InPlaceAccumulatorV2":
            node.output.append(node.input[0] + ".new")
            buffers.append(node.output[1])
            probe.graph.output.append(helper.make_tensor_value_info(node.output[1], T.FLOAT, None))
    made = session(probe).run(None, {k: v.copy() for k, v in feeds.items()})
    flags = [np.ones(1, bool)] * len(buffers)
    # Outputs that the model does not declare come in the order of the nodes.
    del training.graph.value_info[:]
    write(os.path.join(root, name), training, feeds, [made[0], *flags, *made[1:]])


CASES = []


def case(op, inputs, outputs=1, domain="com.microsoft", **attributes):
    CASES.append((op, inputs, outputs, domain, attributes))


def list_operators():
    x, g = draw(3, 4, 5, scale=1), draw(3, 4, 5)
    image, w, b = draw(2, 4, 6, 5), draw(6, 2, 3, 3), draw(6)
    for op in ("ReluGrad", "SigmoidGrad", "TanhGrad", "GeluGrad", "FastGeluGrad", "LeakyReluGrad"):
        y = {"SigmoidGrad": 1 / (1 + np.exp(-x)), "TanhGrad": np.tanh(x)}.get(op, x)
        case(op, [g, y.astype(F32)], **({"alpha": 0.3} if op[0] == "L" else {}))
    case("QuickGeluGrad", [g, x], alpha=1.3)
    case("BiasGeluGrad_dX", [g, x, draw(5)])
    case("BiasFastGeluGrad_dX", [g, x, draw(5)])
    soft = (np.exp(x) / np.exp(x).sum(1, keepdims=True)).astype(F32)
    case("SoftmaxGrad_13", [g, soft], axis=1)
    case("LogSoftmaxGrad_13", [g, np.log(soft)], axis=1)
    flat = x.reshape(3, 20)
    flat = (np.exp(flat) / np.exp(flat).sum(1, keepdims=True)).astype(F32).reshape(x.shape)
    case("SoftmaxGrad", [g, flat], axis=1)
    case("LogSoftmaxGrad", [g, np.log(flat)], axis=1)
    labels = np.array([0, 4, 2, 1, 1, 3])
    scores = draw(6, 5, scale=1)
    logs = (scores - np.log(np.exp(scores).sum(1, keepdims=True))).astype(F32)
    weight = (1 + draw(5) ** 2).astype(F32)
    for reduction in ("mean", "sum", "none"):
        dy = draw(6) if reduction == "none" else F32(0.7)
        case("SoftmaxCrossEntropyLossGrad", [dy, logs, labels, weight], reduction=reduction,
             ignore_index=1)
        case("SoftmaxCrossEntropyLossInternalGrad", [dy, logs, labels, None, np.int64(3)],
             reduction=reduction)
    case("SoftmaxCrossEntropyLossInternal", [scores, labels, None, np.int64(3)], 2,
         reduction="mean")
    mean = x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    case("LayerNormalizationGrad", [g, x, 1 + draw(5), mean, inverse.astype(F32)], 3, axis=-1)
    root = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    case("SimplifiedLayerNormalizationGrad", [g, x, 1 + draw(5), root.astype(F32)], 2, axis=-1)
    case("BatchNormInternal", [image, 1 + draw(4), draw(4), draw(4), 1 + draw(4) ** 2], 5,
         training_mode=1, momentum=0.8)
    centre = image.mean((0, 2, 3))
    spread = 1 / np.sqrt(image.var((0, 2, 3)) + 1e-5)
    case("BatchNormalizationGrad",
         [draw(*image.shape), image, 1 + draw(4), centre.astype(F32), spread.astype(F32)], 3,
         epsilon=1e-5)
    case("ConvGrad", [draw(2, 6, 3, 3), image, w], 3, kernel_shape=[3, 3], strides=[2, 2],
         pads=[1, 1, 1, 1], group=2)
    case("GatherGrad", [np.array([4, 7, 3]), np.array([[1, 6], [1, 0]]), draw(4, 2, 2, 3)], axis=1)
    case("GatherElementsGrad", [draw(2, 3), np.array([2, 4]), np.array([[0, 1, 1], [3, 0, 2]])],
         axis=1)
    case("GatherNDGrad", [np.array([3, 4]), np.array([[0, 1], [2, 2], [0, 1]]), draw(3)])
    case("SliceGrad", [draw(2, 2), np.array([4, 5]), np.array([1, 0]), np.array([3, 4]),
                       np.array([0, 1]), np.array([1, 2])])
    case("ConcatTraining", [draw(2, 3), draw(2, 1)], 2, axis=1)
    case("SplitTraining", [draw(2, 5), np.array([2, 3])], 2, axis=1)
    case("ReduceSumTraining", [x, np.array([0, 2])], keepdims=0)
    case("BroadcastGradientArgs", [np.array([3, 1, 5]), np.array([4, 1])], 2)
    case("DropoutGrad", [draw(3, 5), rng.random((3, 5)) > 0.4, F32(0.4), np.bool_(True)])
    case("DropoutGrad", [draw(3, 5), rng.random((3, 5)) > 0.4, F32(0.0), np.bool_(False)])
    case("Scale", [x, F32(1.7)], scale_down=1)
    case("ReduceAllL2", [draw(3), draw(2, 2)])
    case("InPlaceAccumulator", [draw(3), draw(3)])
    case("DivGrad", [draw(3, 4), draw(3, 4), 2 + draw(4)], 2)
    case("FusedMatMul", [draw(2, 5, 3), draw(2, 4, 5)], transA=1, transB=1, alpha=0.5)


def make_operators(root):
    """One model of all whose kernels onnxruntime has."""
    list_operators()
    nodes, inputs, outputs, weights, feeds, results, left = [], [], [], [], {}, [], []
    overwritten = []  # have outputs of their own for `ullage`, after all others
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    for k, (op, arrays, count, domain, attributes) in enumerate(CASES):
        names = [f"c{k}.{i}" if a is not None else "" for i, a in enumerate(arrays)]
        outs = [f"c{k}.y{i}" for i in range(count)]
        node = helper.make_node(op, names, outs, name=f"{op}.{k}", domain=domain, **attributes)
        own, constants, fed = [], [], {}
        for i, (name, array) in enumerate(zip(names, arrays, strict=True)):
            if array is None:
                continue
            array = np.asarray(array)
            is_data = array.dtype == F32 and not (op == "InPlaceAccumulator" and i == 0)
            if is_data:
                own.append(helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
                fed[name] = array
            else:
                constants.append(numpy_helper.from_array(array, name))
        graph = helper.make_graph([node], "case", own,
                                  [helper.make_tensor_value_info(o, T.FLOAT, None) for o in outs],
                                  constants)
        types = {"BroadcastGradientArgs": [T.INT64] * 2, "ConcatTraining": [T.FLOAT, T.INT64]}
        for i, o in enumerate(graph.output):
            o.type.tensor_type.elem_type = types.get(op, [T.FLOAT] * 9)[i]
        try:
            made = session(helper.make_model(graph, opset_imports=sets, ir_version=8)).run(None, fed)
        except Exception as error:  # no kernel on the CPU
            left.append(f"{op}: {str(error)[-160:]}")
            continue
        nodes.append(node)
        inputs += own
        outputs += graph.output
        weights += constants
        feeds.update(fed)
        results += made
        overwritten += made if op == "InPlaceAccumulator" else []
    model = helper.make_model(helper.make_graph(nodes, "operators", inputs, outputs, weights),
                              opset_imports=sets, ir_version=8)
    for text in left:
        print("left out:", text)
    return model, feeds, results + overwritten


def make_adamw(root):
    shapes = [(3, 4), (5,)]
    kinds = ("p", "g", "m", "v")
    feeds = {"lr": F32([0.01]), "step": np.array([3])}
    for kind in kinds:
        for i, shape in enumerate(shapes):
            feeds[f"{kind}{i}"] = draw(*shape) ** 2 if kind == "v" else draw(*shape)
    nodes = [helper.make_node("SequenceConstruct", [f"{k}{i}" for i in range(2)], [k]) for k in kinds]
    outputs = []

    def at(sequence):
        for i in range(2):
            nodes.append(helper.make_node("Constant", [], [f"{sequence}.{i}.at"], value_int=i))
            nodes.append(helper.make_node("SequenceAt", [sequence, f"{sequence}.{i}.at"],
                                          [f"{sequence}.{i}"]))
            outputs.append(f"{sequence}.{i}")

    for mode in (0, 1):
        made = [f"flag{mode}", f"p.new{mode}", f"m.new{mode}", f"v.new{mode}"]
        copies = []
        for kind in ("p", "m", "v"):  # not in place: both modes begin with the same
            for i in range(2):
                nodes.append(helper.make_node("Add", [f"{kind}{i}", "nothing"], [f"{kind}{i}.{mode}"]))
            copies.append(f"{kind}.{mode}")
            nodes.append(helper.make_node("SequenceConstruct", [f"{kind}{i}.{mode}" for i in range(2)],
                                          [copies[-1]]))
        nodes.append(helper.make_node(
            "AdamWOptimizer", ["lr", "step", copies[0], "g", copies[1], copies[2]], made,
            domain="com.microsoft", adam_mode=mode, weight_decay=0.1, epsilon=1e-3))
        for sequence in made[1:]:
            at(sequence)
    for i in range(2):  # they are clipped in place as well
        nodes.append(helper.make_node("Add", [f"g{i}", "nothing"], [f"g{i}.copy"]))
    nodes.append(helper.make_node("SequenceConstruct", ["g0.copy", "g1.copy"], ["g.copy"]))
    nodes.append(helper.make_node("InplaceClipGradNorm", ["g.copy"], ["clipped"], domain="com.microsoft",
                                  max_norm=0.2))
    at("clipped")
    nodes.append(helper.make_node("SGDOptimizerV2", ["lr", "p", "clipped"], ["flag2", "sgd"],
                                  domain="com.microsoft"))
    at("sgd")
    inputs = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
              for k, v in feeds.items()]
    outs = [helper.make_tensor_value_info(o, T.FLOAT, shapes[int(o[-1])]) for o in outputs]
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "adamw", inputs, outs,
                              [numpy_helper.from_array(F32(0), "nothing")])
    model = helper.make_model(graph, opset_imports=sets, ir_version=8)
    made = session(model).run(None, {k: v.copy() for k, v in feeds.items()})
    sgd = made[-2:]  # overwrites p0, p1: outputs of their own for `ullage`
    return model, feeds, [*made, *sgd]


def make_loop(root):
    net, model = mlp()
    folder = os.path.join(root, "loop")
    os.makedirs(folder, exist_ok=True)
    generate(folder, net, model, artifacts.LossType.CrossEntropyLoss, artifacts.OptimType.AdamW)
    onnx.save(model, os.path.join(folder, "model.onnx"))
    x = draw(6, 8, scale=1)
    labels = rng.integers(0, 5, 6)
    np.savez(os.path.join(folder, "batch.npz"), x=x, labels=labels)
    state = api.CheckpointState.load_checkpoint(os.path.join(folder, "checkpoint"))
    module = api.Module(os.path.join(folder, "training_model.onnx"), state)
    optimizer = api.Optimizer(os.path.join(folder, "optimizer_model.onnx"), module)
    optimizer.set_learning_rate(0.01)
    losses = []
    module.train()
    for _ in range(20):
        losses.append(float(module(x, labels)))
        optimizer.step()
        module.lazy_reset_grad()
    with open(os.path.join(folder, "losses.txt"), "w", encoding="utf-8") as file:
        file.write("".join(f"{loss:.9g}\n" for loss in losses))
    for extra in ("eval_model.onnx", "checkpoint"):
        os.remove(os.path.join(folder, extra))


def main():
    root = sys.argv[1]
    loss = artifacts.LossType
    make_training(root, "mlp", mlp, loss.MSELoss)
    make_training(root, "cnn", cnn, loss.CrossEntropyLoss)
    make_training(root, "gpt", gpt, loss.CrossEntropyLoss)
    write(os.path.join(root, "operators"), *make_operators(root))
    write(os.path.join(root, "adamw"), *make_adamw(root))
    make_loop(root)


if __name__ == "__main__":
    main()
