#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names out of files never move a cursor, turn text, hide in it, or compute in a spreadsheet.

    shown.py ULLAGE

A model whose every name has control characters, Unicode's format characters and the beginnings of
formulas goes through every command, and so do plans, checkpoints, profiles and problems with such
texts: what is printed, and every text that is written, has none of these but escaped. Letters of
any language stay.
Exit: 0 ok, 1 a text came out as it was, 77 a package is missing.
"""

import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import unicodedata

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"shown.py: skipped: {error}")
    sys.exit(77)

ullage = os.path.abspath(sys.argv[1])
HIDDEN = "\x1b[31m\u202e\u2066\u200b\ufeff\x85\x9b\x07\r\u2028\x7f"
LETTERS = "é中文"
INVISIBLE = {"Cc", "Cf", "Zl", "Zp"}


def name(letter):
    return f"={letter}{LETTERS}{HIDDEN}*/<b>&"


def expect(condition, what):
    if not condition:
        print(f"shown.py: {what}")
        sys.exit(1)


def check_text(data, what):
    text = data.decode("utf-8").replace("\r\n", "\n") if isinstance(data, bytes) else data
    for line in text.split("\n"):
        for at, character in enumerate(line):
            hidden = unicodedata.category(character) in INVISIBLE and character != "\t"
            expect(not hidden, f"{what}: U+{ord(character):04X} in {line[max(0, at - 60):at + 20]!r}")
    return text


def run(*words, code=0, cwd=None, **more):
    done = subprocess.run(words, capture_output=True, timeout=300, check=False, cwd=cwd, **more)
    what = " ".join(os.path.basename(word) if "\x1b" not in word else "NAME" for word in words)
    expect(done.returncode == code, f"{what}: exit {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    return check_text(done.stdout, what) + check_text(done.stderr, what)


def check_csv(path):
    with open(path, "rb") as file:
        rows = list(csv.reader(io.StringIO(check_text(file.read(), path))))
    for row in rows:
        for cell in row:
            number = cell.lstrip("+-").replace(".", "", 1).isdigit()
            expect(number or cell[:1] not in ("=", "+", "-", "@", "\t", "\r"), f"{path}: the cell {cell!r}")
    return rows


def read(path, has_letters=True):
    with open(path, "rb") as file:
        text = check_text(file.read(), path)
    expect(not has_letters or LETTERS in text or json.dumps(LETTERS)[1:-1] in text, f"{path}: without {LETTERS}")
    return text


def make_model(folder):
    """x -> MatMul -> Relu -> MatMul, of which all is called like what it should not be."""
    weights = [np.arange(16, dtype=np.float32).reshape(4, 4) / 16 for _ in range(2)]
    nodes = [helper.make_node("MatMul", [name("x"), name("w")], [name("a")], name=name("n0")),
             helper.make_node("Relu", [name("a")], [name("b")], name=name("n1")),
             helper.make_node("Softmax", [name("b")], [name("c")], name=name("n2"), axis=0),
             helper.make_node("MatMul", [name("c"), name("v")], [name("y")], name=name("n3"))]  # fmt: skip
    for node in nodes:
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=f'File "{name("f")}.py", line 3, in {name("g")}')
    graph = helper.make_graph(
        nodes, name("graph"),
        [helper.make_tensor_value_info(name("x"), TensorProto.FLOAT, [name("N"), 4])],
        [helper.make_tensor_value_info(name("y"), TensorProto.FLOAT, [name("N"), 4])],
        [numpy_helper.from_array(weights[0], name("w")), numpy_helper.from_array(weights[1], name("v"))])  # fmt: skip
    model = helper.make_model(graph, producer_name=name("p"), producer_version=name("pv"), opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path = os.path.join(folder, f"{LETTERS}\x1b[31m\u202e.onnx")
    onnx.save(model, path)
    model.graph.node[1].op_type, model.graph.node[1].domain = name("Op"), name("domain")
    unknown = os.path.join(folder, "unknown.onnx")
    onnx.save(model, unknown)
    return path, unknown


def check_model(folder, model, unknown):
    size = ["--dim", f"{name('N')}=4"]
    run(ullage, "inspect", model)
    run(ullage, "inspect", unknown, code=3)
    run(ullage, "inspect", unknown, *size, "--json", f"{folder}/inspect.json", code=3)
    read(f"{folder}/inspect.json")
    run(ullage, "inspect", model, *size, "--train", "--output", name("y"))
    run(ullage, "plan", model, code=1)
    run(ullage, "plan", unknown, *size, code=3)
    run(ullage, "plan", model, *size, "--budget", "1", "--budget-of", "arena", code=4)
    run(ullage, "plan", model, *size, "--output", name("none"), code=1)
    for target in ("c", "cpu", "cuda"):
        files = {form: f"{folder}/{target}.{form}" for form in ("json", "html", "csv", "trace")}
        text = run(ullage, "plan", model, *size, "--target", target, "--advice", "on", "--print-after", "all", "--print-kernels",
                   "--json", files["json"], "--html", files["html"], "--csv", files["csv"], "--csv-steps", f"{folder}/steps.csv",
                   "--trace", files["trace"], "--print-problem", f"{folder}/problem")  # fmt: skip
        expect(LETTERS in text, f"plan --target {target}: without {LETTERS}")
        for path in files.values():
            read(path)
        expect(any(LETTERS in cell for row in check_csv(files["csv"]) for cell in row), "no name in the table")
        check_csv(f"{folder}/steps.csv")
        expect(json.load(open(files["json"], encoding="utf-8"))["ranges"]["name"].count(name("x")) == 1, "plan.json: the name itself")
        run(ullage, "check", model, files["json"])
        run(ullage, "diff", files["json"], files["json"], "--json", f"{folder}/diff.json")
    run(ullage, "plan", model, "--dim", f"{name('N')}=1,2,4", "--sweep", "--csv", f"{folder}/sweep.csv", "--json", f"{folder}/sweep.json")
    run(ullage, "plan", model, "--dim", f"{name('N')}=1,2,4", "--sweep")
    check_csv(f"{folder}/sweep.csv")
    read(f"{folder}/sweep.json")
    run(ullage, "plan", model, *size, "--sweep", "--csv", f"{folder}/ladder.csv", "--json", f"{folder}/ladder.json")
    check_csv(f"{folder}/ladder.csv")
    run(ullage, "solve", f"{folder}/problem")
    run(ullage, "solve", f"{folder}/problem", "--budget", "1", code=4)
    return size


def check_program(folder, model, size):
    for target in ("c", "cuda"):
        run(ullage, "compile", model, *size, "--target", target, "--emit", f"{folder}/{target}")
        for entry in os.listdir(f"{folder}/{target}"):
            if not entry.endswith((".bin", ".weights")):
                read(f"{folder}/{target}/{entry}", has_letters=False)
    run(ullage, "compile", model, *size, "--target", "c", "--cflags", "-O0", "-o", f"{folder}/program")
    np.save(f"{folder}/x.npy", np.ones((4, 4), np.float32))
    given = ["--input", f"{name('x')}={folder}/x.npy"]
    for words in (["--help"], ["--memory", *given], ["--bench", "--iterations", "1", *given], given):
        run(f"{folder}/program", *words)
    run(f"{folder}/program", "--bench", "--iterations", "1", "--json", f"{folder}/bench.json", *given)
    read(f"{folder}/bench.json", has_letters=False)
    with open(f"{folder}/bench.json", encoding="utf-8") as file:
        expect(json.load(file)["model"] == name("graph"), "bench.json: the model has another name")
    run(f"{folder}/program", code=1)
    run(f"{folder}/program", "--input", f"{name('none')}={folder}/x.npy", code=1)
    run(ullage, "verify", model, *size, "--target", "c", "--cflags", "-O0", env={**os.environ, "ULLAGE_PYTHON": ""})


def check_checkpoint(folder, model):
    np.savez(f"{folder}/other.npz", **{name("none"): np.ones(3, np.float32)})
    run(ullage, "export", model, f"{folder}/other.npz", "-o", f"{folder}/new.onnx", code=2)
    np.savez(f"{folder}/wrong.npz", **{name("w"): np.ones(3, np.float32), name("v"): np.ones(3, np.float32)})
    run(ullage, "export", model, f"{folder}/wrong.npz", "-o", f"{folder}/new.onnx", code=2)
    np.savez(f"{folder}/right.npz", **{name(letter): np.ones((4, 4), np.float32) for letter in "wv"})
    run(ullage, "export", model, f"{folder}/right.npz", "-o", f"{folder}/new{LETTERS}\x1b[1m.onnx")


def forge(value, path=()):
    """Every text that says something of itself, with what must not come out."""
    kept = {"format", "class", "kind", "target", "budget_of", "type", "storage", "process_of", "model_sha256"}
    if isinstance(value, dict):
        return {key: forge(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list) and path[-1:] == ("options",):
        return [*value, ["split", name("option")], ["precision", name("option")], ["donate", name("option")], ["profile", name("o")]]
    if isinstance(value, list):
        return [forge(item, path) for item in value]
    if isinstance(value, str) and not kept.intersection(path):
        return f"{name('text')}{value}"
    return value


def check_plans(folder, model):
    with open(f"{folder}/cpu.json", encoding="utf-8") as file:
        plan = json.load(file)
    plan["training"] = {"notes": "notes", "shared": "s", "shared_parameters": 1, "unreached": 1, "unreached_first": "u", "parameters": 3}
    plan["max_dim"] = {"name": "n", "size": 3, "planned": [{"size": 3, "bytes": 3, "fits": True}], "why_not_larger": "why"}
    plan["in_floats"] = [{"node": "n", "op": "o", "why": "w"}]
    plan["stays_f32"] = [{"reason": "r", "why": "w", "count": 1, "bytes": 1, "values": [0]}]
    plan["device"] = {"name": "d", "memory_bytes": 5}
    plan.update(budget_bytes=5, fits=False, cost_bound=plan["cost"], cost_bound_method="m", optimal_within="o", cudnn="c", library="l")
    forged = forge(plan)
    with open(f"{folder}/forged.json", "w", encoding="utf-8") as file:
        json.dump(forged, file)
    terminal = {"COLUMNS": "300", "LANG": "C.UTF-8"}
    text = run(ullage, "report", f"{folder}/forged.json", "--html", f"{folder}/f.html", "--csv", f"{folder}/f.csv", "--csv-steps", f"{folder}/fs.csv",
               "--trace", f"{folder}/f.trace", env={**os.environ, **terminal})  # fmt: skip
    expect("\\x1B[31m\\xE2\\x80\\xAE" in text and LETTERS in text, f"report: nothing is escaped in {text}")
    run(ullage, "report", f"{folder}/forged.json", "--html", f"{folder}/f.html", "--baseline", f"{folder}/cpu.json")
    read(f"{folder}/f.html")
    read(f"{folder}/f.trace")
    check_csv(f"{folder}/f.csv")
    check_csv(f"{folder}/fs.csv")
    run(ullage, "diff", f"{folder}/cpu.json", f"{folder}/forged.json", "--json", f"{folder}/d.json")
    run(ullage, "diff", f"{folder}/cpu.json", f"{folder}/forged.json")
    read(f"{folder}/d.json")
    run(ullage, "check", model, f"{folder}/forged.json", code=2)
    for key in ("target", "model_sha256", "budget_of"):
        with open(f"{folder}/other.json", "w", encoding="utf-8") as file:
            json.dump({**plan, key: name("k")}, file)
        run(ullage, "check", model, f"{folder}/other.json", code={"target": 3, "model_sha256": 6, "budget_of": 2}[key])
    for text in (f'{{"{name("key")}": "{HIDDEN}"', f"{HIDDEN}", f'["{HIDDEN}\x00"'):
        with open(f"{folder}/broken.json", "w", encoding="utf-8") as file:
            file.write(text)
        for command in (["report"], ["check", model], ["diff", f"{folder}/cpu.json"]):
            run(ullage, *command, f"{folder}/broken.json", code=2)


def check_widths(folder):
    """Names that are short, and shown long; and one that is long."""
    info = [helper.make_tensor_value_info(word, TensorProto.FLOAT, ["\x1b", 4]) for word in ("\x07", "\x1b")]
    path, plan = f"{folder}/short.onnx", f"{folder}/short.json"
    for word in ("\x1b", "é" * 10, "n" * 1000000):
        graph = helper.make_graph([helper.make_node("Relu", ["\x07"], ["\x1b"], name=word)], "g", info[:1], info[1:])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        narrow = {"env": {**os.environ, "COLUMNS": "80"}}
        run(ullage, "plan", path, "--dim", "\x1b=4", "--json", plan, **narrow)
        run(ullage, "plan", path, "--dim", "\x1b=4,5", "--sweep", **narrow)
        run(ullage, "report", plan, **narrow)
        with open(plan, encoding="utf-8") as file:
            other = json.load(file)
        other["steps"]["op"] = ["é" * 50 for _ in other["steps"]["op"]]
        other["ranges"]["size_bytes"] = [2 * size for size in other["ranges"]["size_bytes"]]
        with open(f"{folder}/other.json", "w", encoding="utf-8") as file:
            json.dump(other, file)
        run(ullage, "diff", plan, f"{folder}/other.json", **narrow)


def check_others(folder, model, size):
    """Tables and graphs of the planner alone."""
    with open(f"{folder}/buffers.csv", "w", encoding="utf-8") as file:
        file.write(f"id,lower,upper,size\n=1+{LETTERS},0,2,8\n-1,0,2,8\n@{HIDDEN[:8]},1,3,8\n")
    run(ullage, "pack", f"{folder}/buffers.csv", "-o", f"{folder}/packed.csv")
    rows = check_csv(f"{folder}/packed.csv")
    expect(rows[1][0] == f"'=1+{LETTERS}" and rows[2][0] == "-1", f"packed: {rows}")
    graph = {"format": "ullage-graph", "version": 1, "name": name("g"), "edges": [[0, 1]], "order": [0, 1],
             "nodes": [{"id": i, "name": name("n"), "bytes": 8, "cost": 1} for i in range(2)]}  # fmt: skip
    for path, value in (("good", graph), ("bad", {**graph, "format": name("f")}), ("worse", {**graph, "edges": [[name("e")]]})):
        with open(f"{folder}/{path}.json", "w", encoding="utf-8") as file:
            json.dump(value, file)
        run(ullage, "solve", f"{folder}/{path}.json", code=0 if path == "good" else 2)
    for text in (json.dumps({"format": "ullage-profile", "version": 1, "name": name("n"), "source": name("s")}), f'{{"{HIDDEN}'):
        with open(f"{folder}/profile.json", "w", encoding="utf-8") as file:
            file.write(text)
        run(ullage, "plan", model, *size, "--profile", f"{folder}/profile.json", code=2)


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, unknown = make_model(folder)
        size = check_model(folder, model, unknown)
        check_plans(folder, model)
        check_widths(folder)
        check_checkpoint(folder, model)
        check_others(folder, model, size)
        check_program(folder, model, size)


main()
