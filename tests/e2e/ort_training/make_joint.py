#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes joint/ of this folder: a training step of torch as one graph, and what torch computes.

    make_joint.py FOLDER      (needs torch 2.9 or newer, onnxscript, onnx)

Loss and gradients are traced to one graph of core operators (make_fx over torch.func), with plain
gradient descent after them; parameters are inputs, and what they become outputs with _out at the end.
"""

import os
import sys

import numpy as np
import onnx
import torch
from torch.fx.experimental.proxy_tensor import make_fx

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.e = torch.nn.Embedding(20, 16)
        self.n = torch.nn.LayerNorm(16)
        self.f = torch.nn.Linear(16, 32)
        self.c = torch.nn.Linear(32, 8)
        self.o = torch.nn.Linear(8, 20)

    def forward(self, ids):
        x = torch.nn.functional.gelu(self.f(self.n(self.e(ids))))
        return self.o(torch.softmax(self.c(x), -1) * torch.relu(self.c(x)))


def main():
    net = Net()
    names = [name for name, _ in net.named_parameters()]

    def step(ids, labels, *parameters):
        def loss(given):
            y = torch.func.functional_call(net, given, (ids,))
            return torch.nn.functional.cross_entropy(y.reshape(-1, 20), labels.reshape(-1))

        given = dict(zip(names, parameters, strict=True))
        gradients, value = torch.func.grad_and_value(loss)(given)
        return value, *(given[name] - 0.1 * gradients[name] for name in names)

    inputs = (torch.randint(0, 20, (3, 5)), torch.randint(0, 20, (3, 5)),
              *(p.detach() for p in net.parameters()))
    graph = make_fx(step, decomposition_table=torch._decomp.core_aten_decompositions())(*inputs)
    plain = [name.replace(".", "_") for name in names]
    data = os.path.join(sys.argv[1], "joint", "test_data_set_0")
    os.makedirs(data, exist_ok=True)
    path = os.path.join(data, "..", "model.onnx")
    torch.onnx.export(graph, inputs, path, input_names=["ids", "labels", *plain],
                      output_names=["loss", *(f"{name}_out" for name in plain)], dynamo=True,
                      opset_version=18, external_data=False)
    model = onnx.load(path)
    for node in model.graph.node:  # paths of the machine that it is made on
        del node.metadata_props[:]
    onnx.save(model, path)
    for kind, tensors in (("input", inputs), ("output", step(*inputs))):
        for i, tensor in enumerate(tensors):
            array = np.asarray(tensor.detach())
            with open(os.path.join(data, f"{kind}_{i}.pb"), "wb") as file:
                file.write(onnx.numpy_helper.from_array(array).SerializeToString())


if __name__ == "__main__":
    main()
