// Keys, and pages that stay up to date. Every page works without it.

const search = document.getElementById("search");
const keys = document.getElementById("keys");
const places = { o: "/", j: "/jobs", n: "/nodes", g: "/gantt" };
let gone = 0;

const typing = (target) => target.closest("input, textarea, select, [contenteditable]") !== null;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (event.key === "/" && search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "?") {
    keys.showModal();
  } else if (event.key === "g") {
    gone = Date.now();
  } else if (Date.now() - gone < 1500 && document.querySelector(`.nav a[href="${places[event.key]}"]`)) {
    location.assign(places[event.key]);
  }
});

for (const button of document.querySelectorAll("[data-keys]")) {
  button.hidden = false;
  button.addEventListener("click", () => keys.showModal());
}

// One question before something ends.
document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.ask;
  if (question && !window.confirm(question)) event.preventDefault();
});

// One box chooses all rows.
for (const all of document.querySelectorAll("[data-all]")) {
  all.hidden = false;
  all.addEventListener("change", () => {
    for (const box of all.closest("table").querySelectorAll("tbody input[type=checkbox]")) box.checked = all.checked;
  });
}

const time = () => new Date().toLocaleTimeString("en-GB");

// Parts of the page are replaced by what the server sends; what has the focus keeps it.
const replace = (part, html) => {
  const focused = document.activeElement;
  const place = part.contains(focused) && (focused.id ? `#${focused.id}` : focused.getAttribute("href") && `[href="${CSS.escape(focused.getAttribute("href"))}"]`);
  if (part.contains(focused) && typing(focused)) return;
  part.innerHTML = html;
  if (place) part.querySelector(place)?.focus({ preventScroll: true });
};

// A stream is open while its page is seen: a browser has few connections to one server.
const follow = (path) => {
  let source;
  let last = "";
  // The sign itself may stand in a part that is replaced.
  const tell = (live) => {
    const sign = document.querySelector(`[data-live="${CSS.escape(path)}"]`);
    if (!sign || !last) return;
    sign.classList.toggle("on", live);
    sign.querySelector(".live-text").textContent = live ? `${sign.dataset.wordLive}, ${last}` : `${sign.dataset.wordLost} ${last}`;
  };
  const open = () => {
    source = new EventSource(path);
    source.addEventListener("message", (event) => {
      for (const [part, html] of Object.entries(JSON.parse(event.data))) {
        const target = document.querySelector(`[data-live-part="${part}"]`);
        if (target) replace(target, html);
      }
      last = time();
      tell(true);
    });
    source.addEventListener("error", () => {
      tell(false);
      // An answer that is no stream (the server starts, the database is away) ends it for good: begin another.
      if (source.readyState === EventSource.CLOSED && !document.hidden) setTimeout(() => source.readyState === EventSource.CLOSED && !document.hidden && open(), 3000);
    });
  };
  open();
  window.addEventListener("pagehide", () => source.close());
  document.addEventListener("visibilitychange", () => (document.hidden ? source.close() : open()));
};

for (const sign of document.querySelectorAll("[data-live]")) follow(sign.dataset.live);
for (const part of document.querySelectorAll("[data-live-more]")) follow(part.dataset.liveMore);

// What takes the server longer is asked for when the page is there.
for (const card of document.querySelectorAll("[data-lazy]")) {
  fetch(card.dataset.lazy).then(async (answer) => {
    if (answer.ok) card.querySelector(".lazy").innerHTML = await answer.text();
  });
}
