#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A large weight in its file: the same results wherever the file's pages are, less memory where they
fit those of the arena, and the same care for files that are damaged.

usage: paged_test.py PROGRAM [--hash]       (with --hash: prints the hash that model.c names)
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

COUNT = 4 << 20
MASK = (1 << 64) - 1


def element(index):
    return float(index * 2654435761 % 1021)


def payload():
    period = [element(i) for i in range(1021)]  # 2654435761 * 1021 = 0 modulo 1021
    weight = struct.pack("<1021f", *period) * (COUNT // 1021 + 1)
    return struct.pack("<2f", 0.5, -0.5) + bytes(56) + weight[: 4 * COUNT]


def hash_of(data):
    """the hash of runtime/lib/ul_weights.h in Python."""

    def mix(lane, word):
        lane = (lane ^ word) * 0x9E3779B97F4A7C15 & MASK
        return (lane << 29 | lane >> 35) & MASK

    lanes = [0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89]
    whole = len(data) // 32 * 32
    a, b, c, d = lanes
    for w0, w1, w2, w3 in struct.iter_unpack("<4Q", data[:whole]):
        a, b, c, d = mix(a, w0), mix(b, w1), mix(c, w2), mix(d, w3)
    total = len(data)
    for lane in (a, b, c, d):
        total = mix(total, lane)
    for byte in data[whole:]:
        total = mix(total, byte)
    total ^= total >> 32
    total = total * 0xD6E8FEB86659FD93 & MASK
    return total ^ total >> 32


def fail(text):
    sys.exit(f"FAIL: {text}")


def run(program, weights, *arguments):
    """Exit code and standard output."""
    result = subprocess.run([program, "--weights", weights, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL)
    return result.returncode, result.stdout


def peak_bytes(program, weights):
    """Resident, of a run. A process counts what its parent was before it, so that is a shell."""
    bench = ["--bench", "--duration", "0", "--warmup", "0", "--json", "-"]
    command = ["sh", "-c", '"$@"; exit $?', "sh", program, "--weights", weights, *bench]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return json.loads(result.stdout)["peak_resident_bytes"]


def main():
    program = os.path.abspath(sys.argv[1])
    data = payload()
    if "--hash" in sys.argv:
        print(f"0x{hash_of(data):016x}")
        return
    with tempfile.TemporaryDirectory() as folder:
        check(program, data, folder)


def write(folder, name, *parts):
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        for part in parts:
            file.write(part)
    return path


def check(program, data, folder):
    with open(program, "rb") as file:
        code = file.read()
    trailer = b"ULLAGEWT" + struct.pack("<IIQQ", 1, 32, len(data), EXPECTED_HASH)
    picks = [3, COUNT - 1]
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118)
    npy += b"{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }".ljust(117) + b"\n"
    pick = write(folder, "pick.npy", npy, struct.pack("<2q", *picks))
    want = struct.pack("<2f", 0.5 + element(picks[0]), -0.5 + element(picks[1] % 1021))
    arguments = ["--input", f"pick={pick}", "--output", "y=-"]
    files = {
        "beside": write(folder, "beside", data, trailer),
        "shifted": write(folder, "shifted", b"x" * 100, data, trailer),
        "appended": write(folder, "appended", code, bytes(-len(code) % 4096), data, trailer),
    }
    peaks = {}
    for name, path in files.items():
        status, out = run(program, path, *arguments)
        if status != 0 or out[-8:] != want:
            fail(f"{name}: exit code {status}, {out[-8:]}")
        peaks[name] = peak_bytes(program, path)
    for name in ("beside", "appended"):
        if peaks[name] > peaks["shifted"] - (12 << 20):
            fail(f"{name}: {peaks[name]} bytes resident, with a copy {peaks['shifted']}")
    for mode in ("--memory", "--guard"):
        for name, path in files.items():
            if run(program, path, mode)[0] not in (0, 2):
                fail(f"{mode}, {name}")
    middle = len(data) // 2
    damaged = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]
    gap = data[:30] + b"\x01" + data[31:]
    for name, parts in {"damaged": (damaged, trailer), "gap": (gap, trailer),
                        "short": (data[:-5000], trailer), "cut": (data,)}.items():
        status = run(program, write(folder, name, *parts), *arguments)[0]
        if status != 2:
            fail(f"{name}: exit code {status} instead of 2")


EXPECTED_HASH = 0xC526CC9FD3667219  # as in paged/model.c

if __name__ == "__main__":
    main()
