#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of generated programs, on the hand-written models of this folder.

Usage: cli_test.py BUILD_DIR   (which holds the programs; CMakeLists.txt names them)

Needs nothing but Python's standard library. Every error message is checked for its exit code and
for the words that tell the user what to do.
"""

import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

BUILD = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "."


def program(name):
    return os.path.join(BUILD, name)


def run(name, *arguments, code=0, stdin=None):
    done = subprocess.run(
        [program(name), *arguments], input=stdin, capture_output=True, check=False
    )
    text = f"{name} {arguments}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, text
    return done


def stderr(*arguments, **options):
    return run(*arguments, **options).stderr.decode()


def npy(descr, shape, data, fortran=False, version=1):
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}"
    size = 10 if version == 1 else 12
    text += " " * (-(size + len(text) + 1) % 64) + "\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


def read_npy(data):
    assert data[:8] == b"\x93NUMPY\x01\x00", data[:8]
    (length,) = struct.unpack("<H", data[8:10])
    assert (10 + length) % 64 == 0
    header = eval(data[10 : 10 + length].decode())  # what numpy.load does, in essence
    return header["descr"], header["shape"], data[10 + length :]


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def tensor(name, kind, dims, raw=None, typed=None):
    out = b"".join(varint(1 << 3) + varint(dim) for dim in dims) + varint(2 << 3) + varint(kind)
    if name:
        out += field(8, name.encode())
    if raw is not None:
        out += field(9, raw)
    return out + (field(*typed) if typed else b"")


F32 = struct.pack("<6f", 0, 1, 2, 3, 4, 5)
X = struct.pack("<16f", *[(i * 7 % 11) * 0.25 - 1 for i in range(16)])
PICK = struct.pack("<3q", 0, 3, -1)


def expected(x=X, pick=PICK):
    """relu(x W + 0.5), gathered; every number here is exact in binary."""
    x, pick = struct.unpack("<16f", x), struct.unpack("<3q", pick)
    weights = [[(k - 3) * 0.25 + j * 0.125 for j in range(4)] for k in range(8)]
    y, label = [], []
    for i in range(2):
        row = [
            max(0.0, 0.5 + sum(x[i * 8 + k] * weights[k][j] for k in range(8))) for j in range(4)
        ]
        y += [row[p] for p in pick]
        label.append(row.index(max(row)))
    return struct.pack("<6f", *y), struct.pack("<2q", *label)


# name -> (numpy's code, bytes of one element in .npy, ONNX type, bytes of one element in .pb)
TYPES = {
    "f32": ("<f4", 4, 1),
    "u8": ("|u1", 1, 2),
    "i8": ("|i1", 1, 3),
    "u16": ("<u2", 2, 4),
    "i16": ("<i2", 2, 5),
    "i32": ("<i4", 4, 6),
    "i64": ("<i8", 8, 7),
    "bool": ("|b1", 1, 9),
    "f16": ("<f2", 2, 10),
    "f64": ("<f8", 8, 11),
    "u32": ("<u4", 4, 12),
    "u64": ("<u8", 8, 13),
    "bf16": ("<V2", 2, 16),
    "f8e4m3fn": ("|V1", 1, 17),
    "f8e4m3fnuz": ("|V1", 1, 18),
    "f8e5m2": ("|V1", 1, 19),
    "f8e5m2fnuz": ("|V1", 1, 20),
    "u4": ("|u1", 1, 21),
    "i4": ("|i1", 1, 22),
    "f4e2m1": ("|V1", 1, 23),
    "f8e8m0": ("|V1", 1, 24),
    "u2": ("|u1", 1, 25),
    "i2": ("|i1", 1, 26),
    "f6e2m3": ("|V1", 1, 27),
    "f6e3m2": ("|V1", 1, 28),
}


def sample(name):
    """Six elements as .npy holds them."""
    if name == "bool":
        return bytes([1, 0, 1, 1, 0, 0])
    if name == "u4":
        return bytes([1, 15, 0, 7, 8, 3])
    if name == "i4":
        return struct.pack("6b", 1, -8, 7, -1, 0, 3)
    if name == "f4e2m1":
        return bytes([1, 15, 0, 7, 8, 3])
    if name in ("f6e2m3", "f6e3m2"):
        return bytes([1, 63, 0, 31, 32, 13])
    if name == "u2":
        return bytes([1, 3, 0, 2, 2, 3])
    if name == "i2":
        return struct.pack("6b", 1, -2, 0, -1, 1, -2)
    return bytes((i * 29 + 3) % 127 for i in range(6 * TYPES[name][1]))


def packed(name):
    """The same as ONNX's raw_data holds them: those below 8 bits side by side."""
    bits = {"u4": 4, "i4": 4, "f4e2m1": 4, "u2": 2, "i2": 2, "f6e2m3": 6, "f6e3m2": 6}.get(name)
    if bits is None:
        return sample(name)
    number = sum((x & (1 << bits) - 1) << i * bits for i, x in enumerate(sample(name)))
    return number.to_bytes(-(-6 * bits // 8), "little")


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.before = os.getcwd()
        os.chdir(self.folder)

    def tearDown(self):
        os.chdir(self.before)
        shutil.rmtree(self.folder)

    def put(self, path, data):
        if os.path.dirname(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        return path

    def get(self, path):
        with open(path, "rb") as file:
            return file.read()

    def tiny_inputs(self):
        self.put("x.npy", npy("<f4", (2, 8), X))
        self.put("pick.npy", npy("<i8", (3,), PICK))
        return ["--input", "x=x.npy", "--input", "pick=pick.npy"]


class Runs(Folder):
    def test_outputs_in_a_folder(self):
        run("tiny", *self.tiny_inputs(), "--output-dir", "out")
        y, label = expected()
        self.assertEqual(read_npy(self.get("out/y.npy")), ("<f4", (2, 3), y))
        self.assertEqual(read_npy(self.get("out/label.npy")), ("<i8", (2,), label))
        self.assertEqual(sorted(os.listdir("out")), ["label.npy", "y.npy"])

    def test_outputs_as_npz(self):
        run("tiny", *self.tiny_inputs(), "--output-npz", "out.npz")
        with zipfile.ZipFile("out.npz") as archive:
            self.assertIsNone(archive.testzip())
            self.assertEqual(archive.namelist(), ["y.npy", "label.npy"])
            self.assertEqual(read_npy(archive.read("y.npy"))[2], expected()[0])

    def test_standard_streams(self):
        inputs = self.tiny_inputs()
        done = run(
            "tiny", "--input", "x=-", *inputs[2:], "--output=y=-", stdin=npy("<f4", (2, 8), X)
        )
        self.assertEqual(read_npy(done.stdout)[2], expected()[0])
        done = run("tiny", *inputs, "--output-npz", "-")
        self.assertEqual(
            read_npy(zipfile.ZipFile(io.BytesIO(done.stdout)).read("y.npy"))[1], (2, 3)
        )
        self.assertIn("only one", stderr("tiny", "--input", "x=-", "--input", "pick=-", code=1))
        run("tiny", *inputs, "--output", "y=-", "--print", code=1)

    def test_device_is_written_in_place(self):
        run("tiny", *self.tiny_inputs(), "--output", "y=/dev/null", "--output-npz", "/dev/null")
        self.assertTrue(os.path.exists("/dev/null"))

    def test_existing_output_is_replaced(self):
        self.put("y.npy", b"old")
        run("tiny", *self.tiny_inputs(), "--output", "y=y.npy")
        self.assertEqual(read_npy(self.get("y.npy"))[2], expected()[0])

    def test_print_and_random(self):
        done = run("tiny", *self.tiny_inputs(), "--print")
        self.assertIn(b"y  float32 [2,3]", done.stdout)
        first = run("types", "--random", "5").stdout
        self.assertEqual(first, run("types", "--random", "5").stdout)
        self.assertNotEqual(first, run("types", "--random", "6").stdout)

    def test_version_and_help(self):
        text = run("tiny", "--version").stdout.decode()
        self.assertIn("model sha256:   1234" + "0" * 60, text)
        self.assertIn("plan sha256:    5678" + "0" * 60, text)
        text = run("tiny", "--help").stdout.decode()
        for word in ("--guard", "x ", "float32 [2,8]", "Exit codes"):
            self.assertIn(word, text)
        long = [line for line in text.split("\n") if len(line.replace(program("tiny"), "")) > 80]
        self.assertEqual(long, [])

    def test_index_out_of_range(self):
        inputs = self.tiny_inputs()
        self.put("pick.npy", npy("<i8", (3,), struct.pack("<3q", 0, 4, -5)))
        text = stderr("tiny", *inputs, "--output", "y=y.npy", code=2)
        self.assertIn("select met the index 4, valid are -4 to 3", text)
        clamped = expected(pick=struct.pack("<3q", 0, 3, 0))[0]
        self.assertEqual(read_npy(self.get("y.npy"))[2], clamped)

    def test_usage(self):
        inputs = self.tiny_inputs()
        for arguments, words in (
            (["--frobnicate"], "unknown argument"),
            (["--input"], "needs a value"),
            (["--bench=1"], "takes no value"),
            (["--input", "z=x.npy"], "no such name"),
            (["--input", "x"], "expected NAME=FILE"),
            ([*inputs, "--input", "x=x.npy"], "given twice"),
            (inputs[:2], "pick  int64 [3]"),
            (["--random", "-1"], "whole number"),
            (["--random", "1x"], "whole number"),
            (["--bench", "--guard"], "exclude each other"),
            (["--bench", "--output-dir", "d"], "plain run"),
            (["--profile"], "--bench"),
            (["--norm"], "--test-data"),
            (["--json", "f", "--random", "1"], "--json goes with"),
            (["--test-data", ".", "--random", "1"], "its own inputs"),
            (["--rtol", "nan", "--test-data", "."], "number"),
        ):
            self.assertIn(words, stderr("tiny", *arguments, code=1))

    def test_errors_of_files(self):
        x = self.tiny_inputs()[2:]
        self.assertIn("cannot open", stderr("tiny", "--input", "x=no.npy", *x, code=5))
        self.assertIn("not a file", stderr("tiny", "--input", "x=.", *x, code=5))
        self.put("plain", b"")
        inputs = self.tiny_inputs()
        self.assertIn("directory", stderr("tiny", *inputs, "--output-dir", "plain", code=5))
        self.assertIn("cannot write", stderr("tiny", *inputs, "--output", "y=no/y.npy", code=5))
        self.assertFalse([name for name in os.listdir(".") if name.endswith(".tmp")])
        os.symlink("plain", "link")
        stderr("tiny", *inputs, "--output", "y=link", code=0)
        self.assertTrue(os.path.islink("link") and os.path.getsize("plain") > 0)
        os.symlink("/proc/self/fd/1", "stdout")
        self.assertEqual(run("tiny", *inputs, "--output", "y=stdout").stdout[:6], b"\x93NUMPY")
        with tempfile.TemporaryFile() as nameless:
            command = [program("tiny"), *inputs, "--output", "y=stdout"]
            subprocess.run(command, stdout=nameless, check=True)
            nameless.seek(0)
            self.assertEqual(nameless.read(6), b"\x93NUMPY")
        self.assertTrue(os.path.islink("stdout"))
        if os.path.exists("/dev/full"):
            self.assertIn(
                "cannot write", stderr("tiny", *inputs, "--output", "y=/dev/full", code=5)
            )

    def test_processor(self):
        self.assertIn("newer", stderr("types_isa", "--version", code=3))


class Types(Folder):
    def test_every_type_as_npy_and_npz(self):
        arguments = []
        for name, (descr, size, _) in TYPES.items():
            self.put(f"{name}.npy", npy(descr, (2, 3), sample(name)))
            arguments += ["--input", f"{name}={name}.npy"]
        run("types", *arguments, "--random", "1", "--output-dir", "out", "--output-npz", "out.npz")
        with zipfile.ZipFile("out.npz") as archive:
            for name, (descr, _, _) in TYPES.items():
                want = (descr, (2, 3), sample(name))
                self.assertEqual(read_npy(self.get(f"out/{name}.npy")), want)
                self.assertEqual(read_npy(archive.read(f"{name}.npy")), want)

    def test_names_of_outputs(self):
        run("types", "--random", "1", "--output-dir", "out")
        files = sorted(os.listdir("out"))
        self.assertEqual(len(files), len(TYPES) + 4)
        self.assertIn(f"_._up___+{len(TYPES)}.npy", files)
        self.assertIn(f"_._UP___+{len(TYPES) + 1}.npy", files)

    def test_names_with_equals(self):
        self.put("a.npy", npy("<f4", (2, 3), F32))
        self.put("y=b.npy", npy("<f4", (2, 3), F32[::-1]))
        run("types", "--input", "x=y=a.npy", "--random", "1", "--output", '../UP\\"\n=o.npy')
        self.assertEqual(read_npy(self.get("o.npy"))[2], F32)

    def test_byte_order_and_fortran_order(self):
        big = struct.pack(">6f", 0, 3, 1, 4, 2, 5)
        self.put("a.npy", npy(">f4", (2, 3), big, fortran=True))
        self.put("b.npy", npy("<i4", (2, 3), struct.pack("<6i", *range(6)), version=2))
        self.put("c.npy", npy("=f8", (2, 3), struct.pack("=6d", *range(6)), version=3))
        run(
            "types",
            "--input",
            "f32=a.npy",
            "--input",
            "i32=b.npy",
            "--input",
            "f64=c.npy",
            "--random",
            "1",
            "--output-dir",
            "out",
        )
        nibbles = bytes([1, 4, 2, 5, 3, 6])
        self.put("d.npy", npy("|u1", (2, 3), nibbles, fortran=True))
        run("types", "--input", "u4=d.npy", "--random", "1", "--output", "u4=u4.npy")
        self.assertEqual(read_npy(self.get("u4.npy"))[2], bytes([1, 2, 3, 4, 5, 6]))
        self.assertEqual(read_npy(self.get("out/f32.npy"))[2], F32)
        self.assertEqual(read_npy(self.get("out/i32.npy"))[2], struct.pack("<6i", *range(6)))
        self.assertEqual(read_npy(self.get("out/f64.npy"))[2], struct.pack("<6d", *range(6)))

    def test_opaque_types(self):
        self.put("a.npy", npy("<u2", (2, 3), sample("u16")))
        self.put("b.npy", npy("|V1", (2, 3), sample("u4")))
        self.put("c.npy", npy("<f1", (2, 3), sample("u8")))
        run(
            "types",
            "--input",
            "bf16=a.npy",
            "--input",
            "u4=b.npy",
            "--input",
            "f8e5m2=c.npy",
            "--random",
            "1",
            "--output-dir",
            "out",
        )
        self.assertEqual(read_npy(self.get("out/f8e5m2.npy"))[2], sample("u8"))
        self.assertEqual(read_npy(self.get("out/bf16.npy"))[2], sample("u16"))
        self.assertEqual(read_npy(self.get("out/u4.npy"))[2], sample("u4"))

    def test_odd_shapes(self):
        self.put("s.npy", npy("<f4", (), struct.pack("<f", 2.5)))
        self.put("e.npy", npy("<i8", (0, 3), b""))
        run(
            "types",
            "--input",
            "scalar=s.npy",
            "--input",
            "empty=e.npy",
            "--random",
            "1",
            "--output-dir",
            "out",
        )
        self.assertEqual(read_npy(self.get("out/scalar.npy")), ("<f4", (), struct.pack("<f", 2.5)))
        self.assertEqual(read_npy(self.get("out/empty.npy")), ("<i8", (0, 3), b""))

    def test_wrong_type_and_shape(self):
        for data, words in (
            (npy("<f8", (2, 3), F32 * 2), "needs float32 [2,3], this file holds float64"),
            (npy("<f8", (2, 3), F32 * 2), "astype('float32')"),
            (npy("<f4", (3, 2), F32), "holds float32 [3,2]; reshape"),
            (npy("<f4", (6,), F32), "holds float32 [6]"),
            (npy("<f4", (2, 3), F32[:-1]), "cut short: 23 of 24 bytes"),
            (npy("<U4", (2, 3), F32), "<U4"),
            (b"\x93NUMPY\x04\x00" + bytes(60), "version 1 to 3"),
            (b"\x93NUMPY\x01\x00\xff\x00{'descr'", "ends inside its header"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + bytes(60), "absurd"),
            (npy("<f4", (2, 3), F32).replace(b"'shape': (2", b"'shape': (-"), "plain array"),
            (npy("<f4", (2, 3), F32).replace(b"fortran", b"FORTRAN"), "plain array"),
        ):
            self.put("a.npy", data)
            text = stderr("types", "--input", "f32=a.npy", "--random", "1", code=2)
            self.assertIn(words, text)
            self.assertIn("a.npy", text)
        self.put("a.npy", npy("<f4", (2, 3), F32[:-1]))
        text = stderr("types", "--input", "f32=-", "--random", "1", code=2, stdin=self.get("a.npy"))
        self.assertIn("standard input: is cut short", text)


class Npz(Folder):
    def zipped(self, path, entries, method=zipfile.ZIP_STORED, wide=False):
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, data in entries.items():
                with archive.open(name, "w", force_zip64=wide) as entry:
                    entry.write(data)

    def check(self, text):
        run("types", "--input", f"f32={text}", "--random", "1", "--output", "f32=o.npy")
        self.assertEqual(read_npy(self.get("o.npy"))[2], F32)

    def test_entries(self):
        good, other = npy("<f4", (2, 3), F32), npy("<i4", (1,), b"1234")
        for wide in (False, True):
            self.zipped("one.npz", {"data.npy": good}, wide=wide)
            self.zipped("two.npz", {"other.npy": other, "f32.npy": good}, wide=wide)
            self.zipped("plain.npz", {"f32": good, "z": other}, wide=wide)
            for text in ("one.npz", "two.npz", "two.npz:f32", "plain.npz", "one.npz:data"):
                self.check(text)
        self.put("with:colon.npz", self.get("one.npz"))
        self.check("with:colon.npz")
        with open("one.npz", "ab") as file:
            file.write(b"")
        with zipfile.ZipFile("one.npz", "a") as archive:
            archive.comment = b"x" * 3000
        self.check("one.npz")

    def test_failures(self):
        good, other = npy("<f4", (2, 3), F32), npy("<i4", (1,), b"1234")
        self.zipped("packed.npz", {"f32.npy": good}, zipfile.ZIP_DEFLATED)
        self.zipped("two.npz", {"a.npy": other, "b\n.npy": other})
        self.put("cut.npz", self.get("two.npz")[:-30])
        self.zipped("good.npz", {"f32.npy": good})
        self.put("bad.npz", self.get("good.npz").replace(F32, F32[:-1] + b"?"))
        for text, code, words in (
            ("packed.npz", 3, "numpy.savez, not numpy.savez_compressed"),
            ("two.npz", 2, "no entry 'f32'; it holds: a.npy, b\\x0a.npy"),
            ("two.npz:c", 2, "no entry 'c'"),
            ("two.npz:a", 2, "this file holds int32"),
            ("cut.npz", 2, "no directory"),
            ("bad.npz", 2, "checksum"),
        ):
            self.assertIn(
                words, stderr("types", "--input", f"f32={text}", "--random", "1", code=code)
            )
        self.put("a.npy", good)
        text = stderr("types", "--input", "f32=a.npy:key", "--random", "1", code=2)
        self.assertIn("only a .npz file has entries", text)


class Protobuf(Folder):
    def check(self, name, data, want):
        self.put("t.pb", data)
        run("types", "--input", f"{name}=t.pb", "--random", "1", "--output", f"{name}=o.npy")
        self.assertEqual(read_npy(self.get("o.npy"))[2], want)

    def test_raw_data(self):
        for name, (_, _, kind) in TYPES.items():
            self.check(name, tensor(name, kind, (2, 3), packed(name)), sample(name))

    def test_typed_data(self):
        numbers = [1, 2, 3, 250, 5, 6]
        packed = b"".join(map(varint, numbers))
        self.check("f32", tensor("", 1, (2, 3), typed=(4, F32)), F32)
        self.check(
            "f64",
            tensor("", 11, (2, 3), typed=(10, struct.pack("<6d", *numbers))),
            struct.pack("<6d", *numbers),
        )
        for name, kind, code, where in (
            ("u8", 2, "B", 5),
            ("u16", 4, "H", 5),
            ("i32", 6, "i", 5),
            ("i64", 7, "q", 7),
            ("u32", 12, "I", 11),
            ("u64", 13, "Q", 11),
            ("f16", 10, "H", 5),
            ("bf16", 16, "H", 5),
        ):
            data = tensor(name, kind, (2, 3), typed=(where, packed))
            self.check(name, data, struct.pack(f"<6{code}", *numbers))
        negative = b"".join(varint((-n) % 2**64) for n in range(6))
        self.check(
            "i8", tensor("", 3, (2, 3), typed=(5, negative)), struct.pack("6b", *range(0, -6, -1))
        )
        self.check(
            "i64", tensor("", 7, (2, 3), typed=(7, negative)), struct.pack("<6q", *range(0, -6, -1))
        )
        single = tensor("", 1, (2, 3)) + b"".join(
            varint(4 << 3 | 5) + F32[i * 4 : i * 4 + 4] for i in range(6)
        )
        self.check("f32", single, F32)
        for name, kind in (("bf16", 4), ("f8e5m2", 2)):  # as ONNX 1.12 stored what numpy lacks
            self.check(name, tensor(name, kind, (2, 3), sample(name)), sample(name))
        dims = field(1, varint(2) + varint(3))
        self.check("f32", varint(2 << 3) + varint(1) + field(9, F32) + dims, F32)

    def test_failures(self):
        for data, code, words in (
            (tensor("", 11, (2, 3), F32 * 2), 2, "holds float64 [2,3]"),
            (tensor("", 1, (3, 2), F32), 2, "holds float32 [3,2]"),
            (tensor("", 1, (2, 3), F32[:-1]), 2, "do not fill"),
            (tensor("", 1, (2, 3), typed=(4, F32[:-4])), 2, "do not fill"),
            (tensor("", 1, (2, 3), typed=(4, F32 + b"1234")), 2, "do not fill"),
            (tensor("", 8, (2, 3), F32), 2, "unknown type"),
            (tensor("", 1, (2, 3), F32) + b"\xff", 2, "bad bytes at offset"),
            (tensor("", 1, [1] * 40, F32), 3, "too many dimensions"),
            (tensor("", 1, (2, 3)) + field(13, b""), 3, "external data"),
            (b"", 2, "no ONNX tensor"),
        ):
            self.put("t.pb", data)
            self.assertIn(words, stderr("types", "--input", "f32=t.pb", "--random", "1", code=code))


class TestData(Folder):
    def make(self, folder, names=("x", "pick"), y=None, outputs=("y", "label")):
        want_y, want_label = expected()
        self.put(f"{folder}/input_0.pb", tensor(names[0], 1, (2, 8), X))
        self.put(f"{folder}/input_1.pb", tensor(names[1], 7, (3,), PICK))
        self.put(f"{folder}/output_0.pb", tensor(outputs[0], 1, (2, 3), want_y if y is None else y))
        self.put(f"{folder}/output_1.pb", tensor(outputs[1], 7, (2,), want_label))

    def test_sets(self):
        self.make("a/test_data_set_0")
        self.make("a/test_data_set_1", names=("", ""), outputs=("p", "q"))
        self.assertEqual(run("tiny", "--test-data", "a").stdout.count(b": ok"), 4)
        run("tiny", "--test-data", "a/test_data_set_0")
        done = run("tiny", "--test-data", "a", "--json", "-")
        report = json.loads(done.stdout)
        self.assertEqual((report["sets"], report["failed_sets"], report["elements"]), (2, 0, 16))

    def test_by_name_in_another_order(self):
        self.make("a")
        os.rename("a/input_0.pb", "a/t")
        os.rename("a/input_1.pb", "a/input_0.pb")
        os.rename("a/t", "a/input_1.pb")
        self.put("a/input_2.pb", tensor("fixed_at_compile_time", 7, (3,), PICK))
        run("tiny", "--test-data", "a")

    def test_mismatch(self):
        y = list(struct.unpack("<6f", expected()[0]))
        near = struct.pack("<6f", *[v * 1.0005 for v in y])
        far = struct.pack("<6f", *y[:-1], y[-1] + 1)
        self.make("a", y=near)
        run("tiny", "--test-data", "a")
        run("tiny", "--test-data", "a", "--rtol", "1e-4", code=6)
        self.make("b/test_data_set_0", y=far)
        self.make("b/test_data_set_1")
        done = run("tiny", "--test-data", "b", code=6)
        self.assertIn(b"MISMATCH in 1 of 6 elements, first [5]", done.stdout)
        self.assertIn(b"1 of 2 test data sets differ", done.stderr)
        self.make("c", y=struct.pack("<6f", *y[:-1], float("nan")))
        run("tiny", "--test-data", "c", code=6)

    def test_single_steps(self):
        """One element of each type is a step away, or two steps."""
        kinds = [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 1, 1]
        sizes = [24, 6, 6, 12, 12, 24, 48, 6, 12, 48, 24, 48, 12, 6, 6, 6, 6, 3, 3, 3, 6, 2, 2, 5, 5, 24, 24]

        def make(kind, apart):
            for i, (each, size) in enumerate(zip(kinds, sizes)):
                zeros = bytes(size)
                other = bytes([apart]) + zeros[1:] if each == kind else zeros
                self.put(f"s/input_{i}.pb", tensor("", each, (2, 3), zeros))
                self.put(f"s/output_{i}.pb", tensor("", each, (2, 3), other))
            for part in ("input", "output"):
                self.put(f"s/{part}_{len(kinds)}.pb", tensor("", 1, (), bytes(4)))
                self.put(f"s/{part}_{len(kinds) + 1}.pb", tensor("", 7, (0, 3), b""))

        for kind in (2, 3, 4, 5):
            make(kind, 1)
            text = run("types", "--test-data", "s", "--step-limit", "0.2").stdout
            self.assertIn(b"ok by steps; 1 of 6 elements one step away, first [0]", text)
            run("types", "--test-data", "s", "--step-limit", "0.1", code=6)
            run("types", "--test-data", "s", code=6)
            make(kind, 2)
            text = run("types", "--test-data", "s", "--step-limit", "0.2", code=6).stdout
            self.assertRegex(text, rb"largest difference 2 steps of (255|65535): MISMATCH")
            steps = ("--step-limit", "0.2", "--steps", "2")
            text = run("types", "--test-data", "s", *steps).stdout
            self.assertIn(b"ok by steps; 1 of 6 elements steps away, first [0]", text)
        for kind in (6, 7, 9, 12, 13):
            make(kind, 1)
            run("types", "--test-data", "s", "--step-limit", "1", code=6)
        run("types", "--random", "1", "--step-limit", "1", code=1)

    def test_near_zero_by_norm(self):
        y = list(struct.unpack("<6f", expected()[0]))
        at = y.index(max(y))
        near = y[:at] + [y[at] * 1.00002] + y[at + 1 :]
        self.make("a", y=struct.pack("<6f", *near))
        strict = ("--rtol", "1e-6", "--test-data", "a")
        text = run("tiny", *strict, "--norm").stdout.decode()
        self.assertIn("ok by norm; 1 of 6 elements beyond rtol and atol", text)
        self.assertRegex(text, "max abs error [^,]*, max rel error [^,]*, norm error [0-9.e-]+: ok")
        report = json.loads(run("tiny", *strict, "--norm", "--json", "-").stdout)
        run("tiny", *strict, "--norm-limit", "1e-4")
        run("tiny", *strict, "--norm-limit=1e-30", code=6)
        run("tiny", *strict, "--norm-limit=1e-4,1e-30")
        run("tiny", *strict, "--norm-limit=1e-30,1", code=6)
        run("tiny", *strict, "--norm-limit=1e-4,", code=1)
        self.assertEqual((report["mismatches"], report["elements_beyond_tolerance"]), (0, 1))
        self.assertLess(report["max_norm_error"], 1e-4)
        text = run("tiny", *strict, code=6).stdout.decode()
        got, want = text.split("got ")[1].split("\n")[0].split(", want ")
        self.assertNotEqual(got, want)
        for special in ("nan", "inf", "-inf"):
            self.make("b", y=struct.pack("<6f", *y[:-1], float(special)))
            text = run("tiny", "--test-data", "b", "--norm", code=6).stdout.decode()
            self.assertIn("norm error inf: MISMATCH in 1 of 6", text)
        self.make("c")
        label = list(struct.unpack("<2q", expected()[1]))
        self.put(
            "c/output_1.pb", tensor("label", 7, (2,), struct.pack("<2q", label[0], label[1] + 1))
        )
        text = run("tiny", "--test-data", "c", code=6).stdout.decode()
        self.assertIn("label: max abs error 1: MISMATCH in 1 of 2", text)

    def test_equal_nan_and_infinity(self):
        special = struct.pack("<6f", float("nan"), float("inf"), float("-inf"), 0, 1, 2)
        for name, (_, _, kind) in TYPES.items():
            raw = special if name == "f32" else packed(name)
            index = list(TYPES).index(name)
            self.put(f"a/input_{index}.pb", tensor(name, kind, (2, 3), raw))
            self.put(f"a/output_{index}.pb", tensor(name, kind, (2, 3), raw))
        for index, (name, kind, dims, raw) in enumerate(
            [
                ("x", 1, (2, 3), F32),
                ("x=y", 1, (2, 3), F32),
                ("scalar", 1, (), F32[:4]),
                ("empty", 7, (0, 3), b""),
            ]
        ):
            self.put(f"a/input_{index + len(TYPES)}.pb", tensor(name, kind, dims, raw))
            self.put(f"a/output_{index + len(TYPES)}.pb", tensor("", kind, dims, raw))
        run("types", "--test-data", "a")

    def test_bad_folders(self):
        self.assertIn("holds neither", stderr("tiny", "--test-data", ".", code=5))
        run("tiny", "--test-data", "no", code=5)
        self.make("a")
        os.remove("a/input_1.pb")
        self.assertIn("1 files input_*.pb", stderr("tiny", "--test-data", "a", code=2))
        self.make("b")
        self.put("b/input_0.pb", b"\xff\xff")
        run("tiny", "--test-data", "b", code=2)
        self.make("c")
        self.put("c/output_0.pb", tensor("y", 1, (3, 2), F32))
        run("tiny", "--test-data", "c", code=6)


class Weights(Folder):
    def test_beside_and_by_option(self):
        bare = program("tiny_bare")
        with open(program("tiny.weights"), "rb") as file:
            weights = file.read()
        inputs = self.tiny_inputs()
        shutil.copy(bare, "bare")
        done = subprocess.run(["./bare", *inputs], capture_output=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"carries no weights", done.stderr)
        self.assertIn(b"--weights FILE", done.stderr)
        self.put("w", weights)
        subprocess.run(["./bare", *inputs, "--weights", "w"], capture_output=True, check=True)
        os.rename("w", "bare.weights")
        subprocess.run(["./bare", *inputs], capture_output=True, check=True)
        with open("bare", "ab") as file:
            file.write(weights)
        os.remove("bare.weights")
        subprocess.run(["./bare", *inputs], capture_output=True, check=True)

    def test_bad_files(self):
        inputs = self.tiny_inputs()
        with open(program("tiny.weights"), "rb") as file:
            weights = file.read()
        flipped = bytes([weights[0] ^ 1]) + weights[1:]
        other = weights[64:128] + weights[128:144] + struct.pack("<Q", 64) + weights[152:]
        for data, code, words in (
            (flipped, 2, "damaged or belong to another model"),
            (weights[1:], 2, "holds 127 bytes of weights, the model needs 128"),
            (other, 2, "holds 64 bytes of weights, the model needs 128"),
            (weights[:-1], 2, "no trailer"),
            (b"", 2, "no trailer"),
        ):
            self.put("w", data)
            self.assertIn(words, stderr("tiny", *inputs, "--weights", "w", code=code))
        self.assertIn("cannot open weights", stderr("tiny", *inputs, "--weights", "no", code=5))


class Checks(Folder):
    def test_memory(self):
        done = run("tiny", "--memory", *self.tiny_inputs())
        self.assertRegex(done.stdout.decode(), "\ntotal {36}352 {12}352 ")
        report = json.loads(run("tiny", "--memory", "--json", "-").stdout)
        self.assertEqual(report["predicted_bytes"], 352)
        self.assertEqual(report["reserved_bytes"], 352)
        self.assertEqual(report["unaccounted_bytes"], 0)
        self.assertEqual(
            report["rows"]["weights"],
            {"predicted_bytes": 144, "reserved_bytes": 144, "touched_bytes": 144},
        )
        self.assertEqual(
            sum(row["touched_bytes"] for row in report["rows"].values()), report["touched_bytes"]
        )
        self.assertEqual(
            " ".join(report["rows"]),
            "weights optimizer_state gradients activations_kept_for_backward other_activations "
            "scratch inputs outputs alignment holes unaccounted",
        )

    def test_memory_where_one_range_takes_over_another(self):
        run("loop", "--memory")
        report = json.loads(run("loop_peak", "--memory", "--json", "-").stdout)
        self.assertEqual(report["rows"]["activations_kept_for_backward"]["reserved_bytes"], 16)

    def test_peak_is_the_programs_own(self):
        """Not that of the process that starts it, here of 192 MiB."""
        ballast = bytearray(b"\1") * (192 << 20)
        report = json.loads(run("tiny", "--bench", "--iterations", "1", "--duration", "0", "--json", "-").stdout)
        text = run("tiny", "--memory").stdout.decode()
        said = re.search(r"peak resident .* = ([0-9]+) bytes", text)
        for peak in (report["peak_resident_bytes"], int(said[1])):
            self.assertTrue(0 < peak < 64 << 20, f"{peak} beside {len(ballast)}")

    def test_memory_errors(self):
        self.assertIn(
            "the row 'activations_kept_for_backward' is 0 bytes in the plan and 16",
            stderr("loop_rows", "--memory", code=6),
        )
        self.assertIn("bytes are not accounted for", stderr("loop_sum", "--memory", code=6))
        self.assertIn(
            "4 bytes outside of every live range were written, and 0 outside of the arena",
            stderr("loop_stray", "--memory", code=6),
        )
        self.assertIn(
            "0 bytes outside of every live range were written, and 4 outside of the arena",
            stderr("loop_beyond", "--memory", code=6),
        )

    def test_guard(self):
        for name in ("tiny", "loop", "types"):
            self.assertIn(b"none reads or writes outside", run(name, "--guard").stdout)
        report = json.loads(run("loop", "--guard", "--json", "-").stdout)
        self.assertEqual((report["clean"], report["steps_run"]), (True, 13))

    def test_guard_names_the_step(self):
        for name, words in (
            ("tiny_read", "step 2 select (select) read outside of its values"),
            ("tiny_live", "step 2 select (select) read outside of its values"),
            ("tiny_write", "step 2 select (select) wrote outside of its values: byte 216"),
            (
                "tiny_clobber",
                "step 2 select (select) wrote outside of its values: byte 0 of 'pick'",
            ),
            ("loop_read", "step 1 add_round (loop/t) read outside"),
            ("loop_write", "step 3 scan (loop) wrote outside of its values: byte 0 of 'sum'"),
            ("loop_stride", "step 6 odd (concat) wrote outside of its values: byte"),
            (
                "loop_stray",
                "step 6 odd (concat) wrote outside of its values: byte 304 of the arena",
            ),
            ("loop_beyond", "wrote outside of its values: outside of the arena, 1 bytes behind"),
        ):
            self.assertIn(words, stderr(name, "--guard", code=6))

    def test_bench(self):
        quick = ("--bench", "--warmup", "0", "--duration", "0.01", "--iterations", "3")
        text = run("tiny", *quick, "--profile", *self.tiny_inputs()).stdout.decode()
        for words in ("throughput", "p99", "median", "reserved    352 bytes", "process     ", "Gemm"):
            self.assertIn(words, text)
        self.assertIn("steps, by time (median of", text)
        self.assertNotIn("predicted", text)
        report = json.loads(run("loop", *quick, "--profile", "--json", "-").stdout)
        self.assertGreaterEqual(report["profiled_runs"], 3)
        self.assertGreaterEqual(report["runs"], 3)
        self.assertEqual(len(report["steps"]), 7)
        latency = report["latency_seconds"]
        order = [latency[key] for key in ("min", "median", "p90", "p95", "p99", "max")]
        self.assertEqual(order, sorted(order))
        self.assertEqual(
            json.loads(run("types", *quick, "--json", "-").stdout)["model"], 'types "quoted"\n'
        )

    def test_without_tables(self):
        inputs = self.tiny_inputs()
        run("tiny_no_tables", *inputs)
        for mode in (["--guard"], ["--memory"], ["--bench", "--profile"]):
            self.assertIn("-DUL_NO_TABLES", stderr("tiny_no_tables", *mode, code=3))
        self.put("pick.npy", npy("<i8", (3,), struct.pack("<3q", 9, 9, 9)))
        self.assertIn("step number 2", stderr("tiny_no_tables", *inputs, code=2))


if __name__ == "__main__":
    unittest.main()
