#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the machine code of target cuda's kernels must and must not have, which needs no device.

    gates.py --ullage build/release/cli/ullage [--small] [--arch sm_80,sm_90,sm_120] [--stride K]
             [--ops REGEX] [--precision fp32,fp16,bf16] [--jobs 2] [--cache DIR] [NAME...]

All kernels of ONNX's node tests and of shapes.py (every K-th, those that --ops names), of the
networks of models/ (or those named) in each precision, the ones beside library calls too, and of
the runtime itself are compiled by nvcc, equal ones once, and read with cuobjdump:

    spills      no register goes to memory and back
    frame       at most 1024 bytes a thread
    shared      at most 48 KiB, what every device gives without being asked
    tensor      a product or attention on tensor cores has their instructions (HMMA, IMMA)
    matrices    and loads what they multiply as matrices (LDSM)
    copies      and copies asynchronously (LDGSTS, UTMALDG) what is read several elements at once
    packs       what the text reads or writes 8 or 16 bytes at once, instructions do (LDG.E.128)
    wait        from sm_90 on a kernel waits for those before it (ACQBULK) before it touches memory
    yield       a thread that waits for the lock of ul_fault_note lets others go on

What was compiled is kept (machine.py; --cache, build/gates without it), so that a run that was
interrupted goes on. Exceptions, a line each with the reason: gates_allowed.txt. exit: 0 ok, 6 a gate is shut, 77 there is
no nvcc, no cuobjdump (scripts/setup_python.sh) or no test data
"""

import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "ref"), os.path.join(HERE, "..", "gpu"),
                os.path.join(HERE, "..", "ops"), os.path.join(HERE, ".."), os.path.join(ROOT, "scripts")]  # fmt: skip

import environment  # noqa: E402

environment.need("numpy", "onnx")

import build  # noqa: E402
import bytes as reference_bytes  # noqa: E402  tests/ref/bytes.py
import list_tests  # noqa: E402
import machine  # noqa: E402
import prepare  # noqa: E402
import shapes  # noqa: E402
from part import part  # noqa: E402

MAX_FRAME, MAX_SHARED = 1024, 48 << 10
ARCHS = "sm_90,sm_120,sm_80"
KERNEL = re.compile(r"^static __global__ .*? (k\d+_\d+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
PART = re.compile(r"^static __device__ .*? (k\d+_\d+_part)\(.*?^}\n", re.MULTILINE | re.DOTALL)


# ---- Kernels ----


class Kernels:
    """Distinct ones, and where each was found first."""

    def __init__(self):
        self.texts = {}

    def add(self, folder, origin):
        with open(os.path.join(folder, "kernels.cu"), encoding="utf-8") as file:
            source = file.read()
        parts = {match[1]: match[0] for match in PART.finditer(source)}
        for match in KERNEL.finditer(source):
            own = [text for name, text in parts.items() if f" {name}(" in match[0]]
            text = "".join([*own, match[0]]).replace(match[1].split("_")[0] + "_", "@_")
            self.texts.setdefault(text, f"{origin} {match[1]}")


def keep_runtime(args, folder):
    """Copies the runtime's files that no other program had: each has those that it needs."""
    os.makedirs(args.runtime, exist_ok=True)
    for name in os.listdir(folder):
        if name.startswith("ul_") and not os.path.exists(os.path.join(args.runtime, name)):
            shutil.copy(os.path.join(folder, name), args.runtime)


def emit_model(args, kernels, work, name, path, options):
    """How many models could not be emitted: 0 or 1."""
    folder = os.path.join(work, "model")
    problem = build.emit(args, path, [*options, "--with-cudnn", "on"], "cuda", folder)
    if problem:
        print(f"FAIL {name}: {problem}")
        return 1
    keep_runtime(args, folder)
    kernels.add(folder, name)
    shutil.rmtree(folder)
    return 0


def emit_networks(args, kernels, work):
    pattern = "^(" + "|".join(args.names or [".*"]) + ")$"
    return sum(emit_model(args, kernels, work, f"{name}.{precision}", path,
                          [*options, "--precision", precision])
               for name, path, options in part(reference_bytes.networks(args.small, pattern))
               for precision in args.precision.split(","))  # fmt: skip


def emit_shapes(args, kernels, work):
    found = shapes.models(work, args.precision.split(","))
    return sum(emit_model(args, kernels, work, name, path, options)
               for number, (name, path, options) in part(enumerate(found))
               if number % args.stride == 0 and re.search(args.ops, name))  # fmt: skip


def emit_operators(args, kernels, work):
    """Those that are no programs of target cuda are others' to report (tests/ops)."""
    pack = prepare.Pack(argparse.Namespace(ullage=args.ullage, target="cuda", options=[],
                                           work=work), work)  # fmt: skip
    data = list_tests.find_data(None)
    tests = part(prepare.node_tests(argparse.Namespace(ops=args.ops, stride=args.stride), data))

    def emit(test):
        try:
            prepare.node_test(pack, data, *test[:2])
        except prepare.Failure as failure:
            print(f"{test[0]}: {failure}")

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(emit, tests))
    for folder in sorted(glob.glob(os.path.join(work, "ops", "*"))):
        kernels.add(folder, os.path.basename(folder))
        keep_runtime(args, folder)


# ---- Machine code ----


def resources(said):
    """(spilt bytes, frame bytes, shared bytes) as ptxas reports them for a kernel and what it calls."""
    own = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads",
                     said)  # fmt: skip
    shared = re.search(r"Used \d+ registers.*?(\d+) bytes smem", said)
    frame = sum(int(frame) for frame, _, _ in own)
    return sum(int(to) + int(back) for _, to, back in own), frame, int(shared[1]) if shared else 0


def code_of(listing):
    """[(address, instruction)]"""
    return [(int(at[1], 16), at[2])
            for at in re.finditer(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", listing, re.MULTILINE)]  # fmt: skip


def yields(code):
    """Whether each compare-and-swap (there is one for the fault's lock) stands in a loop, and the
    smallest such loop has a YIELD."""
    for address in (address for address, what in code if re.search(r"\bATOMG?\S*\.CAS\b", what)):
        loops = []
        for back, jump in code:
            target = re.search(r"\bBRA\S* (?:\S+, )*(0x[0-9a-f]+)", jump)
            if target and int(target[1], 16) <= address <= back:
                loops.append((back - int(target[1], 16), int(target[1], 16), back))
        if not loops:
            return False
        _, first, last = min(loops)
        if not any(re.search(r"\b(YIELD|NANOSLEEP)\b", what)
                   for at, what in code if first <= at <= last):  # fmt: skip
            return False
    return True


def waits(code):
    """Whether no memory of the device is touched in front of the wait."""
    words = [what for _, what in code]
    memory = re.compile(r"\b(LD|LDG|LDGSTS|ST|STG|ATOM|ATOMG|RED|REDG|UTMALDG|UBLKCP)(\.\S*)? ")
    wait = next((at for at, what in enumerate(words) if "ACQBULK" in what), len(words))
    return wait < len(words) and not any(memory.search(what) for what in words[:wait])


def missing_widths(text, words):
    """Widths in bits that the text loads or stores at once, and no instruction does."""
    size = {"float": 32, "uint16_t": 16, "ul_bits16": 16, "uint8_t": 8, "ul_byte": 8}
    types = {match[2]: match[1] for match in re.finditer(r"(\w+) \*(?:const )?(b\d+)\b", text)}
    loads = [(types.get(place or "", kind), count) for count, kind, place in re.findall(
        r"\bul_pack_read<(\d+)>\((?:\(const (\w+) \*\)|(b\d+) )", text)]  # fmt: skip
    stores = re.findall(r"\bul_pack_of<(\w+), (\d+)> t_result", text)
    if "uint4" in text:
        loads, stores = [("float", 4)], [("float", 4)]
    for verb, packs in (("LD", loads), ("ST", stores)):
        wide = {min(128, size.get(kind, 0) * int(count)) for kind, count in packs}
        for bits in sorted(wide & {64, 128}):
            if not re.search(rf"\b{verb}[GS]?\.\S*\b{bits}\b", words):
                yield f"{verb} {bits}"


def tensor_form(text):
    """How a kernel multiplies on tensor cores, or nothing: a struct of the runtime's."""
    found = re.search(r"\bul_(attend_|gradient_)?mma(_bytes)?(?=<)", text)
    return found[0] if found else ""


def shut(arch, text, used, code):
    """The gates that a kernel does not pass."""
    words = "\n".join(what for _, what in code)
    spilt, frame, shared = used
    found = []
    tensor = tensor_form(text)
    if spilt:
        found.append(f"spills {spilt} bytes")
    if frame > MAX_FRAME:
        found.append(f"frame {frame} bytes")
    if shared > MAX_SHARED:
        found.append(f"shared {shared} bytes")
    if tensor and not re.search(r"\b[HI]MMA\b", words):
        found.append("tensor")
    if tensor and not re.search(r"\bLDSM\b", words):
        found.append("matrices")
    several = any(int(count) >= 2 for count in re.findall(r"\bul_reading<(\d+),", text))
    if tensor and "bytes" not in tensor and several and not re.search(r"\b(LDGSTS|UTMALDG)\b", words):
        found.append("copies")
    found += [f"packs {width}" for width in missing_widths(text, words)]
    if int(arch.removeprefix("sm_")) >= 90 and not waits(code):
        found.append("wait")
    if not yields(code):
        found.append("yield")
    return found


# ---- The whole ----


def find_cuobjdump():
    """In PATH, beside nvcc, or in the environment that scripts/setup_python.sh makes of PyPI's."""
    usual = shutil.which("cuobjdump") or shutil.which("/usr/local/cuda/bin/cuobjdump")
    if usual:
        return usual
    venv = os.path.join(ROOT, "build", "venv-cuda")
    code, said = machine.run([os.path.join(ROOT, "scripts", "setup_python.sh"), "--bare", "--with",
                      "nvidia-cuda-cuobjdump", "--with", "nvidia-cuda-nvdisasm", venv])  # fmt: skip
    if code != 0:
        print(said.strip())
    found = glob.glob(os.path.join(venv, "lib", "*", "site-packages", "nvidia", "*", "bin", "cuobjdump"))
    return found[0] if found else None


def read_allowed():
    """(regex of where, regex of the gate) a line; after a colon the reason."""
    with open(os.path.join(HERE, "gates_allowed.txt"), encoding="utf-8") as file:
        lines = [line for line in file.read().splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(":", 1)[0].split()) for line in lines]


class Verdict:
    """Counts and tells what is shut, and which exceptions were needed."""

    def __init__(self):
        self.allowed, self.used, self.failed, self.found = read_allowed(), set(), 0, 0

    def add(self, where, gates):
        for gate in gates:
            rows = [row for row in self.allowed
                    if re.search(row[0], where) and re.match(row[1], gate)]  # fmt: skip
            self.used.update(rows)
            self.found += bool(rows)
            self.failed += not rows
            print(f"{'allowed' if rows else 'FAIL'} {where}: {gate}", flush=True)

    def add_unused(self):
        for row in self.allowed:
            if row not in self.used:
                print(f"FAIL gates_allowed.txt: nothing is found for {' '.join(row)}")
                self.failed += 1


def gates_of(arch, text, entry):
    if isinstance(entry, machine.Failure):
        return [str(entry)]
    return shut(arch, text, resources(entry[0]), code_of(entry[1]))


def check_arch(args, arch, kernels, verdict):
    """All kernels for one device; says how many."""
    before, own = (verdict.failed, verdict.found), 0
    for name in sorted(os.listdir(args.machine.runtime)):
        if not name.startswith("ul_") or not name.endswith(".cu"):
            continue
        try:
            for kernel, text, entry in args.machine.read_file(arch, name):
                verdict.add(f"{arch} {name} {kernel}", gates_of(arch, text, entry))
                own += 1
        except machine.Failure as failure:
            verdict.add(f"{arch} {name}", [str(failure)])
    for text, entry in args.machine.read_all(arch, kernels.texts, args.jobs):
        where = f"{arch} {kernels.texts[text]} {tensor_form(text)}".strip()
        verdict.add(where, gates_of(arch, text, entry))
    print(f"{arch}: {len(kernels.texts)} kernels and {own} of the runtime, "
          f"{verdict.failed - before[0]} shut gates, {verdict.found - before[1]} allowed")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--nvcc")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--arch", default=ARCHS)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--ops", default=".")
    parser.add_argument("--precision", default="fp32,fp16,bf16")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cache", default=os.path.join(ROOT, "build", "gates"))
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    args.ullage, args.nvcc = os.path.abspath(args.ullage), build.find_nvcc(args.nvcc)
    args.cuobjdump = find_cuobjdump() if args.nvcc else None
    if args.cuobjdump is None:
        print("gates.py: no nvcc or no cuobjdump here; no machine code was looked at")
        return 77
    kernels, verdict = Kernels(), Verdict()
    with tempfile.TemporaryDirectory(prefix="ullage-gates-") as work:
        args.runtime = os.path.join(work, "runtime")
        failed = emit_networks(args, kernels, work)
        if args.ops != "-":
            emit_operators(args, kernels, work)
            failed += emit_shapes(args, kernels, work)
        args.machine = machine.Machine(args.nvcc, args.cuobjdump, args.runtime, args.cache)
        for arch in args.arch.split(","):
            check_arch(args, arch, kernels, verdict)
    whole = not args.names and not args.small and args.stride == 1 and "ULLAGE_PART" not in os.environ
    if whole and args.arch == ARCHS:
        verdict.add_unused()
    return 6 if failed + verdict.failed else 0


if __name__ == "__main__":
    sys.exit(main())
