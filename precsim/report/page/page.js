"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("data"), specs = read("specs");
  const by = (id) => document.getElementById(id);
  const lowest = -40, highest = 40;

  // ---- exact counts ----------------------------------------------------------------------------------------------

  function suffixes(rows) {  // numbers in a row or above it
    const sums = new Array(rows.length + 1).fill(0);
    for (let r = rows.length - 1; r >= 0; --r) sums[r] = sums[r + 1] + rows[r].reduce((a, b) => a + b, 0);
    return sums;
  }

  function above(item, rows, sums, place, k) {  // numbers whose magnitude times 2^k is at or above a place
    const row = place[0] - k - item.first;
    if (row < 0) return sums[0];
    if (row >= rows.length) return 0;
    let count = sums[row + 1];
    for (let c = place[1]; c < rows[row].length; ++c) count += rows[row][c];
    return count;
  }

  function outcomes(item, format, k) {
    let rows = item.rows, over = 0;
    if (!format.signed && item.negative) {
      rows = item.positive ??= item.rows.map((row, r) => row.map((count, c) => count - item.negative[r][c]));
      over = (item.negativeSums ??= suffixes(item.negative))[0];
    }
    const sums = rows === item.rows ? (item.sums ??= suffixes(rows)) : (item.positiveSums ??= suffixes(rows));
    const total = sums[0], places = format.places;
    const overflow = above(item, rows, sums, places.overflow, k);
    const nonzero = places.nonzero ? above(item, rows, sums, places.nonzero, k) : total;
    const normal = places.normal ? above(item, rows, sums, places.normal, k) : nonzero;
    return {
      zero: item.zeros, flushed: total - nonzero, subnormal: nonzero - normal, normal: normal - overflow,
      overflowed: overflow + over, nonfinite: item.nonfinite, nonzero: item.nonzero,
    };
  }

  // ---- numbers for people ----------------------------------------------------------------------------------------

  function percent(part, whole) {  // 0 only for none, 100 % only for all
    if (!part || !whole) return "0";
    if (part === whole) return "100 %";
    const share = (100 * part) / whole;
    if (share >= 99.95) return "> 99.9 %";
    if (share >= 0.01) return `${Number(share.toPrecision(3))} %`;
    const [digits, exponent] = share.toExponential(1).split("e");
    return `${digits}e${exponent[0]}${exponent.slice(1).padStart(2, "0")} %`;
  }
  const grouped = (n) => n.toString().replace(/\B(?=(\d{3})+$)/g, ",");
  const log2 = (x) => (x === null ? "" : `2^${Math.log2(x).toFixed(1)}`);

  function element(tag, text, attributes = {}) {  // text is never markup
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }

  function fill(select, labels) {
    labels.forEach((label, i) => select.append(element("option", label, { value: i })));
  }

  // ---- charts ----------------------------------------------------------------------------------------------------

  const scheme = matchMedia("(prefers-color-scheme: dark)");
  function config() {
    const style = getComputedStyle(document.documentElement), color = (name) => style.getPropertyValue(name).trim();
    const ink = color("--ink"), soft = color("--soft"), line = color("--line");
    const axis = { labelColor: soft, titleColor: soft, gridColor: line, domainColor: line, tickColor: line, labelFontSize: 11, titleFontSize: 12, titleFontWeight: "normal" };
    return {
      background: null, font: "system-ui, sans-serif", axis, view: { stroke: null }, text: { color: ink }, mark: { invalid: "filter" },
      legend: { labelColor: ink, titleColor: soft, labelFontSize: 12 },
    };
  }

  async function embed(where, spec, named) {
    const blue = scheme.matches ? "#56B4E9" : "#0072B2";  // on dark ground the dark one is hard to see
    const readable = JSON.parse(JSON.stringify(spec).replaceAll("#0072B2", blue));
    const result = await vegaEmbed(where, { ...readable, datasets: named, autosize: { type: "fit-x", contains: "padding", resize: true } },
      { actions: false, ast: true, renderer: "svg", config: config() });
    return result.view;
  }

  function update(view, named) {
    for (const [name, rows] of Object.entries(named)) view.data(name, rows);
    return view.runAsync();
  }

  // ---- state -----------------------------------------------------------------------------------------------------

  const views = {};
  const state = { k: 0, item: data.groups[0], order: "lost", down: true };

  function domain() {
    const marks = data.formats.flatMap((f) => [f.log2_least, f.log2_greatest]).filter((x) => Math.abs(x) < 45);
    const items = data.groups.filter((g) => g.rows.length);
    const low = Math.min(-30, ...marks, ...items.map((g) => Math.max(g.first, -60)));
    const high = Math.max(20, ...marks, ...items.map((g) => Math.min(g.first + g.rows.length, 60)));
    return [Math.floor(low) - 9, Math.ceil(high) + 2];
  }
  const shown = domain();

  function bars(item, k) {
    return item.rows.map((row, r) => ({ from: item.first + r + k, to: item.first + r + 1 + k, count: row.reduce((a, b) => a + b, 0) }))
      .filter((bar) => bar.from >= shown[0] && bar.to <= shown[1]);
  }

  const rowHeight = 16;
  function ranges() {
    const room = Math.max(8, (44 * (shown[1] - shown[0])) / Math.max(200, by("histogram").clientWidth - 60));  // for the names
    const inside = (x) => Math.min(Math.max(x, shown[0] + room), shown[1]);
    return data.formats.map((f, i) => ({
      name: f.name, pixel: 10 + rowHeight * i, least: inside(f.log2_least), normal: inside(f.log2_normal), greatest: inside(f.log2_greatest),
    }));
  }

  function histogramSpec() {
    const spec = structuredClone(specs.histogram);
    spec.layer[0].encoding.x.scale = { domain: shown, nice: false };
    const peak = Math.max(1, ...bars(state.item, 0).map((b) => b.count));
    const band = (10 + rowHeight * data.formats.length) / spec.height;
    spec.layer[0].encoding.y.scale = { domain: [0, peak / Math.max(0.2, 0.98 - band)], nice: false };
    return spec;
  }

  function curveData(item, i) {
    const format = data.formats[i], points = [];
    for (let k = lowest; k <= highest; ++k) {
      const counts = outcomes(item, format, k);
      for (const [outcome, count] of [["flushed", counts.flushed], ["subnormal", counts.subnormal], ["overflow", counts.overflowed]]) {
        points.push({ k, outcome, share: item.nonzero ? count / item.nonzero : 0, label: percent(count, item.nonzero) });
      }
    }
    const window = item.windows[i];
    const usable = window.usable ? [{ low: Math.max(window.low ?? lowest, lowest), high: Math.min(window.high ?? highest, highest) }]
      .filter((w) => w.low <= w.high) : [];
    return { points, window: usable, rules: rules(i) };
  }

  function rules(i) {
    const mark = data.marks[data.formats[i].name];
    const lines = [{ k: state.k, what: "slider", text: "" }];
    if (mark !== undefined) lines.push({ k: mark, what: "recommended", text: `advised 2^${mark}` });
    return lines;
  }

  // ---- what is shown ---------------------------------------------------------------------------------------------

  function showShares() {
    const rows = data.formats.map((format, i) => {
      const counts = outcomes(state.item, format, state.k), row = element("tr");
      row.append(element("th", format.name, { scope: "row" }));
      for (const outcome of ["flushed", "subnormal", "overflowed"]) {
        const cell = element("td", percent(counts[outcome], counts.nonzero), { title: `${grouped(counts[outcome])} of ${grouped(counts.nonzero)}` });
        cell.dataset.count = counts[outcome];
        cell.dataset.outcome = outcome;
        if (counts[outcome] && outcome !== "subnormal") cell.className = "some";
        row.append(cell);
      }
      row.append(element("td", state.item.windows[i].text));
      row.dataset.format = format.name;
      return row;
    });
    document.querySelector("#shares tbody").replaceChildren(...rows);
  }

  const columns = [
    { key: "name", title: "tensor", text: (t) => t.name },
    { key: "elements", title: "elements", text: (t) => grouped(t.elements) },
    { key: "zeroShare", title: "zeros", text: (t) => percent(t.zeros, t.elements) },
    { key: "amax", title: "greatest", text: (t) => log2(t.amax) },
    { key: "lost", title: "lost", text: (t) => percent(t.now.flushed + t.now.overflowed, t.nonzero) },
    { key: "flushed", title: "flushed", text: (t) => percent(t.now.flushed, t.nonzero) },
    { key: "subnormal", title: "subnormal", text: (t) => percent(t.now.subnormal, t.nonzero) },
    { key: "overflowed", title: "overflow", text: (t) => percent(t.now.overflowed, t.nonzero) },
    { key: "window", title: "usable scales", text: (t) => t.windows[formatOfTable()].text },
  ];
  const formatOfTable = () => Number(by("table-format").value);

  function value(tensor, key) {
    const share = (part) => (tensor.nonzero ? part / tensor.nonzero : 0);
    switch (key) {
      case "name": return tensor.name;
      case "elements": return tensor.elements;
      case "zeroShare": return tensor.elements ? tensor.zeros / tensor.elements : 0;
      case "amax": return tensor.amax ?? 0;
      case "lost": return share(tensor.now.flushed + tensor.now.overflowed);
      case "window": return tensor.windows[formatOfTable()].usable ? tensor.windows[formatOfTable()].high ?? Infinity : -Infinity;
      default: return share(tensor.now[key]);
    }
  }

  function compare(a, b) {
    const x = value(a, state.order), y = value(b, state.order);
    const order = x < y ? -1 : x > y ? 1 : 0;
    return (state.down ? -order : order) || (a.name < b.name ? -1 : 1);
  }

  function showHead() {
    const cells = columns.map((column) => {
      const head = element("th", undefined, { scope: "col" });
      const here = state.order === column.key;
      if (here) head.setAttribute("aria-sort", state.down ? "descending" : "ascending");
      const button = element("button", column.title + (here ? (state.down ? " ▼" : " ▲") : ""), { type: "button" });
      button.dataset.key = column.key;
      button.addEventListener("click", () => {
        state.down = here ? !state.down : column.key !== "name";
        state.order = column.key;
        showHead();
        showTensors();
        document.querySelector(`#tensors thead button[data-key="${column.key}"]`).focus();
      });
      head.append(button);
      return head;
    });
    document.querySelector("#tensors thead tr").replaceChildren(...cells);
  }

  const opened = new Set();
  function showTensors() {
    const format = data.formats[formatOfTable()], wanted = by("filter").value.toLowerCase();
    const found = data.tensors.filter((tensor) => tensor.name.toLowerCase().includes(wanted));
    for (const tensor of found) tensor.now = outcomes(tensor, format, state.k);
    found.sort(compare);
    const rows = found.flatMap((tensor) => {
      const row = element("tr"), open = opened.has(tensor);
      columns.forEach((column, i) => {
        const cell = element("td");
        if (i) cell.textContent = column.text(tensor);
        else {
          const button = element("button", column.text(tensor), { type: "button", "aria-expanded": open });
          button.addEventListener("click", () => {
            opened[open ? "delete" : "add"](tensor);
            showTensors();
            const again = [...document.querySelectorAll("#tensors td button")].find((other) => other.textContent === tensor.name);
            if (again) again.focus();
          });
          cell.append(button);
        }
        row.append(cell);
      });
      if (!open) return [row];
      row.className = "open";
      const detail = element("tr", undefined, { class: "open" }), cell = element("td", undefined, { colspan: columns.length, class: "own" });
      cell.append(drawing(tensor, format));
      detail.append(cell);
      return [row, detail];
    });
    document.querySelector("#tensors tbody").replaceChildren(...rows);
    by("found").textContent = wanted ? `${found.length} of ${data.tensors.length}` : `${data.tensors.length} tensors`;
  }

  function drawing(tensor, format) {
    const space = "http://www.w3.org/2000/svg", width = 640, height = 120, foot = 18;
    const svg = document.createElementNS(space, "svg");
    const add = (tag, attributes, text) => {
      const made = document.createElementNS(space, tag);
      for (const [name, v] of Object.entries(attributes)) made.setAttribute(name, v);
      if (text !== undefined) made.textContent = text;
      svg.append(made);
    };
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `Histogram of ${tensor.name}, magnitudes times 2^${state.k}`);
    const counts = tensor.rows.map((row) => row.reduce((a, b) => a + b, 0)), peak = Math.max(1, ...counts);
    const x = (e) => ((e - shown[0]) / (shown[1] - shown[0])) * width;
    counts.forEach((count, r) => {
      const from = tensor.first + r + state.k;
      if (!count || from < shown[0] || from >= shown[1]) return;
      const tall = Math.max(1, (count / peak) * (height - foot - 12));
      add("rect", { x: x(from) + 0.5, width: Math.max(1, x(from + 1) - x(from) - 1), y: height - foot - tall, height: tall });
    });
    for (const [at, label] of [[format.log2_least, "least"], [format.log2_normal, "normal"], [format.log2_greatest, "greatest"]]) {
      if (at < shown[0] || at > shown[1]) continue;
      add("line", { x1: x(at), x2: x(at), y1: 0, y2: height - foot, stroke: "currentColor", "stroke-dasharray": "3 3", "stroke-width": 1 });
      add("text", { x: x(at) + 3, y: 10 }, `${format.name} ${label}`);
    }
    for (let e = Math.ceil(shown[0] / 10) * 10; e <= shown[1]; e += 10) add("text", { x: x(e), y: height - 4, "text-anchor": "middle" }, `2^${e}`);
    return svg;
  }

  function cellRows() {
    const cells = data.cells, what = by("cells-what").value, rows = [];
    const table = what === "amax" ? cells.amax : cells.flushed[what];
    cells.tensors.forEach((index, i) => cells.steps.forEach((step, j) => {
      const v = table[i][j];
      if (v !== null) rows.push({ tensor: data.tensors[index].name, step, value: v, label: what === "amax" ? `2^${v}` : percent(v, 1) });
    }));
    return rows;
  }

  function movementRows() {
    const name = data.formats[Number(by("movement-format").value)].name;
    return data.movement.filter((m) => m.format === name && m.low !== null && m.high !== null);
  }

  // ---- together --------------------------------------------------------------------------------------------------

  function scaled() {
    by("scale-text").textContent = `2^${state.k}`;
    by("scale").setAttribute("aria-valuetext", `2 to the power ${state.k}`);
    showShares();
    showTensors();
    if (views.histogram) update(views.histogram, { bars: bars(state.item, state.k) });
    data.formats.forEach((_, i) => views[`curve${i}`] && update(views[`curve${i}`], { rules: rules(i) }));
  }

  async function draw() {
    const charts = [["histogram", histogramSpec(), { bars: bars(state.item, state.k), ranges: ranges() }]];
    data.formats.forEach((_, i) => charts.push([`curve${i}`, specs.curve, curveData(state.item, i)]));
    if (data.cells.tensors.length) charts.push(["cells", { ...specs.cells, height: 13 * data.cells.tensors.length + 1 }, { cells: cellRows() }]);
    if (data.movement.length > data.formats.length) charts.push(["movement", specs.movement, { steps: movementRows() }]);
    for (const [name, spec, named] of charts) {
      if (views[name]) views[name].finalize();
      views[name] = await embed(by(name), spec, named);
    }
    document.documentElement.dataset.ready = "yes";
  }

  fill(by("group"), data.groups.map((group) => group.name));
  fill(by("table-format"), data.formats.map((format) => format.name));
  fill(by("movement-format"), data.formats.map((format) => format.name));
  by("cells-what").append(element("option", "greatest magnitude, log2", { value: "amax" }),
    ...data.formats.map((f) => element("option", `share flushed in ${f.name} at scale 1`, { value: f.name })));
  data.formats.forEach((format, i) => {
    const box = element("div");
    box.append(element("h3", format.name), element("div", undefined, { id: `curve${i}`, class: "chart", role: "img", "aria-label": `Outcomes of ${format.name} by loss scale` }));
    by("curves").append(box);
  });
  by("cells-section").hidden = !data.cells.tensors.length;
  by("movement-section").hidden = data.movement.length <= data.formats.length;
  by("cells-how").textContent = "One row per tensor, one column per recorded step."
    + (data.cells.left_out ? ` The ${data.cells.tensors.length} tensors with the most flushed are shown, ${data.cells.left_out} are not.` : "");
  by("scale").addEventListener("input", (event) => { state.k = Number(event.target.value); scaled(); });
  by("group").addEventListener("change", (event) => { state.item = data.groups[Number(event.target.value)]; showShares(); draw(); });
  by("table-format").addEventListener("change", showTensors);
  by("filter").addEventListener("input", showTensors);
  by("cells-what").addEventListener("change", () => update(views.cells, { cells: cellRows() }));
  by("movement-format").addEventListener("change", () => update(views.movement, { steps: movementRows() }));
  scheme.addEventListener("change", draw);
  showHead();
  scaled();
  draw();
  window.precsim = { outcomes, percent, data };
})();
