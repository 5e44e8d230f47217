// The Gantt chart: keys, drag and wheel lead to other addresses; the chart itself is made on the server.

const chart = () => document.querySelector("svg.gantt[data-since]");
const about = () => document.querySelector("[data-about]");
const typing = (target) => target.closest("input, textarea, select") !== null;
let chosen = -1;

const left = (bar) => bar.transform.baseVal.getItem(0).matrix.e;
const bars = () => [...chart().querySelectorAll("a[href^='/jobs/']")].sort((a, b) => left(a) - left(b));

// All pieces of a job are outlined; the server says what it is, with how it works or why it waits.
const outline = async (bar) => {
  const address = bar.getAttribute("href");
  for (const other of chart().querySelectorAll(".chosen")) other.classList.remove("chosen");
  for (const piece of chart().querySelectorAll(`a[href="${CSS.escape(address)}"]`)) piece.classList.add("chosen");
  const note = about();
  if (!note || note.dataset.of === address) return;
  note.dataset.of = address;
  const job = address.split("/").pop();
  const title = bar.querySelector("title") ?? bar.insertBefore(document.createElementNS(bar.namespaceURI, "title"), bar.firstChild);
  note.textContent = title.textContent || `job ${job}`;
  const zone = new URL(location.href).searchParams.get("zone") ?? "";
  const reply = await fetch(`/gantt/about/${job}?${new URLSearchParams({ zone })}`);
  const text = reply.ok ? await reply.text() : "";
  if (!text) return;
  title.textContent = text;
  if (note.dataset.of === address) note.textContent = text;
};

const go = (since, until) => {
  const address = new URL(location.href);
  for (const name of ["span", "at"]) address.searchParams.delete(name);
  address.searchParams.set("since", Math.round(since));
  address.searchParams.set("until", Math.round(until));
  location.assign(address);
};

const instant = (event) => {
  const svg = chart();
  const box = svg.getBoundingClientRect();
  const left = Number(svg.dataset.left) * (box.width / svg.viewBox.baseVal.width);
  const share = Math.min(Math.max((event.clientX - box.left - left) / (box.width - left), 0), 1);
  const since = Number(svg.dataset.since);
  return since + share * (Number(svg.dataset.until) - since);
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target) || !chart()) return;
  const key = event.key === "=" ? "+" : event.key === "−" ? "-" : event.key;
  if (key === "[" || key === "]") {
    const all = bars();
    if (!all.length) return;
    chosen = (chosen + (key === "]" ? 1 : -1) + all.length) % all.length;
    all[chosen].focus();
  } else if (key === "0") {
    location.assign("/gantt");
  } else {
    const link = document.querySelector(`.segments a[data-key="${CSS.escape(key)}"]`);
    if (!link) return;
    event.preventDefault();
    link.click();
  }
});

for (const kind of ["pointerover", "focusin"]) {
  document.addEventListener(kind, (event) => {
    const bar = event.target.closest?.("svg.gantt a[href^='/jobs/']");
    if (bar) outline(bar);
  });
}

// Drag across the chart to look closer.
let begun = null;
document.addEventListener("pointerdown", (event) => {
  begun = event.button === 0 && event.target.closest?.("svg.gantt[data-since]") ? { x: event.clientX, at: instant(event) } : null;
});
document.addEventListener("pointerup", (event) => {
  if (!begun || Math.abs(event.clientX - begun.x) < 12) return;
  const until = instant(event);
  const [low, high] = [Math.min(begun.at, until), Math.max(begun.at, until)];
  if (high - low >= 600) go(low, high);
});
document.addEventListener("dragstart", (event) => {
  if (event.target.closest?.("svg.gantt")) event.preventDefault();
});

document.addEventListener(
  "wheel",
  (event) => {
    if (!event.ctrlKey || !event.target.closest?.("svg.gantt[data-since]")) return;
    event.preventDefault();
    const svg = chart();
    const [since, until] = [Number(svg.dataset.since), Number(svg.dataset.until)];
    const factor = event.deltaY < 0 ? 0.5 : 2;
    const length = Math.min(Math.max((until - since) * factor, 600), 93 * 86400);
    const centre = instant(event);
    const share = (centre - since) / (until - since);
    go(centre - share * length, centre + (1 - share) * length);
  },
  { passive: false },
);

// The browser's own zone, for those who are elsewhere.
const offer = document.querySelector("[data-zone]");
const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (offer && zone && new URL(location.href).searchParams.get("zone") !== zone) {
  const link = offer.querySelector("a");
  const address = new URL(link.href);
  address.searchParams.set("zone", zone);
  link.href = address;
  link.textContent = `${offer.dataset.zone} (${zone})`;
  offer.hidden = false;
}
