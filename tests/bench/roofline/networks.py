# SPDX-License-Identifier: Apache-2.0
"""The networks of roofline.py in PyTorch, as torchvision and transformers write them, at the sizes
of the ONNX files of models/: batch 1, images of 224 x 224, 128 tokens of BERT's and 1024 of GPT-2's.

    build(name)             (nn.Module in evaluation mode, its arguments), without values of any use
    build_training(name)    (nn.Module in training mode that ends in the loss, its arguments and labels)
"""

import os
import sys

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from gpu_networks import Bert, Gpt, ResNet, UNet  # noqa: E402


class Sizes(dict):
    """Weights by name, where only their sizes are read."""

    def add(self, name, *shape):
        self[name] = torch.empty(shape, device="meta")
        return self


# ---- ConvNeXt-T ----


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.LayerNorm(c, 1e-6)
        self.fc1, self.fc2 = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.layer_scale = nn.Parameter(torch.empty(c, 1, 1))

    def forward(self, x):
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.fc2(functional.gelu(self.fc1(y))).permute(0, 3, 1, 2)
        return self.layer_scale * y + x


def convnext():
    layers, before = [nn.Conv2d(3, 96, 4, 4), LayerNorm2d(96, 1e-6)], 96
    for width, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if width != before:
            layers += [LayerNorm2d(before, 1e-6), nn.Conv2d(before, width, 2, 2)]
        layers += [ConvNextBlock(width) for _ in range(depth)]
        before = width
    layers += [nn.AdaptiveAvgPool2d(1), LayerNorm2d(768, 1e-6), nn.Flatten(), nn.Linear(768, 1000)]
    return nn.Sequential(*layers)


# ---- Swin-T ----


class SwinBlock(nn.Module):
    """Windows of 7 by 7, every second block shifted by 3; the mask is a constant."""

    def __init__(self, width, heads, side, shifts):
        super().__init__()
        self.heads, self.shift = heads, 3 if shifts and side > 7 else 0
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.table = nn.Parameter(torch.empty(169, heads))
        self.register_buffer("index", torch.zeros(49 * 49, dtype=torch.int64))
        windows = (side // 7) ** 2 if self.shift else 1
        self.register_buffer("mask", torch.zeros(windows, 1, 49, 49))

    def attend(self, x):
        n, length, c = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.table[self.index].view(length, length, -1).permute(2, 0, 1)[None]
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1) + bias
        if self.shift:
            windows = len(self.mask)
            scores = scores.view(n // windows, windows, self.heads, length, length) + self.mask[None]
            scores = scores.view(n, self.heads, length, length)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, length, c))

    def forward(self, x):
        b, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = y.view(b, h // 7, 7, w // 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, c)
        y = self.attend(y)
        y = y.view(b, h // 7, w // 7, 7, 7, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))


class Merging(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x):
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(parts, -1)))


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.first, layers = nn.Conv2d(3, 96, 4, 4), nn.LayerNorm(96), []
        for i, (depth, heads) in enumerate(((2, 3), (2, 6), (6, 12), (2, 24))):
            width, side = 96 << i, 56 >> i
            layers += [SwinBlock(width, heads, side, j % 2 == 1) for j in range(depth)]
            if i < 3:
                layers.append(Merging(width))
        self.layers, self.norm = nn.Sequential(*layers), nn.LayerNorm(768)
        self.head = nn.Linear(768, 1000)

    def forward(self, x):
        x = self.norm(self.layers(self.first(self.patch(x).permute(0, 2, 3, 1))))
        return self.head(x.mean((1, 2)))


# ---- ViT-B/16 ----


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, 1e-6), nn.LayerNorm(width, 1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, length, c = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.proj(y.transpose(1, 2).reshape(b, length, c))
        return x + self.fc2(functional.gelu(self.fc1(self.ln_2(x))))


class Vit(nn.Module):
    def __init__(self, width=768, heads=12, layers=12):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 16, 16)
        self.first = nn.Parameter(torch.empty(1, 1, width))
        self.places = nn.Parameter(torch.empty(1, 197, width))
        self.layers = nn.Sequential(*(VitBlock(width, heads) for _ in range(layers)))
        self.ln, self.head = nn.LayerNorm(width, 1e-6), nn.Linear(width, 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.ln(self.layers(x))[:, 0])


# ---- by name ----


def resnet():
    sizes = Sizes().add("conv1.weight", 64, 3, 7, 7).add("fc.bias", 1000)
    for i, depth in enumerate((3, 4, 6, 3)):
        sizes.add(f"layer{i + 1}.{depth - 1}.conv1.weight")
    return ResNet(sizes)


def bert():
    sizes = Sizes().add("embeddings.word_embeddings.weight", 30522, 768)
    sizes.add("embeddings.position_embeddings.weight", 512, 768)
    sizes.add("encoder.layer.0.intermediate.dense.bias", 3072)
    return Bert(sizes.add("encoder.layer.11.output.dense.bias", 768))


def gpt():
    sizes = Sizes().add("transformer.wte.weight", 50257, 768)
    sizes.add("transformer.wpe.weight", 1024, 768)
    return Gpt(sizes.add("transformer.h.11.ln_1.bias", 768))


def unet():
    sizes = Sizes().add("inc.double_conv.0.weight", 64, 3, 3, 3).add("outc.conv.bias", 2)
    for i in range(4):
        sizes.add(f"up{i + 1}.up.bias", 512 >> i)
    return UNet(sizes)


def image(batch=1, side=224):
    return (torch.empty(batch, 3, side, side),)


def tokens(length, count, batch=1):
    return tuple(torch.zeros(batch, length, dtype=torch.int64) for _ in range(count))


def classes(*shape):
    return torch.zeros(shape, dtype=torch.int64)


NETWORKS = {
    "resnet50": (resnet, image),
    "convnext_t": (convnext, image),
    "swin_t": (Swin, image),
    "vit_b16": (Vit, image),
    "bert_base": (bert, lambda: tokens(128, 3)),
    "gpt2": (gpt, lambda: tokens(1024, 1)),
}


def build(name):
    make, arguments = NETWORKS[name]
    return make().eval().requires_grad_(False), arguments()


# ---- training ----


class Loss(nn.Module):
    """The cross entropy of classes; the mean square of the differences of numbers."""

    def __init__(self, network, class_axis):
        super().__init__()
        self.network, self.class_axis = network, class_axis

    def forward(self, *arguments):
        *inputs, labels = arguments
        out = self.network(*inputs)
        out = out[0] if isinstance(out, tuple) else out
        if labels.is_floating_point():
            return functional.mse_loss(out, labels)
        if self.class_axis == -1:
            out, labels = out.flatten(0, -2), labels.flatten()
        return functional.cross_entropy(out, labels)


TRAINED = {
    "gpt2": (gpt, lambda: (*tokens(512, 1, 4), classes(4, 512)), -1),
    "bert_base": (bert, lambda: (*tokens(128, 3, 8), torch.empty(8, 128, 768)), -1),
    "vit_b16": (Vit, lambda: (*image(8), classes(8)), 1),
    "resnet50": (resnet, lambda: (*image(32), classes(32)), 1),
    "unet": (unet, lambda: (*image(4, 256), classes(4, 256, 256)), 1),
}


def build_training(name):
    make, arguments, class_axis = TRAINED[name]
    network = make()
    if name == "bert_base":  # the loss is of the last layer's states
        network.pooler.requires_grad_(False)
    return Loss(network, class_axis).train(), arguments()
