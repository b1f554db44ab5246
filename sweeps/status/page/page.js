"use strict";
// Everything a sweep names is text here, never markup.
const byId = (id) => document.getElementById(id);
const shown = (value, digits) => (typeof value === "number" ? value.toFixed(digits) : "–");

function fill(id, rows) {
  byId(id).tBodies[0].replaceChildren(
    ...rows.map((cells) => {
      const row = document.createElement("tr");
      for (const cell of cells) {
        const made = row.insertCell();
        made.textContent = cell;
        if (/^[\d.–-]+$/.test(cell)) made.className = "number";
      }
      return row;
    }),
  );
}

function curve(trial) {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const { metric, points } = trial.curve;
  const last = points.length ? `, ${metric} ${shown(points[points.length - 1][1], 4)}` : "";
  caption.textContent =
    `${trial.dataset} · ${trial.row} · ${trial.phase} ${trial.number}: ` +
    `epoch ${trial.epoch} of ${trial.epochs}${last}`;
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", caption.textContent);
  if (points.length) {
    const values = points.map((point) => point[1]);
    const low = Math.min(...values);
    const span = Math.max(...values) - low || 1;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    const place = ([epoch, value]) =>
      `${(100 * epoch) / trial.epochs},${95 - (90 * (value - low)) / span}`;
    line.setAttribute("points", points.map(place).join(" "));
    svg.append(line);
  }
  figure.append(svg, caption);
  return figure;
}

function show(status) {
  const trials = status.trials;
  document.title = `${status.sweep || "calsweep"}: ${trials.done ?? 0} of ${trials.total ?? "?"}`;
  byId("sweep").textContent = status.sweep || "calsweep";
  byId("state").className = "";
  byId("state").textContent =
    `${status.state}: ${trials.done ?? 0} of ${trials.total ?? "?"} trials done, ` +
    `${trials.running ?? 0} running, ${trials.failed ?? 0} failed`;
  byId("done").max = trials.total || 1;
  byId("done").value = trials.done || 0;
  fill(
    "leaderboard",
    (status.leaderboard ?? []).map((line) => [
      line.dataset, line.row, line.calibrator, String(line.seeds), shown(line.nll, 4),
    ]),
  );
  byId("running").replaceChildren(...(status.running ?? []).map(curve));
  fill(
    "cells",
    status.cells.map((cell) => [
      cell.dataset, cell.row, `${cell.done}/${cell.total}`, String(cell.running),
      String(cell.failed), cell.best,
    ]),
  );
  fill(
    "ended",
    (status.ended ?? []).map((trial) => [
      trial.dataset, trial.row, `${trial.phase} ${trial.number}`,
      trial.reason ? `${trial.status}: ${trial.reason}` : trial.status, String(trial.epoch),
      shown(trial.seconds, 1), shown(trial.nll, 4),
    ]),
  );
}

async function refresh() {
  try {
    const answer = await fetch("/status.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    show(await answer.json());
  } catch {
    byId("state").className = "lost";
    byId("state").textContent = "no answer from the driver: it has ended or cannot be reached";
  }
  setTimeout(refresh, document.hidden ? 15000 : 2000);
}

refresh();
