#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The planning report in a browser: Debian's chromium, driven by its DevTools protocol.

    browser.py ULLAGE MODEL.onnx TRAINED.onnx [--time]

A small plan of a training program, one of 10,000 values, one with hostile names: nothing is
complained of and nothing is asked for; pictures and the tables below them have the same data; keys,
pointer, search and toggles do what they say, and the address restores it; text has contrast in light
and in dark; the page reads without its script, and a script that fails says so. With --time the first
picture of 10,000 values has to be there within a second.
Exit: 0 ok, 1 a promise is broken, 77 there is no chromium.
"""

import json
import os
import re
import sys
import tempfile

import chromium
import html_report
from html_report import expect, load, run, save
from many_values import make_big

WIDTH, CURVE = 1000, 260
CONTRAST = """(() => {
  const light = rgb => { const [r, g, b] = rgb.map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const behind = element => { for (let e = element; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c.slice(0, 3); } return [255, 255, 255]; };
  const poor = [];
  for (const e of document.querySelectorAll("h1, h1 b, h2, p, a, small, li, b, dt, dd, th, td, summary, code, .n, .muted, .lead, footer, .row span, .gutter text, .steps text, .peaks text, button, label")) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), ink = rgb(e instanceof SVGElement ? style.fill : style.color).slice(0, 3), ground = behind(e instanceof SVGElement ? e.closest("div") : e);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x), ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) poor.push(e.tagName + "." + e.getAttribute("class") + " " + ratio.toFixed(2) + " " + e.textContent.trim().slice(0, 30));
  }
  return poor; })()"""


def hash_of(browser):
    return browser.run("location.hash")


def value_of(browser, selector, what="textContent"):
    return browser.run(f"document.querySelector({json.dumps(selector)}).{what}")


def quiet(browser, what):
    expect(browser.complaints == [], f"{what}: {browser.complaints}")
    expect(browser.run("document.querySelector('#error').hidden"), f"{what}: {value_of(browser, '#error')}")


def check_map(browser, plan):
    """Boxes are where the rows of the table say."""
    boxes = browser.run("Array.from(document.querySelectorAll('#map rect[data-range]')).map(box => [+box.dataset.range].concat(['x', 'y', 'width', 'height'].map(key => +box.getAttribute(key))))")
    rows = browser.run("Array.from(document.querySelectorAll('#t4 tr[data-range]')).map(row => [+row.dataset.range].concat(Array.from(row.cells).slice(3).map(cell => +cell.textContent.replace(/,/g, ''))))")
    table = {row[0]: row[1:] for row in rows}
    top, length = json.loads(value_of(browser, "#plan"))["top"], max(1, len(plan["steps"]["op"]))
    for at, x, y, width, height in boxes:
        size, address, first, last = table[at]
        wanted = (first / length * WIDTH, 380 - (address + size) / top * 380, (last + 1 - first) / length * WIDTH, size / top * 380)
        expect(all(abs(a - b) < 0.02 for a, b in zip((x, y, width, height), wanted)), f"box {at}: {(x, y, width, height)}, {wanted}")
    return len(boxes), len(rows)


def edge_of(path, count):
    """The heights of the upper edge of an area, a number for each sample."""
    heights, x, y = [], 0.0, None
    for letter, number, after in re.findall(r"([MVHZ])([-\d.]+)?(?: ([-\d.]+))?", path):
        if letter == "M":
            y = float(after)
        elif letter == "V":
            y = float(number)
        elif letter == "H":
            heights += [y] * round((float(number) - x) * count / WIDTH)
            x = float(number)
        if len(heights) >= count:
            return heights
    return heights


def check_curve(browser):
    areas = browser.run("Array.from(document.querySelectorAll('#curve .area')).map(area => [+area.dataset.class, area.getAttribute('d')])")
    rows = browser.run("Array.from(document.querySelectorAll('#t3 tbody tr')).map(row => Array.from(row.cells).slice(3).map(cell => +cell.textContent.replace(/,/g, '')))")
    top = json.loads(value_of(browser, "#plan"))["top"]
    sums = [0] * len(rows)
    for column, (_, path) in enumerate(areas):
        sums = [sum_ + row[column] for sum_, row in zip(sums, rows)]
        edge = edge_of(path, len(rows))
        expect(len(edge) == len(rows) and all(abs(y - (CURVE - bytes_ / top * CURVE)) < 0.02 for y, bytes_ in zip(edge, sums)), f"area {column} is not the table's")
    expect(sums == [row[-1] for row in rows], "areas do not add up to the live bytes")


def check_redraw(browser):
    """What the script draws of the whole plan is what the program drew."""
    before = browser.run("Array.from(document.querySelectorAll('#map rect[data-range]')).map(box => box.outerHTML).sort().join('')")
    browser.run("document.querySelector('#least').dispatchEvent(new Event('input'))")
    browser.settle()
    after = browser.run("Array.from(document.querySelectorAll('#map rect[data-range]')).map(box => box.outerHTML).sort().join('')")
    number = re.compile(r"-?\d+\.\d+")
    a, b = ([float(word) for word in number.findall(text)] for text in (before, after))
    expect(len(a) == len(b) and all(abs(x - y) < 0.011 for x, y in zip(a, b)) and number.sub("", before) == number.sub("", after), "the script draws another map")
    check_curve(browser)


def check_keys(browser, plan, page):
    browser.run("document.querySelector('#curve').focus()")
    browser.key("p")
    expect(value_of(browser, "#status").startswith(f"Step {plan['peak_step']} of "), value_of(browser, "#status"))
    browser.key("ArrowRight")
    expect(hash_of(browser) == f"#s={plan['peak_step'] + 1}", hash_of(browser))
    browser.key("ArrowLeft")
    browser.key("n")
    second = browser.run("+document.querySelectorAll('#curve .peaks g')[1].dataset.step")
    expect(hash_of(browser) == f"#s={second}", hash_of(browser))
    browser.key("ArrowUp")
    expect(re.fullmatch(rf"#s={second}&v=\d+", hash_of(browser)), hash_of(browser))
    expect(browser.run("document.querySelectorAll('#map .pin').length") > 0, "nothing is marked in the map")
    pinned = int(hash_of(browser).split("v=")[1])
    expect(value_of(browser, "#pinned .n") == plan["ranges"]["name"][pinned] or plan["ranges"]["value"][pinned] is None, value_of(browser, "#pinned"))
    browser.key("Home")
    expect(hash_of(browser) == "", hash_of(browser))
    # By the keyboard alone to both pictures.
    browser.open(page)
    seen = set()
    for _ in range(60):
        browser.call("Input.dispatchKeyEvent", type="keyDown", key="Tab", windowsVirtualKeyCode=9)
        browser.call("Input.dispatchKeyEvent", type="keyUp", key="Tab", windowsVirtualKeyCode=9)
        seen.add(browser.run("document.activeElement.id || document.activeElement.tagName"))
    expect({"search", "least", "curve", "map", "A", "SUMMARY"} <= seen, f"the Tab key reaches {seen}")


def box_of(browser, selector):
    browser.run(f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', behavior: 'instant'}})")
    return browser.run(f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; }})()")


def check_pointer(browser, plan):
    steps = len(plan["steps"]["op"])
    left, top, width, height = box_of(browser, "#curve .plot")
    browser.mouse("mouseMoved", left + width * 0.5, top + height * 0.8)
    browser.settle()
    expect(value_of(browser, ".card").startswith(f"Step {steps // 2}"), value_of(browser, ".card"))
    expect(browser.run("document.querySelectorAll('#map .cursor').length") == 1, "the map has no cursor")
    browser.mouse("mousePressed", left + width * 0.25, top + 150, button="left", buttons=1, clickCount=1)
    browser.mouse("mouseMoved", left + width * 0.4, top + 150, button="left", buttons=1)
    browser.mouse("mouseMoved", left + width * 0.5, top + 150, button="left", buttons=1)
    browser.mouse("mouseReleased", left + width * 0.5, top + 150, button="left", clickCount=1)
    browser.settle()
    view = re.search(r"x=(\d+)-(\d+)", hash_of(browser))
    expect(view and abs(int(view[1]) - steps / 4) <= 1 and abs(int(view[2]) - steps / 2) <= 2, f"brush: {hash_of(browser)}")
    expect(browser.run("['#curve', '#map'].every(id => +document.querySelector(id + ' .marks text').textContent >= " + view[1] + ")"), "axes are not zoomed")
    left, top, width, height = box_of(browser, "#map .plot")
    browser.click(left + width * 0.5, top + height - 4)
    expect("v=" in hash_of(browser) and browser.run("document.querySelectorAll('#map .pin').length") > 0, f"click: {hash_of(browser)}")
    return hash_of(browser)


def state_of(browser):
    return browser.run("""JSON.stringify([document.querySelector('#status').textContent, document.querySelector('#pinned').textContent, document.querySelector('#hidden').textContent, document.querySelector('#matched').textContent,
      document.querySelector('#search').value, Array.from(document.querySelectorAll('button.key')).map(key => key.getAttribute('aria-pressed')), Array.from(document.querySelectorAll('.marks text')).map(mark => mark.textContent),
      document.querySelectorAll('#map .found').length, document.querySelector('#map .boxes').innerHTML, Array.from(document.querySelectorAll('#curve .area')).map(area => area.getAttribute('d'))])""")


def check_tools(browser, plan, path):
    ranges = plan["ranges"]
    browser.run("(() => { const search = document.querySelector('#search'); search.value = 'conv'; search.dispatchEvent(new Event('input')); })()")
    browser.run("(() => { const least = document.querySelector('#least'); least.value = 1; least.dispatchEvent(new Event('input')); })()")
    browser.run("document.querySelector('#curve').parentElement.querySelector('button.key').click()")
    browser.settle()
    expect(int(value_of(browser, "#matched").split()[0]) > 0, value_of(browser, "#matched"))
    hidden = [i for i, size in enumerate(ranges["size_bytes"]) if ranges["space"][i] == 0 and size > 0 and ranges["begin"][i] < ranges["end"][i] and (size < 1024 or ranges["class"][i] == "weights")]
    expect(value_of(browser, "#hidden").startswith(f"{len(hidden)} values hidden"), f"{value_of(browser, '#hidden')}, {len(hidden)}")
    expect(all(word in hash_of(browser) for word in ("off=0", "min=1", "q=conv", "x=", "v=")), hash_of(browser))
    browser.run("document.querySelector('#search').focus()")
    pinned = []
    for _ in range(2):
        browser.key("Enter")
        pinned.append(value_of(browser, "#pinned .n"))
    expect(pinned[0] != pinned[1] and browser.run("document.querySelectorAll('tr.pinned').length") > 0, f"Enter goes from one to the next: {pinned}")
    browser.run("document.activeElement.blur()")
    saved, state = hash_of(browser), state_of(browser)
    browser.open(path, saved)
    expect(state_of(browser) == state, "the address does not restore the view")
    browser.open(path)
    expect(state_of(browser) != state, "the view is restored from nowhere")
    browser.run(f"location.hash = {json.dumps(saved)}")
    browser.settle()
    expect(state_of(browser) == state, "a new address does not restore the view")
    browser.open(path, "#x=9-3&s=99999999&v=-4&off=77,a&min=x&q=%")
    quiet(browser, "a broken address")


def check_tables(browser):
    browser.run("document.querySelector('#s5 th:nth-child(2) button').click()")
    column = browser.run("Array.from(document.querySelectorAll('#s5 tbody tr:not(.others)')).map(row => +row.cells[1].textContent.replace(/,/g, ''))")
    expect(column == sorted(column, reverse=True), f"sorted: {column[:5]}")
    browser.run("document.querySelector('#s5 th:nth-child(2) button').click()")
    column = browser.run("Array.from(document.querySelectorAll('#s5 tbody tr:not(.others)')).map(row => +row.cells[1].textContent.replace(/,/g, ''))")
    expect(column == sorted(column), f"sorted back: {column[:5]}")


def check_looks(browser, path):
    grounds = set()
    for scheme in ("light", "dark"):
        browser.colors(scheme)
        for width in (1280, 800):
            browser.resize(width, 900)
            browser.open(path)
            expect(browser.run("document.documentElement.scrollWidth") <= width, f"{scheme}: wider than {width}")
        poor = browser.run(CONTRAST)
        expect(poor == [], f"{scheme}: contrast below 4.5: {poor[:6]}")
        grounds.add(browser.run("getComputedStyle(document.body).backgroundColor"))
    expect(len(grounds) == 2, f"light and dark are the same: {grounds}")
    browser.colors("light")
    browser.resize(1280, 900)


def check_copy(browser):
    """A name that is cut is copied whole."""
    copied, whole = browser.run("""(() => { const name = document.querySelector('#s5 .n[title]'), event = new ClipboardEvent('copy', {clipboardData: new DataTransfer(), bubbles: true, cancelable: true});
      getSelection().selectAllChildren(name); document.dispatchEvent(event); getSelection().removeAllRanges(); return [event.clipboardData.getData('text/plain'), name.title]; })()""")
    expect(copied == whole and len(whole) > 37, f"copied: {copied!r}, {whole!r}")


def check_small(browser, folder, trained):
    path, page = os.path.join(folder, "small.json"), os.path.join(folder, "small.html")
    run("plan", trained, "--dim", "N=16", "--train-mode", "--output", "/fc/Gemm_output_0", "--train", "--optimizer", "adam", "--target", "c", "--advice", "off", "--json", path, "--html", page)
    plan = load(path)
    browser.open(page)
    quiet(browser, "small")
    boxes, rows = check_map(browser, plan)
    expect(boxes == rows, f"{boxes} boxes, {rows} rows")
    check_curve(browser)
    check_redraw(browser)
    check_keys(browser, plan, page)
    check_pointer(browser, plan)
    check_tools(browser, plan, page)
    browser.open(page)
    check_tables(browser)
    quiet(browser, "small")
    check_looks(browser, page)
    quiet(browser, "small")
    return path, page


def check_without(browser, page, broken):
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(page)
    expect(browser.run("document.documentElement.dataset.ready") is None, "the script ran")
    expect(browser.run("document.querySelector('#tools').offsetHeight") == 0, "tools that do nothing are shown")
    heights = browser.run("Array.from(document.querySelectorAll('section')).map(section => section.offsetHeight)")
    expect(len(heights) == 11 and min(heights) > 60, f"sections without script: {heights}")
    check_curve(browser)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    with open(page, encoding="utf-8") as file:
        text = file.read()
    with open(broken, "w", encoding="utf-8") as file:
        file.write(text.replace('{"unit":', '{"unit":,', 1))
    browser.open(broken)
    expect(not browser.run("document.querySelector('#error').hidden") and browser.run("document.querySelector('#error').offsetHeight") > 20, "a script that fails says nothing")
    browser.complaints.clear()


def check_big(browser, folder, has_limit):
    model, path, page = (os.path.join(folder, "big." + end) for end in ("onnx", "json", "html"))
    make_big(model)
    run("plan", model, "--target", "c", "--advice", "off", "--json", path, "--html", page)
    plan, size = load(path), os.path.getsize(page)
    count = len(plan["ranges"]["name"])
    expect(count >= 10000 and size <= 5e6, f"{count} values, {size} bytes")
    browser.open(page)
    quiet(browser, "big")
    paint = browser.run("Math.max(...performance.getEntriesByType('paint').map(entry => entry.startTime))")
    ready = int(browser.run("document.documentElement.dataset.ready"))
    elements = browser.run("document.querySelectorAll('svg, svg *').length")
    print(f"{count} values, {size} bytes: first picture after {paint:.0f} ms, script ready after {ready} ms, {elements} elements of SVG")
    expect(paint > 0 and (not has_limit or paint <= 1000), f"first picture after {paint:.0f} ms")
    expect(elements <= 5000, f"{elements} elements")
    boxes, rows = check_map(browser, plan)
    expect(boxes == 2000 and rows == 2000, f"{boxes} boxes, {rows} rows")
    check_curve(browser)
    browser.run("document.querySelector('#t4').open = true")
    browser.settle()
    drawn = sum(space == 0 and begin < end and size > 0 for space, begin, end, size in zip(*(plan["ranges"][key] for key in ("space", "begin", "end", "size_bytes"))))
    expect(check_map(browser, plan)[1] == drawn, "the table of the map is not complete")
    browser.run("location.hash = '#x=100-400'")
    browser.settle()
    check_pixels = browser.run("document.querySelectorAll('svg, svg *').length")
    expect(check_pixels <= 5000, f"{check_pixels} elements after zooming")
    quiet(browser, "big")


def check_hostile(browser, folder, small):
    path, page = os.path.join(folder, "hostile.json"), os.path.join(folder, "hostile.html")
    save(html_report.spoil(load(small)), path)
    run("report", path, "--html", page, "--baseline", path)
    browser.open(page)
    quiet(browser, "hostile")
    expect(browser.run("document.images.length + document.scripts.length") == 2, "a name became an element")
    browser.run("document.querySelector('#t4').open = true")
    browser.run("document.querySelector('#curve').focus()")
    for key in ("p", "ArrowUp", "n"):
        browser.key(key)
    left, top, width, height = box_of(browser, "#map .plot")
    browser.click(left + width * 0.5, top + height * 0.5)
    expect(browser.run("document.images.length") == 0 and "<img" in value_of(browser, "#pinned"), "a name in a card")
    expect(not re.search("[\u202e\u2028\u0007]", value_of(browser, "main", "innerText")), "hidden characters on the page")
    check_copy(browser)
    quiet(browser, "hostile")


def main():
    if chromium.find() is None:
        print("browser: there is no chromium")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder, chromium.Browser() as browser:
        if "--time" not in sys.argv:
            small, page = check_small(browser, folder, html_report.trained)
            check_without(browser, page, os.path.join(folder, "broken.html"))
            check_hostile(browser, folder, small)
        check_big(browser, folder, "--time" in sys.argv)


main()
