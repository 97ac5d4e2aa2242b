"use strict";
// Draws the report from the JSON block. Data reaches the page as text nodes or escaped labels only.
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  // Columns on the way, records here.
  const cellNames = Object.keys(data.cells);
  data.cells = cellNames.length ? data.cells[cellNames[0]].map((_, row) => Object.fromEntries(cellNames.map((name) => [name, data.cells[name][row]]))) : [];
  const byId = (id) => document.getElementById(id);
  // Okabe and Ito's colours: told apart with any colour vision; dashes tell them apart without colour.
  const COLORS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d00"];
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
  const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down"];
  const label = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const distinct = (values) => Array.from(new Set(values));

  const settings = distinct(data.cells.map((cell) => cell.setting).concat(data.iterations.map((one) => one.setting)));
  function look(setting) {
    const place = Math.max(settings.indexOf(setting), 0);
    return {
      color: COLORS[place % COLORS.length],
      dash: DASHES[Math.floor(place / COLORS.length) % DASHES.length],
      mark: MARKS[place % MARKS.length],
    };
  }

  function draw(id, traces, layout, missing) {
    const place = byId(id);
    const empty = place.parentElement.querySelector(".empty") || document.createElement("p");
    empty.className = "empty";
    empty.textContent = missing;
    if (!empty.parentElement) place.before(empty);
    empty.hidden = traces.length > 0;
    // A plot is never purged: its last redraw may still be under way.
    place.hidden = !traces.length;
    if (!traces.length) return;
    const narrow = place.clientWidth < 560;
    let high = layout.height;
    if (narrow) {  // the legend stands below, and plotly would let it scroll
      const named = traces.filter((trace) => trace.name && trace.showlegend !== false);
      const lines = named.flatMap((trace) => trace.name.split("<br>")).length;
      const groups = named.filter((trace) => trace.legendgroup).length;  // plotly sets them apart
      high = high || Math.max(400, 280 + 17 * lines + 12 * groups);
    }
    // Said to plotly, too: it keeps the height of the first drawing else.
    place.style.height = high ? high + "px" : "";
    const base = {
      margin: { l: 58, r: 14, t: narrow ? 12 : 36, b: narrow ? 40 : 62 },
      font: { family: "system-ui, sans-serif", size: narrow ? 11 : 13, color: "#1b1f24" },
      legend: narrow ? { orientation: "h", yref: "container", y: 0, yanchor: "bottom", x: 0, font: { size: 10 } } : { x: 1.01, y: 1 },
      paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", hoverlabel: { align: "left" },
    };
    const merged = Object.assign(base, layout, high ? { height: high } : { autosize: true });
    for (const axis of ["xaxis", "yaxis"]) {
      merged[axis] = Object.assign({ gridcolor: "#e4e8ec", zerolinecolor: "#d0d7de", linecolor: "#8c959f", automargin: true }, merged[axis]);
      // With a standoff the margin makes room for the title, which was cut otherwise.
      if (merged[axis].title) merged[axis].title.standoff = 8;
    }
    Plotly.react(place, traces, merged, { responsive: true, displaylogo: false, displayModeBar: narrow ? false : "hover", modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] });
  }

  // Plotly writes the ticks between powers of ten as a bare digit ("2" for 0.2): each gets its whole number here.
  function logAxis(values, title) {
    const axis = { type: "log", title: { text: title } };
    const known = values.filter((value) => value > 0);
    if (!known.length) return axis;
    const least = Math.min(...known), most = Math.max(...known), width = most - least;
    let ticks = [];
    if (width === 0) {
      ticks = [least];
    } else if (most < 3 * least) {  // within less than a decade: those of a linear axis
      const power = 10 ** Math.floor(Math.log10(width / 4));
      const step = power * ([1, 2, 5].find((one) => 4 * one * power >= width) || 10);
      for (let place = Math.max(1, Math.ceil((least - width) / step)); place * step <= most + width; place++) ticks.push(place * step);
    } else {
      const digits = most > 1000 * least ? [1] : most > 20 * least ? [1, 2, 5] : [1, 2, 3, 5, 7];
      for (let power = Math.floor(Math.log10(least / 2)); power <= Math.log10(2 * most); power++) ticks.push(...digits.map((digit) => digit * 10 ** power));
    }
    return Object.assign(axis, { tickvals: ticks, ticktext: ticks.map((tick) => String(Number(tick.toPrecision(4)))) });
  }

  function fill(select, names, chosen) {
    select.replaceChildren();
    for (const name of names) {
      const option = document.createElement("option");
      option.value = name;
      option.textContent = name;
      select.append(option);
    }
    if (chosen !== undefined) select.value = chosen;
    select.closest("label").hidden = names.length < 2;
  }

  function byMost(names) {
    const counts = new Map();
    for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
    return Array.from(counts.keys()).sort((a, b) => counts.get(b) - counts.get(a));
  }

  const GB = 1e9;
  const contexts = byMost(data.cells.map((cell) => cell.context));

  // Long names on several lines: a legend or an axis that is wider than its plot leaves no room for the plot.
  function lines(text, width) {
    const found = [];
    for (const word of String(text).split(" ")) {
      if (found.length && (found[found.length - 1] + " " + word).length <= width) found[found.length - 1] += " " + word;
      else found.push(word);
    }
    return found;
  }
  const wrapped = (text, width) => lines(text, width).map(label).join("<br>");

  if (data.usual) byId("size-usual").textContent = "As most jobs: " + data.usual + ".";
  function drawSize() {
    const what = byId("size-what").value;
    const name = what + "_s_median";
    const cells = data.cells.filter((c) => c.context === byId("size-context").value && c[name] !== null && c.copied_bytes);
    const traces = [];
    for (const setting of distinct(cells.map((cell) => cell.setting))) {
      const own = cells.filter((cell) => cell.setting === setting).sort((a, b) => a.copied_bytes - b.copied_bytes);
      const style = look(setting);
      traces.push({
        name: wrapped(setting, 36), x: own.map((c) => c.copied_bytes / GB), y: own.map((c) => c[name]), mode: "lines+markers",
        line: { color: style.color, dash: style.dash, width: own.length > 60 ? 0 : 1.5 },
        marker: { symbol: style.mark, color: style.color, size: 8 },
        error_y: { type: "data", symmetric: false, thickness: 1, color: style.color,
          array: own.map((c) => c[name + "_max"] - c[name]), arrayminus: own.map((c) => c[name] - c[name + "_min"]) },
        text: own.map((c) => label(c.size + ", " + c.ranks + (c.ranks > 1 ? " ranks" : " rank") + " · " + c.cell + " · n = " + c.n + (c.flagged ? " · flagged" : ""))),
        hovertemplate: "%{y:.4g} s at %{x:.4g} GB<br>%{text}<extra>%{fullData.name}</extra>",
      });
    }
    if (cells.length) {
      const sizes = cells.map((cell) => cell.copied_bytes / GB);
      const alone = Math.min(...sizes) === Math.max(...sizes) ? 1.25 : 1;  // a line needs some length
      const ends = [Math.min(...sizes) / alone, Math.max(...sizes) * alone];
      for (const link of data.links) {
        const speed = what === "offload" ? link.down_gbps : link.up_gbps;
        traces.push({ name: "link, " + link.kind + ": " + speed.toPrecision(3) + " GB/s", x: ends, y: ends.map((gb) => gb / speed), mode: "lines",
          line: { color: "#6e7781", width: 2, dash: link.kind === "pinned" ? "dot" : "dashdot" }, hoverinfo: "name" });
      }
    }
    draw("plot-size", traces, { xaxis: logAxis(cells.map((cell) => cell.copied_bytes / GB), "GB copied by a rank"), yaxis: logAxis(traces.flatMap((trace) => trace.y), what + ", seconds") },
      "No measured cell.");
  }

  const BAR_LETTERS = 30;
  function drawSplit() {
    const what = byId("split-what").value;
    const note = byId("split-note");
    let bars, parts;
    if (data.splits.length) {
      const names = distinct(data.splits.flatMap((one) => Object.keys(one.parts))).filter((part) => part.startsWith(what + "_"));
      parts = names.map((name) => [name.slice(what.length + 1).replace(/_s$/, "").replace("_", " "), (one) => one.parts[name]]);
      bars = data.splits.map((one) => ({ label: one.label, source: one }));
      byId("split-size").closest("label").hidden = true;
      note.textContent = "Means over the instrumented iterations, which are kept out of every median.";
    } else {
      const host = what + "_host_s_median", done = what + "_s_median", all = what + "_all_s_median";
      const size = byId("split-size").value;
      bars = data.cells.filter((c) => c.size + " · " + c.context === size && c[done] !== null && c[host] !== null).map((c) => ({ label: c.setting, source: c }));
      parts = [["until the call returns", (c) => c[host]], ["until the device is idle", (c) => Math.max(c[done] - c[host], 0)],
        ["until every rank is done", (c) => c[all] === null ? 0 : Math.max(c[all] - c[done], 0)]];
      note.textContent = "This sweep has no instrumented iterations (axis instrumented), so the time is split at what was clocked outside the call.";
    }
    const traces = bars.length ? parts.map(([name, read], place) => ({
      type: "bar", orientation: "h", name: name, y: bars.map((bar) => wrapped(bar.label, BAR_LETTERS)), x: bars.map((bar) => read(bar.source)),
      marker: { color: COLORS[place % COLORS.length], pattern: { shape: ["", "/", ".", "x", "\\", "-"][place % 6] } },
      hovertemplate: "%{x:.4g} s<extra>%{fullData.name}</extra>",
    })) : [];
    // Each bar is as high as its name, which else would lie over its neighbour's.
    const high = bars.reduce((sum, bar) => sum + Math.max(2, lines(bar.label, BAR_LETTERS).length + 1) * 17, 0);
    const height = Math.max(260, high + (byId("plot-split").parentElement.clientWidth < 560 ? 190 : 130));
    draw("plot-split", traces, { barmode: "stack", height: height, xaxis: { title: { text: "seconds" } }, yaxis: { autorange: "reversed" } }, "Nothing to split.");
  }

  const MEMORY_NAMES = { allocated_bytes: "allocated by torch", reserved_bytes: "reserved by torch", device_used_bytes: "used on the device", pinned_bytes: "pinned on the host", rss_bytes: "resident on the host" };
  function drawMemory() {
    const one = data.memory.find((found) => memoryName(found) === byId("memory-job").value);
    const traces = one ? Object.entries(one.series).map(([name, values], place) => ({
      name: MEMORY_NAMES[name] || name, x: one.at_s, y: values.map((value) => value === null ? null : value / GB), mode: "lines+markers",
      line: { color: COLORS[place], dash: DASHES[place], width: 1.5 }, marker: { size: 4, color: COLORS[place] },
      text: one.phase.map(label), hovertemplate: "%{y:.4g} GB at %{x:.3f} s, %{text}<extra>%{fullData.name}</extra>",
    })) : [];
    byId("memory-note").textContent = one
      ? "Rank " + one.rank + (one.is_cut ? ", its first " + one.at_s.length + " samples" : "") + ". " + (data.memory.length > 1 ? data.memory.length + " jobs can be chosen here; the" : "The") + " database has every sample."
      : "";
    draw("plot-memory", traces, { xaxis: { title: { text: "seconds since the loop began" } }, yaxis: { title: { text: "GB" }, rangemode: "tozero" } },
      "The database has no memory samples of these jobs.");
  }
  const memoryName = (one) => one.job + " · " + one.setting;

  function drawIterations() {
    const what = byId("iteration-what").value;
    const chosen = data.iterations.filter((one) => one.question === byId("iteration-question").value);
    const traces = [];
    const cold = { x: [], y: [], text: [] };
    // Names side by side need room; where there is none the legend has them.
    const narrow = byId("plot-iterations").parentElement.clientWidth < 560;
    for (const setting of distinct(chosen.map((one) => one.setting))) {
      const x = [], y = [], text = [];
      for (const one of chosen.filter((found) => found.setting === setting)) {
        one[what].forEach((value, place) => {
          if (value === null) return;
          const into = one.kind[place] === "warm" ? { x, y, text } : one.kind[place] === "cold" ? cold : null;
          if (!into) return;
          into.x.push(wrapped(setting, 20)); into.y.push(value);
          into.text.push(label(one.job) + ", iteration " + one.iteration[place]);
        });
      }
      const style = look(setting);
      traces.push({ type: "box", name: wrapped(setting, narrow ? 36 : 20), x, y, text, boxpoints: "all", jitter: 0.5, pointpos: 0, showlegend: narrow,
        marker: { color: style.color, size: 4, opacity: 0.6 }, line: { color: style.color }, hovertemplate: "%{y:.4g} s<br>%{text}<extra></extra>" });
    }
    if (cold.x.length) traces.push({ name: "cold", mode: "markers", x: cold.x, y: cold.y, text: cold.text,
      marker: { symbol: "diamond-open", size: 11, color: "#82071e", line: { width: 2 } }, hovertemplate: "cold: %{y:.4g} s<br>%{text}<extra></extra>" });
    const title = what === "offload_s" ? "offload, seconds" : "reload, seconds";
    draw("plot-iterations", traces, { yaxis: logAxis(traces.flatMap((trace) => trace.y), title), xaxis: { type: "category", showticklabels: !narrow } }, "No iterations were recorded.");
    const named = new Set();
    const curves = chosen.map((one) => {
      const style = look(one.setting);
      const first = !named.has(one.setting);
      named.add(one.setting);
      const keep = one.iteration.map((_, place) => place).filter((place) => one.kind[place] !== "cold" && one.kind[place] !== "instrumented");
      return { name: wrapped(one.setting, 36), legendgroup: one.setting, showlegend: first, x: keep.map((place) => one.iteration[place]), y: keep.map((place) => one[what][place]), mode: "lines+markers",
        line: { color: style.color, width: 1, dash: style.dash }, marker: { size: 4, color: style.color, symbol: keep.map((place) => one.kind[place] === "warm-up" ? "circle-open" : "circle") },
        hovertemplate: "%{y:.4g} s in iteration %{x}<br>" + label(one.job) + "<extra>%{fullData.name}</extra>" };
    });
    byId("drift-note").textContent = "Open points: warm-up. The cold iteration is left out. Iterations of " + data.iterations.length + (data.iterations.length === 1 ? " job are on" : " jobs are on") + " this page, at most three repeats of a setting and " + data.iterations_most + " iterations of a job.";
    draw("plot-drift", curves, { xaxis: { title: { text: "iteration" } }, yaxis: { title: { text: title }, rangemode: "tozero" } }, "No iterations were recorded.");
  }

  function drawScaling() {
    const cells = data.cells.filter((c) => c.context === byId("scaling-context").value && c.offload_gbps !== null);
    const several = distinct(cells.map((cell) => cell.ranks)).length > 1;
    const groups = new Map();
    for (const cell of cells) {
      const key = cell.setting + " · " + cell.size.replace(/,? ?num_(gpus|nodes) \d+/g, "");
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(cell);
    }
    const traces = [];
    if (several) {
      for (const [key, own] of groups) {
        if (distinct(own.map((cell) => cell.ranks)).length < 2 || traces.length >= 40) continue;
        own.sort((a, b) => a.ranks - b.ranks);
        for (const [what, fillMark] of [["offload", ""], ["reload", "-open"]]) {
          const style = look(own[0].setting);
          traces.push({ name: wrapped(what + ": " + key, 36), x: own.map((c) => c.ranks), y: own.map((c) => c[what + "_gbps"]), mode: "lines+markers",
            line: { color: style.color, dash: what === "offload" ? "solid" : "dot" }, marker: { symbol: style.mark + fillMark, color: style.color, size: 8 },
            hovertemplate: "%{y:.4g} GB/s a rank on %{x} ranks<extra>%{fullData.name}</extra>" });
        }
      }
    }
    draw("plot-scaling", traces, { xaxis: { title: { text: "ranks" }, tickvals: distinct(cells.map((cell) => cell.ranks)), rangemode: "tozero" },
      yaxis: { title: { text: "GB/s of a rank" }, rangemode: "tozero" } }, cells.length ? "Every job of this sweep has the same number of ranks: nothing to scale over." : "No cell has a speed: on a CPU nothing is copied.");
  }

  // The table of all jobs: sorted and filtered as a list of row numbers, drawn a page at a time.
  const columns = Object.keys(data.jobs);
  const rowCount = data.jobs.job.length;
  const PAGE = 100;
  const numeric = new Set(columns.filter((name) => data.jobs[name].some((v) => typeof v === "number") && data.jobs[name].every((v) => v === null || typeof v === "number")));
  let shown = Array.from({ length: rowCount }, (_, row) => row);
  let page = 0, sortColumn = null, ascending = true;

  function bytesText(value) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let size = Math.abs(value), unit = 0;
    while (size >= 999.5 && unit < units.length - 1) { size /= 1000; unit += 1; }
    return (value < 0 ? "-" : "") + (unit ? size.toPrecision(3) : size) + " " + units[unit];
  }
  function textOf(name, value) {
    if (value === null || value === "") return "–";
    if (value === true) return "yes";
    if (value === false) return "no";
    if (typeof value !== "number") return value;
    if (name.endsWith("_bytes")) return bytesText(value);
    if (name.endsWith("_share")) return (value * 100).toPrecision(3) + " %";
    if (/_s(_median|_cold_s)?$/.test(name) || name.endsWith("_gbps")) return String(Number(value.toPrecision(4)));
    return String(value);
  }
  const heading = (name) => name.replace(/_s_median$/, " (s)").replace(/_s$/, " (s)").replace(/_gbps$/, " GB/s").replace(/_/g, " ");

  function matcher(word) {
    const parts = /^([A-Za-z_][\w.]*)(!=|<=|>=|=|<|>)(.*)$/.exec(word);
    if (parts && columns.includes(parts[1])) {
      const [, name, relation, want] = parts;
      const values = data.jobs[name];
      if (relation === "=" || relation === "!=") {
        const same = (row) => { const v = values[row]; return String(v) === want || textOf(name, v) === want || (typeof v === "number" && want !== "" && v === Number(want)); };
        return (row) => same(row) === (relation === "=");
      }
      const bound = Number(want);
      const tests = { "<": (v) => v < bound, "<=": (v) => v <= bound, ">": (v) => v > bound, ">=": (v) => v >= bound };
      return (row) => typeof values[row] === "number" && tests[relation](values[row]);
    }
    const lower = word.toLowerCase();
    return (row) => columns.some((name) => textOf(name, data.jobs[name][row]).toLowerCase().includes(lower));
  }
  function filterJobs() {
    const tests = byId("filter").value.trim().split(/\s+/).filter(Boolean).map(matcher);
    shown = [];
    for (let row = 0; row < rowCount; row += 1) if (tests.every((test) => test(row))) shown.push(row);
    sortJobs();
  }
  function sortJobs() {
    if (sortColumn !== null) {
      const values = data.jobs[sortColumn];
      const order = (a, b) => {
        const x = values[a], y = values[b];
        if (x === y) return a - b;
        if (x === null || x === "") return 1; // missing is last, either way
        if (y === null || y === "") return -1;
        const less = typeof x === "number" && typeof y === "number" ? x - y : String(x) < String(y) ? -1 : 1;
        return ascending ? less : -less;
      };
      shown.sort(order);
    } else {
      shown.sort((a, b) => a - b);
    }
    page = 0;
    drawJobs();
  }
  function drawHead() {
    const row = document.createElement("tr");
    for (const name of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      if (numeric.has(name)) cell.className = "number";
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = heading(name);
      button.title = "sort by " + name;
      button.addEventListener("click", () => {
        ascending = sortColumn === name ? !ascending : true;
        sortColumn = name;
        for (const other of row.children) other.removeAttribute("aria-sort");
        cell.setAttribute("aria-sort", ascending ? "ascending" : "descending");
        for (const other of row.querySelectorAll("button")) other.textContent = other.textContent.replace(/ [▲▼]$/, "");
        button.textContent = heading(name) + (ascending ? " ▲" : " ▼");
        sortJobs();
      });
      cell.append(button);
      row.append(cell);
    }
    document.querySelector("#job-table thead").append(row);
  }
  function drawJobs() {
    const body = document.querySelector("#job-table tbody");
    const rows = [];
    for (const number of shown.slice(page * PAGE, (page + 1) * PAGE)) {
      const row = document.createElement("tr");
      row.dataset.row = number;
      for (const name of columns) {
        const value = data.jobs[name][number];
        const cell = document.createElement("td");
        if (name === "status") {
          const mark = document.createElement("span");
          mark.className = "status status-" + String(value).replace(/\W/g, "");
          mark.textContent = value;
          cell.append(mark);
        } else {
          cell.textContent = textOf(name, value);
          if (numeric.has(name)) { cell.className = "number"; if (value !== null) cell.title = name + " = " + value; }
          if (typeof value === "string" && value.length > 40) cell.className = "long";
        }
        row.append(cell);
      }
      rows.push(row);
    }
    body.replaceChildren(...rows);
    const pages = Math.max(1, Math.ceil(shown.length / PAGE));
    byId("filter-count").textContent = shown.length + " of " + rowCount + " jobs";
    byId("page-where").textContent = "page " + (page + 1) + " of " + pages;
    byId("page-before").disabled = page === 0;
    byId("page-after").disabled = page >= pages - 1;
    document.querySelector(".pages").hidden = pages === 1;
  }

  fill(byId("size-context"), contexts);
  fill(byId("scaling-context"), contexts);
  const sizes = distinct(data.cells.slice().sort((a, b) => (b.copied_bytes || 0) - (a.copied_bytes || 0)).map((c) => c.size + " · " + c.context));
  fill(byId("split-size"), sizes.slice(0, 500));
  const questions = distinct(data.iterations.map((one) => one.question));
  const most = byMost(data.iterations.map((one) => one.question))[0];
  fill(byId("iteration-question"), questions, most);
  fill(byId("memory-job"), data.memory.map(memoryName));
  const onChange = (ids, redraw) => { for (const id of ids) byId(id).addEventListener("change", redraw); redraw(); };
  onChange(["size-what", "size-context"], drawSize);
  onChange(["split-what", "split-size"], drawSplit);
  onChange(["memory-job"], drawMemory);
  onChange(["iteration-what", "iteration-question"], drawIterations);
  onChange(["scaling-context"], drawScaling);
  byId("filter").addEventListener("input", filterJobs);
  byId("page-before").addEventListener("click", () => { page -= 1; drawJobs(); });
  byId("page-after").addEventListener("click", () => { page += 1; drawJobs(); });
  drawHead();
  filterJobs();
  document.body.dataset.ready = "true";
})();
