#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Links of all pages of the tree lead somewhere: to a file, and to a heading of it. Every page of docs/ is reached from docs/README.md.
A list of calls names functions of the files that it names.

Exit: 0 ok, 1 a link leads nowhere."""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCED = re.compile(r"^(```+).*?^\1", flags=re.S | re.M)
INLINE = re.compile(r"`[^`\n]*`")
CALL = re.compile(r"^ {4,}(\w+) +(\w+(?:/\w+)+\.c)\b", flags=re.M)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return FENCED.sub("", file.read())


def headings(text):
    """As GitHub makes anchors of them."""
    found = []
    for head in re.findall(r"^#+ +(.*?) *$", text, flags=re.M):
        name = re.sub(r"[^\w -]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", head).lower()).replace(" ", "-")
        found.append(f"{name}-{found.count(name)}" if name in found else name)
    return found


def links(path):
    """(target, anchor) of all links into the tree."""
    for target in re.findall(r"(?:\]\(|src=\")([^()\s\"]*)[)\"]", INLINE.sub("", read(path))):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield (os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path), anchor


def calls(path):
    """(function, file) of all lines of lists of calls whose file does not define the function."""
    for function, file in CALL.findall(read(path)):
        if os.path.exists(os.path.join(ROOT, file)) and not re.search(rf"^[a-z].*\b{function}\([^;]*\n{{", read(file), flags=re.M):
            yield function, file


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False).stdout
    pages = [path for path in listed.split() if os.path.exists(os.path.join(ROOT, path))]
    wrong, reached = [], {"docs/README.md"}
    for page in pages:
        for target, anchor in links(page):
            if not os.path.exists(os.path.join(ROOT, target)):
                wrong.append(f"{page}: there is no {target}")
            elif anchor and target.endswith(".md") and anchor not in headings(read(target)):
                wrong.append(f"{page}: {target} has no heading #{anchor}")
        wrong += [f"{page}: {file} does not define {function}" for function, file in calls(page)]
    todo = ["docs/README.md"] if "docs/README.md" in pages else []
    while todo:
        for target, _ in links(todo.pop()):
            if target.startswith("docs/") and target.endswith(".md") and target not in reached and target in pages:
                reached.add(target)
                todo.append(target)
    if "docs/README.md" in pages:
        wrong += [f"{page}: no link leads here from docs/README.md" for page in pages if page.startswith("docs/") and page not in reached]
    print("\n".join(wrong) if wrong else f"links of {len(pages)} pages lead somewhere")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
