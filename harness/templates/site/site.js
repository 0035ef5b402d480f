"use strict";
// The theme is the system's until the reader chooses one, which is kept.
(function theme() {
  const root = document.documentElement;
  let kept = null;
  try { kept = localStorage.getItem("theme"); } catch (error) { kept = null; }
  if (kept) root.dataset.theme = kept;
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.addEventListener("click", () => {
      const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = isDark ? "light" : "dark";
      try { localStorage.setItem("theme", root.dataset.theme); } catch (error) { /* a page from a file may keep nothing */ }
      drawFigures();
    });
    drawFigures();
    table();
  });
})();

// Figures are drawn when they come near the window: a page may have many.
function drawFigures() {
  const colour = getComputedStyle(document.body).getPropertyValue("--text").trim();
  const line = getComputedStyle(document.body).getPropertyValue("--line").trim();
  const draw = (place) => {
    const figure = JSON.parse(document.getElementById(place.dataset.source).textContent);
    const axes = { gridcolor: line, zerolinecolor: line, automargin: true };
    Object.assign(figure.layout, { font: { color: colour }, xaxis: { ...figure.layout.xaxis, ...axes }, yaxis: { ...figure.layout.yaxis, ...axes } });
    Plotly.react(place, figure.data, figure.layout, { responsive: true, displayModeBar: false });
  };
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "300px" });
  for (const place of document.querySelectorAll(".figure")) seen.observe(place);
}

// The table of rows: filtered and sorted in memory, of which so many are shown.
function table() {
  const body = document.getElementById("rows");
  if (!body || !window.ROWS) return;
  const STEP = 100;
  const at = Object.fromEntries(window.ROWS.columns.map((name, index) => [name, index]));
  const texts = window.ROWS.rows.map((row) => row.slice(0, at.compile_s).join(" ").toLowerCase());
  const filters = ["suite", "backend", "mode", "dtype", "layout", "verdict", "state"];
  const ofWords = [at.dtype, at.layout];  // of these columns a row has several words
  const inputs = Object.fromEntries([...filters, "text"].map((name) => [name, document.getElementById(`filter-${name}`)]));
  let order = null, isDown = false, shown = STEP, found = [];

  for (const name of filters) {
    const isOfWords = ofWords.includes(at[name]);
    const values = window.ROWS.rows.flatMap((row) => isOfWords ? row[at[name]].split(" ") : [row[at[name]]]);
    if (name === "backend") values.push(...values.map((value) => value.split(",")[0]));
    for (const value of [...new Set(values)].sort()) {
      inputs[name].add(new Option(value || "none", value || "none"));
    }
  }
  const link = (href, text) => { const a = document.createElement("a"); a.href = href; a.append(breakable(text)); return a; };
  // A line may break behind each word of a name.
  const breakable = (name) => {
    const whole = document.createDocumentFragment();
    for (const part of name.split(/(?<=[_.])/)) whole.append(part, document.createElement("wbr"));
    return whole;
  };
  const slug = (name) => name.replace(/[^\w.-]+/g, "_");
  const cell = (line, value, kind, title) => {
    const td = line.insertCell();
    if (kind) td.className = kind;
    if (title) td.dataset.title = title;
    if (value instanceof Node) td.append(value); else td.textContent = value ?? "";
    return td;
  };
  const tag = (text) => { const span = document.createElement("span"); span.className = `tag ${text}`; span.textContent = text; return span; };
  const draw = () => {
    const lines = document.createDocumentFragment();
    for (const index of found.slice(0, shown)) {
      const row = window.ROWS.rows[index], line = document.createElement("tr");
      const name = row[at.case];
      cell(line, row[at.verdict] === "same" ? breakable(name) : link(`cases/${slug(name)}.html`, name), "name");
      cell(line, row[at.mode]);
      cell(line, row[at.backend]);
      cell(line, tag(row[at.verdict]));
      cell(line, row[at.field]);
      cell(line, row[at.cause] ? link(`causes/${row[at.cause]}.html`, row[at.state]) : "");
      cell(line, row[at.compile_s]?.toFixed(2), "number", "first call, s:");
      cell(line, row[at.speed]?.toFixed(2), "number", "eager / ours:");
      lines.append(line);
    }
    body.replaceChildren(lines);
    document.getElementById("count").textContent = `${found.length} of ${window.ROWS.rows.length} rows, ${Math.min(shown, found.length)} shown`;
    document.getElementById("more").hidden = shown >= found.length;
  };
  const filter = () => {
    const start = performance.now();
    const words = inputs.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = filters.filter((name) => inputs[name].value).map((name) => [at[name], inputs[name].value === "none" ? "" : inputs[name].value]);
    found = [];
    window.ROWS.rows.forEach((row, index) => {
      if (wanted.every(([place, value]) => row[place] === value || (ofWords.includes(place) && value && ` ${row[place]} `.includes(` ${value} `)) || (place === at.backend && row[place].startsWith(`${value},`))) && words.every((word) => texts[index].includes(word))) found.push(index);
    });
    if (order !== null) {
      const of = (index) => window.ROWS.rows[index][order];
      found.sort((a, b) => { const [x, y] = [of(a), of(b)]; return (x === null) - (y === null) || (x < y ? -1 : x > y ? 1 : 0) * (isDown ? -1 : 1); });
    }
    draw();
    window.filterMs = performance.now() - start;
  };
  const keep = () => {
    const said = new URLSearchParams();
    for (const [name, input] of Object.entries(inputs)) if (input.value) said.set(name, input.value);
    history.replaceState(null, "", said.size ? `#${said}` : location.pathname + location.search);
  };
  const read = () => {
    const said = new URLSearchParams(location.hash.slice(1));
    for (const [name, input] of Object.entries(inputs)) input.value = said.get(name) ?? "";
    filter();
  };
  const changed = () => { shown = STEP; filter(); keep(); };
  for (const [name, input] of Object.entries(inputs)) input.addEventListener(name === "text" ? "input" : "change", changed);
  document.getElementById("more").addEventListener("click", () => { shown += 5 * STEP; draw(); });
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const column = at[button.dataset.column];
      [order, isDown] = [column, order === column && !isDown];
      for (const other of document.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
      button.parentElement.setAttribute("aria-sort", isDown ? "descending" : "ascending");
      filter();
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { event.preventDefault(); inputs.text.focus(); }
  });
  window.addEventListener("hashchange", read);
  read();
}
