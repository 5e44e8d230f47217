// Curves with a cursor: the server's drawing is replaced by uPlot, with the same numbers and colours.

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colours = [0, 5, 2, 1, 6, 3, 4, 7];
const dashes = [undefined, [7, 3], [2, 3], [9, 3, 2, 3]];
const pad = (number) => String(number).padStart(2, "0");
const hours = (seconds) => {
  const at = new Date(seconds * 1000);
  return `${pad(at.getHours())}:${pad(at.getMinutes())}`;
};
const clock = (seconds) => `${hours(seconds)}:${pad(new Date(seconds * 1000).getSeconds())}`;
const days = (seconds) => new Date(seconds * 1000).toLocaleDateString("en-GB", { day: "2-digit", month: "short" });
const write = (value) => (value === null || value === undefined ? "–" : Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3))));

const top = (highest) => {
  if (highest <= 0) return 4;
  const power = 10 ** Math.floor(Math.log10(highest / 4));
  return 4 * [1, 1.5, 2, 2.5, 3, 4, 5, 10].find((step) => 4 * step * power >= highest) * power;
};

const options = (plot, width, say) => {
  const text = css("--text");
  const muted = css("--muted");
  const line = css("--line");
  const highest = Math.max(0, ...plot.lines.flatMap((one) => one.values.filter((value) => value !== null)));
  const shown = plot.limit !== null && plot.limit <= 10 * highest;
  const upper = top(1.04 * Math.max(highest, shown ? plot.limit : 0));
  const long = plot.times.at(-1) - plot.times[0] > 172800;
  const short = plot.times.at(-1) - plot.times[0] < 600;
  const series = plot.lines.map((one, at) => {
    const colour = css(`--c${plot.lines.length === 1 ? plot.colour : colours[at % 8]}`);
    return { label: one.name, stroke: colour, width: 1.6, points: { show: false }, dash: at < 4 ? undefined : dashes[Math.floor(at / 4) % 4], fill: plot.lines.length === 1 ? `${colour}2e` : undefined };
  });
  const axis = { stroke: muted, font: "11px system-ui, 'DejaVu Sans', sans-serif", ticks: { show: false } };
  return {
    width,
    height: 168,
    padding: [8, 4, 0, 0],
    legend: { show: false },
    cursor: { sync: { key: "plots" }, y: false, points: { size: 6 } },
    scales: { x: { time: true }, y: { range: () => [0, upper] } },
    axes: [
      { ...axis, grid: { show: false }, values: (_, marks) => marks.map(long ? days : short ? clock : hours), space: 70, size: 26, gap: 6 },
      { ...axis, grid: { stroke: line, width: 1 }, size: 46, splits: () => [0, 1, 2, 3, 4].map((row) => (upper * row) / 4), values: (_, marks) => marks.map(write) },
    ],
    series: [{}, ...series],
    hooks: {
      draw: [(drawn) => {
        if (plot.limit === null) return;
        const context = drawn.ctx;
        const at = shown ? drawn.valToPos(plot.limit, "y", true) : drawn.bbox.top;
        context.save();
        context.strokeStyle = context.fillStyle = text;
        if (shown) {
          context.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
          context.beginPath();
          context.moveTo(drawn.bbox.left, at);
          context.lineTo(drawn.bbox.left + drawn.bbox.width, at);
          context.stroke();
        }
        context.font = `${11 * devicePixelRatio}px system-ui, 'DejaVu Sans', sans-serif`;
        context.textAlign = "right";
        context.fillText(plot.limit_words, drawn.bbox.left + drawn.bbox.width - 4 * devicePixelRatio, at + 13 * devicePixelRatio);
        context.restore();
      }],
      setCursor: [(drawn) => say(drawn.cursor.idx)],
    },
  };
};

// A plot is drawn when it comes near, and again when the theme or the width changes.
const show = (figure, plot) => {
  const words = document.createElement("p");
  words.className = "cursor-text";
  words.setAttribute("role", "status");
  let drawn;
  const say = (at) => {
    words.textContent = at === null || at === undefined ? "" : `${new Date(plot.times[at] * 1000).toLocaleTimeString("en-GB")} ${plot.lines.map((one) => `${plot.lines.length > 1 ? `${one.name} ` : ""}${write(one.values[at])} ${plot.unit}`).join(", ")}`;
  };
  const draw = () => {
    const label = figure.querySelector("svg.plot")?.getAttribute("aria-label") ?? figure.dataset.label;
    figure.dataset.label = label;
    drawn?.destroy();
    figure.replaceChildren();
    drawn = new uPlot(options(plot, figure.clientWidth, say), [plot.times, ...plot.lines.map((one) => one.values)], figure);
    drawn.root.setAttribute("role", "img");
    drawn.root.setAttribute("aria-label", label);
    figure.append(words);
  };
  draw();
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = Math.min(Math.max((drawn.cursor.idx ?? plot.times.length) + step, 0), plot.times.length - 1);
    drawn.setCursor({ left: drawn.valToPos(plot.times[at], "x"), top: 1 });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = figure.clientWidth;
  new ResizeObserver(() => {
    if (Math.abs(figure.clientWidth - width) < 2) return;
    width = figure.clientWidth;
    draw();
  }).observe(figure);
};

for (const group of document.querySelectorAll("[data-plots]")) {
  const figures = [...group.querySelectorAll("[data-plot]")];
  const near = new IntersectionObserver(async (entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    near.disconnect();
    const answer = await fetch(group.dataset.plots);
    if (!answer.ok || typeof uPlot === "undefined") return;
    for (const plot of await answer.json()) {
      const figure = figures.find((one) => one.dataset.plot === plot.id);
      if (figure) show(figure, plot);
    }
  }, { rootMargin: "200px" });
  near.observe(group);
}
