"use strict";

const report = JSON.parse(document.getElementById("data").textContent);
const COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"];
const HOP_COLORS = ["#ffffff", "#fde725", "#a0da39", "#4ac16d", "#1fa187", "#277f8e", "#365c8d", "#46327e", "#440154"];
const UNREACHABLE = "#c4c4c4";
const NO_PARENT = 0xffff;
const SVG = "http://www.w3.org/2000/svg";

const state = { text: 0, layer: null, head: 0, from: null, to: null };
const byId = (id) => document.getElementById(id);

// data enters the page as text only, never as HTML
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function shape(tag, attributes = {}, text = null) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  return node;
}

function swatch(number) {
  const node = element("span", { class: "swatch" });
  node.style.background = COLORS[number % COLORS.length];
  return node;
}

const number = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));

function bytes(text) {
  const raw = atob(text);
  const result = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) result[i] = raw.charCodeAt(i);
  return result.buffer;
}

// matrices are decoded when they are first needed
function unpack(head, n) {
  if (!head.matrix) head.matrix = { weights: new Float32Array(bytes(head.weights)), parents: new Uint16Array(bytes(head.parents)), hops: null };
  if (!head.matrix.hops) head.matrix.hops = hopsOf(head.matrix.parents, n);
  return head.matrix;
}

function hopsOf(parents, n) {
  const hops = new Int16Array(n * n).fill(-1);
  for (let i = 0; i < n; i++) {
    hops[i * n + i] = 0;
    for (let j = 0; j < n; j++) {
      const trail = [];
      let token = j;
      while (hops[i * n + token] < 0 && parents[i * n + token] !== NO_PARENT) {
        trail.push(token);
        token = parents[i * n + token];
      }
      let count = hops[i * n + token];
      if (count < 0) continue;
      while (trail.length) hops[i * n + trail.pop()] = ++count;
    }
  }
  return hops;
}

function pathOf(parents, n, from, to) {
  const path = [to];
  while (path[0] !== from) {
    const before = parents[from * n + path[0]];
    if (before === NO_PARENT) return null;
    path.unshift(before);
  }
  return path;
}

const example = () => report.examples[state.text];
const currentHead = (model) => example().models[model].heads.find((head) => head.layer === state.layer && head.head === state.head);

function fill(select, labels, chosen) {
  select.replaceChildren(...labels.map(([value, label]) => element("option", { value }, label)));
  select.value = String(chosen);
}

// source and translation have different layers
function setUpLayers() {
  const layers = [...new Set(example().models.flatMap((model) => model.heads.map((head) => head.layer)))];
  if (!layers.includes(state.layer)) state.layer = layers[0];
  fill(byId("layer"), layers.map((name) => [name, name]), state.layer);
  setUpHeads();
}

function drawCross() {
  const pictures = example().models.map((model) => model.cross_attention).filter(Boolean);
  byId("crossing").hidden = !pictures.length;
  byId("cross").replaceChildren(...pictures.map((picture, i) => element("figure", {},
    element("figcaption", {}, swatch(i), report.models[i].label),
    element("div", { class: "scroll" }, element("img", { src: picture, alt: "cross-attention" })))));
}

function setUpControls() {
  fill(byId("text"), report.examples.map((item, i) => [i, `${item.title}: ${item.pixels ? item.label ?? "" : item.words.slice(0, 8).join(" ")}${!item.pixels && item.words.length > 8 ? " …" : ""}`]), 0);
  setUpLayers();
  byId("text").addEventListener("change", (event) => {
    state.text = Number(event.target.value);
    state.from = state.to = null;
    setUpLayers();
    draw();
  });
  byId("layer").addEventListener("change", (event) => {
    state.layer = event.target.value;
    setUpHeads();
    draw();
  });
  byId("head").addEventListener("change", (event) => {
    state.head = Number(event.target.value);
    draw();
  });
}

function setUpHeads() {
  const all = example().models.flatMap((model) => model.heads.filter((head) => head.layer === state.layer).map((head) => head.head));
  const heads = [...new Set(all)].sort((a, b) => a - b);
  if (!heads.includes(state.head)) state.head = heads[0];
  fill(byId("head"), heads.map((head) => [head, String(head)]), state.head);
}

const MEASURES = [
  ["spectral_gap", "spectral gap"], ["entropy", "entropy"], ["tv_to_uniform", "TV to uniform"],
  ["effective_rank", "effective rank"], ["mean_hops", "mean hops"], ["max_hops", "max hops"], ["unreachable", "unreachable"],
];

function drawMeasures() {
  const head = element("tr", {}, element("th", {}, "this example"), element("th", {}, "prediction"), ...MEASURES.map(([, label]) => element("th", {}, label)));
  const rows = report.models.map((model, i) => {
    const own = currentHead(i);
    const result = example().models[i];
    return element("tr", {}, element("td", {}, swatch(i), model.label),
      element("td", { class: "prediction", title: result.prediction }, `${number(result.probability, 2)} ${result.prediction}`),
      ...MEASURES.map(([name]) => element("td", {}, own ? number(own.measures[name], name === "max_hops" || name === "unreachable" ? 0 : 3) : "no such head")));
  });
  const parts = [element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))];
  if (report.split) {
    const title = element("tr", {}, element("th", {}, `this head: mean ± std over ${report.split.count} examples of ${report.split.name}`), element("th", {}), ...MEASURES.map(() => element("th", {})));
    const more = report.models.map((model, i) => {
      const own = report.split.models[i].find((head) => head.layer === state.layer && head.head === state.head);
      return element("tr", {}, element("td", {}, swatch(i), model.label), element("td", {}),
        ...MEASURES.map(([name]) => {
          const value = own && own.measures[name];
          return value ? element("td", {}, number(value.mean, 3), element("span", { class: "spread" }, ` ±${number(value.std, 2)}`)) : element("td", {}, "–");
        }));
    });
    parts[0].append(element("tbody", {}, title, ...more));
  }
  byId("measures").replaceChildren(element("div", { class: "scroll" }, ...parts));
}

function choose(token) {
  if (state.from === null || state.to !== null) {
    state.from = token;
    state.to = null;
  } else {
    state.to = token;
  }
  drawPaths();
}

function tokenText(place) {
  return `${example().words[place]} (${place + 1})`;
}

function drawPaths() {
  const words = example().words;
  const routes = state.to === null ? [] : report.models.map((_, i) => {
    const own = currentHead(i);
    return own ? pathOf(unpack(own, words.length).parents, words.length, state.from, state.to) : undefined;
  });
  const passed = new Set(routes.flatMap((route) => route || []));
  byId("tokens").replaceChildren(...words.map((word, place) => {
    const role = place === state.from ? " from" : place === state.to ? " to" : passed.has(place) ? " on" : "";
    return element("button", { class: `token${role}`, type: "button", "data-token": place, title: `token ${place + 1}`, onclick: () => choose(place) }, word);
  }));
  byId("picked").textContent = state.from === null ? "No token selected."
    : state.to === null ? `From ${tokenText(state.from)} – now click the end token.`
    : `From ${tokenText(state.from)} to ${tokenText(state.to)}:`;
  byId("routes").replaceChildren(...routes.map((route, i) => routeRow(i, route)));
}

function routeRow(model, route) {
  const row = element("div", { class: "route", "data-model": model }, element("span", { class: "name" }, swatch(model), report.models[model].label));
  if (route === undefined) {
    row.append(element("span", { class: "count" }, "has no such head"));
  } else if (route === null) {
    row.append(element("span", { class: "count" }, "unreachable: no path of positive weights"));
  } else {
    const hops = route.length - 1;
    const n = example().words.length;
    const { weights } = unpack(currentHead(model), n);
    row.append(element("span", { class: "count" }, `${hops} ${hops === 1 ? "hop" : "hops"}`));
    route.forEach((place, step) => {
      if (step) row.append(element("span", { class: "hop" }, `—${weights[route[step - 1] * n + place].toPrecision(2)}→`));
      const role = step === 0 ? " from" : step === hops ? " to" : "";
      row.append(element("span", { class: `token${role}`, title: `token ${place + 1}` }, example().words[place]));
    });
  }
  return row;
}

function hopColor(hops) {
  return hops < 0 ? UNREACHABLE : HOP_COLORS[Math.min(hops, HOP_COLORS.length - 1)];
}

function drawHops() {
  const n = example().words.length;
  byId("hops").replaceChildren(...report.models.map((model, i) => {
    const own = currentHead(i);
    const figure = element("figure", {}, element("figcaption", {}, swatch(i), model.label));
    if (!own) return figure;
    const { hops } = unpack(own, n);
    const canvas = element("canvas", { width: n, height: n });
    const paint = canvas.getContext("2d");
    let most = 1;
    for (let place = 0; place < n * n; place++) {
      most = Math.max(most, hops[place]);
      paint.fillStyle = hopColor(hops[place]);
      paint.fillRect(place % n, Math.floor(place / n), 1, 1);
    }
    const cell = (event) => {
      const box = canvas.getBoundingClientRect();
      const at = (offset, size) => Math.min(n - 1, Math.max(0, Math.floor((offset / size) * n)));
      return [at(event.clientY - box.top, box.height), at(event.clientX - box.left, box.width)];
    };
    canvas.addEventListener("mousemove", (event) => {
      const [from, to] = cell(event);
      const count = hops[from * n + to];
      showTip(event, `${tokenText(from)} → ${tokenText(to)}: ${count < 0 ? "unreachable" : `${count} ${count === 1 ? "hop" : "hops"}`}`);
    });
    canvas.addEventListener("mouseleave", hideTip);
    canvas.addEventListener("click", (event) => {
      [state.from, state.to] = cell(event);
      drawPaths();
      byId("paths").scrollIntoView({ block: "nearest" });
    });
    const scale = element("div", { class: "scale" });
    for (let count = 1; count <= Math.min(most, HOP_COLORS.length - 1); count++) {
      const mark = element("span", { class: "swatch" });
      mark.style.background = hopColor(count);
      scale.append(element("span", {}, mark, `${count}${count === HOP_COLORS.length - 1 && most > count ? "+" : ""}`));
    }
    if (own.measures.unreachable > 0) {
      const mark = element("span", { class: "swatch" });
      mark.style.background = UNREACHABLE;
      scale.append(element("span", {}, mark, "unreachable"));
    }
    figure.append(canvas, scale);
    return figure;
  }));
}

function showTip(event, text) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  const right = event.clientX + 14 + tip.offsetWidth > window.innerWidth;
  tip.style.left = `${right ? event.clientX - 14 - tip.offsetWidth : event.clientX + 14}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

// round steps for an axis from low to high
function ticks(low, high, count = 5) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const result = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + 1e-9 * step; value += step) result.push(Number(value.toPrecision(6)));
  return result;
}

function frame(width, height, [x0, x1], [y0, y1], labels) {
  const left = 46, right = 10, top = 8, bottom = 36;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const x = (value) => left + ((value - x0) / (x1 - x0)) * (width - left - right);
  const y = (value) => height - bottom - ((value - y0) / (y1 - y0)) * (height - top - bottom);
  for (const value of ticks(x0, x1)) {
    svg.append(shape("line", { x1: x(value), x2: x(value), y1: top, y2: height - bottom, stroke: "#e8ecf1" }));
    svg.append(shape("text", { x: x(value), y: height - bottom + 14, "text-anchor": "middle" }, String(value)));
  }
  for (const value of ticks(y0, y1)) {
    svg.append(shape("line", { x1: left, x2: width - right, y1: y(value), y2: y(value), stroke: "#e8ecf1" }));
    svg.append(shape("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  svg.append(shape("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, labels[0]));
  svg.append(shape("text", { x: 11, y: (top + height - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(top + height - bottom) / 2})` }, labels[1]));
  return { svg, x, y };
}

function span(values, margin = 0.06) {
  const low = Math.min(...values), high = Math.max(...values);
  // a spread within rounding errors does not set the scale
  const room = high - low > 1e-9 * Math.max(1, Math.abs(high)) ? (high - low) * margin : Math.abs(high) * 0.1 > 1e-9 ? Math.abs(high) * 0.1 : 1;
  return [low - room, high + room];
}

// curves: {name, color, dashed, points: [[x, y], ...]}
function chart(target, curves, labels, yRange = null) {
  curves = curves.map((curve) => ({ ...curve, points: curve.points.filter((point) => point[1] !== null) })).filter((curve) => curve.points.length);
  if (!curves.length) {
    target.replaceChildren(element("p", { class: "hint" }, "Nothing to draw: no pair of tokens is connected."));
    return;
  }
  const all = curves.flatMap((curve) => curve.points);
  const { svg, x, y } = frame(330, 240, span(all.map((point) => point[0]), 0.03), yRange || span(all.map((point) => point[1])), labels);
  for (const curve of curves) {
    const style = { fill: "none", stroke: curve.color, "stroke-width": 1.8, "stroke-dasharray": curve.dashed ? "5 4" : "none" };
    svg.append(shape("polyline", { ...style, points: curve.points.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
    for (const [a, b] of curve.points) {
      const dot = shape("circle", { cx: x(a), cy: y(b), r: 2.6, fill: curve.color });
      dot.addEventListener("mousemove", (event) => showTip(event, `${curve.name}: ${labels[0]} ${Number(a.toPrecision(4))}, ${labels[1]} ${Number(b.toPrecision(4))}`));
      dot.addEventListener("mouseleave", hideTip);
      svg.append(dot);
    }
  }
  const legend = element("div", { class: "legend" }, ...curves.map((curve) => {
    const mark = shape("svg", { viewBox: "0 0 22 8", width: 22, height: 8, style: "display:inline-block;width:22px;margin-right:.3rem" });
    mark.append(shape("line", { x1: 0, x2: 22, y1: 4, y2: 4, stroke: curve.color, "stroke-width": 2, "stroke-dasharray": curve.dashed ? "5 4" : "none" }));
    return element("span", {}, mark, curve.name);
  }));
  target.replaceChildren(svg, legend);
}

function drawSpectrum() {
  const curves = report.models.map((model, i) => {
    const own = currentHead(i);
    return { name: model.label, color: COLORS[i % COLORS.length], points: own ? own.spectrum.map((value, place) => [place + 1, value]) : [] };
  });
  chart(byId("spectrum"), curves, ["eigenvalue", "modulus"], [0, 1.05]);
}

function drawMaps() {
  byId("maps").replaceChildren(...report.models.map((model, i) => {
    const own = currentHead(i);
    const figure = element("figure", {}, element("figcaption", {}, swatch(i), model.label));
    if (!own || !own.points) {
      figure.append(element("p", { class: "hint" }, "No diffusion map: it needs at least three tokens, each reachable from every other."));
      return figure;
    }
    const { svg, x, y } = frame(420, 320, span(own.points.map((point) => point[0])), span(own.points.map((point) => point[1])), ["coordinate 1", "coordinate 2"]);
    own.points.forEach((point, place) => {
      const shade = own.points.length > 1 ? place / (own.points.length - 1) : 0;
      const dot = shape("circle", { cx: x(point[0]), cy: y(point[1]), r: 4, fill: `hsl(${260 - 210 * shade} 65% 45%)`, "fill-opacity": 0.75, "data-token": place });
      dot.addEventListener("mousemove", (event) => showTip(event, tokenText(place)));
      dot.addEventListener("mouseleave", hideTip);
      dot.addEventListener("click", () => choose(place));
      svg.append(dot);
    });
    figure.append(svg);
    return figure;
  }));
}

function drawCurves() {
  const measured = report.ablation.every((curves) => curves.edges.accuracy) ? "accuracy" : "probability";
  const label = measured === "accuracy" ? "accuracy" : "probability of the intact prediction";
  const curves = report.models.flatMap((model, i) => ["edges", "nodes"].map((kind) => ({
    name: `${model.label}, ${kind}`, color: COLORS[i % COLORS.length], dashed: kind === "nodes",
    points: report.ablation[i].p.map((p, place) => [p, report.ablation[i][kind][measured][place]]),
  })));
  chart(byId("ablation"), curves, ["probability of removal", label], [0, 1.05]);
  byId("ablation-hint").textContent = `Edges or nodes of every layer are removed at random; texts are truncated to ${report.max_length} tokens.`;
  if (!report.growth.some((curve) => curve.lengths.length)) {
    byId("growth-section").hidden = true;
    byId("ablation-hint").textContent = "Edges or nodes of every layer are removed at random.";
    return;
  }
  chart(byId("growth"), report.models.map((model, i) => ({
    name: model.label, color: COLORS[i % COLORS.length],
    points: report.growth[i].lengths.map((length, place) => [length, report.growth[i].mean_hops[place]]),
  })), ["tokens", "mean hops"]);
}

// values of the patches of an image, drawn over it; a click selects the start of a path
function overlay(values, first, side, color, format) {
  const box = element("div", { class: "overlay" }, element("img", { src: example().pixels, alt: "" }));
  const canvas = element("canvas", { width: side, height: side });
  const paint = canvas.getContext("2d");
  values.forEach((value, place) => {
    paint.fillStyle = color(value);
    paint.fillRect(place % side, Math.floor(place / side), 1, 1);
  });
  const patch = (event) => {
    const area = canvas.getBoundingClientRect();
    const at = (offset, size) => Math.min(side - 1, Math.max(0, Math.floor((offset / size) * side)));
    return at(event.clientY - area.top, area.height) * side + at(event.clientX - area.left, area.width);
  };
  canvas.addEventListener("mousemove", (event) => showTip(event, `${example().words[first + patch(event)]}: ${format(values[patch(event)])}`));
  canvas.addEventListener("mouseleave", hideTip);
  canvas.addEventListener("click", (event) => {
    state.from = first + patch(event);
    state.to = null;
    drawPaths();
    drawPicture();
  });
  box.append(canvas);
  return box;
}

function drawPicture() {
  byId("picture").hidden = !example().pixels;
  if (!example().pixels) return;
  const n = example().words.length;
  const side = Math.floor(Math.sqrt(n));
  const first = n - side * side;
  const from = state.from === null ? (first ? 0 : null) : state.from;
  const places = Array.from({ length: side * side }, (_, place) => first + place);
  byId("overlays").replaceChildren(...report.models.map((model, i) => {
    const own = currentHead(i);
    const figure = element("figure", {}, element("figcaption", {}, swatch(i), `${model.label}, from ${from === null ? "all patches" : example().words[from]}`));
    if (!own) return figure;
    const { weights, hops } = unpack(own, n);
    const column = (matrix, j) => places.map((i) => matrix[i * n + j]);
    const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : 0);
    const attention = places.map((j) => (from === null ? mean(column(weights, j)) : weights[from * n + j]));
    const distance = places.map((j) => (from === null ? mean(column(hops, j).filter((count) => count > 0)) : hops[from * n + j]));
    const most = Math.max(...attention);
    figure.append(element("div", { class: "pair" },
      overlay(attention, first, side, (value) => `rgba(255, ${Math.round(235 * (value / most))}, 0, ${0.75 * (value / most)})`, (value) => value.toPrecision(3)),
      overlay(distance, first, side, (value) => hopColor(Math.round(value)), (value) => (value < 0 ? "unreachable" : `${Number(value.toFixed(2))} hops`))));
    return figure;
  }));
}

function draw() {
  drawPicture();
  drawMeasures();
  drawPaths();
  drawCross();
  drawHops();
  drawMaps();
  drawSpectrum();
}

setUpControls();
draw();
drawCurves();
byId("footer").textContent = report.models.map((model) => `${model.label}: ${model.attention}`).join(" · ") + ` · fna-lightning ${report.version}`;
