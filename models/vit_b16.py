# SPDX-License-Identifier: Apache-2.0
"""ViT-B/16 (Dosovitskiy et al. 2021), as torchvision has it, with nn.MultiheadAttention."""

import numpy as np
from lib_attention import layer_norm, linear_nd, mlp
from lib_conv import conv, image, linear


def project_qkv(net, x, width):
    """One matrix for q, k and v; [L,B,3E] taken apart by Unsqueeze, Transpose, Squeeze, Gather."""
    w = net.weight("in_proj_weight", net.normal((3 * width, width), np.sqrt(1 / width)))
    b = net.weight("in_proj_bias", net.normal(3 * width, 0.05))
    y = net.op("Add", net.op("MatMul", x, net.op("Transpose", w, perm=[1, 0])), b)
    shape = [net.dim(y, 0), net.dim(y, 1), 3, width]
    y = net.op("Unsqueeze", net.reshape(y, *shape), net.const([0]))
    y = net.op("Transpose", y, perm=[3, 1, 2, 0, 4])
    y = net.op("Squeeze", y, net.const([3]))
    return [net.op("Gather", y, net.const(i), axis=0) for i in range(3)]


def attention(net, x, width, heads):
    """x [B,L,E]; the module works on [L,B,E] and folds the heads into the batch."""
    depth = width // heads
    x = net.op("Transpose", x, perm=[1, 0, 2])
    length, batch = net.dim(x, 0), net.dim(x, 1)
    q, k, v = project_qkv(net, x, width)
    rows = net.op("Mul", batch, net.const(heads))
    q, k, v = (
        net.op("Transpose", net.reshape(part, length, rows, depth), perm=[1, 0, 2])
        for part in (q, k, v)
    )
    q, k, v = (net.reshape(part, batch, heads, length, depth) for part in (q, k, v))
    q = net.op("Mul", q, net.const(depth**-0.25))
    k = net.op("Mul", net.op("Transpose", k, perm=[0, 1, 3, 2]), net.const(depth**-0.25))
    y = net.op("MatMul", net.op("Softmax", net.op("MatMul", q, k), axis=-1), v)
    y = net.op("Transpose", y, perm=[2, 0, 1, 3])
    y = net.reshape(y, net.op("Mul", batch, length), width)
    with net.scope("out_proj"):
        y = linear(net, y, width, width)
    y = net.reshape(y, length, batch, width)
    return net.op("Transpose", y, perm=[1, 0, 2])


def block(net, x, width, heads):
    with net.scope("ln_1"):
        y = layer_norm(net, x, width, 1e-6)
    with net.scope("self_attention"):
        y = attention(net, y, width, heads)
    x = net.op("Add", y, x)
    with net.scope("ln_2"):
        y = layer_norm(net, x, width, 1e-6)
    with net.scope("mlp"):
        y = mlp(net, y, width, 4 * width, ("0", "1", "3"), gain=0.3)
    return net.op("Add", x, y)


def build(net):
    width, heads, layers, size, patch, classes = 768, 12, 12, 224, 16, 1000
    if net.small:
        width, heads, layers, size, patch, classes = 32, 4, 2, 32, 8, 10
    x = image(net, size)
    batch = net.dim(x, 0)
    with net.scope("conv_proj"):
        x = conv(net, x, 3, width, patch, stride=patch, pad=0, bias=True, after="linear")
    tokens = (size // patch) ** 2
    x = net.op("Transpose", net.reshape(x, batch, width, tokens), perm=[0, 2, 1])
    first = net.weight("class_token", net.normal((1, 1, width), 0.5))
    first = net.expand(first, net.dims([batch, -1, -1]))
    x = net.op("Concat", first, x, axis=1)
    with net.scope("encoder"):
        place = net.weight("pos_embedding", net.normal((1, tokens + 1, width), 0.3))
        x = net.op("Add", x, place)
        with net.scope("layers"):
            for i in range(layers):
                with net.scope(f"encoder_layer_{i}"):
                    x = block(net, x, width, heads)
        with net.scope("ln"):
            x = layer_norm(net, x, width, 1e-6)
    x = net.op("Gather", x, net.const(0), axis=1)
    with net.scope("heads", "head"):
        x = linear(net, x, width, classes)
    net.output(x, "output", [net.batch, classes])
