#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether kernels of target cuda take the ways that they are fast by, seen while networks run under
the emulation with the libraries' calls left to kernels of ours.

    packs.py ULLAGE [--full] [--precision fp16,fp32] [NAME...]

packs      moved whole: a thread's several elements, or a tile's asynchronous copies, as one
unaligned  moved one element at a time, because a place is no multiple of the pack
products   of a warp, on tensor cores
A plan aligns what it places, and packs are chosen so that rows are multiples of them: in a kernel
whose text asks for alignment all must be moved whole, and some must; one with tiles for tensor cores
must multiply there. exit: 0 ok, 6 a kernel goes a slow way, 77 a Python package is missing
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "models")]

import make  # noqa: E402

KERNEL = re.compile(r"^static __(?:global|device)__ .*? (k\d+_\d+(?:_part)?)\(.*?^}\n",
                    re.MULTILINE | re.DOTALL)  # fmt: skip


def call(command, **environment):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, **environment}, check=False)  # fmt: skip
    if done.returncode not in (0, 2):  # 2: a random index was out of range
        sys.exit(f"{command[0]}: exit {done.returncode}: {done.stderr.strip()[-800:]}")


def read_kernels(folder):
    """{name: text} of an emitted folder, with the parts that are of a kernel alone."""
    with open(os.path.join(folder, "kernels.cu"), encoding="utf-8") as file:
        texts = {match[1]: match[0] for match in KERNEL.finditer(file.read())}
    parts = {name: text for name, text in texts.items() if name.endswith("_part")}
    return {name: text + "".join(own for part, own in parts.items() if f" {part}(" in text)
            for name, text in texts.items() if name not in parts}  # fmt: skip


def read_counts(path):
    """{kernel: [packs, unaligned, products]} of all its launches."""
    counts = {}
    with open(path, encoding="utf-8") as file:
        for line in file.read().splitlines()[1:]:
            fields = line.split("\t")
            sums = counts.setdefault(fields[1], [0, 0, 0])
            for at, number in enumerate(fields[-3:]):
                sums[at] += int(number)
    return counts


def slow_ways(text, packs, unaligned, products):
    if "ul_is_aligned" in text and unaligned:
        yield f"{unaligned} of {packs + unaligned} packs are moved one element at a time"
    if "ul_is_aligned" in text and not packs:
        yield "nothing is moved in packs"
    if re.search(r"\bul_(attend_)?mma(_bytes)?<", text) and not products:
        yield "nothing is multiplied on tensor cores"


def check(ullage, model, options, folder):
    """[kernels, packs, unaligned, products], and what is slow."""
    program, counts = os.path.join(folder, "program"), os.path.join(folder, "counts.tsv")
    command = [ullage, "compile", model, "--target", "cuda", "--with-cudnn", "on", *options]
    call([*command, "--emit", os.path.join(folder, "source")])
    call([*command, "-o", program], UL_EMULATE_COUNT="1")
    call([program, "--random", "1"], UL_EMULATE_COUNT=counts)
    texts, sums, slow = read_kernels(os.path.join(folder, "source")), [0, 0, 0, 0], []
    for name, numbers in read_counts(counts).items():
        if name not in texts:  # a copy, or a kernel of the runtime
            continue
        sums = [total + more for total, more in zip(sums, [1, *numbers], strict=True)]
        slow += [f"{name}: {what}" for what in slow_ways(texts[name], *numbers)]
    return sums, slow


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ullage")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--precision", default="fp16,fp32")
    arguments = parser.parse_intermixed_args()
    os.environ.update(NVCC=os.path.join(HERE, "nvcc"), UL_EMULATE_NO_ALGORITHMS="1")
    failed = 0
    print(f"{'network':24} {'kernels':>8} {'packs':>12} {'unaligned':>10} {'products':>10}")
    for name in arguments.names or make.NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model.onnx")
            size = [] if arguments.full else ["--small"]
            call([sys.executable, os.path.join(ROOT, "models", "make.py"), name, *size, "-o", model])
            for precision in arguments.precision.split(","):
                sums, slow = check(arguments.ullage, model, ["--precision", precision],
                                   tempfile.mkdtemp(dir=folder))  # fmt: skip
                kernels, packs, unaligned, products = sums
                print(f"{name + '.' + precision:24} {kernels:8} {packs:12} {unaligned:10} "
                      f"{products:10}", flush=True)  # fmt: skip
                for what in slow:
                    print(f"FAIL {name}.{precision}: {what}")
                failed = 6 if slow else failed
    return failed


sys.exit(main())
