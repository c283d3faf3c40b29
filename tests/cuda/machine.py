# SPDX-License-Identifier: Apache-2.0
"""Machine code of kernels, for gates.py: compiled by nvcc, many in a file, and kept in a folder by
what it depends on, so that a run that was interrupted goes on and only what has changed is compiled.

An entry is named by the hash of the kernel's text, of the headers that it includes and what these
include of the runtime, of device, flags, nvcc's version and cuobjdump's. It holds what ptxas says
of the kernel and its listing: texts, from which gates.py draws its conclusions anew each time.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import zlib

BATCH = 40  # kernels of a file: what nvcc takes for headers is little then
FLAGS = ["-std=c++17", "-O3", "-cubin", "-Xptxas", "-v"]
# Beside what every kernel may use: headers of the runtime by what is named in them alone.
HEADERS = {"ul_attention.cuh": r"\bul_(attend|gradient)",
           "ul_attention_gradient.cuh": r"\bul_gradient",
           "ul_contract_bytes.cuh": r"\bul_\w*bytes",
           "ul_last.cuh": r"\bul_(arrive|is_last|item_of_group)\b",
           "ul_together.cuh": r"\bul_(meet|acquire|together)\b"}  # fmt: skip
OWN = re.compile(r"^static __global__ void (\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
ALWAYS = ["ul_contract.cuh", "ul_cuda.h", "ul_integer.h", "ul_kernel.cuh", "ul_random.h", "ul_small_float.h",
          "ul_team.cuh"]  # fmt: skip


class Failure(Exception):
    """A file that does not compile, or that cannot be read; the text is one line."""


def run(command, **more):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", check=False, **more)  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def by_entry(said, head, names):
    """{name: lines} of a text in which lines that match `head` say whose the lines after it are."""
    found, lines = {name: [] for name in names}, None
    for line in said.splitlines():
        match = re.search(head, line)
        if match:
            inner = [name for name in names if re.match(rf"_ZL?{len(name)}{name}", match[1])]
            lines = found[inner[0]] if inner else None
        if lines is not None:
            lines.append(line)
    return {name: "\n".join(lines) for name, lines in found.items()}


def headers_of(text):
    return [*ALWAYS, *(header for header, named in HEADERS.items() if re.search(named, text))]


class Machine:
    """nvcc and cuobjdump, the folder of the runtime's files, and the one of what is kept."""

    def __init__(self, nvcc, cuobjdump, runtime, cache):
        self.nvcc, self.cuobjdump, self.runtime, self.cache = nvcc, cuobjdump, runtime, cache
        path = os.path.dirname(cuobjdump) + os.pathsep + os.environ["PATH"]  # nvdisasm
        self.environment = {**os.environ, "PATH": path}
        self.version = "\n".join([*FLAGS, run([nvcc, "--version"])[1],
                                  run([cuobjdump, "--version"], env=self.environment)[1]])  # fmt: skip
        self.included = {}  # headers: the hash of all that they include

    def includes(self, headers):
        """Lines for those that some program had."""
        return [f'#include "{header}"\n' for header in headers
                if os.path.exists(os.path.join(self.runtime, header))]  # fmt: skip

    def include_hash(self, headers):
        key = " ".join(headers)
        if key not in self.included:
            path = os.path.join(self.runtime, "gates_headers.cu")
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(self.includes(headers))
            code, said = run([self.nvcc, "-std=c++17", "-MM", path])
            if code != 0:
                raise Failure(f"nvcc -MM: exit {code}: {said.strip()[-300:]}")
            digest = hashlib.sha256(key.encode())
            for name in sorted(set(re.findall(r"[^\s\\]*\bul_\w+\.\w+", said))):
                with open(os.path.join(self.runtime, os.path.basename(name)), "rb") as file:
                    digest.update(file.read())
            self.included[key] = digest.hexdigest()
        return self.included[key]

    def entry_path(self, arch, text, headers):
        key = "\n".join([self.version, arch, self.include_hash(headers), text])
        return os.path.join(self.cache, arch, hashlib.sha256(key.encode()).hexdigest())

    def read(self, path):
        """(what ptxas says, the listing) that is kept, or None."""
        try:
            with open(path, "rb") as file:
                return tuple(json.loads(zlib.decompress(file.read())))
        except (OSError, ValueError, zlib.error):
            return None

    def keep(self, path, entry):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "wb") as file:
            file.write(zlib.compress(json.dumps(entry).encode()))
        os.replace(f"{path}.{os.getpid()}", path)

    def compile(self, arch, source, names):
        """{kernel: (what ptxas says, its listing)} of a file in the runtime's folder."""
        binary = f"{source}.{arch}.cubin"
        code, said = run([self.nvcc, *FLAGS, f"-arch={arch}", source, "-o", binary])
        if code != 0:
            errors = [line for line in said.splitlines() if "error" in line or "fatal" in line]
            raise Failure(f"nvcc: exit {code}: " + "; ".join(errors[:3]))
        code, listing = run([self.cuobjdump, "-sass", binary], env=self.environment)
        os.remove(binary)
        if code != 0:
            raise Failure(f"cuobjdump: exit {code}: {listing[-500:]}")
        used = by_entry(said, r"Compiling entry function '(\w+)'", names)
        code = by_entry(listing, r"Function : (\w+)", names)
        return {name: (used[name], code[name]) for name in names}

    def compile_batch(self, arch, number, batch, headers):
        """Keeps and gives the entries of (path, text) of kernels, all named @_...."""
        source = os.path.join(self.runtime, f"gates_{arch}_{number}.cu")
        with open(source, "w", encoding="utf-8") as file:
            file.writelines(self.includes(headers))
            for at, (_, text) in enumerate(batch):
                text = text.replace("static __global__", "__global__", 1)
                file.write(text.replace("@_", f"g{at}k_"))
        names = [re.search(r" @(_\d+)\(", text)[1] for _, text in batch]
        names = [f"g{at}k{name}" for at, name in enumerate(names)]
        found = self.compile(arch, source, names)
        os.remove(source)
        for name, (path, _) in zip(names, batch, strict=True):
            self.keep(path, found[name])
        return [found[name] for name in names]

    def read_all(self, arch, texts, jobs):
        """Yields (text, entry or Failure), those that are kept first."""
        missing = {}
        for text in texts:
            headers = headers_of(text)
            path = self.entry_path(arch, text, headers)
            entry = self.read(path)
            if entry is not None:
                yield text, entry
            else:
                missing.setdefault(tuple(headers), []).append((path, text))
        batches = [(headers, these[at : at + BATCH]) for headers, these in sorted(missing.items())
                   for at in range(0, len(these), BATCH)]  # fmt: skip
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            running = [(batch, pool.submit(self.compile_batch, arch, number, batch, headers))
                       for number, (headers, batch) in enumerate(batches)]  # fmt: skip
            for batch, job in running:
                try:
                    entries = job.result()
                except Failure as failure:
                    entries = [failure] * len(batch)
                for (_, text), entry in zip(batch, entries, strict=True):
                    yield text, entry

    def read_file(self, arch, name):
        """Yields (kernel, text, entry) of the kernels in a file of the runtime's own."""
        source = os.path.join(self.runtime, name)
        with open(source, encoding="utf-8") as file:
            text = file.read()
        texts = {match[1]: match[0] for match in OWN.finditer(text)}
        if re.search(r"^UL_PROBE$", text, re.MULTILINE):
            texts["ul_probe"] = ""
        found = self.compile(arch, source, list(texts)) if texts else {}
        for name, entry in found.items():
            yield name, texts[name], entry
