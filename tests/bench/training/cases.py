# SPDX-License-Identifier: Apache-2.0
"""The networks that are measured, with data, options of ours and goals."""

import torch

import networks


def pictures(count, channels, size, classes, dense=False):
    shape = (count, size, size) if dense else (count,)
    return torch.randn(count, channels, size, size), torch.randint(0, classes, shape)


def sentences(count, length, vocabulary):
    return tuple(torch.randint(0, vocabulary, (count, length)) for _ in range(2))


def hidden(count, length, vocabulary, width):
    return torch.randint(0, vocabulary, (count, length)), torch.randn(count, length, width)


# name -> network, data and labels, options of ours, goals: moves of torch's saved bytes with nothing
# heavy repeated, of torch's peak, at 2 % more FLOPs; more FLOPs at the peak of checkpoints on all
# blocks; the whole step of torch's; time of torch's
NETWORKS = {
    "digits": (networks.Digits, lambda: pictures(64, 1, 8, 10), [],
               {"light": 0.70, "time": 1.0}),
    "gpt4": (lambda: networks.Gpt(65, 128, 256, 4, 4), lambda: sentences(8, 128, 65),
             ["--class-axis", "-1"], {"light": 0.70, "blocks": 0.16, "whole": 0.78, "time": 1.0}),
    "resnet50": (lambda: networks.ResNet([3, 4, 6, 3], True), lambda: pictures(8, 3, 224, 1000), [],
                 {"light": 0.60, "few": 0.46, "blocks": 0.05, "whole": 0.70, "time": 1.1}),
    "unet": (networks.UNet, lambda: pictures(2, 3, 256, 2, True), ["--class-axis", "1"],
             {"light": 0.60, "few": 0.47, "blocks": 0.11, "whole": 0.70}),
    "bert": (lambda: networks.Bert(30522, 128, 768, 12, 12), lambda: hidden(8, 128, 30522, 768),
             ["--loss", "mse"], {"light": 0.68, "few": 0.60, "blocks": 0.185, "whole": 0.90}),
    "gpt2": (lambda: networks.Gpt(50257, 512, 768, 12, 12), lambda: sentences(2, 512, 50257),
             ["--class-axis", "-1"],
             {"light": 0.50, "peak": 0.35, "blocks": 0.0, "whole": 0.78, "time": 1.1}),
    "vit": (lambda: networks.Vit(224, 16, 768, 12, 12, 1000), lambda: pictures(8, 3, 224, 1000), [],
            {"light": 0.68, "blocks": 0.21}),
}

# Larger ones, of which bytes alone are counted.
COUNTED = {
    "bert512": (lambda: networks.Bert(30522, 512, 768, 12, 12), lambda: hidden(8, 512, 30522, 768),
                ["--loss", "mse"]),
    "bert_large": (lambda: networks.Bert(30522, 128, 1024, 16, 24), lambda: hidden(8, 128, 30522, 1024),
                   ["--loss", "mse"]),
}
