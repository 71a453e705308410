"use strict";

const NO_PARENT = 0xffff, NO_PATH = 0xff, MEAN = -1;
const NOT_STORED = "The matrices of this example are not stored. To see them, pass it with --text or --image, or raise --depth.";
const OVER_BUDGET = "No room for this matrix: pages stay below 5 MB. Set a smaller --max-length or --depth.";
const NO_MAP = "No diffusion map: it needs at least three tokens that reach each other and differ in their attention.";
const state = { example: 0, layer: null, head: 0, measure: null, from: null, to: null, pinned: null, query: 0 };
const dark = matchMedia("(prefers-color-scheme: dark)");
const byId = (id) => document.getElementById(id);
const every = (selector, action) => document.querySelectorAll(selector).forEach(action);
let report, blobs, turn = 0;

// data enters the page as text only, never as HTML
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick") node.addEventListener("click", value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const example = () => report.examples[state.example];
const entries = (model) => [...example().models[model].heads, ...example().models[model].cross];
const entry = (model, head = state.head) => entries(model).find((own) => own.layer === state.layer && own.head === head);
const isCross = (own) => own !== undefined && !own.measures;
const unique = (values) => [...new Set(values)];
const sortedHeads = (list) => unique(list.map((own) => own.head)).sort((a, b) => (a === MEAN) - (b === MEAN) || a - b);
const layerName = (layer) => report.models.map((model) => model.layers[layer]).find(Boolean) ?? layer;
const headName = (head) => (head === MEAN ? "mean over heads" : `head ${head}`);
const decimals = (value, digits = 3) => value?.toFixed(digits) ?? "–";
const swatch = (model) => element("span", { class: "swatch", style: { background: report.models[model].color } });
const coordinates = (points) => ({ x: points.map((point) => point[0]), y: points.map((point) => point[1]) });
const largest = (rows, start = 0) => rows.reduce((most, row) => row.reduce((a, b) => Math.max(a, b), most), start);
const measureOf = (own) => own?.measures?.[state.measure] ?? (state.measure === "effective_neighbors" ? own?.neighbors : null) ?? null;
const tokensOf = (own) => (isCross(own) ? [example().cross_rows, example().cross_columns] : [example().words, example().words]);
// Plotly interprets some HTML in labels
const literal = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const label = (word) => literal(word.length > report.longest_label ? word.slice(0, report.longest_label - 1) + "…" : word);

async function gunzip(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// value of the bits of a non-negative float16
const half = (bits) => (bits < 1024 ? bits * 2 ** -24 : (1 + (bits & 1023) / 1024) * 2 ** ((bits >> 10) - 15));

// rows of a matrix, which is decoded when it is first needed; null marks pairs without a path
function matrix(reference) {
  reference.rows_promise ??= gunzip(blobs[reference.place]).then((buffer) => {
    const { type, rows, columns } = reference, bytes = new Uint8Array(buffer), size = rows * columns;
    const word = (i) => bytes[i] | (bytes[size + i] << 8);
    const value = { u1: (i) => (bytes[i] === NO_PATH ? null : bytes[i]), u2: word, f2: (i) => half(word(i)) }[type];
    return Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => value(i * columns + j)));
  });
  return reference.rows_promise;
}

// why a matrix of a head, or of a model, cannot be shown
function reason(own, field = "weights") {
  if (!own) return "This model has no such head.";
  if (!example().stored) return NOT_STORED;
  return own[field] ? "" : OVER_BUDGET;
}

function setCells(trace, rows) {
  Object.assign(trace, { z: rows, zmax: largest(rows) });
  if (trace.colorbar.dtick) trace.colorbar.dtick = Math.ceil(trace.zmax / 6);
}

const fillMatrix = (field, find) => async ({ data: [trace], layout }, model) => {
  const own = find(model);
  if (reason(own, field)) return reason(own, field);
  const [rows, columns] = tokensOf(own.heads ? undefined : own), alias = (words) => Object.fromEntries(words.map((word, i) => [i, label(word)]));
  setCells(trace, await matrix(own[field]));
  [trace.x, trace.y] = [Object.keys(columns), Object.keys(rows)];
  [layout.xaxis.labelalias, layout.yaxis.labelalias] = [alias(columns), alias(rows)];
  if (isCross(own) && !own.heads) [layout.yaxis.title.text, layout.xaxis.title.text] = example().cross_titles;
  return "";
};

const fillCurves = (field) => (figure) => {
  const own = report.models.map((_, i) => entry(i));
  figure.data = report.models.map((model, i) => {
    const y = own[i]?.[field] ?? [], line = { ...report.curve.line, color: model.color };
    return { ...report.curve, name: literal(model.label), line, x: y.map((_, place) => place + 1), y };
  }).filter((trace) => trace.y.length);
  return figure.data.length ? "" : NOT_STORED;
};

// coordinates of token-to-token lines for each opacity; with a token {side, place}: only its lines
function lines(weights, token) {
  const x = report.opacities.map(() => []), y = report.opacities.map(() => []), levels = x.length;
  const chosen = (i, j) => !token || token.place === (token.side === "from" ? i : j);
  const all = weights.flatMap((row, i) => row.map((weight, j) => [weight, i, j])).filter(([, i, j]) => chosen(i, j));
  // uniform weights have a quarter of the full opacity
  const most = largest(all.map(([weight]) => [weight]), 4 / weights[0].length);
  const strong = all.filter(([weight]) => weight / most > report.opacities[0] / 2).sort((a, b) => b[0] - a[0]);
  for (const [weight, i, j] of strong.slice(0, report.max_lines)) {
    const level = Math.min(Math.floor((weight / most) * levels), levels - 1);
    x[level].push(0, 1, null);
    y[level].push(i, j, null);
  }
  return { x, y };
}

async function fillLines({ data, layout }, model, node) {
  const own = entry(model);
  if (reason(own)) return reason(own);
  const weights = await matrix(own.weights), { x, y } = lines(weights, state.pinned);
  x.forEach((_, level) => {
    Object.assign(data[level], { x: x[level], y: y[level] });
    data[level].line.color = report.models[model].color;
  });
  tokensOf(own).forEach((words, side) => {
    const trace = data.at(side - 2);
    Object.assign(trace, { x: words.map(() => trace.x[0]), y: words.map((_, i) => i), text: words.map(label) });
  });
  const longest = Math.max(weights.length, weights[0].length);
  layout.yaxis.range = [longest - 0.5, -0.5];
  layout.height = 18 * longest + 20;
  node.isolate = (token) => Plotly.restyle(node, lines(weights, token), Object.keys(x).map(Number));
  return "";
}

function fillGrid({ data: [trace], layout }, model) {
  const all = entries(model), layers = unique(all.map((own) => own.layer)), heads = sortedHeads(all);
  const rows = layers.map((layer) => heads.map((head) => all.find((own) => own.layer === layer && own.head === head)));
  // one color scale for all models
  const values = report.models.flatMap((_, i) => entries(i).map(measureOf)).filter((value) => value !== null);
  Object.assign(trace, {
    x: heads.map((head) => (head === MEAN ? "mean" : String(head))), y: layers.map((layer) => literal(layerName(layer))),
    z: rows.map((row) => row.map(measureOf)), zmin: Math.min(...values), zmax: Math.max(...values),
    text: rows.map((row) => row.map((own) => (own?.near_uniform ? "≈" : ""))),
  });
  trace.colorbar.title.text = report.measures[state.measure].label;
  const column = heads.indexOf(state.head), row = layers.indexOf(state.layer), line = { color: "#D55E00", width: 3 };
  if (row >= 0) layout.shapes = [{ type: "rect", x0: column - 0.5, x1: column + 0.5, y0: row - 0.5, y1: row + 0.5, line }];
  layout.height = 90 + 26 * Math.max(layers.length, 3);
  return "";
}

function fillPoints({ data: [all, labels] }, model) {
  const own = entry(model), words = example().words.map(literal);
  if (!own?.points) return !own || !example().stored ? reason(own) : NO_MAP;
  Object.assign(all, coordinates(own.points), { text: words });
  all.marker.color = words.map((_, place) => place + 1);
  Object.assign(labels, coordinates(own.labeled.map((place) => own.points[place])), { text: own.labeled.map((place) => words[place]) });
  return "";
}

// the last tokens of an image are a square of patches; there can be a class token before them
function patches() {
  const count = example().words.length, side = Math.floor(Math.sqrt(count)), first = count - side * side;
  return { side, first, from: state.from ?? (first ? 0 : null) };
}

const fillOverlay = (field) => async ({ data: [trace], layout }, model) => {
  const own = entry(model), { side, first, from } = patches();
  if (reason(own, field)) return reason(own, field);
  const rows = await matrix(own[field]), used = from === null ? rows.slice(first) : [rows[from]];
  const values = example().words.map((_, j) => used.map((row) => row[j]).filter((value) => value !== null)).slice(first);
  const means = values.map((list) => (list.length ? list.reduce((a, b) => a + b) / list.length : null));
  setCells(trace, Array.from({ length: side }, (_, row) => means.slice(row * side, (row + 1) * side)));
  layout.images = [{ ...report.image, source: example().pixels, sizex: side, sizey: side }];
  return "";
};

async function fillField({ data: [points, queries] }, model) {
  const own = entry(model), { coordinates: places, query_coordinates: asked, words } = example();
  if (reason(own)) return reason(own);
  Object.assign(points, coordinates(places), { text: words.map(literal) });
  points.marker.color = (await matrix(own.weights))[state.query];
  Object.assign(queries, coordinates(asked), { text: example().cross_rows });
  queries.marker.size = asked.map((_, i) => (i === state.query ? 16 : 7));
  return "";
}

// functions that fill an empty figure, and return why there is nothing to draw
const FILL = {
  grid: fillGrid, lines: fillLines, points: fillPoints, field: fillField,
  weights: fillMatrix("weights", (model) => entry(model)), mean: fillMatrix("weights", (model) => entry(model, MEAN)),
  hops: fillMatrix("hops", (model) => entry(model)), rollout: fillMatrix("rollout", (model) => example().models[model]),
  spectrum: fillCurves("spectrum"), laplacian: fillCurves("laplacian"),
  overlay: fillOverlay("weights"), overlay_hops: fillOverlay("hops"),
};

const chooseToken = (token) => Object.assign(state, state.from === null || state.to !== null ? { from: token, to: null } : { to: token });
const choosePatch = ({ pointIndex: [row, column] }) => Object.assign(state, { from: patches().first + row * patches().side + column, to: null });
const CLICK = {
  grid: ({ pointIndex: [row, column] }, model) => {
    const layer = unique(entries(model).map((own) => own.layer))[row], head = sortedHeads(entries(model))[column];
    Object.assign(state, { layer, head });
  },
  hops: ({ pointIndex: [from, to] }) => Object.assign(state, { from, to }),
  points: (point) => chooseToken(point.pointIndex),
  overlay: choosePatch,
  overlay_hops: choosePatch,
  field: (point) => { if (point.data.meta === "queries") state.query = point.pointIndex; },
  lines: ({ data: { meta: side }, pointIndex: place }) => {
    state.pinned = state.pinned?.side === side && state.pinned.place === place ? null : { side, place };
  },
};

const saveButton = (format) => ({
  name: `Save as ${format.toUpperCase()}`, icon: { width: 24, height: 24, path: "M11 3h2v9h4l-5 5-5-5h4zM4 19h16v2H4z" },
  click: (node) => Plotly.downloadImage(node, { format, filename: `attention_${node.dataset.name}`, scale: 2 }),
});
const CONFIG = { responsive: true, displaylogo: false, typesetMath: false };
const BUTTONS = [["zoom2d", "pan2d", "resetScale2d"], [saveButton("png"), saveButton("svg")]];

async function drawFigure(node) {
  const { name } = node.dataset, model = Number(node.dataset.model), drawn = turn;
  node.drawn = turn;
  const figure = structuredClone(report.figures[name]);
  const message = FILL[name] ? await FILL[name](figure, model, node) : "";
  if (drawn !== turn) return;
  node.classList.toggle("message", message !== "");
  if (message) {
    Plotly.purge(node);
    node.replaceChildren(element("p", { class: "hint" }, message));
    return;
  }
  // Plotly draws into an empty node, or updates its own figure
  if (!node.data) node.replaceChildren();
  figure.layout.template = report.themes[dark.matches ? "dark" : "light"];
  const fresh = !node.data, modeBarButtons = name === "lines" ? BUTTONS.slice(1) : BUTTONS;
  await Plotly.react(node, figure.data, figure.layout, { ...CONFIG, modeBarButtons });
  if (!fresh) return;
  performance.mark(`drawn ${name}`);
  if (CLICK[name]) node.on("plotly_click", ({ points }) => { CLICK[name](points[0], model); render(); });
  if (name !== "lines") return;
  node.on("plotly_hover", ({ points: [point] }) => node.isolate({ side: point.data.meta, place: point.pointIndex }));
  node.on("plotly_unhover", () => node.isolate(state.pinned));
}

// figures are drawn when they come near the window
const observer = new IntersectionObserver((changes) => changes.forEach(({ target, isIntersecting }) => {
  target.near = isIntersecting;
  if (isIntersecting && target.drawn !== turn) drawFigure(target);
}), { rootMargin: "300px" });

// one figure for each name and model; with data-once one figure for all models
function addFigures(place) {
  const plot = (name, model) => element("div", { class: `plot ${name}`, "data-name": name, "data-model": model });
  for (const name of place.dataset.figures.split(" ").filter((figure) => figure in report.figures)) {
    if ("once" in place.dataset) place.append(plot(name, 0));
    else place.append(...report.models.map((_, i) => element("figure", { "data-figure": name },
      element("figcaption", { "data-name": name, "data-model": i }), element("div", { class: "frame" }, plot(name, i)))));
  }
}

function drawCaption(node) {
  const { name } = node.dataset, model = Number(node.dataset.model), own = entry(model), head = headName(state.head);
  const detail = { weights: head, lines: head, hops: head, points: head, mean: headName(MEAN), overlay: "weight", overlay_hops: "hops" }[name];
  node.replaceChildren(swatch(model), report.models[model].label, detail ? `, ${detail}` : "");
  if (name !== "weights" || !own?.near_uniform) return;
  const warning = `≈ near uniform (entropy ${decimals(own.measures.entropy)}): a large gap here only means averaging`;
  node.append(" ", element("span", { class: "warning" }, warning));
}

function drawPredictions() {
  const nodes = report.models.map((model, i) => {
    const { prediction, probability, correct, probabilities } = example().models[i];
    const mark = element("b", { class: correct ? "right" : "wrong" }, { true: " ✓ right", false: " ✗ wrong", null: "" }[correct]);
    const bars = Object.entries(probabilities).sort((a, b) => b[1] - a[1]).map(([name, value]) => element("div", { class: "bar" },
      element("span", { title: name }, name), element("i", { style: { width: `${100 * value}%`, background: model.color } }),
      element("span", {}, decimals(value))));
    const more = bars.length || probability === null ? "" : ` (probability ${decimals(probability)})`;
    return element("div", { class: "model" }, swatch(i), model.label, element("div", { class: "output" }, prediction, mark, more), ...bars);
  });
  const truth = example().label === null ? "" : `${report.kind === "translation" ? "Reference" : "True class"}: ${example().label}`;
  byId("predictions").replaceChildren(...nodes, element("p", { class: "hint output" }, truth));
}

function drawNumbers() {
  const cross = report.models.some((_, i) => isCross(entry(i))), names = cross ? ["effective_neighbors"] : Object.keys(report.measures);
  const term = (name) => element("button", { class: "term", type: "button", title: report.measures[name].help, onclick: openTip }, report.measures[name].label);
  const header = (title, cells) => element("tr", {}, ...[title, ...cells].map((cell) => element("th", {}, cell)));
  const row = (i, cells) => element("tr", {}, element("td", {}, swatch(i), report.models[i].label), ...cells.map((cell) => element("td", {}, ...cell)));
  const value = (own, name) => decimals(isCross(own) ? own.neighbors : own.measures[name], report.measures[name].digits)
    + (own.near_uniform && name === "spectral_gap" ? " ≈" : "");
  const rows = report.models.map((_, i) => row(i, names.map((name) => [entry(i) ? value(entry(i), name) : "no such head"])));
  const split = report.split?.models.map((heads) => heads.find((own) => own.layer === state.layer && own.head === state.head)?.measures ?? {}) ?? [];
  const means = names.some((name) => split.some((measures) => name in measures)) ? names : Object.keys(split[0] ?? {});
  const spread = ({ mean, std } = {}) => [decimals(mean), element("span", { class: "spread" }, std === undefined ? "" : ` ±${decimals(std, 2)}`)];
  if (means.length) {
    const labels = means.map((name) => (name in report.measures ? "" : name));
    rows.push(header(`mean ± std over ${report.split.count} ${report.unit} (${report.split.name})`, labels));
    rows.push(...split.map((measures, i) => row(i, means.map((name) => spread(measures[name])))));
  }
  byId("numbers").replaceChildren(element("table", {}, header("this example", names.map(term)), ...rows));
}

// tokens of the cheapest path, or null
function cheapestPath(parents, from, to) {
  const path = [to];
  while (path[0] !== from) {
    const before = parents[from][path[0]];
    if (before === NO_PARENT) return null;
    path.unshift(before);
  }
  return path;
}

async function drawPaths() {
  const { words } = example(), { from, to } = state, drawn = turn;
  const role = (place) => (place === from ? " from" : place === to ? " to" : "");
  const token = (tag, place, more) => element(tag, { class: `token${role(place)}`, title: `token ${place + 1}`, ...more }, words[place]);
  const routes = to === null ? [] : await Promise.all(report.models.map(async (model, i) => {
    const own = entry(i), row = element("div", { class: "route" }, element("span", { class: "name" }, swatch(i), model.label));
    const path = reason(own, "parents") ? null : cheapestPath(await matrix(own.parents), from, to);
    const text = path ? `${path.length - 1} ${path.length === 2 ? "hop" : "hops"}` : reason(own, "parents") || "unreachable: no path of positive weights";
    row.append(element("span", { class: "count" }, text));
    const weights = path && (await matrix(own.weights));
    path?.forEach((place, step) => {
      if (step) row.append(element("span", { class: "hop" }, `—${weights[path[step - 1]][place].toPrecision(2)}→`));
      row.append(token("span", place));
    });
    return { row, path };
  }));
  if (drawn !== turn) return;
  byId("tokens").replaceChildren(...words.map((_, place) => token("button", place, {
    type: "button", "data-token": place, onclick: () => { chooseToken(place); render(); } })));
  routes.forEach(({ path }) => path?.forEach((place) => byId("tokens").children[place].classList.add("on")));
  const name = (place) => `${words[place]} (${place + 1})`;
  byId("picked").textContent = from === null ? "No token selected." : `From ${name(from)} ${to === null ? "– now click the end token." : `to ${name(to)}:`}`;
  byId("routes").replaceChildren(...routes.map(({ row }) => row));
}

// an explanation that opens on click, so that it works on a phone
function openTip({ currentTarget }) {
  const node = byId("tip"), box = currentTarget.getBoundingClientRect();
  node.textContent = currentTarget.title;
  node.showPopover();
  node.style.left = `${Math.max(8, Math.min(box.left, innerWidth - node.offsetWidth - 24))}px`;
  node.style.top = `${box.bottom + 6 + node.offsetHeight > innerHeight ? box.top - node.offsetHeight - 6 : box.bottom + 6}px`;
}

function fillSelect(id, options, selected) {
  byId(id).replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  byId(id).value = String(selected);
}

// the layers and heads of the example; a source and its translation have different layers
function drawControls() {
  const all = report.models.flatMap((_, i) => entries(i)), layers = unique(all.map((own) => own.layer));
  if (!layers.includes(state.layer)) state.layer = (all.find(isCross) ?? all[0])?.layer ?? null;
  const heads = sortedHeads(all.filter((own) => own.layer === state.layer));
  if (!heads.includes(state.head)) state.head = heads[0] ?? 0;
  fillSelect("layer", layers.map((layer) => [layer, layerName(layer)]), state.layer);
  fillSelect("head", heads.map((head) => [head, headName(head)]), state.head);
}

function render() {
  turn += 1;
  drawControls();
  const { pixels, coordinates: field, models, stored, words } = example(), cross = report.models.some((_, i) => isCross(entry(i)));
  const shown = {
    image: pixels && !cross, field, tokens: !pixels && !field, self: !cross, cross: cross && models.some((model) => model.heads.length), missing: !stored,
    output: models.some((model) => model.prediction), rollout: models.some((model) => model.heads.length),
  };
  every("[data-kind]", (node) => { node.hidden = !shown[node.dataset.kind]; });
  every("[data-figure='mean']", (node) => { node.hidden = state.head === MEAN || !entry(0, MEAN); });
  byId("notice").textContent = NOT_STORED;
  byId("patch").textContent = patches().from === null ? "mean over all patches" : words[patches().from];
  byId("query").textContent = state.query + 1;
  byId("bare").src = pixels ?? "";
  every("figcaption[data-name]", drawCaption);
  drawPredictions();
  drawNumbers();
  drawPaths();
  every(".plot", (node) => { if (node.near) drawFigure(node); });
}

function setUp() {
  document.body.style.setProperty("--across", Math.min(4, Math.max(2, report.models.length)));
  byId("models").replaceChildren(...report.models.map((model, i) => element("span", { title: model.checkpoint }, swatch(i), `${model.label}: ${model.attention}`)));
  const dropped = report.dropped ? ` The matrices of ${report.dropped} heads are left out to stay below 5 MB.` : "";
  byId("footer").textContent = `fna-lightning ${report.version}, figures by Plotly ${Plotly.version}. Weights are rounded to ${report.rounding}.${dropped}`;
  every("[data-help]", (node) => node.append(element("button", { class: "help", type: "button", title: node.dataset.help, onclick: openTip }, "?")));
  every("[data-figures]", addFigures);
  every("main > section", (node) => { if (node.querySelector("[data-figures]") && !node.querySelector(".plot")) node.remove(); });
  state.example = Math.max(0, report.examples.findIndex(({ models }) => models.some((model) => model.cross.length)));
  state.measure = report.models.some((_, i) => entries(i).some(isCross)) ? "effective_neighbors" : Object.keys(report.measures)[0];
  fillSelect("example", report.examples.map(({ option }, i) => [i, option]), state.example);
  fillSelect("measure", Object.entries(report.measures).map(([name, { label: text }]) => [name, text]), state.measure);
  for (const name of ["example", "layer", "head", "measure"]) byId(name).addEventListener("change", ({ target: { value } }) => {
    state[name] = name === "example" || name === "head" ? Number(value) : value;
    if (name === "example") Object.assign(state, { from: null, to: null, pinned: null, query: 0 });
    render();
  });
  byId("reset").addEventListener("click", () => { Object.assign(state, { from: null, to: null }); render(); });
  dark.addEventListener("change", render);
}

async function start() {
  const read = async (id) => new TextDecoder().decode(await gunzip(byId(id).textContent));
  report = JSON.parse(await read("data"));
  blobs = JSON.parse(byId("matrices").textContent);
  document.head.append(element("script", {}, await read("plotly")));
  setUp();
  render();
  every(".plot", (node) => observer.observe(node));
}

start();
