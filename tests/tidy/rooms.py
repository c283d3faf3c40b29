#!/usr/bin/env python3
"""Includes and calls between the rooms of a folder go down alone, and files do not call in circles.

usage: rooms.py BUILD_DIR: run in the root of the tree; nm says what the objects of BUILD_DIR define
and call. What lies in a folder itself is above its rooms."""

import collections
import pathlib
import re
import subprocess
import sys

# A room may include and call what is in itself and in those named.
ROOMS = {
    "codegen": {
        "kernel": "",
        "program": "kernel",
        "emit": "program kernel",
        "c": "emit program kernel",
        "cpu": "program kernel",
        "cuda": "emit program kernel",
        ".": "kernel program emit c cpu cuda",
    },
    "planner": {
        "model": "",
        "pack": "model",
        "order": "model",
        "remat": "model order",
        "solve": "model pack order remat",
    },
    "runtime": {"lib": "", "host": "lib", "cpu": "lib", "cuda": "lib"},
}
# Emitted programs are made of them: nothing here has all of their objects.
WITHOUT_OBJECTS = {"runtime"}


def read_objects(build, folder):
    """By file: the names that it defines, and those that it needs."""
    defined, needed = {}, collections.defaultdict(set)
    root = build / "CMakeFiles" / f"ul_{folder}.dir" / folder
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
    return defined, needed


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
            if (used != name or "/" not in name) and used and not may_use(rooms, user, used):
                wrong.append(f"{file} includes {name}")
    return wrong


def check_calls(build, folder, rooms):
    defined, needed = read_objects(build, folder)
    calls = collections.defaultdict(set)
    wrong = [] if needed else [f"{folder}: no objects in {build}"]
    for caller in sorted(needed):
        for name in sorted(needed[caller]):
            callee = defined.get(name, caller)
            if callee == caller:
                continue
            calls[caller].add(callee)
            if not may_use(rooms, caller, callee):
                wrong.append(f"{folder}/{caller} calls {name} of {folder}/{callee}")
    for circle in find_circles(calls):
        wrong.append(f"files call in a circle: {folder}/ {' '.join(circle)}")
    return wrong


def main():
    build = pathlib.Path(sys.argv[1])
    wrong = []
    for folder, rooms in ROOMS.items():
        wrong += check_includes(folder, rooms)
        if folder not in WITHOUT_OBJECTS:
            wrong += check_calls(build, folder, rooms)
    for line in wrong:
        print(f"FAIL: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
