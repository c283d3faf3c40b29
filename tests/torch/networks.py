# SPDX-License-Identifier: Apache-2.0
"""Networks that training is compared on, in torch, without Dropout: for learn_as_torch.py and
tests/bench/training.

Blocks are called by run_block, which a bench may replace to lay checkpoints. They are written for
torch 1.13, of Debian, and later ones.
"""

import math

import torch
from torch import nn
from torch.nn import functional


def run_block(block, *inputs):
    return block(*inputs)


def call(block, *inputs):
    return run_block(block, *inputs)


def mlp(features=64, width=128, classes=10):
    return nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, width), nn.ReLU(),
                         nn.Linear(width, classes))


# ---- convolutions ----


def conv_bn(c_in, c_out, kernel=3, stride=1):
    return nn.Sequential(nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, bias=False),
                         nn.BatchNorm2d(c_out))


class Residual(nn.Module):
    """relu(body(x) + x), where a product makes x fit if it does not."""

    def __init__(self, c_in, c, c_out, stride, bottleneck):
        super().__init__()
        layers = [(1, 1), (3, stride), (1, 1)] if bottleneck else [(3, stride), (3, 1)]
        body, last = [], c_in
        for i, (kernel, step) in enumerate(layers):
            width = c_out if i == len(layers) - 1 else c
            body += [*([nn.ReLU()] if i else []), conv_bn(last, width, kernel, step)]
            last = width
        self.body = nn.Sequential(*body)
        fits = stride == 1 and c_in == c_out
        self.short = nn.Identity() if fits else conv_bn(c_in, c_out, 1, stride)

    def forward(self, x):
        return functional.relu(self.body(x) + self.short(x))


class Digits(nn.Module):
    """As models/digits."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(1, 16), nn.ReLU())
        self.layer1 = Residual(16, 16, 16, 1, False)
        self.down = nn.Sequential(conv_bn(16, 32), nn.ReLU())
        self.layer2 = Residual(32, 32, 32, 1, False)
        self.fc = nn.Linear(128, 10)

    def forward(self, x):
        x = functional.max_pool2d(call(self.layer1, call(self.stem, x)), 2)
        x = functional.max_pool2d(call(self.layer2, call(self.down, x)), 2)
        return self.fc(x.flatten(1))


class ResNet(nn.Module):
    """He et al. 2016; small: a stem of 3x3 for pictures of 32x32."""

    def __init__(self, counts, bottleneck, classes=1000, width=64, small=False):
        super().__init__()
        self.stem = nn.Sequential(conv_bn(3, width, *((3, 1) if small else (7, 2))), nn.ReLU(),
                                  nn.MaxPool2d(3, 2, 1))
        blocks, last = [], width
        for stage, count in enumerate(counts):
            c = width << stage
            for i in range(count):
                stride = 2 if stage and i == 0 else 1
                blocks.append(Residual(last, c, c * (4 if bottleneck else 1), stride, bottleneck))
                last = c * (4 if bottleneck else 1)
        self.blocks = nn.ModuleList(blocks)
        self.fc = nn.Linear(last, classes)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = call(block, x)
        return self.fc(x.mean((2, 3)))


class Twice(nn.Sequential):
    def __init__(self, c_in, c_out):
        super().__init__(conv_bn(c_in, c_out), nn.ReLU(), conv_bn(c_out, c_out), nn.ReLU())


class Up(nn.Module):
    """Twice as large, with what was there before it shrank."""

    def __init__(self, c):
        super().__init__()
        self.up, self.join = nn.ConvTranspose2d(2 * c, c, 2, 2), Twice(2 * c, c)

    def forward(self, x, skip):
        return self.join(torch.cat([skip, self.up(x)], 1))


class UNet(nn.Module):
    """Ronneberger et al. 2015, as models/unet.py: padded, with batch statistics."""

    def __init__(self, width=64, levels=4, classes=2):
        super().__init__()
        sizes = [width << i for i in range(levels + 1)]
        self.first = Twice(3, width)
        self.downs = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), Twice(a, b))
                                   for a, b in zip(sizes, sizes[1:]))
        self.ups = nn.ModuleList(Up(c) for c in sizes[-2::-1])
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = [call(self.first, x)]
        for down in self.downs:
            skips.append(call(down, skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = call(up, x, skips.pop())
        return self.last(x)


# ---- attention ----


def attend(q, k, v, causal):
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        length = q.shape[-2]
        past = torch.ones(length, length, dtype=torch.bool).tril()
        scores = scores.masked_fill(~past, -1e9)
    return scores.softmax(-1) @ v


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).chunk(3, 2)
        shape = (batch, length, self.heads, width // self.heads)
        y = attend(*(part.reshape(shape).transpose(1, 2) for part in parts), self.causal)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A block of a transformer; last: LayerNorm after each sum, as BERT has it, not before each part."""

    def __init__(self, width, heads, causal=False, last=False):
        super().__init__()
        self.last = last
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        if self.last:
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.mlp(x))
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """Radford et al. 2019: the table of tokens is the output's weight too."""

    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads, causal=True) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, ids):
        x = self.tokens(ids) + self.places
        for block in self.blocks:
            x = call(block, x)
        return functional.linear(self.norm(x), self.tokens.weight)


class Bert(nn.Module):
    """Devlin et al. 2018, to the last hidden state."""

    def __init__(self, vocabulary, length, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width, heads, last=True) for _ in range(layers))

    def forward(self, ids):
        x = self.norm(self.tokens(ids) + self.places)
        for block in self.blocks:
            x = call(block, x)
        return x


class Vit(nn.Module):
    """Dosovitskiy et al. 2021."""

    def __init__(self, size, patch, width, heads, layers, classes):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(1 + (size // patch) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        for block in self.blocks:
            x = call(block, x)
        return self.head(self.norm(x)[:, 0])


class LstmClassifier(nn.Module):
    def __init__(self, vocabulary=50, width=24, hidden=32, classes=6):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, ids):
        return self.fc(self.lstm(self.tokens(ids))[0][:, -1])
