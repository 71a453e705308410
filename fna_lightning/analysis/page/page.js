"use strict";

const NO_PARENT = 0xffff, NO_PATH = 0xff, MEAN = -1;
const NOT_STORED = "The matrices of this example are not stored. To see them, pass it with --text or as one of the first examples.";
const OVER_BUDGET = "The page has no room for this matrix: pages stay below 5 MB. Analyze fewer examples, or set a smaller --max-length.";
const byId = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
const state = { example: 0, layer: null, head: 0, measure: "spectral_gap", from: null, to: null, pinned: null, query: 0 };
let report, blobs, turn = 0;

// data enters the page as text only, never as HTML
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

async function gunzip(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// value of the bits of a non-negative float16
const half = (bits) => (bits < 1024 ? bits * 2 ** -24 : (1 + (bits & 1023) / 1024) * 2 ** ((bits >> 10) - 15));

// rows of a matrix; it is decoded when it is first needed
async function matrix(reference) {
  reference.values ??= gunzip(blobs[reference.place]).then((buffer) => {
    const { type, rows, columns } = reference, bytes = new Uint8Array(buffer), size = rows * columns;
    const word = (i) => bytes[i] | (bytes[size + i] << 8);
    const value = { u1: (i) => (bytes[i] === NO_PATH ? null : bytes[i]), u2: word, f2: (i) => half(word(i)) }[type];
    return Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => value(row * columns + column)));
  });
  return reference.values;
}

const example = () => report.examples[state.example];
const entries = (model) => [...example().models[model].heads, ...example().models[model].cross];
const entry = (model, head = state.head) => entries(model).find((own) => own.layer === state.layer && own.head === head);
const layerName = (layer) => report.models.map((model) => model.layers[layer]).find(Boolean) ?? layer;
const headName = (head) => (head === MEAN ? "mean over heads" : `head ${head}`);
const decimals = (value, digits = 3) => (value === null || value === undefined ? "–" : value.toFixed(digits));
const swatch = (model) => element("span", { class: "swatch", style: { background: report.models[model].color } });
// Plotly interprets some HTML in labels
const literal = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const short = (word) => literal(word.length > report.longest_label ? word.slice(0, report.longest_label - 1) + "…" : word);
const tokenText = (place) => `${example().words[place]} (${place + 1})`;

// tokens of the rows and columns of a head
function tokens(own) {
  const { words, source_words: source, query_coordinates: queries } = example();
  if (own.measures) return [words, words];
  return queries ? [queries.map((_, i) => `query ${i + 1}`), words] : [words, source ?? words];
}

function why(own, field = "weights") {
  if (!own) return "This model has no such head.";
  if (!own.measures && field !== "weights") return "Not defined for cross-attention: choose a self-attention layer.";
  if (!example().stored) return NOT_STORED;
  return own[field] ? "" : OVER_BUDGET;
}

// the color scale of a heat map starts at 0
function setCells(trace, rows) {
  trace.z = rows;
  trace.zmax = rows.reduce((largest, row) => row.reduce((a, b) => Math.max(a, b), largest), 0);
  if (trace.colorbar.dtick) trace.colorbar.dtick = Math.ceil(trace.zmax / 6);
}

async function fillMatrix({ data: [trace], layout }, reference, [rows, columns]) {
  const alias = (words) => Object.fromEntries(words.map((word, place) => [place, short(word)]));
  setCells(trace, await matrix(reference));
  [trace.x, trace.y] = [columns, rows].map((words) => words.map((_, place) => String(place)));
  [layout.xaxis.labelalias, layout.yaxis.labelalias] = [alias(columns), alias(rows)];
  if (!example().source_words || rows === columns) return;
  layout.xaxis.title.text = "source token";
  layout.yaxis.title.text = "target token";
}

const headMatrix = (field, head) => async (figure, model) => {
  const own = entry(model, head?.());
  return why(own, field) || fillMatrix(figure, own[field], tokens(own));
};

const headCurves = (field) => (figure) => {
  figure.data = report.models.flatMap((model, i) => {
    const values = entry(i)?.[field] ?? [];
    const trace = { ...structuredClone(report.curve), name: literal(model.label), x: values.map((_, place) => place + 1), y: values };
    trace.line.color = model.color;
    return values.length ? [trace] : [];
  });
  return figure.data.length ? "" : why(report.models.map((_, i) => entry(i)).find(Boolean), field) || NOT_STORED;
};

// coordinates of lines, one list for each opacity; pinned: {side, place} of the only token whose lines are shown
function lines(weights, pinned) {
  let all = weights.flatMap((row, i) => row.map((weight, j) => [weight, i, j]));
  if (pinned) all = all.filter((line) => line[pinned.side === "from" ? 1 : 2] === pinned.place);
  // uniform weights have a quarter of the full opacity
  const most = all.reduce((largest, line) => Math.max(largest, line[0]), 4 / weights[0].length), levels = report.opacities.length;
  const x = report.opacities.map(() => []), y = report.opacities.map(() => []);
  all = all.filter((line) => line[0] / most > report.opacities[0] / 2).sort((a, b) => b[0] - a[0]).slice(0, report.max_lines);
  for (const [weight, i, j] of all) {
    const level = Math.min(Math.floor((weight / most) * levels), levels - 1);
    x[level].push(0, 1, null);
    y[level].push(i, j, null);
  }
  return { x, y };
}

async function fillLines({ data, layout }, model, node) {
  const own = entry(model);
  if (why(own)) return why(own);
  const weights = await matrix(own.weights), { x, y } = lines(weights, state.pinned);
  x.forEach((_, level) => Object.assign(data[level], { x: x[level], y: y[level], line: { ...data[level].line, color: report.models[model].color } }));
  tokens(own).forEach((words, side) => Object.assign(data.at(side - 2), { x: words.map(() => data.at(side - 2).x[0]), y: words.map((_, i) => i), text: words.map(short) }));
  const longest = Math.max(weights.length, weights[0].length);
  layout.yaxis.range = [longest - 0.5, -0.5];
  layout.height = 18 * longest + 20;
  node.isolate = (pinned) => Plotly.restyle(node, lines(weights, pinned), x.map((_, level) => level));
}

function fillGrid({ data: [trace], layout }, model) {
  const all = entries(model), name = state.measure;
  const layers = [...new Set(all.map((own) => own.layer))];
  const heads = [...new Set(all.map((own) => own.head))].sort((a, b) => (a === MEAN) - (b === MEAN) || a - b);
  const rows = layers.map((layer) => heads.map((head) => all.find((own) => own.layer === layer && own.head === head)));
  const value = (own) => own?.measures?.[name] ?? (name === "effective_neighbors" ? own?.neighbors : null) ?? null;
  // one color scale for all models
  const values = report.models.flatMap((_, i) => entries(i).map(value)).filter((number) => number !== null);
  [trace.zmin, trace.zmax] = [Math.min(...values), Math.max(...values)];
  Object.assign(trace, { x: heads.map((head) => (head === MEAN ? "mean" : String(head))), y: layers.map((layer) => literal(layerName(layer))) });
  Object.assign(trace, { z: rows.map((row) => row.map(value)), text: rows.map((row) => row.map((own) => (own?.near_uniform ? "≈" : ""))), customdata: rows });
  trace.colorbar.title.text = report.measures[name].label;
  const [row, column] = [layers.indexOf(state.layer), heads.indexOf(state.head)];
  const box = { type: "rect", x0: column - 0.5, x1: column + 0.5, y0: row - 0.5, y1: row + 0.5, line: { color: "#D55E00", width: 3 } };
  if (row >= 0 && column >= 0) layout.shapes = [box];
  layout.height = 90 + 26 * Math.max(layers.length, 3);
}

function fillPoints({ data: [all, labels] }, model) {
  const own = entry(model), words = example().words.map(literal);
  if (why(own) || !own.measures) return why(own, "points");
  if (!own.points) return "No diffusion map: it needs at least three tokens that reach each other and differ in their attention.";
  const coordinates = (points) => ({ x: points.map((point) => point[0]), y: points.map((point) => point[1]) });
  Object.assign(all, coordinates(own.points), { text: words });
  all.marker.color = words.map((_, place) => place + 1);
  Object.assign(labels, coordinates(own.labeled.map((place) => own.points[place])), { text: own.labeled.map((place) => words[place]) });
}

// the first tokens of an image can be class tokens; the others are a square of patches
function patches() {
  const side = Math.floor(Math.sqrt(example().words.length));
  return { side, first: example().words.length - side * side };
}

const fillOverlay = (field) => async ({ data: [trace], layout }, model) => {
  const own = entry(model), { side, first } = patches();
  if (why(own, field)) return why(own, field);
  const rows = await matrix(own[field]), from = state.from ?? (first ? 0 : null);
  const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
  const value = (j) => mean((from === null ? rows.slice(first) : [rows[from]]).map((row) => row[j]).filter((cell) => cell !== null));
  setCells(trace, Array.from({ length: side }, (_, row) => Array.from({ length: side }, (_, column) => value(first + row * side + column))));
  layout.images = [{ source: example().pixels, x: -0.5, y: -0.5, sizex: side, sizey: side, xref: "x", yref: "y", yanchor: "top", sizing: "stretch", layer: "below" }];
};

async function fillField({ data: [points, queries] }, model) {
  const own = entry(model), { coordinates, query_coordinates: places, words } = example();
  if (why(own)) return why(own);
  const axes = (list) => ({ x: list.map((point) => point[0]), y: list.map((point) => point[1]) });
  Object.assign(points, axes(coordinates), { text: words.map(literal) });
  points.marker.color = (await matrix(own.weights))[state.query];
  Object.assign(queries, axes(places), { text: places.map((_, i) => `query ${i + 1}`) });
  queries.marker.size = places.map((_, i) => (i === state.query ? 14 : 8));
}

// name of a figure: function that fills an empty figure, or returns why there is nothing to draw
const FILL = {
  grid: fillGrid, weights: headMatrix("weights"), mean: headMatrix("weights", () => MEAN), hops: headMatrix("hops"), lines: fillLines, points: fillPoints,
  spectrum: headCurves("spectrum"), laplacian: headCurves("laplacian"), overlay: fillOverlay("weights"), overlay_hops: fillOverlay("hops"), field: fillField,
  rollout: (figure, model) => {
    const { rollout, heads } = example().models[model];
    if (!heads.length) return "This view has no self-attention.";
    return rollout ? fillMatrix(figure, rollout, [example().words, example().words]) : example().stored ? OVER_BUDGET : NOT_STORED;
  },
};
const EMPTY = { mean: "weights" };

const CLICK = {
  grid: (point) => Object.assign(state, { layer: point.customdata.layer, head: point.customdata.head }),
  hops: ({ pointIndex: [from, to] }) => Object.assign(state, { from, to }),
  points: (point) => choose(point.pointIndex),
  overlay: ({ pointIndex: [row, column] }) => Object.assign(state, { from: patches().first + row * patches().side + column, to: null }),
  field: (point) => (point.data.meta === "queries" ? (state.query = point.pointIndex) : null),
  lines: ({ data: { meta: side }, pointIndex: place }) => {
    state.pinned = state.pinned?.side === side && state.pinned.place === place ? null : { side, place };
  },
};
CLICK.overlay_hops = CLICK.overlay;

function save(format) {
  const icon = { width: 24, height: 24, path: "M11 3h2v9h4l-5 5-5-5h4zM4 19h16v2H4z" };
  const click = (node) => Plotly.downloadImage(node, { format, filename: `attention_${node.dataset.name}`, scale: 2 });
  return { name: `Save as ${format.toUpperCase()}`, icon, click };
}

const CONFIG = { responsive: true, displaylogo: false, displayModeBar: "hover", typesetMath: false, modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"], [save("png"), save("svg")]] };

async function drawFigure(node) {
  const { name } = node.dataset, model = Number(node.dataset.model ?? 0), drawn = turn;
  const figure = structuredClone(report.fixed[name] ?? report.empty[EMPTY[name] ?? name]);
  const message = report.fixed[name] ? "" : await FILL[name](figure, model, node);
  if (drawn !== turn) return;
  node.classList.toggle("message", Boolean(message));
  if (message) {
    Plotly.purge(node);
    node.replaceChildren(element("p", { class: "hint" }, message));
    return;
  }
  if (!node.classList.contains("js-plotly-plot")) node.replaceChildren();
  figure.layout.template = report.themes[dark.matches ? "dark" : "light"];
  await Plotly.react(node, figure.data, figure.layout, CONFIG);
  if (node.ready) return;
  node.ready = true;
  performance.mark(`figure ${name}`);
  if (CLICK[name]) node.on("plotly_click", ({ points }) => { CLICK[name](points[0], model); render(); });
  if (name !== "lines") return;
  const isolate = (pinned) => node.isolate?.(pinned);
  node.on("plotly_hover", ({ points: [point] }) => isolate({ side: point.data.meta, place: point.pointIndex }));
  node.on("plotly_unhover", () => isolate(state.pinned));
}

// figures are drawn when they come near the window
const observer = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    target.near = isIntersecting;
    if (isIntersecting && target.drawn !== turn) {
      target.drawn = turn;
      drawFigure(target);
    }
  }
}, { rootMargin: "300px" });

function addFigures(place) {
  const names = place.dataset.figures.split(" ");
  const plot = (name, model) => element("div", { class: `plot ${name}`, "data-name": name, "data-model": model });
  if ("once" in place.dataset) place.append(plot(names[0], 0));
  else for (const name of names) {
    for (const model of report.models.keys()) {
      const content = name === "lines" ? element("div", { class: "tall" }, plot(name, model)) : plot(name, model);
      place.append(element("figure", { "data-figure": name }, element("figcaption", { "data-model": model, "data-name": name }), content));
    }
  }
}

function drawCaption(node) {
  const { name } = node.dataset, model = Number(node.dataset.model), own = entry(model);
  const detail = { weights: headName(state.head), lines: headName(state.head), mean: headName(MEAN), overlay: "weight", overlay_hops: "hops" }[name];
  node.replaceChildren(swatch(model), report.models[model].label + (detail ? `, ${detail}` : ""));
  if (!["weights", "lines"].includes(name) || !own?.near_uniform) return undefined;
  return node.append(" ", element("span", { class: "warning" }, `≈ near uniform (entropy ${decimals(own.measures.entropy)}): a large gap here only means averaging`));
}

function drawPredictions() {
  byId("predictions").replaceChildren(...report.models.map((model, i) => {
    const { prediction, probability, correct, probabilities } = example().models[i];
    const mark = correct === null ? "" : element("b", { class: correct ? "right" : "wrong" }, correct ? " ✓ right" : " ✗ wrong");
    const bars = Object.entries(probabilities).sort((a, b) => b[1] - a[1]).map(([name, value]) => element("div", { class: "bar" }, element("span", { title: name }, name),
      element("i", { style: { width: `${100 * value}%`, background: model.color } }), element("span", {}, decimals(value))));
    const output = prediction ? [prediction, mark, probability === null || bars.length ? "" : ` (probability ${decimals(probability)})`] : ["no prediction"];
    return element("div", { class: "model" }, element("div", {}, swatch(i), model.label), element("div", { class: "output" }, ...output), ...bars);
  }), example().label === null ? "" : element("p", { class: "hint" }, `${report.kind === "translation" ? "Reference" : "True class"}: ${example().label}`));
}

function drawNumbers() {
  const cross = report.models.some((_, i) => entry(i)?.neighbors !== undefined);
  const names = cross ? ["effective_neighbors"] : Object.keys(report.measures);
  const term = (name) => element("button", { class: "term", type: "button", title: report.measures[name].help, onclick: tip }, report.measures[name].label);
  const row = (i, cells) => element("tr", {}, element("td", {}, swatch(i), report.models[i].label), ...cells);
  const header = (title, labels) => element("tr", {}, element("th", {}, title), ...labels.map((label) => element("th", {}, label)));
  const body = report.models.map((_, i) => row(i, names.map((name) => {
    const own = entry(i);
    return element("td", {}, own ? decimals(cross ? own.neighbors : own.measures[name], report.measures[name].digits) : "no such head");
  })));
  const parts = [header("this example", names.map(term)), ...body];
  const summaries = (report.split?.models ?? []).map((heads) => heads.find((head) => head.layer === state.layer && head.head === state.head)?.measures);
  const columns = summaries.some((measures) => measures && names.some((name) => name in measures)) ? names : Object.keys(summaries.find(Boolean) ?? {});
  if (columns.length) {
    parts.push(header(`mean ± std, ${report.split.count} ${report.unit}`, columns === names ? names.map(() => "") : columns));
    parts.push(...summaries.map((measures, i) => row(i, columns.map((name) => {
      const value = measures?.[name];
      return value ? element("td", {}, decimals(value.mean), element("span", { class: "spread" }, ` ±${decimals(value.std, 2)}`)) : element("td", {}, "–");
    }))));
  }
  byId("numbers").replaceChildren(element("table", {}, ...parts));
}

function choose(token) {
  const done = state.from === null || state.to !== null;
  Object.assign(state, done ? { from: token, to: null } : { to: token });
}

function path(parents, from, to) {
  const places = [to];
  while (places[0] !== from) {
    const before = parents[from][places[0]];
    if (before === NO_PARENT) return null;
    places.unshift(before);
  }
  return places;
}

async function drawPaths() {
  const { words } = example(), { from, to } = state, drawn = turn;
  const routes = to === null ? [] : await Promise.all(report.models.map(async (_, i) => {
    const own = entry(i), reason = why(own, "parents");
    if (reason) return { text: reason, places: [] };
    const places = path(await matrix(own.parents), from, to), weights = await matrix(own.weights);
    return places ? { text: `${places.length - 1} ${places.length === 2 ? "hop" : "hops"}`, places, weights } : { text: "unreachable: no path of positive weights", places: [] };
  }));
  if (drawn !== turn) return;
  const role = (place, on) => (place === from ? " from" : place === to ? " to" : on ? " on" : "");
  const passed = new Set(routes.flatMap((route) => route.places));
  const pick = (place) => () => { choose(place); render(); };
  byId("tokens").replaceChildren(...words.map((word, place) => element("button", {
    class: `token${role(place, passed.has(place))}`, type: "button", "data-token": place, title: `token ${place + 1}`, onclick: pick(place) }, word)));
  byId("picked").textContent = from === null ? "No token selected." : to === null ? `From ${tokenText(from)} – now click the end token.` : `From ${tokenText(from)} to ${tokenText(to)}:`;
  byId("routes").replaceChildren(...routes.map(({ text, places, weights }, i) => element("div", { class: "route" }, element("span", { class: "name" }, swatch(i), report.models[i].label), element("span", { class: "count" }, text),
    ...places.flatMap((place, step) => [step ? element("span", { class: "hop" }, `—${weights[places[step - 1]][place].toPrecision(2)}→`) : "", element("span", { class: `token${role(place)}`, title: `token ${place + 1}` }, words[place])]))));
}

// an explanation that opens on click, so that it works on a phone
function tip(event) {
  const node = byId("tip"), box = event.currentTarget.getBoundingClientRect();
  node.textContent = event.currentTarget.title;
  node.showPopover();
  node.style.left = `${Math.max(8, Math.min(box.left, innerWidth - node.offsetWidth - 8))}px`;
  node.style.top = `${box.bottom + 6 + node.offsetHeight > innerHeight ? box.top - node.offsetHeight - 6 : box.bottom + 6}px`;
}

function fillSelect(id, options, selected) {
  byId(id).replaceChildren(...options.map(([value, label]) => element("option", { value }, label)));
  byId(id).value = String(selected);
}

// the layers and heads of the example; a source and its translation have different layers
function drawControls() {
  const all = report.models.flatMap((_, i) => entries(i)), layers = [...new Set(all.map((own) => own.layer))];
  if (!layers.includes(state.layer)) state.layer = (all.find((own) => !own.measures) ?? all[0])?.layer ?? null;
  const heads = [...new Set(all.filter((own) => own.layer === state.layer).map((own) => own.head))].sort((a, b) => (a === MEAN) - (b === MEAN) || a - b);
  if (!heads.includes(state.head)) state.head = heads[0] ?? 0;
  fillSelect("layer", layers.map((layer) => [layer, layerName(layer)]), state.layer);
  fillSelect("head", heads.map((head) => [head, headName(head)]), state.head);
}

function render() {
  turn += 1;
  drawControls();
  const { pixels, coordinates, models, stored } = example(), has = { image: Boolean(pixels), field: Boolean(coordinates), tokens: !pixels && !coordinates, self: models.some((model) => model.heads.length) };
  const several = report.models.some((_, i) => entry(i, MEAN)) && state.head !== MEAN;
  document.querySelectorAll("[data-kind]").forEach((node) => { node.hidden = !has[node.dataset.kind]; });
  document.querySelectorAll("[data-figure='mean']").forEach((node) => { node.hidden = !several; });
  byId("notice").hidden = stored;
  byId("notice").textContent = `${NOT_STORED} Its numbers are below.`;
  byId("patch").textContent = `From: ${state.from === null ? (patches().first ? "class token" : "mean of all patches") : example().words[state.from]}.`;
  byId("query").textContent = `Query ${state.query + 1}.`;
  document.querySelectorAll(".bare").forEach((node) => { node.src = pixels ?? ""; });
  document.querySelectorAll("figcaption[data-model]").forEach(drawCaption);
  drawPredictions();
  drawNumbers();
  drawPaths();
  for (const node of document.querySelectorAll(".plot")) if (node.near) { node.drawn = turn; drawFigure(node); }
}

function optionText({ title, words, pixels, stored, models: [{ correct }], label }, i) {
  const start = pixels ? label ?? "" : words.slice(0, 8).join(" ") + (words.length > 8 ? " …" : "");
  return [i, `${correct === null ? "" : correct ? "✓ " : "✗ "}${title}: ${start}${stored ? "" : " (numbers only)"}`];
}

function setUp() {
  byId("models").replaceChildren(...report.models.map((model, i) => element("span", { title: model.checkpoint }, swatch(i), `${model.label}: ${model.attention}`)));
  byId("footer").textContent = `fna-lightning ${report.version}, figures by Plotly ${Plotly.version}. ${report.dropped ? `${report.dropped} matrices left out to stay below 5 MB.` : ""}`;
  document.querySelectorAll("h2[data-help]").forEach((node) => node.append(element("button", { class: "help", type: "button", title: node.dataset.help, "aria-label": "explanation", onclick: tip }, "?")));
  document.querySelectorAll("[data-figures]").forEach((place) => { if (!place.closest("[data-fixed]") || report.fixed[place.dataset.figures]) addFigures(place); else place.remove(); });
  document.body.style.setProperty("--across", Math.min(4, Math.max(2, report.models.length)));
  document.querySelectorAll("[data-fixed]").forEach((node) => { if (!node.querySelector(".plot")) node.remove(); });
  state.example = Math.max(0, report.examples.findIndex(({ models }) => models.some((model) => model.cross.length)));
  fillSelect("example", report.examples.map(optionText), state.example);
  fillSelect("measure", Object.entries(report.measures).map(([name, { label }]) => [name, label]), state.measure);
  const numeric = ["example", "head"];
  for (const name of ["example", "layer", "head", "measure"]) byId(name).addEventListener("change", ({ target: { value } }) => {
    state[name] = numeric.includes(name) ? Number(value) : value;
    if (name === "example") Object.assign(state, { from: null, to: null, pinned: null, query: 0 });
    render();
  });
  byId("reset").addEventListener("click", () => { Object.assign(state, { from: null, to: null }); render(); });
  dark.addEventListener("change", render);
}

async function start() {
  const text = async (id) => new TextDecoder().decode(await gunzip(byId(id).textContent));
  report = JSON.parse(await text("data"));
  blobs = JSON.parse(byId("matrices").textContent);
  document.head.append(element("script", {}, await text("plotly")));
  setUp();
  render();
  document.querySelectorAll(".plot").forEach((node) => observer.observe(node));
}

start();
