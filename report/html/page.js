/* SPDX-License-Identifier: 0BSD */
"use strict";
/* The page without this script is complete. The script adds a cursor shared by both pictures,
 * cards, a pinned value with its maker and readers, zoom, search, toggles, sortable tables, keys,
 * and the state in the address. It draws the pictures again from the plan's columns, as the program
 * drew them. */
(function () {
  const SVG = document.querySelector("svg").namespaceURI;
  const WIDTH = 1000, CURVE = 260, ABOVE = 64, MAP = 380, MAX_BOXES = 2000, MAX_NAMES = 60;

  const one = (selector, root) => (root || document).querySelector(selector);
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));

  function say(what) {
    const box = one("#error");
    box.textContent = "The script of this page failed: " + what + ". What stands below is complete without it.";
    box.hidden = false;
  }
  window.addEventListener("error", event => say(event.message));
  window.addEventListener("unhandledrejection", event => say(String(event.reason)));

  function make(tag, attributes, text) {
    const element = document.createElement(tag);
    for (const key in attributes || {}) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  }
  function draw(tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const key in attributes || {}) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  /* ---- The plan ---- */

  const plan = JSON.parse(one("#plan").textContent);
  const steps = plan.steps, ranges = plan.ranges;
  const stepCount = steps.op.at.length, rangeCount = ranges.size.length, length = plan.length;
  const text = (column, i) => column.texts[column.at[i]];
  const nameOf = range => text(ranges.name, range);
  const isGiven = range => plan.given[ranges.class[range]] === 1;
  const isDrawn = range => ranges.space[range] === 0 && ranges.begin[range] < ranges.end[range] && ranges.size[range] > 0;
  const drawn = [];
  for (let i = 0; i < rangeCount; i++) if (isDrawn(i)) drawn.push(i);
  const backward = +one(".passes").dataset.backward;

  /* Live bytes by class and position; a byte of an alias chain counts once, for the newest
   * class. */
  function findCurves() {
    const curves = plan.classes.map(() => new Float64Array(length + 1));
    const last = plan.classes.length - 1;
    for (let i = 0; i < rangeCount; i++) {
      if (ranges.space[i] !== 0) continue;
      const alias = ranges.alias[i], begin = ranges.begin[i] + (alias >= 0 ? 1 : 0), end = ranges.end[i];
      const size = ranges.size[i], own = curves[ranges.class[i]];
      const padding = (plan.alignment - size % plan.alignment) % plan.alignment;
      if (begin < end) {
        own[begin] += size; own[end] -= size;
        curves[last][begin] += padding; curves[last][end] -= padding;
      }
      if (alias < 0 || ranges.begin[i] >= length) continue;
      const at = ranges.begin[i], older = curves[ranges.class[alias]];
      older[at] -= ranges.size[alias]; older[at + 1] += ranges.size[alias];
      own[at] += ranges.size[alias]; own[at + 1] -= ranges.size[alias];
    }
    for (const curve of curves) for (let p = 1; p < length; p++) curve[p] += curve[p - 1];
    return curves;
  }
  const curves = findCurves();

  /* ---- Words ---- */

  const digits = number => String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ",");
  const size = bytes => bytes > 0 && bytes < plan.unit_bytes / 100 ? digits(bytes) + " B" : (bytes / plan.unit_bytes).toFixed(2) + " " + plan.unit;
  const middle = (name, columns) => {
    const characters = Array.from(name);
    if (characters.length <= columns) return name;
    const head = Math.floor((columns - 1) / 2);
    return characters.slice(0, head).join("") + "\u2026" + characters.slice(characters.length - (columns - 1 - head)).join("");
  };
  /* As the program shows strings: characters that hide or turn text become visible. */
  const plain = string => string.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, "\ufffd");
  const describeStep = step => stepCount === 0 ? "no steps" : plain(text(steps.op, step) + " " + text(steps.node, step) + (text(steps.source, step) ? " \u00b7 " + text(steps.source, step) : ""));

  /* ---- State ---- */

  const state = {from: 0, to: length, step: -1, pin: -1, off: new Set(), least: 0, query: ""};
  const whole = () => state.from === 0 && state.to === length;

  function writeHash() {
    const parts = [];
    if (!whole()) parts.push("x=" + state.from + "-" + state.to);
    if (state.step >= 0) parts.push("s=" + state.step);
    if (state.pin >= 0) parts.push("v=" + state.pin);
    if (state.off.size) parts.push("off=" + Array.from(state.off).sort((a, b) => a - b).join(","));
    if (state.least) parts.push("min=" + state.least);
    if (state.query) parts.push("q=" + encodeURIComponent(state.query));
    const hash = parts.length ? "#" + parts.join("&") : "";
    if (hash !== location.hash && !(hash === "" && /^#s\d+$/.test(location.hash)))
      history.replaceState(null, "", hash || location.pathname + location.search);
  }
  function readHash() {
    if (/^#s\d+$/.test(location.hash)) return false;
    const said = new URLSearchParams(location.hash.slice(1));
    const number = (key, top) => {
      const value = parseInt(said.get(key), 10);
      return value >= 0 && value < top ? value : -1;
    };
    const view = /^(\d+)-(\d+)$/.exec(said.get("x") || "");
    state.from = 0; state.to = length;
    if (view && +view[1] < +view[2] && +view[2] <= length) { state.from = +view[1]; state.to = +view[2]; }
    state.step = number("s", length);
    state.pin = number("v", rangeCount);
    state.off = new Set((said.get("off") || "").split(",").filter(word => /^\d+$/.test(word) && +word < plan.classes.length).map(Number));
    state.least = Math.max(0, number("min", Infinity));
    state.query = said.get("q") || "";
    return true;
  }

  /* ---- Geometry ---- */

  const xOf = position => (position - state.from) / (state.to - state.from) * WIDTH;
  const percent = position => xOf(position) / WIDTH * 100 + "%";
  const fixed = number => String(Math.round(number * 100) / 100);
  let curveTop = plan.top, mapLow = 0, mapHigh = plan.top;

  function niceStep(top, wanted) {
    const power = Math.pow(10, Math.floor(Math.log10(top / wanted)));
    for (const step of [1, 2, 5, 10]) if (step * power * wanted >= top) return step * power;
    return 10 * power;
  }
  function drawGutter(chart, low, high, above, height) {
    const gutter = one(".gutter", chart), span = (high - low) / plan.unit_bytes, step = niceStep(span || 1, 6);
    const places = step >= 1 ? 0 : Math.ceil(-Math.log10(step));
    all("text", gutter).slice(1).forEach(label => label.remove());
    for (let mark = Math.ceil(low / plan.unit_bytes / step) * step; mark * plan.unit_bytes <= high * 1.0001; mark += step)
      gutter.append(draw("text", {x: 64, y: fixed(above + height - (mark * plan.unit_bytes - low) / (high - low) * height + 4)}, mark.toFixed(places)));
  }
  function drawStepAxis(chart) {
    const marks = one(".marks", chart), passes = one(".passes", chart);
    const step = Math.max(1, niceStep(state.to - state.from, 10));
    marks.replaceChildren();
    for (let mark = Math.ceil(state.from / step) * step; mark < state.to; mark += step)
      marks.append(draw("text", {x: percent(mark + 0.5), y: 14}, String(mark)));
    passes.replaceChildren();
    if (backward === stepCount) return;
    for (const [name, begin, end] of [["forward", 0, backward], ["backward", backward, stepCount]]) {
      const left = Math.max(begin, state.from), right = Math.min(end, state.to);
      if (left >= right) continue;
      passes.append(draw("rect", {class: "pass " + name, x: percent(left), y: 24, width: (right - left) / (state.to - state.from) * 100 + "%", height: 3}),
        draw("text", {class: "pass", x: percent(left), y: 40}, name));
    }
  }

  /* ---- The curve ---- */

  const curveChart = one("#curve"), mapChart = one("#map");
  const shown = () => plan.classes.map((_, c) => c).filter(c => !state.off.has(c));
  function sumAt(classes, p) {
    let sum = 0;
    for (const c of classes) sum += curves[c][p];
    return sum;
  }
  /* As in curve.c: all positions, or for each pixel column those of the least and the largest
   * sum. */
  function findSamples(classes) {
    const count = state.to - state.from, samples = [];
    if (count <= 2 * WIDTH) {
      for (let p = state.from; p < state.to; p++) samples.push(p);
      return samples;
    }
    for (let column = 0; column < WIDTH; column++) {
      const begin = state.from + Math.floor(column * count / WIDTH), end = state.from + Math.floor((column + 1) * count / WIDTH);
      let low = begin, high = begin, least = Infinity, most = -1;
      for (let p = begin; p < end; p++) {
        const sum = sumAt(classes, p);
        if (sum < least) { least = sum; low = p; }
        if (sum > most) { most = sum; high = p; }
      }
      samples.push(Math.min(low, high), Math.max(low, high));
    }
    return samples;
  }
  /* Names are as long as there is room for, on the side with more room. */
  function labelPeaks() {
    const wide = one(".plot", curveChart).clientWidth || WIDTH, LETTER = 7.3, GUTTER = 72;
    for (const peak of all(".peaks g", curveChart)) {
      const label = one("text", peak), where = one(".where", label), x = xOf(+peak.dataset.step + 0.5) / WIDTH * wide;
      const before = label.textContent.length - where.textContent.length;
      const right = Math.floor((wide - x) / LETTER) - before, left = Math.floor((x + GUTTER) / LETTER) - before, name = where.dataset.name;
      const fits = Math.min(name.length, 90);
      label.setAttribute("class", right >= fits || right >= left ? "start" : "end");
      where.textContent = middle(name, Math.max(8, Math.min(90, Math.max(right >= fits ? right : 0, right >= left ? right : left))));
    }
  }
  function drawCurve() {
    const classes = shown(), samples = findSamples(classes), width = WIDTH / samples.length;
    curveTop = plan.top;
    if (state.off.size) curveTop = Math.max(1, ...samples.map(p => sumAt(classes, p))) * 1.02;
    const yOf = bytes => CURVE - bytes / curveTop * CURVE;
    let below = new Float64Array(samples.length);
    for (const path of all(".area", curveChart)) {
      const c = +path.dataset.class;
      if (state.off.has(c)) { path.setAttribute("d", ""); continue; }
      const sums = below.map((bytes, i) => bytes + curves[c][samples[i]]);
      const parts = [];
      for (let i = 0; i < samples.length; i++) parts.push((i ? "V" : "M0 ") + fixed(yOf(sums[i])) + "H" + fixed((i + 1) * width));
      for (let i = samples.length - 1; i >= 0; i--) parts.push("V" + fixed(yOf(below[i])) + "H" + fixed(i * width));
      path.setAttribute("d", parts.join("") + "Z");
      below = sums;
    }
    for (const line of all(".shapes .line", curveChart)) line.classList.toggle("hidden", state.off.size > 0);
    for (const peak of all(".peaks g", curveChart)) {
      const at = +peak.dataset.step, inside = at >= state.from && at < state.to, mark = one("line", peak), label = one("text", peak);
      peak.classList.toggle("hidden", !inside);
      mark.setAttribute("x1", percent(at + 0.5)); mark.setAttribute("x2", percent(at + 0.5));
      mark.setAttribute("y2", fixed(ABOVE + yOf(sumAt(classes, at))));
      label.setAttribute("x", percent(at + 0.5));
    }
    labelPeaks();
    drawGutter(curveChart, 0, curveTop, ABOVE, CURVE);
    drawStepAxis(curveChart);
  }

  /* ---- The map ---- */

  const inMap = range => !state.off.has(ranges.class[range]) && ranges.size[range] >= state.least * 1024;
  function drawMap() {
    const seen = drawn.filter(i => inMap(i) && ranges.begin[i] < state.to && ranges.end[i] > state.from);
    mapLow = 0; mapHigh = plan.top;
    if (state.off.size && seen.length) {
      mapLow = Infinity; mapHigh = 0;
      const moving = seen.filter(i => ranges.begin[i] > 0 || ranges.end[i] < length);
      for (const i of moving.length ? moving : seen) {
        mapLow = Math.min(mapLow, ranges.offset[i]);
        mapHigh = Math.max(mapHigh, ranges.offset[i] + ranges.size[i]);
      }
    }
    const scale = MAP / (mapHigh - mapLow), boxes = seen.map(boxOf);
    function boxOf(i) {
      const left = xOf(Math.max(ranges.begin[i], state.from)), right = xOf(Math.min(ranges.end[i], state.to));
      return {i, x: left, y: MAP - (ranges.offset[i] + ranges.size[i] - mapLow) * scale, w: right - left, h: ranges.size[i] * scale};
    }
    boxes.sort((a, b) => b.w * b.h - a.w * a.h || a.i - b.i);
    const parts = [], small = plan.classes.map(() => []);
    for (const box of boxes.slice(MAX_BOXES)) {
      const w = fixed(Math.max(box.w, 0.3)), h = fixed(Math.max(box.h, 0.3));
      small[ranges.class[box.i]].push("M" + fixed(box.x) + " " + fixed(box.y) + "h" + w + "v" + h + "h-" + w + "z");
    }
    small.forEach((pieces, c) => { if (pieces.length) parts.push('<path class="small" data-class="' + c + '" fill="url(#p' + c + ')" d="' + pieces.join("") + '"/>'); });
    for (const box of boxes.slice(0, MAX_BOXES))
      parts.push('<rect x="' + fixed(box.x) + '" y="' + fixed(box.y) + '" width="' + fixed(box.w) + '" height="' + fixed(box.h) + '" fill="url(#' + (ranges.copy[box.i] ? "r" : "p") + ranges.class[box.i] + (box.h < 3 || box.w < 3 ? ')" class="thin" data-range="' : ')" data-range="') + box.i + '"/>');
    one(".boxes", mapChart).innerHTML = parts.join("");
    for (const mark of all(".joint, .hole", mapChart)) mark.classList.toggle("hidden", !whole() || state.off.size > 0);
    const names = one(".names", mapChart);
    names.replaceChildren();
    for (const box of boxes.slice(0, MAX_BOXES)) {
      const columns = Math.floor(box.w / 11);
      if (names.childElementCount >= MAX_NAMES) break;
      if (box.h < 13 || columns < 8) continue;
      names.append(draw("text", {class: "on" + ranges.class[box.i], x: box.x / 10 + 0.4 + "%", y: fixed(box.y + box.h / 2 + 4)}, middle(plain(nameOf(box.i)), Math.min(columns, 44))));
    }
    drawGutter(mapChart, mapLow, mapHigh, 8, MAP);
    drawStepAxis(mapChart);
  }

  /* ---- Over the pictures ---- */

  function overlay(chart) {
    const layer = draw("g", {class: "layer"});
    one(".plot", chart).append(layer);
    return layer;
  }
  const curveLayer = overlay(curveChart), mapLayer = overlay(mapChart);
  const curveCursor = overlay(curveChart), mapCursor = overlay(mapChart);
  const status = make("p", {class: "panel", role: "status", id: "status"});
  const panel = make("p", {class: "panel", role: "status", id: "pinned"});
  curveChart.after(status);
  mapChart.after(panel);

  const upright = (layer, kind, position, height) => {
    if (position >= state.from && position < state.to)
      layer.append(draw("line", {class: kind, x1: percent(position + 0.5), x2: percent(position + 0.5), y1: layer === curveLayer || layer === curveCursor ? ABOVE : 8, y2: height}));
  };
  function outline(kind, range) {
    const left = Math.max(ranges.begin[range], state.from), right = Math.min(ranges.end[range], state.to), scale = MAP / (mapHigh - mapLow);
    if (left >= right || !isDrawn(range) || !inMap(range)) return;
    mapLayer.append(draw("rect", {class: kind, x: percent(left), width: (right - left) / (state.to - state.from) * 100 + "%",
      y: fixed(8 + MAP - (ranges.offset[range] + ranges.size[range] - mapLow) * scale), height: fixed(Math.max(2, ranges.size[range] * scale))}));
  }
  /* The ranges that take over its bytes, and those whose bytes it took over. */
  function chainOf(range) {
    const chain = new Set([range]);
    for (let at = ranges.alias[range]; at >= 0 && !chain.has(at); at = ranges.alias[at]) chain.add(at);
    for (let grew = true; grew;) {
      grew = false;
      for (const i of drawn) if (ranges.alias[i] >= 0 && chain.has(ranges.alias[i]) && !chain.has(i)) { chain.add(i); grew = true; }
    }
    return chain;
  }
  const readersOf = range => ranges.readers[range] || [];
  function found() {
    const query = state.query.toLowerCase();
    if (!query) return [];
    return drawn.filter(i => nameOf(i).toLowerCase().includes(query) ||
      !isGiven(i) && stepCount && (text(steps.op, ranges.begin[i]).toLowerCase().includes(query) || text(steps.node, ranges.begin[i]).toLowerCase().includes(query)));
  }
  let matches = [];
  function drawMarks() {
    curveLayer.replaceChildren();
    mapLayer.replaceChildren();
    for (const i of matches.slice(0, 300)) outline("found", i);
    if (state.pin >= 0) {
      for (const i of chainOf(state.pin)) outline("pin", i);
      for (const layer of [curveLayer, mapLayer]) {
        const height = layer === mapLayer ? 8 + MAP : ABOVE + CURVE;
        for (const reader of readersOf(state.pin).slice(0, 200)) upright(layer, "reader", reader, height);
        if (!isGiven(state.pin)) upright(layer, "maker", ranges.begin[state.pin], height);
      }
    }
    sayPin();
    for (const row of all("tr.pinned")) row.classList.remove("pinned");
    for (const row of all('tr[data-range="' + state.pin + '"]')) row.classList.add("pinned");
    moveCursor();
  }
  /* Runs whenever the pointer moves: nothing else is drawn. */
  function moveCursor() {
    curveCursor.replaceChildren();
    mapCursor.replaceChildren();
    if (state.step >= 0) {
      upright(curveCursor, "cursor", state.step, ABOVE + CURVE);
      upright(mapCursor, "cursor", state.step, 8 + MAP);
    }
    sayStep();
  }
  const always = plan.classes.map((_, c) => c).filter(c => curves[c].slice(0, length).every(bytes => bytes === curves[c][0]));
  const share = sumAt(always, plan.peak) / (sumAt(plan.classes.map((_, c) => c), plan.peak) || 1);
  const hint = share > 0.5 ? " " + Math.round(100 * share) + " % of the peak is the same at all steps: \u201cOnly what changes\u201d hides that." : "";
  function sayStep() {
    const step = state.step;
    if (step < 0) { status.textContent = "Point at the picture, or focus it and press an arrow key." + hint; return; }
    status.textContent = "Step " + step + " of " + length + ": " + describeStep(step) + ", " + size(sumAt(plan.classes.map((_, c) => c), step)) + " live.";
  }
  function sayPin() {
    const range = state.pin;
    panel.replaceChildren();
    if (range < 0) { panel.textContent = "Click a box to keep it here, with the step that makes it (green) and those that read it (orange)."; return; }
    const readers = readersOf(range);
    panel.append(make("span", {class: "n"}, plain(nameOf(range))),
      " " + plain(text(ranges.type, range)) + ", " + plan.classes[ranges.class[range]] + ", " + size(ranges.size[range]) + " = " + digits(ranges.size[range]) +
      " bytes at " + digits(ranges.offset[range]) + ", steps " + ranges.begin[range] + " to " + (ranges.end[range] - 1) + "; " +
      (isGiven(range) ? "given" : "made by step " + ranges.begin[range] + ", " + describeStep(ranges.begin[range])) +
      (readers.length ? "; read by " + readers.slice(0, 6).map(step => step + " (" + plain(text(steps.op, step)) + ")").join(", ") + (readers.length > 6 ? " and " + (readers.length - 6) + " more" : "") : "") + ".");
  }

  /* ---- Cards ---- */

  const card = make("div", {class: "card"});
  card.hidden = true;
  document.body.append(card);
  function showCard(event, lines) {
    card.replaceChildren(...lines.map((line, i) => make(i ? "div" : "b", {}, line)));
    card.hidden = false;
    const wide = card.offsetWidth, high = card.offsetHeight, right = event.pageX + 16 + wide > window.scrollX + document.documentElement.clientWidth;
    card.style.left = Math.max(8, right ? event.pageX - wide - 16 : event.pageX + 16) + "px";
    card.style.top = Math.max(window.scrollY + 8, Math.min(event.pageY + 16, window.scrollY + window.innerHeight - high - 8)) + "px";
  }
  function stepLines(step) {
    const lines = ["Step " + step + ": " + (stepCount ? plain(text(steps.op, step)) : ""), stepCount ? plain(text(steps.node, step)) : ""];
    if (stepCount && text(steps.source, step)) lines.push(plain(text(steps.source, step)));
    lines.push(size(sumAt(plan.classes.map((_, c) => c), step)) + " live");
    plan.classes.forEach((label, c) => { if (curves[c][step] > 0) lines.push(size(curves[c][step]) + "  " + label); });
    return lines;
  }
  function rangeLines(range) {
    const lines = [plain(nameOf(range)), plain(text(ranges.type, range)) + ", " + plan.classes[ranges.class[range]],
      size(ranges.size[range]) + " = " + digits(ranges.size[range]) + " bytes at " + digits(ranges.offset[range]),
      "steps " + ranges.begin[range] + " to " + (ranges.end[range] - 1) + ", held for " + (ranges.end[range] - ranges.begin[range])];
    if (ranges.copy[range]) lines.push("computed again");
    if (!isGiven(range) && stepCount) lines.push("made by " + describeStep(ranges.begin[range]));
    return lines;
  }
  function rangeAt(step, address) {
    let best = -1;
    for (const i of drawn)
      if (ranges.begin[i] <= step && step < ranges.end[i] && ranges.offset[i] <= address && address < ranges.offset[i] + ranges.size[i] && inMap(i) &&
        (best < 0 || ranges.begin[i] > ranges.begin[best])) best = i;
    return best;
  }

  /* ---- Pointer: hover, click, brush ---- */

  const stepAt = (chart, event) => {
    const box = one(".plot", chart).getBoundingClientRect();
    const part = Math.min(0.999999, Math.max(0, (event.clientX - box.left) / box.width));
    return Math.min(length - 1, Math.floor(state.from + part * (state.to - state.from)));
  };
  function targetAt(event) {
    const box = one(".plot", mapChart).getBoundingClientRect();
    return rangeAt(stepAt(mapChart, event), mapLow + (MAP - (event.clientY - box.top - 8)) / MAP * (mapHigh - mapLow));
  }
  function watch(chart, layer, height, hover, click) {
    const plot = one(".plot", chart);
    let start = null, brush = null;
    plot.addEventListener("pointermove", event => {
      const step = stepAt(chart, event);
      if (start !== null && event.buttons && Math.abs(event.clientX - start.x) > 4) {
        brush = brush || draw("rect", {class: "brush", y: 0, height});
        brush.setAttribute("x", percent(Math.min(step, start.step)));
        brush.setAttribute("width", (Math.abs(step - start.step) + 1) / (state.to - state.from) * 100 + "%");
        layer.append(brush);
        return;
      }
      if (state.step !== step) { state.step = step; moveCursor(); }
      hover(event, step);
    });
    plot.addEventListener("pointerdown", event => { if (event.button === 0) { start = {x: event.clientX, step: stepAt(chart, event)}; plot.setPointerCapture(event.pointerId); } });
    plot.addEventListener("pointerup", event => {
      if (start === null) return;
      const step = stepAt(chart, event), from = Math.min(step, start.step), to = Math.max(step, start.step) + 1, brushed = brush !== null;
      start = null;
      if (brush) brush.remove();
      brush = null;
      if (brushed && to - from >= 2) zoom(from, to);
      else click(event, step);
      writeHash();
    });
    plot.addEventListener("pointerleave", () => { card.hidden = true; });
    plot.addEventListener("dblclick", () => zoom(0, length));
  }

  /* ---- Changes of the state ---- */

  let wanted = false;
  function redraw() {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame(() => { wanted = false; drawAll(); });
  }
  function drawAll() {
    drawCurve();
    drawMap();
    matches = found();
    drawMarks();
    showTools();
    writeHash();
  }
  function zoom(from, to) {
    state.from = Math.max(0, from);
    state.to = Math.min(length, Math.max(to, state.from + 1));
    redraw();
  }
  function goTo(step) {
    state.step = Math.max(0, Math.min(length - 1, step));
    const span = state.to - state.from;
    if (state.step < state.from || state.step >= state.to) {
      const from = Math.max(0, Math.min(length - span, state.step - Math.floor(span / 2)));
      zoom(from, from + span);
      return;
    }
    moveCursor();
    writeHash();
  }
  function pin(range) {
    state.pin = state.pin === range ? -1 : range;
    drawMarks();
    writeHash();
  }

  /* ---- Keys ---- */

  const peaks = all(".peaks g", curveChart).map(peak => +peak.dataset.step);
  let rank = 0;
  /* Pins the next value above or below the pinned one, at the cursor. */
  function pinNext(direction) {
    const step = state.step >= 0 ? state.step : plan.peak;
    const alive = drawn.filter(i => inMap(i) && ranges.begin[i] <= step && step < ranges.end[i]).sort((a, b) => ranges.offset[a] - ranges.offset[b] || a - b);
    if (!alive.length) return;
    const at = alive.indexOf(state.pin);
    state.step = step;
    state.pin = alive[at < 0 ? (direction > 0 ? 0 : alive.length - 1) : Math.max(0, Math.min(alive.length - 1, at + direction))];
    drawMarks();
    writeHash();
  }
  function onKey(event) {
    const target = event.target, inChart = target.closest && target.closest(".chart");
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName) || target !== document.body && !inChart) return;
    const current = state.step < 0 ? plan.peak : state.step, stride = event.shiftKey ? 10 : 1;
    if (event.key === "ArrowLeft") goTo(state.step < 0 ? current : current - stride);
    else if (event.key === "ArrowRight") goTo(state.step < 0 ? current : current + stride);
    else if (event.key === "p") { rank = 0; goTo(plan.peak); }
    else if (event.key === "n" && peaks.length) { rank = (rank + 1) % peaks.length; goTo(peaks[rank]); }
    else if (event.key === "Home") reset();
    else if (event.key === "Escape") { state.pin = -1; drawMarks(); writeHash(); }
    else if (event.key === "ArrowUp" && inChart) pinNext(1);
    else if (event.key === "ArrowDown" && inChart) pinNext(-1);
    else return;
    if (event.key !== "Home" || inChart) event.preventDefault();
  }
  function reset() {
    Object.assign(state, {from: 0, to: length, step: -1, pin: -1, least: 0, query: ""});
    state.off = new Set();
    redraw();
  }

  /* ---- Tools: search, toggles ---- */

  const tools = one("#tools");
  const search = make("input", {type: "search", "aria-label": "Find a value, node or operator", id: "search"});
  const least = make("input", {type: "number", min: 0, step: 1, id: "least", "aria-label": "Hide values below so many KiB"});
  const changing = make("button", {type: "button"}, "Only what changes"), everything = make("button", {type: "button"}, "Show all");
  const matched = make("span", {id: "matched", role: "status"}), hiddenSum = make("span", {id: "hidden", role: "status"});
  function fillTools() {
    const find = make("label", {}, "find "), label = make("label", {}, "hide below ");
    find.append(search);
    label.append(least, "KiB");
    least.style.width = "80px";
    tools.append(find, label, changing, everything, matched, hiddenSum);
    tools.hidden = false;
    search.addEventListener("input", () => { state.query = search.value; redraw(); });
    search.addEventListener("keydown", event => {
      if (event.key !== "Enter" || !matches.length) return;
      const next = matches[(matches.indexOf(state.pin) + 1) % matches.length];
      state.pin = next;
      drawMarks();
      goTo(ranges.begin[next]);
    });
    least.addEventListener("input", () => { state.least = Math.max(0, Math.floor(+least.value) || 0); redraw(); });
    changing.addEventListener("click", () => { state.off = new Set(always); redraw(); });
    everything.addEventListener("click", reset);
    for (const key of all(".legend .key")) {
      const button = make("button", {type: "button", class: "key", "data-class": key.dataset.class});
      button.append(...key.childNodes);
      key.replaceWith(button);
      button.addEventListener("click", () => {
        const c = +button.dataset.class;
        if (state.off.has(c)) state.off.delete(c);
        else state.off.add(c);
        redraw();
      });
    }
  }
  function showTools() {
    if (document.activeElement !== search) search.value = state.query;
    if (document.activeElement !== least) least.value = state.least || "";
    matched.textContent = state.query ? matches.length + " found" : "";
    let count = 0, bytes = 0;
    for (const i of drawn) {
      if (inMap(i)) continue;
      count++;
      if (ranges.begin[i] <= plan.peak && plan.peak < ranges.end[i]) bytes += ranges.size[i];
    }
    hiddenSum.textContent = count ? count + " values hidden, " + size(bytes) + " at the peak" : "";
    for (const button of all("button.key")) button.setAttribute("aria-pressed", String(!state.off.has(+button.dataset.class)));
  }

  /* ---- Tables ---- */

  const FIXED = new Set(["sums", "process", "bounds", "waste", "compared"]);
  function keyOf(cell) {
    if (!cell) return "";
    const words = cell.textContent.trim(), number = parseFloat(words.replace(/,/g, "").replace(/^[\u2212]/, "-").replace(/^[+\u00b1]/, ""));
    return cell.classList.contains("r") ? (isNaN(number) ? -Infinity : number) : words;
  }
  function sortBy(table, column, head) {
    const body = table.tBodies[0], rows = Array.from(body.rows);
    const up = head.getAttribute("aria-sort") === "descending";
    const last = rows.filter(row => row.classList.contains("others")), rest = rows.filter(row => !row.classList.contains("others"));
    const keys = new Map(rest.map((row, i) => [row, [keyOf(row.cells[column]), i]]));
    rest.sort((a, b) => {
      const [x, i] = keys.get(a), [y, k] = keys.get(b);
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en");
      return (up ? order : -order) || i - k;
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rest, ...last);
  }
  function fillTables() {
    for (const table of all(".scroll > table")) {
      if (FIXED.has(table.className)) continue;
      Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
        if (!head.textContent) return;
        const button = make("button", {type: "button"}, head.textContent);
        head.replaceChildren(button);
        button.addEventListener("click", () => sortBy(table, column, head));
      });
    }
    document.addEventListener("click", event => {
      const row = event.target.closest && event.target.closest("tr[data-range]");
      if (row && !String(getSelection())) pin(+row.dataset.range);
    });
  }
  /* Adds the rows that the program left to the file of --csv. */
  function completeTwin() {
    const twin = one("#t4"), others = one("tr.others", twin);
    if (!others) return;
    twin.addEventListener("toggle", () => {
      if (!twin.open || !others.isConnected) return;
      const have = new Set(all("tr[data-range]", twin).map(row => +row.dataset.range)), rows = document.createDocumentFragment();
      for (const i of drawn) {
        if (have.has(i)) continue;
        const row = make("tr", {"data-range": i}), name = plain(nameOf(i)), cell = make("td"), shownName = make("span", {class: "n"}, middle(name, 48));
        if (name !== shownName.textContent) shownName.title = name;
        cell.append(shownName);
        row.append(cell, make("td", {class: "m"}, plain(text(ranges.type, i))), make("td", {}, plan.classes[ranges.class[i]]));
        for (const number of [digits(ranges.size[i]), digits(ranges.offset[i]), String(ranges.begin[i]), String(ranges.end[i] - 1)]) row.append(make("td", {class: "r"}, number));
        rows.append(row);
      }
      others.replaceWith(rows);
    });
  }
  /* Copies the whole of a name that is shown cut. */
  function copyWhole(event) {
    const selection = getSelection();
    if (!selection.rangeCount || !event.clipboardData) return;
    const part = selection.getRangeAt(0).cloneContents(), cut = all(".n[title]", part);
    const anchor = selection.anchorNode.nodeType === Node.ELEMENT_NODE ? selection.anchorNode : selection.anchorNode.parentElement;
    const around = anchor && anchor.closest(".n[title]");
    if (!cut.length && !(around && around.contains(selection.focusNode) && String(selection) === around.textContent)) return;
    for (const name of cut) name.textContent = name.title;
    event.clipboardData.setData("text/plain", cut.length ? part.textContent : around.title);
    event.preventDefault();
  }

  /* ---- Begin ---- */

  function begin() {
    fillTools();
    fillTables();
    completeTwin();
    for (const chart of [curveChart, mapChart]) chart.setAttribute("tabindex", "0");
    watch(curveChart, curveLayer, ABOVE + CURVE, (event, step) => showCard(event, stepLines(step)), (event, step) => goTo(step));
    watch(mapChart, mapLayer, 8 + MAP, event => {
      const range = targetAt(event);
      if (range >= 0) showCard(event, rangeLines(range));
      else card.hidden = true;
    }, event => {
      const range = targetAt(event);
      if (range >= 0) pin(range);
    });
    document.addEventListener("keydown", onKey);
    window.addEventListener("resize", labelPeaks);
    document.addEventListener("copy", copyWhole);
    window.addEventListener("hashchange", () => { if (readHash()) drawAll(); });
    if (readHash() && location.hash.length > 1) drawAll();
    else { matches = []; labelPeaks(); drawMarks(); showTools(); }
    document.documentElement.dataset.ready = String(Math.round(performance.now()));
  }
  begin();
})();
