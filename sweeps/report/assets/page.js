"use strict";
(() => {
  const COLOUR = /(^color|color$)/i;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Colours stand in the charts as names of CSS variables: only under keys that are colours, so
  // that nothing a user has named is ever taken for one.
  const painted = (value, key = "") => {
    if (Array.isArray(value)) return value.map(item => painted(item, key));
    if (value && typeof value === "object")
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, painted(v, k)]));
    return typeof value === "string" && value.startsWith("--") && COLOUR.test(key)
      ? variable(value) : value;
  };

  const axis = (own, small) => ({
    gridcolor: "--line", linecolor: "--line", zeroline: false, ticks: "", automargin: !small,
    fixedrange: small || coarse.matches, tickfont: { size: small ? 10 : 11, color: "--muted" },
    ...own, title: { standoff: small ? 4 : 10, font: { size: small ? 11 : 12, color: "--muted" }, ...own.title },
  });

  const layout = chart => {
    const own = { ...chart.layout };
    for (const key of Object.keys(own)) if (/^[xy]axis/.test(key)) own[key] = axis(own[key], chart.small);
    return painted({
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false,
      margin: { l: 52, r: 10, t: 8, b: 44 }, hovermode: "closest", dragmode: coarse.matches ? false : "zoom",
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: "--ink" },
      hoverlabel: { bgcolor: "--card", bordercolor: "--line", font: { color: "--ink", size: 12 }, align: "left" },
      ...own,
    });
  };

  const config = { displayModeBar: false, responsive: true };

  const drawn = new Map();
  const draw = place => {
    if (drawn.has(place)) return;
    const chart = JSON.parse(document.getElementById(place.id + "-data").textContent);
    drawn.set(place, chart);
    Plotly.newPlot(place, painted(chart.traces), layout(chart), config);
    if (chart.keys.length > 1) place.after(legend(place, chart));
  };
  const repaint = () => drawn.forEach((chart, place) => {
    Plotly.react(place, painted(chart.traces), layout(chart), config);
  });

  const SHAPES = {
    circle: "M2 8a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0", square: "M2 3.5h9v9h-9z", diamond: "M6.5 2l5 6l-5 6l-5-6z",
    "triangle-up": "M6.5 2.5l5 10h-10z", "triangle-down": "M6.5 13l5-10h-10z",
    "triangle-left": "M12 2.5v11l-10-5.5z", "triangle-right": "M1.5 2.5v11l10-5.5z",
    star: "M6.5 2l1.5 4.2h4.2l-3.4 2.7l1.3 4.3l-3.6-2.6l-3.6 2.6l1.3-4.3l-3.4-2.7H5z",
    hexagon: "M6.5 2.5l4.8 2.7v5.6l-4.8 2.7l-4.8-2.7V5.2z", pentagon: "M6.5 2.5l5 3.8l-1.9 6.2H3.4L1.5 6.3z",
    hourglass: "M2 3h9L2 13h9z", bowtie: "M1.5 3.5v9l10-9v9z",
    cross: "M5 3h3v3.5h3.5v3H8V13H5V9.5H1.5v-3H5z", x: "M2 4l2-2l2.5 3l2.5-3l2 2l-3 4l3 4l-2 2l-2.5-3l-2.5 3l-2-2l3-4z",
  };
  const DASHES = { solid: "", dash: "6 3", dot: "2 2.5", dashdot: "6 2 2 2" };
  const swatch = key => {
    const box = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
    box.setAttribute("width", key.line ? 22 : 13);
    box.setAttribute("height", 16);
    box.setAttribute("aria-hidden", "true");
    mark.setAttribute("d", key.line ? "M0 8H22" : SHAPES[key.look.symbol] || SHAPES.circle);
    mark.style[key.line ? "stroke" : "fill"] = `var(${key.look.colour})`;
    if (key.line) { mark.style.strokeWidth = 2.2; mark.style.strokeDasharray = DASHES[key.look.dash]; }
    box.append(mark);
    return box;
  };
  const legend = (place, chart) => {
    const list = document.createElement("ul");
    list.className = "legend";
    for (const key of chart.keys) {
      const entry = document.createElement(key.group ? "button" : "span");
      entry.append(swatch(key), key.name);
      if (key.group) {
        entry.type = "button";
        entry.setAttribute("aria-pressed", key.shown);
        entry.onclick = () => {
          const shown = entry.getAttribute("aria-pressed") !== "true";
          entry.setAttribute("aria-pressed", shown);
          for (const trace of chart.traces) if (trace.group === key.group) trace.visible = shown;
          Plotly.react(place, painted(chart.traces), layout(chart), config);
        };
      }
      const item = document.createElement("li");
      item.append(entry);
      list.append(item);
    }
    return list;
  };

  const value = (row, column) => {
    const cell = row.cells[column];
    if (!("v" in cell.dataset)) return cell.textContent;
    return cell.dataset.v === "" ? NaN : Number(cell.dataset.v);
  };
  const sort = head => {
    const table = head.closest("table"), column = head.cellIndex;
    const rising = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows].map((row, at) => ({ row, at, key: value(row, column) }));
    rows.sort((a, b) => {
      const unknown = Number.isNaN(a.key) - Number.isNaN(b.key);  // last, whichever way
      if (unknown || Number.isNaN(a.key)) return unknown || a.at - b.at;
      const order = typeof a.key === "number" ? a.key - b.key : a.key.localeCompare(b.key);
      return (rising ? order : -order) || a.at - b.at;
    });
    table.tBodies[0].append(...rows.map(({ row }) => row));
  };
  for (const head of document.querySelectorAll("table.sortable thead th"))
    head.querySelector("button").onclick = () => sort(head);

  for (const button of document.querySelectorAll("[data-toggle]")) {
    button.onclick = () => {
      const home = button.closest("section") || document.body;
      const group = button.closest("fieldset");
      const on = group ? button.dataset.on === "1" : button.getAttribute("aria-pressed") !== "true";
      home.classList.toggle(button.dataset.toggle, on);
      if (!group) button.setAttribute("aria-pressed", on);
      else for (const other of group.children) other.setAttribute("aria-pressed", other === button);
    };
  }
  for (const button of document.querySelectorAll("[data-more]")) {
    button.onclick = () => { button.previousElementSibling.classList.remove("few"); button.remove(); };
  }

  const near = new IntersectionObserver(entries => {
    for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
  }, { rootMargin: "300px" });
  document.querySelectorAll(".plot").forEach(place => near.observe(place));
  dark.addEventListener("change", repaint);
  addEventListener("beforeprint", () => { document.querySelectorAll(".plot").forEach(draw); repaint(); });
  addEventListener("afterprint", repaint);

  const links = new Map([...document.querySelectorAll("nav a")].map(a => [a.hash.slice(1), a]));
  const bar = document.querySelector("nav > div");
  const seen = new IntersectionObserver(() => {
    let here = null;
    for (const id of links.keys()) {
      const target = document.getElementById(id);
      if (target && target.getBoundingClientRect().top < innerHeight * 0.3) here = id;
    }
    links.forEach((link, id) => link.classList.toggle("here", id === here));
    const link = links.get(here);
    if (link) bar.scrollTo({ left: link.offsetLeft - bar.clientWidth / 3 });
  }, { threshold: [0, 0.01, 0.5, 1], rootMargin: "-20% 0px -60% 0px" });
  links.forEach((_, id) => { const target = document.getElementById(id); if (target) seen.observe(target); });
})();
