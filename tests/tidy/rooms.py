#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes and calls between the rooms of a folder go down alone, and files do not call in circles.

usage: rooms.py BUILD_DIR: run in the root of the tree; nm says what the objects of BUILD_DIR define
and need, objdump what their code calls: a function in a table is not called by the table's file.
What is in a folder itself is above its rooms, but for headers that all of them include, and for those
rooms that name "." because they run the whole."""

import collections
import pathlib
import re
import subprocess
import sys

# A room may include and call what is in itself and in those named.
ROOMS = {
    "compile": {
        "options": "",
        "files": "",
        "pipeline": "files options",
        "search": "pipeline options",
        "sizes": "pipeline files options",
        "trials": ". search pipeline options",
        "quantize": ". pipeline files options",
        "measure": ". pipeline files",
        ".": "search sizes pipeline files options",
    },
    "passes": {
        "shared": "",
        "graph": "shared",
        "patterns": "shared",
        "integers": "graph shared",
        "training": "graph shared",
        "memory": "shared",
        ".": "shared graph patterns integers training memory",
    },
    "codegen": {
        "kernel": "",
        "program": "kernel",
        "emit": "program kernel",
        "c": "emit program kernel",
        "process": "program kernel",
        "cpu": "process program kernel",
        "device": "program kernel",
        "cuda": "device emit program kernel",
        ".": "kernel program emit c process cpu device cuda",
    },
    "ir": {
        "ops": ".",
        "ops/elementwise": ". ops",
        "ops/movement": ". ops",
        "ops/random": ". ops",
        "ops/reduce": ". ops",
        "ops/norm": ". ops ops/reduce",
        "ops/pool": ". ops ops/reduce",
        "ops/sort": ". ops",
        "ops/loss": ". ops",
        "ops/training": ". ops ops/random",
        "ops/signal": ". ops",
        "ops/conv": ". ops ops/quant",
        "ops/matmul": ". ops ops/conv",
        "ops/quant": ". ops ops/conv ops/matmul",
        "ops/rnn": ". ops",
        "ops/attention": ". ops ops/norm ops/random",
        "ops/control": ". ops",
        "ops/vision": ". ops",
        "ops/ml": ". ops",
        ".": "",
    },
    "planner": {
        "model": "",
        "pack": "model",
        "order": "model",
        "remat": "model order",
        "transfer": "model",
        "solve": "model pack order remat transfer",
    },
    "runtime": {"lib": "", "host": "lib", "cpu": "lib", "cuda": "lib"},
}
# Headers in the folder itself that all its rooms include; rows, which declare hooks, anyone may.
FACES = {
    "compile": "compile.h compile_internal.h",
    "passes": "passes.h passes_internal.h",
}
# The table of operators (op.c) knows the hooks of every family.
ROOMS["ir"]["."] = " ".join(room for room in ROOMS["ir"] if room != ".")
# Emitted programs consist of them: nothing here has all of their objects.
WITHOUT_OBJECTS = {"runtime"}
# Where the objects of a folder's files are, if not in the library of its name.
OBJECTS = {"cli": "cli/CMakeFiles/ullage.dir"}
# Folders without rooms, whose files do not call in circles either.
FLAT = ["base", "frontend", "report", "cli"]
# Circles that are one idea in several files. Goes when one of its files leaves it.
CIRCLES = {
    # a sum over lanes may be made from partial sums, each a sum over lanes
    "ir": ["ops/lanes.c ops/partials.c"],
    "passes": [
        # rows of text name steps in C, which are beside the rows
        "patterns/pattern_rows.c patterns/pattern_text.c",
    ],
    # nodes hold graphs, functions hold nodes, and old operators are built as nodes anew
    "frontend": [
        "attribute.c build.c describe.c function.c gradient.c inputs.c load.c old_emit.c"
        " old_node.c order.c record.c rows.c sequence.c sequence_graphs.c upgrade.c"
    ],
}


def read_calls(path):
    """The names that the code of an object refers to."""
    listing = subprocess.run(["objdump", "-r", path], capture_output=True, text=True, check=True)
    names, in_code = set(), False
    for line in listing.stdout.splitlines():
        words = line.split()
        if line.startswith("RELOCATION RECORDS FOR"):
            in_code = words[-1].startswith("[.text")
        elif in_code and len(words) == 3:
            names.add(re.split(r"[-+@]", words[2])[0])
    return names


def read_objects(build, folder):
    """By file: the names that it defines, those that it needs, and those that its code needs."""
    defined, needed, called = {}, collections.defaultdict(set), {}
    root = build / OBJECTS.get(folder, f"CMakeFiles/ul_{folder}.dir/{folder}")
    for path in sorted(root.rglob("*.o")):
        name = str(path.relative_to(root))[: -len(".o")]
        if not pathlib.Path(folder, name).exists():  # of an earlier build
            continue
        lines = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
        for line in lines.splitlines():
            words = line.split()
            if words[-2] in "TDRBC":
                defined[words[-1]] = name
            elif words[-2] == "U":
                needed[name].add(words[-1])
        called[name] = needed[name] & read_calls(path)
    return defined, needed, called


def find_circles(calls):
    """Sets of files that all reach each other, with the files that begin them."""

    def reach(start):
        seen, open_ = set(), [start]
        while open_:
            for name in calls[open_.pop()]:
                if name not in seen:
                    seen.add(name)
                    open_.append(name)
        return seen

    reached = {name: reach(name) for name in list(calls)}
    circles = {
        frozenset(b for b in reached[a] if a in reached.get(b, ()))
        for a in reached
        if a in reached[a]
    }
    return sorted(sorted(circle) for circle in circles)


def room_of(name):
    return str(pathlib.PurePath(name).parent)


def may_use(rooms, user, used):
    """Both by their paths in the folder."""
    here, there = room_of(user), room_of(used)
    return here == there or there in rooms.get(here, "").split()


def check_includes(folder, rooms):
    """A file is included by its path from the root, or, in runtime/, by its name alone."""
    files = [f for f in pathlib.Path(folder).rglob("*") if re.fullmatch(r"\.(c|h|cu|cuh)", f.suffix)]
    paths = {f.name: str(f.relative_to(folder)) for f in files}
    wrong = []
    for file in sorted(files):
        user = str(file.relative_to(folder))
        if room_of(user) not in rooms:
            wrong.append(f"{file} is in no room that is known")
            continue
        for name in re.findall(r'^#include "([^"]+)"', file.read_text(), re.M):
            used = name.removeprefix(folder + "/") if "/" in name else paths.get(name)
            if name.endswith(".def") or used in FACES.get(folder, "").split():
                continue
            if (used != name or "/" not in name) and used and not may_use(rooms, user, used):
                wrong.append(f"{file} includes {name}")
    return wrong


def check_calls(build, folder, rooms):
    defined, needed, called = read_objects(build, folder)
    calls = collections.defaultdict(set)
    wrong = [] if needed else [f"{folder}: no objects in {build}"]
    for caller in sorted(needed):
        for name in sorted(needed[caller]):
            callee = defined.get(name, caller)
            if callee == caller:
                continue
            if name in called[caller]:
                calls[caller].add(callee)
            if rooms and not may_use(rooms, caller, callee):
                wrong.append(f"{folder}/{caller} calls {name} of {folder}/{callee}")
    circles = {" ".join(circle) for circle in find_circles(calls)}
    known = set(CIRCLES.get(folder, []))
    wrong += [f"files call in a circle: {folder}/ {circle}" for circle in sorted(circles - known)]
    wrong += [f"no circle any more: {folder}/ {circle}" for circle in sorted(known - circles)]
    return wrong


def main():
    build = pathlib.Path(sys.argv[1])
    wrong = []
    for folder, rooms in ROOMS.items():
        wrong += check_includes(folder, rooms)
        if folder not in WITHOUT_OBJECTS:
            wrong += check_calls(build, folder, rooms)
    for folder in FLAT:
        wrong += check_calls(build, folder, {})
    for line in wrong:
        print(f"FAIL: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
