# SPDX-License-Identifier: Apache-2.0
"""FCN with a dilated ResNet-50 (Long et al. 2015), as torchvision has it."""

from deeplab_v3 import dilated_resnet
from lib_conv import bilinear, conv, conv_bn, image


def build(net):
    size, classes = (64, 5) if net.small else (224, 21)
    image_value = image(net, size)
    h, w = net.dim(image_value, 2), net.dim(image_value, 3)
    x, c = dilated_resnet(net, image_value)
    with net.scope("classifier"):
        x = conv_bn(net, x, c, c // 4, 3, ("0", "1", "2"), act="relu")
        with net.scope(4):
            x = conv(net, x, c // 4, classes, 1, bias=True)
    net.output(bilinear(net, x, h, w), "out", [net.batch, classes, size, size])
