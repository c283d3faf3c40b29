#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of GELU by tanh and of ReLU, which the products before them multiply by the slopes, too,
by the emulated cuBLASLt.

    slopes.py ULLAGE [--quick]

Losses are those of target c: where the library has the slopes, where it has no algorithm that does
(then the program launches a kernel for each, which those of a ReLU spare none of: bits of slopes are
written by one), and where it runs no product at all. A product that makes a GELU beside what that
is of is such a call as well. A plan counts the launches of the first. The
call writes the gradient where the product would lie. --guard finds nothing in any of the three;
--pack none and the smallest budget have the same bits, and so has a program that is told the
algorithms that --tune wrote. A library that reads bits in another order is noticed. GELU by erf,
rows of a width that is no multiple of 8, a product that something else reads, bits that might not
fit into a plan, and float32 have kernels of their own. --quick: one network of each, in bf16, and
what has none. Exit: 0 ok, 1 a promise is broken, 77 a Python package or g++ is missing.
"""

import json
import os
import sys
import tempfile

from accumulated import CUDA, Trainer, need, numpy, numpy_helper, run
from bias_sums import (BATCH, CLASSES, TOKENS, Net, check_choices, check_launches, check_losses,
                       check_plans, launches)

NO_SLOPES, TURNED = {"UL_EMULATE_NO_SLOPES": "1"}, {"UL_EMULATE_MASK_TURNED": "1"}
ROOT = (2 / numpy.pi) ** 0.5


def add_gelu(net, x, name, erf=False):
    """As exporters have it: opset 17 has no such operator."""
    def number(value, what):
        array = numpy.array(value, numpy.float32)
        net.weights.append(numpy_helper.from_array(array, f"{name}/{what}"))
        return f"{name}/{what}"

    def step(op, inputs, what):
        return net.add(op, inputs, f"{name}/{what}_out")
    half, one = number(0.5, "half"), number(1, "one")
    if erf:
        inner = step("Erf", [step("Mul", [x, number(0.5 ** 0.5, "root")], "scaled")], "erf")
    else:
        cube = step("Mul", [step("Mul", [x, x], "square"), x], "cube")
        sum_ = step("Add", [x, step("Mul", [cube, number(0.044715, "cubic")], "term")], "sum")
        inner = step("Tanh", [step("Mul", [sum_, number(ROOT, "root")], "scaled")], "tanh")
    slope = step("Add", [inner, one], "plus")
    return step("Mul", [step("Mul", [x, half], "halved"), slope], "gelu")


def add_layers(net, x, sides, **how):
    for i in range(len(sides) - 1):
        x = net.add("Gemm", [x, net.weight(f"w{i}", *sides[i:i + 2]),
                             net.weight(f"b{i}", sides[i + 1])], f"g{i}")
        x = add_gelu(net, x, f"gelu{i}", **how)
    return net.add("Gemm", [x, net.weight("w", sides[-1], CLASSES), net.weight("b", CLASSES)], "y")


def make_gemms(folder):
    """Returns how many products have slopes."""
    net = Net()
    add_layers(net, "x", (64, 128, 136))
    net.save(folder, [2 * BATCH, 64])
    return 2


def make_kept(folder):
    """The gradient of a large weight makes the GELU that it reads again, a part for each tile. So
    the forward pass alone reads the first one, which its product makes beside what it is of."""
    net = Net()
    add_layers(net, "x", (64, 512, 1024))
    net.save(folder, [2 * BATCH, 64])
    return 3


def make_rows(folder):
    """Products of three axes, as transformers have them, with a sum around each pair. The gradient
    of the mean is the same for all tokens, and the product that it comes to first is no call."""
    net, x = Net(), "x"
    for i in range(2):
        net.add("MatMul", [x, net.weight(f"u{i}", 48, 192)], f"u{i}_out")
        net.add("Add", [net.weight(f"c{i}", 192), f"u{i}_out"], f"h{i}")
        gelu = add_gelu(net, f"h{i}", f"gelu{i}")
        net.add("MatMul", [gelu, net.weight(f"d{i}", 192, 48)], f"d{i}_out")
        net.add("Add", [net.weight(f"e{i}", 48), f"d{i}_out"], f"s{i}")
        x = net.add("Add", [x, f"s{i}"], f"x{i}")
    net.add("ReduceMean", [x], "mean", axes=[1], keepdims=0)
    net.add("Gemm", ["mean", net.weight("w", 48, CLASSES), net.weight("b", CLASSES)], "y")
    net.save(folder, [BATCH, TOKENS, 48])
    return 1


def make_erf(folder):
    net = Net()
    add_layers(net, "x", (64, 128, 136), erf=True)
    net.save(folder, [2 * BATCH, 64])


def make_odd(folder):
    net = Net()
    add_layers(net, "x", (64, 132, 116))
    net.save(folder, [2 * BATCH, 64])


def make_shared(folder):
    """Two GELUs whose results are added have the same gradient."""
    net = Net()
    for i in range(2):
        net.add("Gemm", ["x", net.weight(f"w{i}", 64, 128), net.weight(f"b{i}", 128)], f"g{i}")
    sides = [add_gelu(net, f"g{i}", f"gelu{i}") for i in range(2)]
    net.add("Add", sides, "sum")
    net.add("Gemm", ["sum", net.weight("w", 128, CLASSES), net.weight("b", CLASSES)], "y")
    net.save(folder, [2 * BATCH, 64])


def add_relus(net, x, sides):
    for i in range(len(sides) - 1):
        x = net.add("Gemm", [x, net.weight(f"w{i}", *sides[i:i + 2]),
                             net.weight(f"b{i}", sides[i + 1])], f"g{i}")
        x = net.add("Relu", [x], f"relu{i}")
    return x


def make_relus(folder):
    """Rows of bits that end where a multiple of 128 does, and others."""
    net = Net()
    x = add_relus(net, "x", (64, 128, 136))
    net.add("Gemm", [x, net.weight("w", 136, CLASSES), net.weight("b", CLASSES)], "y")
    net.save(folder, [2 * BATCH, 64])
    return 2


def make_large(folder, wide):
    """More bits than half of a product's scratch has room for: beside another layer that takes much
    more than theirs they raise no plan, beside one that is like theirs they might."""
    net = Net()
    x = add_relus(net, "x", (16, 512))
    x = net.add("Gemm", [x, net.weight("u", 512, 16), net.weight("v", 16)], "narrow")
    x = net.add("Gemm", [x, net.weight("w1", 16, wide), net.weight("b1", wide)], "wide")
    x = net.add("Tanh", [x], "tanh")
    net.add("Gemm", [x, net.weight("w", wide, CLASSES), net.weight("b", CLASSES)], "y")
    net.save(folder, [1024, 16])


def count_calls(trainer, word, **environment):
    """Calls that do that more than a product."""
    file = trainer.program + ".json"
    run(trainer.program, "--bench", "--profile", "--random", "1", "--json", file, **environment)
    with open(file) as handle:
        return json.dumps(json.load(handle)).count(", " + word)


def check_relus(ullage, folder, count, precision, quick):
    """By a mask a product has the bits of a kernel after it."""
    words = ["--precision", precision]
    trainer, bits = check_losses(ullage, folder, words, 2e-2, NO_SLOPES, quick)
    check_launches(trainer, 0, 0, NO_SLOPES)
    for environment, wanted in (({}, count), (NO_SLOPES, 0), (TURNED, 0)):
        found = count_calls(trainer, "slopes", **environment)
        need(found == wanted and trainer.losses(**environment)[1] == bits,
             f"{precision}, {environment}: {found} calls with slopes of {wanted}, or other bits")
    if quick:
        return
    check_choices(trainer, bits)
    check_plans(ullage, folder, words, bits)


def check_large(ullage):
    for wide, count, *options in ((4096, 1), (256, 0), (4096, 0, "--workspace", "0"),
                                  (4096, 1, "--workspace", "192"), (4096, 0, "--align", "16")):
        with tempfile.TemporaryDirectory() as folder:
            make_large(folder, wide)
            trainer = Trainer(ullage, folder, *CUDA, "--precision", "bf16", *options)
            need(count_calls(trainer, "slopes") == count, f"beside {wide}, {options}: not {count} calls with slopes")
            run(trainer.program, "--guard", "--random", "1")


def check(ullage, folder, count, precision, quick, kept=0):
    words = ["--precision", precision]
    trainer, bits = check_losses(ullage, folder, words, 2e-2, NO_SLOPES, quick)
    check_launches(trainer, count, count, NO_SLOPES)
    for environment, wanted in (({}, kept), (NO_SLOPES, 0)):
        found = count_calls(trainer, "both", **environment)
        need(found == wanted, f"{precision}: {found} calls of {wanted} keep what a GELU is of")
    apart = trainer.losses(**NO_SLOPES)[1]
    need(apart != bits, f"{precision}: slopes by calls round as kernels do: no call has them")
    if quick:
        return
    check_choices(trainer, bits)
    check_plans(ullage, folder, words, bits)


def check_none(ullage, folder, precision):
    """The library is asked for no slopes, so that it has the same bits where it would refuse."""
    trainer = Trainer(ullage, folder, *CUDA, "--precision", precision)
    need(trainer.losses()[1] == trainer.losses(**NO_SLOPES)[1] and
         launches(trainer) == launches(trainer, **NO_SLOPES), f"{precision}: some call has slopes")


def main():
    ullage = os.path.abspath(sys.argv[1])
    os.environ.setdefault("NVCC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvcc"))
    quick = "--quick" in sys.argv
    for make in (make_gemms, make_kept) if quick else (make_gemms, make_kept, make_rows):
        with tempfile.TemporaryDirectory() as folder:
            count, is_kept = make(folder), make is make_kept
            for precision in ("bf16",) if quick or is_kept else ("bf16", "amp-fp16"):
                check(ullage, folder, count, precision, quick, kept=is_kept)
    with tempfile.TemporaryDirectory() as folder:
        count = make_relus(folder)
        for precision in ("bf16",) if quick else ("bf16", "amp-fp16"):
            check_relus(ullage, folder, count, precision, quick)
    if not quick:
        check_large(ullage)
    for make, precision in ((make_erf, "bf16"), (make_odd, "bf16"), (make_shared, "bf16"),
                            (make_gemms, "fp32")):
        with tempfile.TemporaryDirectory() as folder:
            make(folder)
            check_none(ullage, folder, precision)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as error:
        print(f"slopes.py: {error}")
        sys.exit(1)
