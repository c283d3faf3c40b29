#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs whose model runs on a device, under tests/cuda_emulation: the hand-written model of this
folder, as a library (device_test.c) and as a command line, with seeded bugs, and on devices that
are missing, old, full or broken.

Usage: run.py WORK LIBRARY [--asan]   (WORK: a folder for what is built; LIBRARY: the runtime's C
files, built)
"""

import json
import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RUNTIME = os.path.join(ROOT, "runtime")
EMULATION = os.path.join(ROOT, "tests", "cuda_emulation")
NVCC = os.path.join(EMULATION, "nvcc")
WORK = os.path.abspath(sys.argv.pop(1))
LIBRARY = os.path.abspath(sys.argv.pop(1))
ASAN = "--asan" in sys.argv
if ASAN:
    sys.argv.remove("--asan")
    os.environ["UL_EMULATE_ASAN"] = "1"
os.environ.setdefault("UL_EMULATE_CACHE", os.path.join(WORK, "emulation"))
os.environ["UL_EMULATE_FREE_BYTES"] = str(96 << 20)
DEVICE = ["ul_cuda.cu", "ul_cuda_load.cu", "ul_cuda_run.cu", "ul_cuda_graph.cu", "ul_cuda_steps.cu"]
ARENA_BYTES = 512 + 4 * 2400000


def nvcc(*arguments):
    subprocess.run([NVCC, *arguments], cwd=WORK, check=True)


def compile_one(source, name, *flags):
    """The object file of a source, C99 or CUDA."""
    cuda = source.endswith(".cu")
    standard = (
        ["-std=c++17", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra"]
        if cuda
        else ["-Xcompiler", "-std=c99"]
    )
    rooms = [f"-I{RUNTIME}/{room}" for room in ("lib", "host", "cuda")]
    includes = [*rooms, f"-I{EMULATION}/include"]
    nvcc("-O0", "-g", *standard, *includes, *flags, "-c", source, "-o", name)
    return name


def build():
    device = [compile_one(os.path.join(RUNTIME, "cuda", name), name + ".o") for name in DEVICE]
    main = compile_one(os.path.join(HERE, "main.c"), "main.o")
    weights = compile_one(os.path.join(HERE, "make_weights.c"), "make_weights.o")
    nvcc("-o", "make_weights", weights)
    subprocess.run(["./make_weights", "weights.bin"], cwd=WORK, check=True)
    for name in ["", "CALLER", "LONG", "BUG_READ", "BUG_LIVE", "BUG_WRITE", "BUG_BEYOND"]:
        flags = [f"-DDEVICE_{name}"] if name else []
        model = compile_one(os.path.join(HERE, "model.c"), f"model{name}.o", *flags)
        kernels = compile_one(os.path.join(HERE, "kernels.cu"), f"kernels{name}.o", *flags)
        program = f"device{name}"
        nvcc("-o", program, main, model, kernels, *device, LIBRARY, "-lm")
        with open(os.path.join(WORK, program), "ab") as out:
            with open(os.path.join(WORK, "weights.bin"), "rb") as file:
                out.write(file.read())
        if name in ("", "CALLER"):
            test = compile_one(os.path.join(HERE, "device_test.c"), f"test{name}.o", *flags)
            nvcc("-o", f"library{name}", test, model, kernels, *device, "-lm")


def run(name, *arguments, code=0, **environment):
    done = subprocess.run(
        [os.path.join(WORK, name), *arguments],
        cwd=WORK,
        env={**os.environ, **{f"UL_EMULATE_{key}": value for key, value in environment.items()}},
        capture_output=True,
        text=True,
        check=False,
    )
    text = f"{name} {arguments} {environment}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.returncode == code, text
    return done


def as_json(name, *arguments, **environment):
    return json.loads(run(name, *arguments, "--json", "-", **environment).stdout)


class Library(unittest.TestCase):
    def test_library(self):
        log = os.path.join(WORK, "log")
        given = {"DEVICES": "2", "LOG": log, "GRAPH_BYTES": "65536"}
        for name in ["library", "libraryCALLER"]:
            for order in ["0", "1", "7"]:
                if os.path.exists(log):
                    os.remove(log)
                run(name, "weights.bin", ORDER=order, **given)
        run("libraryCALLER", "weights.bin", NO_PARAMS="1", **given)
        run("libraryCALLER", "weights.bin", NO_PARAMS="1", NO_UPDATE="1", **given)


class Modes(unittest.TestCase):
    def test_run(self):
        plain = run("device", "--random", "1").stdout
        self.assertIn("1.28052 -1.01559", plain)
        self.assertEqual(plain, run("deviceCALLER", "--random", "1").stdout)
        self.assertEqual(plain, run("deviceLONG", "--random", "1").stdout)
        self.assertEqual(plain, run("device", "--random", "1", CODE="80").stdout)

    def test_fault(self):
        done = run("device", "--random", "3", code=2)
        self.assertIn("step select met the index 9, valid are -4 to 3", done.stderr)
        self.assertIn("rows  float32 [3,4]", done.stdout)

    def test_version(self):
        text = run("device", "--version").stdout
        self.assertIn("for target cuda", text)
        self.assertRegex(text, r"built with: +CUDA 13\.0")

    def test_help(self):
        text = run("device", "--help").stdout
        self.assertIn("--device N", text)
        self.assertNotIn("--threads", text)
        self.assertIn("unknown argument", run("device", "--threads", "1", code=1).stderr)

    def test_memory(self):
        done = as_json("device", "--memory", "--iterations", "20")
        device = done["device"]
        self.assertEqual(done["reserved_bytes"], ARENA_BYTES)
        self.assertEqual(device["allocated_bytes"], ARENA_BYTES)
        self.assertGreaterEqual(device["granted_bytes"], ARENA_BYTES)
        self.assertEqual(device["free_bytes"], device["ready_free_bytes"])
        self.assertEqual(device["code_bytes"], 2 << 20)
        self.assertEqual(device["run_count"], 22)
        self.assertEqual(device["replay_count"], 22)
        self.assertEqual(done["unaccounted_bytes"], 0)
        self.assertEqual(done["stray_bytes"], 0)
        text = run("device", "--memory").stdout
        self.assertRegex(text, rf"arena, one allocation +{ARENA_BYTES}\n")
        self.assertIn("free bytes stayed the same over 5 runs: 3 (--iterations), 2 to find", text)
        self.assertIn("captured run, 11 launches", text)
        self.assertRegex(text, r"code and local memory +2097152\n")
        self.assertNotIn("resident after the runs", text)

    def test_too_long(self):
        done = as_json("deviceLONG", "--memory")
        self.assertEqual(done["device"]["replay_count"], 0)
        text = run("deviceLONG", "--memory").stdout
        self.assertIn("not captured: a run has more launches than a graph may have", text)

    def test_stray(self):
        error = run("deviceBUG_WRITE", "--memory", code=6).stderr
        self.assertIn("8 bytes outside of every live range were written", error)

    def test_guard(self):
        for name in ["device", "deviceCALLER", "deviceLONG"]:
            text = run(name, "--guard", "--random", "1").stdout
            self.assertIn("guard: ran 11 steps over each of two fill patterns; none", text)
        for name in ["deviceBUG_READ", "deviceBUG_LIVE"]:
            error = run(name, "--guard", code=6).stderr
            self.assertIn("step 1 select (select) read outside of its values", error)
        error = run("deviceBUG_WRITE", "--guard", code=6).stderr
        self.assertIn("step 5 row (loop/add) wrote outside of its values: byte 352", error)
        error = run("deviceBUG_BEYOND", "--guard", code=6).stderr
        self.assertIn("step 6 check (sum) wrote outside of its values: outside of the", error)

    def test_bench(self):
        for name in ["device", "deviceCALLER"]:
            arguments = ["--bench", "--random", "1", "--duration", "0.05", "--iterations", "12"]
            done = as_json(name, *arguments, "--profile")
            self.assertGreaterEqual(done["runs"], 12)
            for key in ["latency_seconds", "in_seconds", "out_seconds", "whole_seconds"]:
                self.assertGreater(done[key]["median"], 0.0)
            self.assertGreaterEqual(
                done["whole_seconds"]["median"], done["latency_seconds"]["median"]
            )
            device = done["device"]
            launched = done["profiled_runs"] + (name == "deviceCALLER")  # the first run
            self.assertEqual(device["run_count"] - device["replay_count"], launched)
            self.assertEqual(device["free_bytes"], device["ready_free_bytes"])
            self.assertEqual(len(done["steps"]), 7)
            self.assertEqual(done["steps"][0]["name"], "check")
        text = run("device", "--bench", "--random", "1", "--duration", "0.05").stdout
        self.assertRegex(text, r"host to device ms: min [\d.]+, median")
        self.assertRegex(text, r"replayed    (\d+) of \1 runs, 11 launches each")


class Devices(unittest.TestCase):
    def test_missing(self):
        for switch in ["NO_DEVICE", "NO_DRIVER"]:
            error = run("device", "--random", "1", code=3, **{switch: "1"}).stderr
            self.assertIn("no CUDA device was found", error)
            self.assertEqual(error.count("\n"), 1)

    def test_number(self):
        error = run("device", "--random", "1", "--device", "2", code=3, DEVICES="2").stderr
        self.assertIn("there is no device 2; this machine has 2, numbered from 0", error)
        text = run("device", "--memory", "--device", "1", DEVICES="2").stdout
        self.assertIn("memory of Emulated device 1 (device 1,", text)
        self.assertIn("whole number", run("device", "--device", "x", code=1).stderr)

    def test_old(self):
        error = run("device", "--random", "1", code=3, OLD_DEVICE="1").stderr
        self.assertIn("device 0 has compute capability 7.5, this program needs 8.0", error)
        error = run("device", "--random", "1", code=3, OLD_DRIVER="1").stderr
        self.assertRegex(error, r"is for CUDA 12\.\d+, this program was built with 13\.0")

    def test_full(self):
        error = run("device", "--random", "1", code=4, FREE_BYTES=str(8 << 20)).stderr
        self.assertRegex(error, rf"needs .* = {ARENA_BYTES} bytes of the device's memory, and .* = {8 << 20} bytes are")
        error = run("device", "--random", "1", code=4, FREE_BYTES="9700000").stderr
        self.assertIn(f"{ARENA_BYTES} bytes that the model needs in one piece, though", error)
        error = run("deviceCALLER", "--random", "1", code=4, FREE_BYTES=str(10 << 20)).stderr
        self.assertIn("needs 16 bytes of the device's memory, and 0 bytes are free", error)

    def test_broken_early(self):
        if not ASAN:
            error = run("device", "--memory", code=70, FAIL_KERNEL="k3").stderr
            self.assertRegex(error, r"the device failed: \w+")

    def test_broken(self):
        # After that error CUDA gives nothing back.
        if ASAN:
            os.environ["ASAN_OPTIONS"] = "detect_leaks=0"
            self.addCleanup(os.environ.pop, "ASAN_OPTIONS")
        error = run("device", "--random", "1", code=70, FAIL_KERNEL="k3").stderr
        self.assertRegex(error, r"the device failed: \w+")
        self.assertEqual(error.count("\n"), 1)

    def test_version_needs_none(self):
        run("device", "--version", NO_DRIVER="1")
        run("device", "--help", NO_DRIVER="1")


class Shared(unittest.TestCase):
    """NVML, where it loads, tells the context from what other programs hold."""

    def test_nvml(self):
        source = os.path.join(WORK, "nvml.c")
        with open(source, "w") as file:
            file.write(
                "struct memory { unsigned long long total, free, used; };\n"
                "static unsigned long long used = 1000;\n"
                "int nvmlInit_v2(void) { return 0; }\n"
                "int nvmlShutdown(void) { return 0; }\n"
                "int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)\n"
                "{ *device = (void *)bus; return 0; }\n"
                "int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)\n"
                "{ (void)device; used = used == 1000 ? 5000 : 123456; memory->used = used;"
                " return 0; }\n"
            )
        library = os.path.join(WORK, "libnvidia-ml.so.1")
        # Unloading would begin anew: the first call and the second differ.
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-Wl,-z,nodelete", "-o", library, source], check=True
        )
        environment = {**os.environ, "LD_LIBRARY_PATH": WORK}
        done = subprocess.run(
            [os.path.join(WORK, "device"), "--memory"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertRegex(done.stdout, re.compile(r"^  context +118456$", re.M))
        self.assertIn("context, and what other programs hold", run("device", "--memory").stdout)


if __name__ == "__main__":
    os.makedirs(WORK, exist_ok=True)
    build()
    unittest.main()
