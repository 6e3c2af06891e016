const table = document.getElementById("table");

function compared(a, b) {
  const [left, right] = [a, b].map(cell => cell.dataset.value === undefined ? NaN : Number(cell.dataset.value));
  if (!Number.isNaN(left) && !Number.isNaN(right)) return left - right;
  return (Number.isNaN(left) - Number.isNaN(right)) || a.textContent.localeCompare(b.textContent, undefined, { numeric: true });
}

function sortBy(column, head) {
  const down = head.getAttribute("aria-sort") === "ascending", body = table.tBodies[0];
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const sorted = [...body.rows].sort((a, b) => compared(a.cells[column], b.cells[column]) * (down ? -1 : 1));
  body.append(...sorted.filter(row => row.cells[column].textContent), ...sorted.filter(row => !row.cells[column].textContent));
}

function filtered(filter) {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean), rows = [...table.tBodies[0].rows];
  for (const row of rows) row.hidden = !words.every(word => [...row.cells].some(cell => cell.textContent.toLowerCase().includes(word)));
  document.getElementById("shown").textContent = words.length ? `${rows.filter(row => !row.hidden).length} of ${rows.length} rows.` : "";
}

function linesOver(key, rows, value) {
  const lines = new Map();
  for (const row of rows) {
    const others = Object.entries(row.options).filter(([name]) => name !== key).map(([name, option]) => `${name}=${option}`).join(" ") || "all jobs";
    if (!lines.has(others)) lines.set(others, []);
    lines.get(others).push([row.options[key] ?? row.devices, value(row)]);
  }
  return [...lines].map(([name, points]) => ({ name, points: points.sort((a, b) => a[0] - b[0]) }));
}

function speeds(rows) {
  rows = rows.filter(row => row.speed_up);
  const devices = rows.map(row => row.devices), most = Math.max(...devices);
  if (new Set(devices).size < 2) return [];
  return [["speed-up", "speed_up", [[1, 1], [most, most]]], ["efficiency", "efficiency", [[1, 1], [most, 1]]]].map(([title, name, ideal]) => {
    const lines = [...linesOver("devices", rows, row => row[name]), { name: "ideal", points: ideal }];
    return { title, x: "devices", lines, marks: lines.map(line => line.name), dashed: ["ideal"], ticks_at: [...new Set(devices)] };
  });
}

function scoresOver(key, rows, metric) {
  const values = rows.map(row => row.options[key]), numeric = values.every(value => typeof value === "number");
  const names = [...new Set(values.map(String))];
  const placed = numeric ? rows : rows.map(row => ({ ...row, options: { ...row.options, [key]: names.indexOf(String(row.options[key])) } }));
  const lines = linesOver(key, placed, row => row.score), low = Math.min(...values), high = Math.max(...values);
  return { title: `${metric} over ${key}`, x: key, lines, marks: lines.map(line => line.name), log_x: numeric && low > 0 && high > 9 * low, ticks: numeric ? null : names };
}

function bestSoFar(rows, metric, mode) {
  let best = null;
  const points = rows.map((row, place) => {
    if (row.score !== null) best = best === null ? row.score : Math[mode](best, row.score);
    return [place, best];
  });
  const lines = [{ name: "best so far", points }, { name: "each job", points: rows.map((row, place) => [place, row.score]) }];
  return { title: `${metric}: best so far`, x: "job", lines, dots: ["each job"] };
}

function parallel(figure, axes, lines, mode) {
  const width = Math.max(300, figure.clientWidth - 26), height = 260, top = 34, bottom = 20, side = 50;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Parallel coordinates of ${axes.join(", ")}` });
  const places = axes.map((_, axis) => side + axis * (width - 2 * side) / (axes.length - 1)), last = axes.length - 1;
  const scales = axes.map((name, axis) => {
    const values = lines.map(line => line[axis]).filter(value => value !== null);
    const some = [...new Set(values)];
    if (values.every(value => typeof value === "number")) {
      const [low, high] = range(values, false), log = axis < last && low > 0 && high > 9 * low;
      return { to: scale([low, high], height - bottom, top, log), ticks: some.length < 7 && axis < last ? some : ticks(low, high, log, 4) };
    }
    const step = (height - top - bottom) / Math.max(1, some.length - 1);
    return { to: value => height - bottom - some.indexOf(value) * step, ticks: some };
  });
  const [low, high] = range(lines.map(line => line[last]), false) || [0, 1];
  const goodness = line => (mode === "max" ? line[last] - low : high - line[last]) / (high - low);
  for (const line of [...lines].sort((a, b) => goodness(a) - goodness(b))) {
    const drawn = line.map((value, axis) => value === null ? null : [places[axis], scales[axis].to(value)]).filter(Boolean), good = goodness(line);
    const path = svg("path", { d: "M" + drawn.map(at => at.map(n => n.toFixed(1)).join(" ")).join("L"), style: `stroke:color-mix(in srgb, var(--c0) ${Math.round(good * 100)}%, var(--c1));stroke-width:${good > 0.999 ? 3.4 : 1.4}` });
    path.append(svg("title", {}, axes.map((name, axis) => `${name} ${figures(line[axis])}`).join(", ")));
    drawing.append(path);
  }
  axes.forEach((name, axis) => {
    const ends = axis === last, at = axis === 0 ? 4 : ends ? width - 4 : places[axis];
    drawing.append(svg("line", { x1: places[axis], x2: places[axis], y1: top, y2: height - bottom, style: "stroke:var(--muted)" }), svg("text", { x: at, y: 14, "text-anchor": axis === 0 ? "start" : ends ? "end" : "middle", style: "font-weight:600" }, name));
    for (const value of scales[axis].ticks) drawing.append(svg("text", { x: places[axis] + (ends ? -7 : 7), y: scales[axis].to(value) + 4, "text-anchor": ends ? "end" : "start" }, figures(value)));
  });
  figure.replaceChildren(html("figcaption", {}, "all jobs, the best one thick"), drawing);
}

if (table) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.replaceChildren(html("button", { type: "button", onclick: () => sortBy(column, head) }, head.textContent));
  });
  document.getElementById("filter").addEventListener("input", event => filtered(event.target));
  const { rows, metric, mode } = JSON.parse(document.getElementById("jobs").textContent), varied = document.getElementById("varied");
  const keys = Object.keys(rows[0]?.options || {}), scored = rows.filter(row => row.score !== null), differ = new Set(scored.map(row => row.score)).size > 1;
  if (keys.length > 1 && differ) {
    const figure = html("figure", { class: "chart wide" }), lines = rows.map(row => [...keys.map(key => row.options[key]), row.score]);
    varied.append(figure);
    addEventListener("resize", () => parallel(figure, [...keys, metric], lines, mode));
    parallel(figure, [...keys, metric], lines, mode);
  }
  const specs = speeds(rows);
  if (differ) specs.push(...keys.map(key => scoresOver(key, scored, metric)));
  if (differ && keys.some(key => new Set(rows.map(row => row.options[key])).size > 4 && typeof rows[0].options[key] === "number")) specs.push(bestSoFar(rows, metric, mode));
  addCharts(varied, specs);
  varied.parentElement.hidden = !varied.childElementCount;
}
