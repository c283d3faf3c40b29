# SPDX-License-Identifier: Apache-2.0
"""Random graphs."""

import numpy as np
from case import MODELS, Case
from onnx import TensorProto, helper, numpy_helper


class RandomGraph:
    """Grows a graph of float values by random operators; few shapes, so that values meet."""

    UNARY = ["Relu", "Neg", "Tanh", "Sigmoid", "Abs", "Softplus", "Identity"]
    BINARY = ["Add", "Sub", "Mul", "Max", "Min"]
    REDUCE = ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceL1"]
    MAX_SIZE, MAX_ELEMENTS = 40, 4000  # of a dimension and a value that is read again
    TOLERANCE = 2e-4

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.weights, self.values = [], [], []
        self.inputs = []
        for i in range(2):
            shape = [int(d) for d in self.rng.integers(1, 5, self.rng.integers(2, 5))]
            self.inputs.append((f"x{i}", shape))
            self.values.append((f"x{i}", shape))

    def pick(self):
        """Late values more often than early ones."""
        late = self.rng.random() < 0.6
        pool = self.values[-6:] if late else self.values
        return pool[self.rng.integers(len(pool))]

    def pick_like(self, shape):
        same = [value for value in self.values if value[1] == shape]
        return same[self.rng.integers(len(same))]

    def ints(self, values):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def floats(self, shape):
        name = f"w{len(self.weights)}"
        data = (self.rng.standard_normal(shape) * 0.5).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def emit(self, op, inputs, shapes, **attributes):
        names = [f"v{len(self.nodes)}_{i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        for name, shape in zip(names, shapes):
            if all(1 <= d <= self.MAX_SIZE for d in shape) and np.prod(shape) <= self.MAX_ELEMENTS:
                self.values.append((name, list(shape)))

    def grow(self):
        rng = self.rng
        name, shape = self.pick()
        axis = int(rng.integers(len(shape)))
        kind = rng.integers(17)
        if kind <= 2:
            self.emit(str(rng.choice(self.UNARY)), [name], [shape])
        elif kind <= 5:
            other = self.pick_like(shape)
            self.emit(str(rng.choice(self.BINARY)), [name, other[0]], [shape])
        elif kind == 6:
            other = self.pick()
            try:
                result = list(np.broadcast_shapes(shape, other[1]))
            except ValueError:
                return
            self.emit(str(rng.choice(self.BINARY)), [name, other[0]], [result])
        elif kind == 7:
            perm = [int(d) for d in rng.permutation(len(shape))]
            self.emit("Transpose", [name], [[shape[d] for d in perm]], perm=perm)
        elif kind == 8:
            begin, end, step = 0, shape[axis], int(rng.integers(1, 3))
            if rng.random() < 0.5:
                begin, end, step = -1, -(2**62), -step
            elif shape[axis] > 1:
                begin = int(rng.integers(shape[axis] - 1))
            count = len(range(shape[axis])[slice(begin, None, step)])
            result = shape[:axis] + [count] + shape[axis + 1:]
            rows = [self.ints([number]) for number in (begin, end, axis, step)]
            self.emit("Slice", [name] + rows, [result])
        elif kind == 9:
            parts = [name] + [self.pick_like(shape)[0] for _ in range(rng.integers(1, 3))]
            result = shape[:axis] + [shape[axis] * len(parts)] + shape[axis + 1:]
            self.emit("Concat", parts, [result], axis=axis)
        elif kind == 10 and shape[axis] > 1:
            first = int(rng.integers(1, shape[axis]))
            sizes = [first, shape[axis] - first]
            self.emit("Split", [name, self.ints(sizes)],
                      [shape[:axis] + [n] + shape[axis + 1:] for n in sizes], axis=axis)
        elif kind == 11:
            result = [int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))]
            self.emit("Reshape", [name, self.ints(result)], [result])
        elif kind == 12:
            other = int(rng.integers(1, 6))
            wide = self.floats([shape[-1], other])
            if rng.random() < 0.5 and len(shape) == 2:
                last, result = self.values[-1], [shape[0], other]
                self.emit("MatMul", [name, wide], [result])
                if last[1] == result:
                    self.emit("Add", [self.values[-1][0], last[0]], [result])
            else:
                self.emit("MatMul", [name, wide], [shape[:-1] + [other]])
        elif kind == 13:
            self.emit("Softmax", [name], [shape], axis=axis)
        elif kind == 14:
            result = shape[:axis] + [1] + shape[axis + 1:]
            self.emit(str(rng.choice(self.REDUCE)), [name], [result], axes=[axis])
        elif kind == 15 and len(shape) == 4:
            out = int(rng.integers(1, 4))
            weight = self.floats([out, shape[1], 3, 3])
            self.emit("Conv", [name, weight, self.floats([out])],
                      [[shape[0], out, shape[2], shape[3]]], pads=[1, 1, 1, 1])
        elif kind == 16:
            at = [int(i) for i in rng.integers(-shape[axis], shape[axis], rng.integers(1, 4))]
            self.emit("Gather", [name, self.ints(at)],
                      [shape[:axis] + [len(at)] + shape[axis + 1:]], axis=axis)

    def case(self, steps):
        for _ in range(steps):
            self.grow()
        made = self.values[2:]
        count = min(len(made), int(self.rng.integers(1, 4)))
        chosen = {len(made) - 1} | {int(i) for i in self.rng.integers(0, len(made), count)}
        return self.finish("random", [made[i] for i in sorted(chosen)])

    def finish(self, name, outputs):
        describe = [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)
                    for value, shape in self.inputs + outputs]  # fmt: skip
        graph = helper.make_graph(self.nodes, name, describe[:2], describe[2:], self.weights)
        opsets = [helper.make_opsetid("", 17)]
        return Case(helper.make_model(graph, opset_imports=opsets, ir_version=8),
                    tolerance=self.TOLERANCE)


class RandomDead(RandomGraph):
    """The same with constants among the values, most of which nothing needs; outputs are also inputs,
    constants and what is an output already."""

    def __init__(self, seed):
        super().__init__(seed)
        for shape in ([3, 4], [4], [2, 3, 1], self.inputs[0][1]):
            self.values.append((self.floats(shape), list(shape)))

    def case(self, steps):
        for _ in range(steps):
            self.grow()
        pool = self.values
        count = int(self.rng.integers(1, 4))
        chosen = [pool[i] for i in self.rng.integers(len(pool) // 2, len(pool), count)]
        if self.rng.random() < 0.5:
            chosen.append(pool[self.rng.integers(6)])
        if self.rng.random() < 0.5:
            chosen.append(chosen[0])
        return self.finish("dead", chosen)


class RandomImages(RandomGraph):
    """The same of images: convolutions, windows, gates, concatenations and what comes between."""

    MAX_SIZE, MAX_ELEMENTS = 150, 8000
    TOLERANCE = 2e-3  # sums of large terms that cancel

    def __init__(self, seed):
        super().__init__(seed)
        rng = self.rng
        shape = [int(rng.choice([1, 1, 2])), int(rng.choice([3, 8, 12, 16, 17])),
                 int(rng.integers(3, 13)), int(rng.integers(3, 13))]  # fmt: skip
        self.inputs = [(f"x{i}", shape) for i in range(2)]
        self.values = list(self.inputs)

    def last(self):
        return self.values[-1]

    def convolution(self, name, shape):
        rng = self.rng
        kernel = [int(k) for k in rng.choice([1, 1, 3, 3, 2, 5], 2)]
        stride = [int(k) for k in rng.choice([1, 1, 1, 2], 2)]
        dilation = [int(k) for k in rng.choice([1, 1, 1, 2], 2)]
        pads = [int(rng.integers(kernel[i % 2])) for i in range(4)]
        if rng.random() < 0.5:  # keeps the size
            stride, dilation = [1, 1], [1, 1]
            pads = [(kernel[i % 2] - (i < 2)) // 2 for i in range(4)]
        room = [shape[2 + i] + pads[i] + pads[2 + i] - dilation[i] * (kernel[i] - 1) for i in (0, 1)]
        if min(room) < 1:
            return
        kind, channels = rng.random(), shape[1]
        made, group = int(rng.choice([channels, channels, 8, 13, 16, 32])), 1
        if kind < 0.25:
            made = group = channels
        elif kind < 0.35 and channels % 4 == 0:
            made, group = channels, 4
        weight = self.floats([made, channels // group, *kernel])
        bias = [self.floats([made])] if rng.random() < 0.6 else []
        size = [-(-room[i] // stride[i]) for i in (0, 1)]
        self.emit("Conv", [name, weight, *bias], [[shape[0], made, *size]], pads=pads,
                  strides=stride, dilations=dilation, group=group)  # fmt: skip

    def maps(self):
        """Up to four of what can follow in the same call."""
        rng = self.rng
        for _ in range(rng.integers(5)):
            name, shape = self.last()
            kind = rng.integers(6)
            if kind <= 1:
                names = ["Relu", "Sigmoid", "HardSwish", "Elu", "Tanh", "LeakyRelu"]
                self.emit(str(rng.choice(names)), [name], [shape])
            elif kind == 2:
                wide = [[1, shape[1], 1, 1], [1], [1, 1, *shape[2:]], [shape[3]]][rng.integers(4)]
                pair = [name, self.floats(wide)]
                self.emit(str(rng.choice(self.BINARY)), pair[:: rng.choice([1, -1])], [shape])
            elif kind <= 4:
                pair = [name, self.pick_like(shape)[0]]
                self.emit(str(rng.choice(["Add", "Add", "Mul", "Sub"])),
                          pair[:: rng.choice([1, -1])], [shape])  # fmt: skip
            else:
                self.emit("Sigmoid", [name], [shape])
                self.emit("Mul", [name, self.last()[0]], [shape])

    def window(self, name, shape):
        rng = self.rng
        op = str(rng.choice(["MaxPool", "AveragePool"]))
        kernel = [int(k) for k in rng.integers(1, 4, 2)]
        pads = [int(rng.integers(kernel[i % 2])) for i in range(4)]
        room = [shape[2 + i] + pads[i] + pads[2 + i] - kernel[i] + 1 for i in (0, 1)]
        if min(room) < 1:
            return
        stride = [int(k) for k in rng.integers(1, 3, 2)]
        more = {"count_include_pad": int(rng.integers(2))} if op == "AveragePool" else {}
        size = [-(-room[i] // stride[i]) for i in (0, 1)]
        self.emit(op, [name], [shape[:2] + size], kernel_shape=kernel, strides=stride, pads=pads,
                  **more)  # fmt: skip

    def gate(self, name, shape):
        self.emit("GlobalAveragePool", [name], [shape[:2] + [1, 1]])
        weight = self.floats([shape[1], shape[1], 1, 1])
        self.emit("Conv", [self.last()[0], weight], [shape[:2] + [1, 1]])
        self.emit("Sigmoid", [self.last()[0]], [shape[:2] + [1, 1]])
        self.emit("Mul", [name, self.last()[0]], [shape])

    def tokens(self, name, shape):
        """To rows of channels and back, with a product or a norm there."""
        rng = self.rng
        rows = [shape[0], shape[2] * shape[3], shape[1]]
        if rows[1] > self.MAX_SIZE:
            return
        self.emit("Reshape", [name, self.ints([rows[0], rows[2], rows[1]])],
                  [[rows[0], rows[2], rows[1]]])  # fmt: skip
        self.emit("Transpose", [self.last()[0]], [rows], perm=[0, 2, 1])
        at = self.last()[0]
        if rng.random() < 0.5:
            self.emit("LayerNormalization", [at, self.floats([rows[2]])], [rows])
        else:
            self.emit("MatMul", [at, self.floats([rows[2], rows[2]])], [rows])
            self.emit("Add", [self.last()[0], at], [rows])
        self.emit("Transpose", [self.last()[0]], [[rows[0], rows[2], rows[1]]], perm=[0, 2, 1])
        self.emit("Reshape", [self.last()[0], self.ints(shape)], [shape])

    def grow(self):
        rng = self.rng
        pool = [value for value in self.values[-5:] if len(value[1]) == 4]
        name, shape = pool[rng.integers(len(pool))] if pool else self.values[0]
        kind = rng.integers(16)
        if kind <= 6:
            self.convolution(name, shape)
            self.maps()
        elif kind <= 8:
            self.window(name, shape)
        elif kind == 9:
            self.gate(name, shape)
        elif kind == 10:
            self.tokens(name, shape)
        elif kind == 11 and max(shape[2:]) < 12:
            sizes = shape[:2] + [2 * shape[2], 2 * shape[3]]
            self.emit("Resize", [name, "", "", self.ints(sizes)], [sizes], mode="nearest",
                      coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
        else:
            super().grow()


def random_graphs(seed, count):
    """As many of images and of dead branches as of any shape."""
    for number in range(seed, seed + count):
        MODELS[f"random_{number}"] = lambda number=number: RandomGraph(number).case(8 + number % 48)
        MODELS[f"dead_{number}"] = lambda number=number: RandomDead(number).case(8 + number % 40)
        MODELS[f"images_{number}"] = lambda number=number: RandomImages(number).case(4 + number % 20)
    return [f"{kind}_{number}" for number in range(seed, seed + count)
            for kind in ("random", "images", "dead")]  # fmt: skip
