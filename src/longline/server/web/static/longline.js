// Small behaviours of all pages; without scripts, every page and form still works.
"use strict";

const two = (n) => String(n).padStart(2, "0");
const dayOf = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
const clockOf = (at, withSeconds) =>
  `${two(at.getHours())}:${two(at.getMinutes())}${withSeconds ? `:${two(at.getSeconds())}` : ""}`;

// Times are UTC in the HTML; show them in the time zone of the browser.
function localTimes(root) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.getAttribute("datetime"));
    if (Number.isNaN(at.getTime()) || one.dataset.local) continue;
    one.dataset.local = "1";
    one.title = one.textContent;
    one.textContent = `${dayOf(at)} ${clockOf(at, /:\d\d:\d\d/.test(one.textContent))}`;
  }
}

// Times of a chart, written as elsewhere on the page; the day is below its first time.
const DAY = 86400;
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];
STEPS.push(...[1, 2, 3, 5, 7, 14, 30, 60, 120].map((days) => days * DAY));
function timeLabels(u, times, axis, space, step) {
  let last = "";
  return times.map((one) => {
    const at = new Date(one * 1000), day = dayOf(at);
    if (step >= DAY) return day.slice(5);
    const isNew = day !== last;
    last = day;
    return isNew ? `${clockOf(at, step < 60)}\n${day}` : clockOf(at, step < 60);
  });
}

// Charts: the data is in the attribute; uPlot draws it in the colours of the page. A live part may
// replace the attributes of a figure, so what it shows is remembered here.
const drawn = new WeakMap();
function charts(root) {
  if (typeof uPlot === "undefined") return;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  const resolved = (name) => {
    const probe = document.createElement("i");
    probe.className = name;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found || colour("accent");
  };
  for (const figure of root.querySelectorAll("figure[data-chart]")) {
    const wanted = figure.dataset.chart;
    if (drawn.get(figure) === wanted) continue;
    drawn.set(figure, wanted);
    for (const old of figure.querySelectorAll(".uplot, .empty")) old.remove();
    const { kind, data } = JSON.parse(wanted);
    if (!data.x.length) {
      const text = document.createElement("p");
      text.className = "empty dim";
      text.textContent = "No data yet";
      figure.append(text);
      continue;
    }
    const isFine = data.x.length > 1 && data.x[1] - data.x[0] < 60; // seconds matter
    const axis = { stroke: resolved("dim"), grid: { stroke: "#8883" }, ticks: { stroke: "#8883" } };
    const isTime = data.time !== false;
    // Of a single point, uPlot would show years.
    const room = isTime ? 30 : 1;
    const span = (u, low, high) => (low === high ? [low - room, high + room] : [low, high]);
    const bars = uPlot.paths.bars({ size: [0.7, 24], align: 0 });
    const options = {
      width: Math.max(240, figure.clientWidth - 24),
      height: 180,
      padding: [null, 32, null, null], // half of the last time
      scales: { x: { time: isTime, range: span }, y: { range: (u, low, high) => [Math.min(0, low), high > 0 ? high * 1.05 : 1] } },
      axes: [isTime ? { ...axis, space: 60, incrs: STEPS, values: timeLabels } : axis, { ...axis, size: 56, values: (u, all) => all.map((v) => (v == null ? "" : v >= 10000 ? `${Math.round(v / 1000)}k` : `${+v.toFixed(3)}`)) }],
      cursor: { drag: { x: false, y: false } },
      series: [
        isTime ? { label: "Time", value: (u, at) => (at == null ? "" : `${dayOf(new Date(at * 1000))} ${clockOf(new Date(at * 1000), isFine)}`) } : {},
        ...data.series.map((one) => ({
          label: one.label,
          stroke: resolved(one.class || "busy"),
          fill: kind === "bars" ? resolved(one.class || "busy") : undefined,
          paths: kind === "bars" ? bars : undefined,
          width: kind === "bars" ? 0 : 2,
          points: { show: kind !== "bars" && data.x.length < 60, size: 5 },
        })),
      ],
    };
    // While no pointer is on the chart, the legend shows the last values.
    const last = data.x.length - 1;
    options.hooks = { setLegend: [(u) => { if (u.legend.idx == null) u.setLegend({ idx: last }, false); }] };
    new uPlot(options, [data.x, ...data.series.map((one) => one.values)], figure).setLegend({ idx: last });
  }
}

function refresh(root) {
  localTimes(root);
  charts(root);
}

document.addEventListener("submit", (event) => {
  const question = event.target.dataset?.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
  // What a site is read for takes some seconds.
  const busy = event.target.dataset?.busy;
  if (busy && event.submitter && !event.defaultPrevented) event.submitter.textContent = busy;
});
for (const name of ["htmx:after:swap", "htmx:sse:after:message"]) {
  document.addEventListener(name, () => refresh(document));
}
document.addEventListener("DOMContentLoaded", () => {
  refresh(document);
  const nav = document.querySelector("nav"); // on a phone it is one line, which scrolls
  const here = nav?.querySelector("[aria-current]");
  if (here) nav.scrollLeft = here.offsetLeft - nav.clientWidth / 2;
});
// Keyboard: "/" goes to the search of a page.
document.addEventListener("keydown", (event) => {
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && search && !/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
    event.preventDefault();
    search.focus();
  }
});
