#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds frontend/schemas.def against the operator schemas of onnx and onnxruntime.

    python schemas.py [--update]

The newest onnx (that of tests/ops/data.sh) and the onnxruntime of the interpreter that runs this say
which attributes an operator has in which of its versions; together they are the rows of the table: ai.onnx, ai.onnx.ml and ai.onnx.preview as onnx has them, and what
onnxruntime adds: com.microsoft, and operators and versions of ai.onnx that onnx does not know. With
--update the table is written. exit: 0 equal or written, 6 different, 77 a package is missing"""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "../../frontend/schemas.def")
KINDS = {  # by AttributeProto's numbers
    1: "float", 2: "int", 3: "string", 4: "tensor", 5: "graph", 6: "floats", 7: "ints",
    8: "strings", 9: "tensors", 10: "graphs", 11: "sparse", 13: "type",
}  # fmt: skip
DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training", "com.microsoft")


def dump(which):
    """Prints the schemas of this interpreter's package."""
    if which == "onnx":
        import onnx.defs

        found = onnx.defs.get_all_schemas_with_history()
    else:
        from onnxruntime.capi import onnxruntime_pybind11_state

        found = onnxruntime_pybind11_state.get_all_operator_schema()
    rows = []
    for one in found:
        kinds = {name: attr.type.value for name, attr in one.attributes.items()}
        rows.append([one.domain, one.name, one.since_version, one.deprecated, kinds])
    print(json.dumps(rows))


def schemas_of(python, which):
    """{(domain, operator): {version: {attribute: kind}}}; what is deprecated has ended."""
    said = subprocess.run([python, __file__, "--dump", which], check=True, text=True,
                          stdout=subprocess.PIPE).stdout  # fmt: skip
    found = {}
    for domain, name, version, deprecated, kinds in json.loads(said):
        if domain in DOMAINS and not deprecated:
            found.setdefault((domain, name), {})[version] = {
                attribute: KINDS[kind] for attribute, kind in kinds.items()
            }
    return found


def merged(onnx, ort):
    """onnxruntime's versions count where onnx has none of the operator as early."""
    for key, versions in ort.items():
        known = onnx.setdefault(key, {})
        first = min(known, default=None)
        for version, kinds in versions.items():
            if first is None or version < first:
                known[version] = kinds
    return onnx


def ranges(versions):
    """An attribute's text: NAME:KIND and, unless it is always there, @FIRST-LAST of operator sets."""
    order = sorted(versions)
    texts = []
    for name in sorted({name for kinds in versions.values() for name in kinds}):
        pieces = []  # [kind, first, the version that ends it]
        for version, after in zip(order, [*order[1:], None], strict=True):
            kind = versions[version].get(name)
            if kind is None:
                continue
            if pieces and pieces[-1][0] == kind and pieces[-1][2] == version:
                pieces[-1][2] = after
            else:
                pieces.append([kind, version, after])
        for kind, first, end in pieces:
            begin = "" if first == order[0] else str(first)
            last = "" if end is None else str(end - 1)
            texts.append(f"{name}:{kind}" + (f"@{begin}-{last}" if begin or last else ""))
    return texts


def wrapped(domain, name, texts):
    """One row; clang-format leaves the file alone."""
    lines, line = [], ""
    for text in texts:
        if len(line) + len(text) > 84:
            lines.append(line)
            line = ""
        line += text + " "
    lines.append(line.rstrip())
    quoted = "\n".join(f'    "{line}"' for line in lines)
    short = f'UL_SCHEMA("{domain}", "{name}", "{lines[0]}")\n'
    if len(lines) == 1 and len(short) <= 100:
        return short
    return f'UL_SCHEMA("{domain}", "{name}",\n{quoted})\n'


def table():
    data = os.path.join(HERE, "../ops/data.sh")
    newest = subprocess.run([data, "--python"], check=False, text=True, stdout=subprocess.PIPE)
    if newest.returncode != 0:
        sys.exit(newest.returncode)
    rows = merged(schemas_of(newest.stdout.strip(), "onnx"), schemas_of(sys.executable, "onnxruntime"))
    head = (
        "/* SPDX-License-Identifier: Apache-2.0 */\n"
        "/* The attributes that operators have in which operator sets, from the schemas of onnx and\n"
        " * onnxruntime. Written by tests/frontend/schemas.py --update; do not edit. Sorted by domain and\n"
        " * name, as strcmp does. Read by schema.c, which has the grammar. */\n"
        "/* clang-format off */\n"
    )
    return head + "".join(wrapped(*key, ranges(rows[key])) for key in sorted(rows))


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--dump"]:
        dump(arguments[1])
        return
    wanted = table()
    if arguments == ["--update"]:
        with open(TABLE, "w", encoding="utf-8") as f:
            f.write(wanted)
        return
    with open(TABLE, encoding="utf-8") as f:
        if f.read() != wanted:
            print("frontend/schemas.def is not what the schemas say; see schemas.py --update")
            sys.exit(6)


if __name__ == "__main__":
    main()
