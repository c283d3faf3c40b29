#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a table of plans takes, and what the planning report of 10,000 values takes to draw.

    what_if.py --ullage build/release/cli/ullage [--models DIR] [--only WORD] [--json FILE]

Three tables of 20 rows each by `plan --sweep` with lists: ResNet-50, inference; a training step of
BERT-base without a budget; the same within budgets. Then the page of a plan of 10,000 values: the time
of `report --html` from the saved plan, and its size. With --models the networks are resnet50.onnx and
bert_base.onnx there, with symbolic dimensions (models/make.py --batch N --seq S); else they are made.

seconds    from start to end of the command, one run
cpu        what it and the processes that it plans with took of all processors
others     processors that other work took meanwhile: what a loaded machine adds is no time of ours

Wanted: 5 s, 30 s, 300 s; 5 MB. Exit 6 where one is missed, by seconds, or by rows without a plan.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.append(os.path.join(ROOT, "tests", "e2e"))
sys.path.append(os.path.join(ROOT, "scripts"))

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")

from budget_time import busy_seconds  # noqa: E402
from many_values import make_big  # noqa: E402

TRAIN = ("--train", "--loss", "mse", "--output", "last_hidden_state", "--optimizer", "adam")
BUDGETS = "1420MiB,1600MiB,1800MiB,2000MiB,2400MiB"
ROWS = 20
TABLES = (  # what it is of, network, words of the lists and options, seconds wanted
    ("ResNet-50, inference", "resnet50", ("--dim", "N=1,2,3,4,5,6,7,8,12,16", "--precision", "fp32,bf16"), 5),
    ("BERT-base, training", "bert_base", ("--dim", "N=1,2,4,8,16", "--dim", "S=64,128,256,512", *TRAIN), 30),
    ("BERT-base, training within budgets", "bert_base",
     ("--dim", "N=8,16,24,32", "--dim", "S=128", "--budget", BUDGETS, *TRAIN), 300),
)
PAGE_BYTES = 5e6


def find_model(args, network, folder):
    path = os.path.join(args.models or folder, network + ".onnx")
    if not os.path.exists(path):
        sizes = ("--batch", "N") + (("--seq", "S") if network == "bert_base" else ())
        subprocess.run([sys.executable, os.path.join(ROOT, "models", "make.py"), network, *sizes, "-o", path],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def measured(command):
    """(exit code, seconds, CPU seconds, processors that others took)"""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin, (busy, _) = time.monotonic(), busy_seconds()
    code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return code, seconds, cpu, max(busy_seconds()[0] - busy - cpu, 0) / seconds


def bench_table(args, name, network, words, wanted, folder):
    path = os.path.join(folder, "table.json")
    model = find_model(args, network, folder)
    # Its weights are in the page cache from here on: what is timed is planning.
    subprocess.run([args.ullage, "inspect", model], check=True, stdout=subprocess.DEVNULL)
    code, seconds, cpu, others = measured([args.ullage, "plan", model, "--sweep", *words, "--json", path])
    rows = []
    if code == 0:
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["plans"]
    fit = sum(row["fits"] for row in rows)
    answered = sum(row["status"] in (0, 4) for row in rows)
    found = {"name": name, "command": ["plan", network + ".onnx", "--sweep", *words], "exit": code, "rows": len(rows), "fit": fit,
             "seconds": seconds, "cpu_seconds": cpu, "others": others, "wanted_seconds": wanted,
             "reached": len(rows) == ROWS and answered == ROWS and seconds <= wanted}
    print(f"{name:36} {len(rows):3} rows {fit:3} fit {seconds:8.2f} s, wanted {wanted:4}   cpu {cpu:8.2f} s   others {others:.2f}"
          f"{'' if found['reached'] else '  MISSED'}", flush=True)
    return found


def bench_page(args, folder):
    model, plan, page = (os.path.join(folder, "big." + end) for end in ("onnx", "json", "html"))
    make_big(model)
    subprocess.run([args.ullage, "plan", model, "--target", "c", "--advice", "off", "--json", plan],
                   check=True, stdout=subprocess.DEVNULL)
    with open(plan, encoding="utf-8") as file:
        values = len(json.load(file)["ranges"]["name"])
    code, seconds, cpu, others = measured([args.ullage, "report", plan, "--html", page])
    size = os.path.getsize(page)
    found = {"name": "page", "values": values, "exit": code, "bytes": size, "seconds": seconds, "cpu_seconds": cpu, "others": others,
             "wanted_bytes": PAGE_BYTES, "reached": code == 0 and values >= 10000 and size <= PAGE_BYTES}
    print(f"page of {values} values: {size} bytes, wanted {PAGE_BYTES:.0f}; drawn in {seconds:.2f} s, others {others:.2f}"
          f"{'' if found['reached'] else '  MISSED'}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--models", help="a folder with resnet50.onnx and bert_base.onnx")
    parser.add_argument("--only", default="", help="tables with this in their names, or page")
    parser.add_argument("--json", help="write all rows here")
    args = parser.parse_args()
    print(f"load before: {os.getloadavg()[0]:.2f} of {os.cpu_count()} processors", flush=True)
    with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
        found = [bench_table(args, *table, folder) for table in TABLES if args.only in table[0]]
        if args.only in "page":
            found.append(bench_page(args, folder))
    if not found:
        parser.error(f"no table has {args.only} in its name, nor is it page")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0 if all(row["reached"] for row in found) else 6


if __name__ == "__main__":
    sys.exit(main())
