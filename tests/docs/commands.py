#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command has a page, which runs its examples and shows its help; the page of formats has every key of the schemas;
exit codes are the same in all lists.

    commands.py ULLAGE

Exit: 0 ok, 1 not."""

import json
import os
import re
import subprocess
import sys

from pages import Page

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# schema -> the heading of docs/plan-format.md that says what its keys mean
SCHEMAS = {"plan": "plan.json", "ladder": "The ladder", "table": "Plans under other options", "diff": "Two plans"}


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def check_command(command):
    path = os.path.join("docs", "commands", command["name"] + ".md")
    if not os.path.exists(os.path.join(ROOT, path)):
        return [f"there is no {path}"]
    run = [item.text for item in Page(path, read(path)).items if item.kind == "command"]
    wanted = [*command["examples"], f"ullage help {command['name']}"]
    return [f"{path} does not run: {line}" for line in wanted if not any(text.startswith(line) for text in run)]


def section(page, title):
    """The text from a heading that begins so to the next of its level."""
    found = re.search(rf"^## {re.escape(title)}.*?(?=^## |\Z)", page, flags=re.S | re.M)
    return found.group(0) if found else ""


def check_schema(name, title):
    """Keys of the schema that no row of the tables names, and rows that name none."""
    schema = json.loads(read("report", f"{name}.schema.json"))
    text = section(read("docs", "plan-format.md"), title)
    rows = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    said = {key for row in rows for key in re.findall(r"`([^`]+)`", row)}
    wrong = [f"docs/plan-format.md, {title}: {key} of {name}.schema.json is missing" for key in schema["properties"] if f"`{key}`" not in text]
    known = json.dumps(schema)
    wrong += [f"docs/plan-format.md, {title}: {name}.schema.json has no {key}" for key in said if f'"{key}"' not in known]
    return wrong


def check_exit_codes(ullage):
    page = subprocess.run([ullage, "help", "--man"], stdout=subprocess.PIPE, text=True, check=True).stdout
    codes = re.findall(r"^\\fB(\d+)\\fR$", page.partition(".SH EXIT STATUS")[2].partition(".SH ")[0], flags=re.M)
    sentence = re.search(r"^Exit codes: (.*?)\. ", read("docs", "README.md"), flags=re.S | re.M).group(1)
    lists = {"docs/README.md": re.findall(r"\b(\d+) ", sentence), "docs/questions.md": re.findall(r"^\| (\d+) \|", read("docs", "questions.md"), flags=re.M)}
    return [f"{path} has the exit codes {said}, the manual page {codes}" for path, said in lists.items() if said != codes]


def main():
    ullage = os.path.abspath(sys.argv[1])
    listed = subprocess.run([ullage, "help", "--json"], stdout=subprocess.PIPE, check=True)
    wrong = [text for command in json.loads(listed.stdout)["commands"] for text in check_command(command)]
    wrong += check_exit_codes(ullage)
    for name, title in SCHEMAS.items():
        wrong += check_schema(name, title)
    print("\n".join(wrong) if wrong else "every command has its page, every key its row")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
