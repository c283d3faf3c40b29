# SPDX-License-Identifier: Apache-2.0
"""Builds an ONNX graph node by node, with the names that PyTorch's exporter gives.

A Net holds the graph being built. Values are names (str). Scopes mirror modules:

    with net.scope("layer1"), net.scope("0"), net.scope("conv1"):
        y = net.op("Conv", x, net.weight("weight", w))

makes node "/layer1/layer1.0/conv1/Conv", value "/layer1/layer1.0/conv1/Conv_output_0" and
initializer "layer1.0.conv1.weight". Weights come from one generator seeded by the network's name,
so a network has the same bytes on every machine with the same numpy. A hollow Net has none: its
weights are holes of a file beside the model, which take no disk, for plans of what is too large to
make.

A dimension is an int, or a str naming a symbolic dimension (only the batch and the sequence).
"""

import contextlib
import zlib

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Net:
    def __init__(self, name, batch=1, seq=None, small=False, opset=17, hollow=False, dropout=0):
        self.name, self.batch, self.seq, self.small, self.opset = name, batch, seq, small, opset
        self.hollow, self.drops = hollow, dropout
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.nodes, self.initializers, self.holes = [], {}, []
        self.inputs, self.outputs, self.metadata = [], [], {}
        self.functions = []
        self.used, self.segments, self.modules = set(), [], []

    # ---- names ----

    @contextlib.contextmanager
    def scope(self, *names):
        """Enters submodules. A number is a child of a Sequential: "/features/features.3"."""
        depth = len(self.segments)
        for name in names:
            name = str(name)
            previous = self.segments[-1] if self.segments else ""
            self.segments.append(f"{previous}.{name}" if name.isdigit() else name)
            self.modules.append(name)
        yield self
        del self.segments[depth:]
        del self.modules[depth:]

    def unique(self, name):
        candidate, count = name, 0
        while candidate in self.used:
            count += 1
            candidate = f"{name}_{count}"
        self.used.add(candidate)
        return candidate

    # ---- graph ----

    def input(self, name, dims, dtype=np.float32, upper=None):
        """upper: integers are drawn from 0..upper-1 (kept as metadata for the test scripts)."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        if upper is not None:
            self.metadata[f"upper:{name}"] = str(upper)
        self.used.add(name)
        return name

    def output(self, value, name, dims, dtype=np.float32):
        """Declares a value as a graph output and renames it."""
        for node in self.nodes:
            for names in (node.input, node.output):
                for i, old in enumerate(names):
                    if old == value:
                        names[i] = name
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.outputs.append(helper.make_tensor_value_info(name, kind, dims))

    def op(self, op_type, *inputs, outputs=1, domain="", **attributes):
        """Adds a node; returns its output, or the list of them when outputs > 1."""
        name = self.unique("/" + "/".join(self.segments + [op_type]))
        results = [f"{name}_output_{i}" for i in range(outputs)]
        node = helper.make_node(op_type, list(inputs), results, name, domain=domain, **attributes)
        self.nodes.append(node)
        return results[0] if outputs == 1 else results

    def weight(self, name, array):
        """Adds an initializer named after the module; an empty module gives just the name."""
        full = self.unique(".".join(self.modules + [name]))
        self.initializers[full] = array if self.hollow else np.asarray(array, order="C")
        return full

    def const(self, value, dtype=None):
        """A Constant node, as exporters write literals. Python ints become int64."""
        array = np.asarray(value, dtype)
        if dtype is None:
            array = array.astype(np.float32 if array.dtype.kind == "f" else array.dtype)
        return self.op("Constant", value=numpy_helper.from_array(array))

    def normal(self, shape, std):
        if self.hollow:
            return np.broadcast_to(np.float32(0), shape)
        return self.rng.standard_normal(shape, np.float32) * np.float32(std)

    def dropout(self, x):
        """nn.Dropout of the ratio that was asked for, as a network in training has it."""
        if not self.drops:
            return x
        return self.op("Dropout", x, self.const(float(self.drops)), self.const(True))

    # ---- shape arithmetic, the long way round that exporters take ----

    def dim(self, x, axis):
        """x.shape[axis] as a scalar value: Shape, Constant, Gather."""
        return self.op("Gather", self.op("Shape", x), self.const(axis), axis=0)

    def dims(self, parts):
        """A shape tensor of ints and scalar values: Unsqueeze each, Concat."""
        axes = None
        items = []
        for part in parts:
            if isinstance(part, int):
                items.append(self.const([part]))
            else:
                axes = self.const([0])
                items.append(self.op("Unsqueeze", part, axes))
        return self.op("Concat", *items, axis=0)

    def reshape(self, x, *parts):
        """Reshape to ints and scalar values; all ints become one Constant."""
        if all(isinstance(part, int) for part in parts):
            return self.op("Reshape", x, self.const(list(parts)))
        return self.op("Reshape", x, self.dims(parts))

    def slice(self, x, axis, start, end, step=1):
        """x[start:end:step] along one axis; start and end are ints."""
        operands = [self.const([v]) for v in (start, end, axis, step)]
        return self.op("Slice", x, *operands)

    def expand(self, x, shape):
        """x.expand(shape value), with the exporter's guard for -1 (Where on Equal)."""
        one = helper.make_tensor("value", onnx.TensorProto.INT64, [1], [1])
        ones = self.op("ConstantOfShape", self.op("Shape", shape), value=one)
        minus = self.op("Mul", ones, self.const(-1))
        real = self.op("Where", self.op("Equal", shape, minus), ones, shape)
        return self.op("Expand", x, real)

    # ---- the model ----

    def hole(self, array, name, data, at):
        """A tensor of the file `data`, from the byte `at`: zeros but for the mark of save_holes()."""
        tensor = onnx.TensorProto(name=name, dims=np.shape(array))
        tensor.data_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", data), ("offset", at), ("length", array.nbytes)):
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)
        return tensor

    def save_holes(self, path):
        """Writes the file of a hollow Net. Each hole begins with a number of its own, since equal
        weights are stored once."""
        with open(path, "wb") as file:
            file.truncate(self.hollow_bytes)
            for number, at in enumerate(self.holes, 1):
                file.seek(at)
                file.write(np.float32(number).tobytes())

    def tensors(self, data):
        """Weights; of a hollow Net the large ones that normal() gave lie in the file `data`: and its
        size."""
        made, size = [], 0
        for number, (name, array) in enumerate(self.initializers.items(), 1):
            hollow = self.hollow and array.size > 1 and not any(np.asarray(array).strides)
            if hollow and array.size > 1024:
                made.append(self.hole(array, name, data, size))
                self.holes.append(size)
                size += -(-array.nbytes // 4096) * 4096
                continue
            array = np.array(array, order="C")
            if hollow:
                array.flat[0] = number
            made.append(numpy_helper.from_array(array, name))
        return made, size

    def model(self, data=None):
        inits, self.hollow_bytes = self.tensors(data)
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, inits)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", self.opset)],
            producer_name="ullage-models",
        )
        model.ir_version = 8
        for key in sorted(self.metadata):
            entry = model.metadata_props.add()
            entry.key, entry.value = key, self.metadata[key]
        return model
