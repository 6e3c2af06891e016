"use strict";
const HEIGHT = 210, LEFT = 56, RIGHT = 12, TOP = 10, BOTTOM = 34, COLOURS = 8;

function html(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

function svg(tag, options = {}, text = null) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(options)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

function figures(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2).replace("e+", "e").replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(5)));
}

function ticks(low, high, log, most) {
  if (log) {
    const from = Math.ceil(Math.log10(low) - 1e-9), to = Math.floor(Math.log10(high) + 1e-9);
    const step = Math.max(1, Math.ceil((to - from + 1) / most));
    const powers = [];
    for (let power = from; power <= to; power += step) powers.push(10 ** power);
    if (powers.length > 1) return powers;
  }
  const raw = (high - low) / most, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(n => n * size).find(n => n >= raw * 0.999);
  const values = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) values.push(Number(value.toPrecision(12)));
  return values;
}

function range(values, log) {
  values = values.filter(value => value !== null && (!log || value > 0));
  if (!values.length) return null;
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  if (low === high) return log ? [low / 2, high * 2] : [low - (Math.abs(low) / 2 || 1), high + (Math.abs(high) / 2 || 1)];
  return [low, high];
}

function scale([low, high], from, to, log) {
  const of = log ? Math.log10 : value => value;
  return value => from + (of(value) - of(low)) / (of(high) - of(low)) * (to - from);
}

class Chart {
  constructor(spec, figure) {
    Object.assign(this, { spec, figure, hidden: new Set(), at: null });
    const values = spec.lines.flatMap(line => line.points.map(point => point[1])).filter(value => value !== null);
    const sorted = [...values].sort((a, b) => a - b);
    this.log = spec.log || (sorted[0] > 0 && sorted.at(-1) > 1000 * sorted[sorted.length >> 1]);
    this.names = html("ul", { class: "names" });
    this.drawing = svg("svg", { role: "img", tabindex: "0", "aria-label": `${spec.title}: ${spec.lines.map(line => line.name).join(", ")}. Arrow keys read values.` });
    this.tip = html("div", { class: "tip", hidden: "", role: "status" });
    spec.lines.forEach((line, place) => {
      line.colour = line.name === "ideal" ? "var(--muted)" : `var(--c${this.colour(place)})`;
      line.dashed = (spec.dashed || []).includes(line.name) || place >= COLOURS;
      line.marked = (spec.marks || []).includes(line.name);
      line.dots = (spec.dots || []).includes(line.name);
    });
    if (spec.lines.length > 1) this.names.append(...spec.lines.map(line => this.name(line)));
    this.button = html("button", { class: "scale", type: "button", "aria-pressed": String(this.log), onclick: () => this.toggle() }, "log");
    this.button.hidden = values.every(value => value <= 0);
    figure.querySelector("figcaption").after(this.button, this.drawing, this.names);
    figure.append(this.tip, rows(spec));
    this.drawing.addEventListener("pointermove", event => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.leave());
    this.drawing.addEventListener("blur", () => this.leave());
    this.drawing.addEventListener("keydown", event => this.key(event));
    addEventListener("resize", () => this.draw());
    this.draw();
  }

  colour(place) {
    const names = this.spec.lines.map(line => line.name), partner = names.indexOf(names[place].replace(/ val$/, " train"));
    return ((this.spec.dashed || []).includes(names[place]) && partner >= 0 ? partner : place) % COLOURS;
  }

  name(line) {
    const button = html("button", { type: "button", "aria-pressed": "true", style: `--colour:${line.colour}` }, line.name);
    if (line.dashed) button.classList.add("dashed");
    button.addEventListener("click", () => {
      this.hidden.has(line) ? this.hidden.delete(line) : this.hidden.add(line);
      button.setAttribute("aria-pressed", String(!this.hidden.has(line)));
      this.draw();
    });
    return html("li", {}, button);
  }

  toggle() {
    this.log = !this.log;
    this.button.setAttribute("aria-pressed", String(this.log));
    this.draw();
  }

  draw() {
    const width = Math.max(240, this.figure.clientWidth - 26), { spec } = this;
    this.width = width;
    this.drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.drawing.replaceChildren();
    const lines = spec.lines.filter(line => !this.hidden.has(line)), points = lines.flatMap(line => line.points);
    const xs = range(points.map(point => point[0]), spec.log_x), ys = range(points.map(point => point[1]), this.log);
    if (!xs || !ys) { this.x = null; this.drawing.setAttribute("viewBox", `0 0 ${width} 1`); return; }
    const x = this.x = scale(xs, LEFT, width - RIGHT, spec.log_x), y = this.y = scale(ys, HEIGHT - BOTTOM, TOP, this.log);
    for (const value of ticks(...ys, this.log, 5)) {
      this.drawing.append(svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(value), y2: y(value) }), svg("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, figures(value)));
    }
    const named = spec.ticks_at || (spec.ticks ? spec.ticks.map((_, place) => place) : ticks(...xs, spec.log_x, Math.max(2, Math.floor(width / 90))));
    const counts = ["step", "job", "epoch", "devices"].includes(spec.x);
    for (const value of named.filter(value => !counts || Number.isInteger(value))) {
      this.drawing.append(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }), svg("text", { x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, spec.ticks ? spec.ticks[value] : figures(value)));
    }
    this.drawing.append(svg("text", { x: width - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, spec.x));
    for (const [place, line] of lines.entries()) {
      const fits = line.points.map(([at, value]) => value === null || (this.log && value <= 0) ? null : [x(at).toFixed(1), y(value).toFixed(1)]);
      const path = fits.map((at, place) => at === null ? "" : `${place && fits[place - 1] ? "L" : "M"}${at[0]} ${at[1]}`).join("");
      if (!line.dots) this.drawing.append(svg("path", { d: path, style: `stroke:${line.colour};stroke-width:${((line.points.length > 200 ? 1.2 : 2.2) * (1.6 - 0.6 * (place + 1) / lines.length)).toFixed(1)}`, "stroke-dasharray": line.dashed ? "5 4" : "none" }));
      const alone = fits.filter((at, place) => at && (line.marked || line.dots || (!fits[place - 1] && !fits[place + 1])));
      for (const [cx, cy] of alone) this.drawing.append(svg("circle", { cx, cy, r: 2.6, style: `fill:${line.colour}` }));
    }
    this.cross = svg("line", { class: "cross", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
    this.drawing.append(this.cross);
  }

  places() {
    const all = new Set(this.spec.lines.filter(line => !this.hidden.has(line)).flatMap(line => line.points.map(point => point[0])));
    return [...all].sort((a, b) => a - b);
  }

  point(event) {
    if (!this.x) return;
    const box = this.drawing.getBoundingClientRect(), at = (event.clientX - box.left) * this.width / box.width;
    this.show(this.places().reduce((best, place) => Math.abs(this.x(place) - at) < Math.abs(this.x(best) - at) ? place : best));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.leave();
    if (!step || !this.x) return;
    event.preventDefault();
    const places = this.places(), now = places.indexOf(this.at);
    this.show(places[Math.min(places.length - 1, Math.max(0, now < 0 ? 0 : now + step))]);
  }

  show(place) {
    this.at = place;
    this.cross.setAttribute("x1", this.x(place));
    this.cross.setAttribute("x2", this.x(place));
    this.cross.setAttribute("visibility", "visible");
    const heading = this.spec.ticks ? this.spec.ticks[place] : figures(place), texts = [html("div", {}, `${this.spec.x} ${heading}`)];
    for (const line of this.spec.lines.filter(each => !this.hidden.has(each))) {
      const points = line.points.filter(point => point[0] === place);
      for (const [, value] of points.slice(0, 3)) texts.push(html("div", { style: `--colour:${line.colour}` }, html("b", {}, figures(value)), ` ${line.name}`));
    }
    this.tip.replaceChildren(...texts.slice(0, 14));
    this.tip.hidden = false;
    const share = this.x(place) / this.width;
    this.tip.style.top = `${this.drawing.offsetTop + 6}px`;
    this.tip.style.left = share < 0.5 ? `${share * 100 + 3}%` : "auto";
    this.tip.style.right = share < 0.5 ? "auto" : `${(1 - share) * 100 + 3}%`;
  }

  leave() {
    this.tip.hidden = true;
    this.at = null;
    if (this.cross) this.cross.setAttribute("visibility", "hidden");
  }
}

function rows(spec) {
  const details = html("details", {}, html("summary", {}, "Table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const heads = [spec.x, ...spec.lines.map(line => line.name)], table = new Map();
    spec.lines.forEach((line, column) => line.points.forEach(([x, value]) => {
      if (!table.has(x)) table.set(x, Array(spec.lines.length).fill(null));
      table.get(x)[column] = value;
    }));
    const lines = [...table].sort((a, b) => a[0] - b[0]).map(([x, values]) => [spec.ticks ? spec.ticks[x] : x, ...values]);
    const head = html("thead", {}, html("tr", {}, ...heads.map(name => html("th", {}, name))));
    const body = html("tbody", {}, ...lines.map(line => html("tr", {}, ...line.map(value => html("td", { class: "n" }, value === null ? "" : figures(value))))));
    const text = [heads, ...lines].map(line => line.map(value => value ?? "").join("\t")).join("\n");
    details.append(copier(text), html("div", { class: "scroll rows", tabindex: "0" }, html("table", {}, head, body)));
  });
  return details;
}

function copier(text) {
  const button = html("button", { class: "copy", type: "button" }, "Copy");
  button.addEventListener("click", () => {
    const area = html("textarea", { style: "position:fixed;opacity:0" });
    area.value = text;
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Press Ctrl+C";
    area.remove();
    button.focus();
  });
  return button;
}

function addCharts(box, specs) {
  for (const spec of specs) {
    const figure = html("figure", { class: "chart" }, html("figcaption", {}, spec.title));
    if (spec.note) figure.append(html("p", { class: "note" }, spec.note));
    box.append(figure);
    if (spec.lines.length) new Chart(spec, figure);
  }
}

function epochCharts(epochs) {
  const marks = epochs.length < 25 ? ["training", "in all", "samples per second"] : [];
  const lines = [["training", ([epoch, train]) => [epoch, train]], ["in all", ([epoch, train, other]) => [epoch, train + other]]];
  const speeds = epochs.filter(([, train, , samples]) => train && samples).map(([epoch, train, , samples]) => [epoch, samples / train]);
  return [
    { title: "seconds of an epoch", x: "epoch", marks, lines: lines.map(([name, point]) => ({ name, points: epochs.map(point) })) },
    { title: "samples per second", x: "epoch", marks, lines: [{ name: "samples per second", points: speeds }] },
  ];
}

for (const data of document.querySelectorAll(".epochs > script")) addCharts(data.parentElement, epochCharts(JSON.parse(data.textContent)));
for (const data of document.querySelectorAll(".charts:not(.epochs) > script")) addCharts(data.parentElement, JSON.parse(data.textContent));
for (const box of document.querySelectorAll(".command")) box.append(copier(box.textContent.trim()));
