# SPDX-License-Identifier: Apache-2.0
"""The networks of tests/bench/gpu.py in plain PyTorch, as torchvision and Hugging Face's
transformers write them: the same layers and sizes as the ONNX files of models/, and their weights.

    build(name, model)    an nn.Module in float32 on the CPU, for evaluation; name: resnet50, unet,
                          bert_base, gpt2 or lstm; model: the onnx.ModelProto that models/make.py made
    arguments(name, inputs)    what the module takes, from {name of an ONNX input: tensor}

Sizes are read off the weights, so that networks of any width and depth are built; only the number
of heads is not in them. Attention goes through scaled_dot_product_attention where PyTorch has it,
which chooses the fastest of its kernels.
"""

import math

import torch
from onnx import numpy_helper
from torch import nn
from torch.nn import functional

HEADS = {True: 4, False: 12}  # of a network scaled down, of one at full size
SCALED_WIDTH = 32  # that the former has


# ---- weights by the names of modules ----


def named_weights(model):
    """{name in the module: tensor}. The exporter transposes the weight of a Linear and loses its
    name; its bias follows and has it."""
    found, lost = {}, None
    for tensor in model.graph.initializer:
        array = torch.from_numpy(numpy_helper.to_array(tensor).copy())
        if tensor.name.startswith("onnx::MatMul"):
            lost = array
            continue
        found[tensor.name] = array
        if lost is not None:
            found[tensor.name.removesuffix("bias") + "weight"] = lost.t().contiguous()
            lost = None
    return found


def load(module, weights):
    """Every parameter and statistic of the module comes from the file, and all of the file is used
    except for buffers of masks and positions."""
    own = module.state_dict()
    counters = [name for name in own if name.endswith("num_batches_tracked")]
    missing = [name for name in own if name not in weights and name not in counters]
    extra = [name for name in weights if name not in own]
    if missing or extra:
        raise ValueError(f"weights do not fit: missing {missing[:3]}, left over {extra[:3]}")
    module.load_state_dict(weights, strict=False)
    return module.eval().requires_grad_(False)


def count_of(weights, prefix):
    """How many numbered submodules come after a prefix such as "encoder.layer."."""
    behind = [name[len(prefix) :] for name in weights if name.startswith(prefix)]
    return max(int(name.split(".")[0]) for name in behind) + 1


# ---- ResNet-50 ----


class Bottleneck(nn.Module):
    def __init__(self, c_in, width, stride):
        super().__init__()
        c_out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(c_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, c_out, 1, bias=False), nn.BatchNorm2d(c_out)
        self.relu, self.downsample = nn.ReLU(inplace=True), None
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(nn.Conv2d(c_in, c_out, 1, stride, bias=False),
                                            nn.BatchNorm2d(c_out))  # fmt: skip

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, weights):
        super().__init__()
        width, channels = len(weights["conv1.weight"]), len(weights["conv1.weight"])
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.maxpool, self.avgpool = nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1)
        for i in range(4):
            blocks = []
            for k in range(count_of(weights, f"layer{i + 1}.")):
                blocks.append(Bottleneck(channels, width << i, 2 if i > 0 and k == 0 else 1))
                channels = 4 * (width << i)
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, len(weights["fc.bias"]))

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


# ---- U-Net ----


class DoubleConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        layers = []
        for c in (c_in, c_out):
            layers += [nn.Conv2d(c, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out),
                       nn.ReLU(inplace=True)]  # fmt: skip
        self.double_conv = nn.Sequential(*layers)

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(c, 2 * c))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.up, self.conv = nn.ConvTranspose2d(c, c // 2, 2, 2), DoubleConv(c, c // 2)

    def forward(self, x, skip):
        return self.conv(torch.cat([skip, self.up(x)], 1))


class OutConv(nn.Module):
    def __init__(self, c_in, c_out):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, weights):
        super().__init__()
        width = len(weights["inc.double_conv.0.weight"])
        self.levels = sum(f"up{i}.up.bias" in weights for i in range(1, 10))
        self.inc, c = DoubleConv(3, width), width
        for i in range(self.levels):
            setattr(self, f"down{i + 1}", Down(c))
            c *= 2
        for i in range(self.levels):
            setattr(self, f"up{i + 1}", Up(c))
            c //= 2
        self.outc = OutConv(c, len(weights["outc.conv.bias"]))

    def forward(self, x):
        x, skips = self.inc(x), []
        for i in range(self.levels):
            skips.append(x)
            x = getattr(self, f"down{i + 1}")(x)
        for i in range(self.levels):
            x = getattr(self, f"up{i + 1}")(x, skips.pop())
        return self.outc(x)


# ---- attention ----


def attend(q, k, v, mask=None, causal=False):
    """[B, heads, L, depth]; mask: bool, true where a key may be seen."""
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v


def heads_of(x, heads):
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


class Parts(nn.Module):
    """A module that only has others, under the names that the weights have."""

    def __init__(self, /, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


# ---- BERT ----


class BertLayer(nn.Module):
    def __init__(self, width, hidden, heads):
        super().__init__()
        self.heads = heads
        own = Parts(query=nn.Linear(width, width), key=nn.Linear(width, width),
                    value=nn.Linear(width, width))  # fmt: skip
        out = Parts(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width, 1e-12))
        self.attention = Parts(**{"self": own, "output": out})
        self.intermediate = Parts(dense=nn.Linear(width, hidden))
        self.output = Parts(dense=nn.Linear(hidden, width), LayerNorm=nn.LayerNorm(width, 1e-12))

    def forward(self, x, mask):
        own, out = self.attention.self, self.attention.output
        q, k, v = (heads_of(part(x), self.heads) for part in (own.query, own.key, own.value))
        x = out.LayerNorm(out.dense(joined(attend(q, k, v, mask))) + x)
        y = functional.gelu(self.intermediate.dense(x))
        return self.output.LayerNorm(self.output.dense(y) + x)


class Bert(nn.Module):
    def __init__(self, weights):
        super().__init__()
        words, width = weights["embeddings.word_embeddings.weight"].shape
        places = len(weights["embeddings.position_embeddings.weight"])
        hidden = len(weights["encoder.layer.0.intermediate.dense.bias"])
        self.embeddings = Parts(word_embeddings=nn.Embedding(words, width),
                                token_type_embeddings=nn.Embedding(2, width),
                                position_embeddings=nn.Embedding(places, width),
                                LayerNorm=nn.LayerNorm(width, 1e-12))  # fmt: skip
        self.embeddings.register_buffer("position_ids", torch.arange(places)[None])
        layers = [BertLayer(width, hidden, HEADS[width == SCALED_WIDTH])
                  for _ in range(count_of(weights, "encoder.layer."))]  # fmt: skip
        self.encoder = Parts(layer=nn.ModuleList(layers))
        self.pooler = Parts(dense=nn.Linear(width, width))

    def forward(self, ids, mask, kinds):
        e = self.embeddings
        place = e.position_embeddings(e.position_ids[:, : ids.shape[1]])
        x = e.LayerNorm(e.word_embeddings(ids) + e.token_type_embeddings(kinds) + place)
        seen = mask[:, None, None, :].bool().expand(-1, 1, ids.shape[1], -1)
        for layer in self.encoder.layer:
            x = layer(x, seen)
        return x, torch.tanh(self.pooler.dense(x[:, 0]))


# ---- GPT-2 ----


class Conv1D(nn.Module):
    """A Linear whose weight is not transposed."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(c_in, c_out))
        self.bias = nn.Parameter(torch.empty(c_out))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Parts(c_attn=Conv1D(width, 3 * width), c_proj=Conv1D(width, width))
        self.mlp = Parts(c_fc=Conv1D(width, 4 * width), c_proj=Conv1D(4 * width, width))

    def forward(self, x):
        parts = self.attn.c_attn(self.ln_1(x)).chunk(3, -1)
        q, k, v = (heads_of(part, self.heads) for part in parts)
        x = x + self.attn.c_proj(joined(attend(q, k, v, causal=True)))
        y = functional.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.mlp.c_proj(y)


class Gpt(nn.Module):
    def __init__(self, weights):
        super().__init__()
        words, width = weights["transformer.wte.weight"].shape
        places = len(weights["transformer.wpe.weight"])
        blocks = [GptBlock(width, HEADS[width == SCALED_WIDTH])
                  for _ in range(count_of(weights, "transformer.h."))]  # fmt: skip
        self.transformer = Parts(wte=nn.Embedding(words, width), wpe=nn.Embedding(places, width),
                                 h=nn.ModuleList(blocks), ln_f=nn.LayerNorm(width))  # fmt: skip

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1], device=ids.device))[None]
        for block in t.h:
            x = block(x)
        return functional.linear(t.ln_f(x), t.wte.weight)


# ---- LSTM ----


def lstm_weights(model):
    """Those of the file's LSTM nodes under the names of nn.LSTM, whose gates are in another order."""
    tensors = {tensor.name: torch.from_numpy(numpy_helper.to_array(tensor).copy()) for tensor in model.graph.initializer}
    found = {name: tensor for name, tensor in tensors.items() if name.startswith("fc.")}
    for i, node in enumerate(node for node in model.graph.node if node.op_type == "LSTM"):
        w, r, b = (tensors[name][0] for name in node.input[1:4])
        own = {"weight_ih": w, "weight_hh": r, "bias_ih": b[: len(w)], "bias_hh": b[len(w) :]}
        for name, tensor in own.items():
            gates = tensor.chunk(4)  # input, output, forget, cell
            found[f"lstm.{name}_l{i}"] = torch.cat([gates[0], gates[2], gates[3], gates[1]])
    return found


class Lstm(nn.Module):
    def __init__(self, weights):
        super().__init__()
        hidden, features = weights["lstm.weight_hh_l0"].shape[1], weights["lstm.weight_ih_l0"].shape[1]
        layers = sum(name.startswith("lstm.weight_ih") for name in weights)
        self.lstm = nn.LSTM(features, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, len(weights["fc.bias"]))

    def forward(self, x):
        y, (state, _) = self.lstm(x)
        return self.fc(y[:, -1]), state


# ---- by name ----

CLASSES = {"resnet50": ResNet, "unet": UNet, "bert_base": Bert, "gpt2": Gpt, "lstm": Lstm}
ARGUMENTS = {
    "resnet50": ("input",),
    "unet": ("input",),
    "bert_base": ("input_ids", "attention_mask", "token_type_ids"),
    "gpt2": ("input_ids",),
    "lstm": ("input",),
}


def build(name, model):
    weights = lstm_weights(model) if name == "lstm" else named_weights(model)
    if name == "gpt2":  # what each layer masks with: causal is asked for by name here
        weights = {key: value for key, value in weights.items() if not key.endswith(".attn.bias")}
    return load(CLASSES[name](weights), weights)


def arguments(name, inputs):
    return [inputs[key] for key in ARGUMENTS[name]]
