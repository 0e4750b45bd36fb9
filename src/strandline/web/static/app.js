// The behaviour of the pages: filters as one types, changes without leaving the page, live updates, and keys.
// Every page works without this file; nothing here makes text into markup but what the server of this site has rendered.
const main = () => document.getElementById("main");
const base = document.body.dataset.base;
document.documentElement.classList.add("js");
for (const id of ["theme", "keys"]) document.getElementById(id).hidden = false;

// --- Pages, loaded in place -----------------------------------------------------------------------------------------
let asked = 0;
async function load(address, { push = true, body = null } = {}) {
  const mine = ++asked;
  const answer = await fetch(address, body ? { method: "POST", body, redirect: "follow" } : {});
  const text = await answer.text();
  if (mine !== asked) return; // a later one is on its way
  if (!(answer.headers.get("content-type") || "").startsWith("text/html")) { say(text.trim()); return; }
  const page = new DOMParser().parseFromString(text, "text/html");
  swap(page);
  const place = new URL(answer.url);
  if (push && place.href !== location.href) history.pushState(null, "", place.href);
}
function swap(page) {
  const focused = document.activeElement, id = focused?.id, from = focused?.selectionStart;
  const typed = id && "value" in focused ? focused.value : null;
  main().replaceWith(document.adoptNode(page.getElementById("main")));
  document.title = page.title;
  const again = id && document.getElementById(id);
  if (again) {
    if (typed !== null && again.value !== typed && again.dataset.now !== undefined) again.value = typed;
    again.focus({ preventScroll: true });
    if (from !== null && from !== undefined && again.setSelectionRange) try { again.setSelectionRange(from, from); } catch { /* not a text */ }
  }
  ticked();
}
function say(text) {
  const notice = document.getElementById("notice") || main();
  const banner = document.createElement("p");
  banner.className = "banner bad";
  banner.setAttribute("role", "alert");
  banner.textContent = text;
  notice.prepend(banner);
}
addEventListener("popstate", () => load(location.href, { push: false }));

// --- Forms ----------------------------------------------------------------------------------------------------------
function addressOf(form) {
  const fields = [...new FormData(form)].filter(([, value]) => value !== "");
  const rest = new URLSearchParams(fields).toString();
  return form.action + (rest ? `?${rest}` : "");
}
let typing;
document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (!form || form.method !== "get" || form.dataset.soft === undefined) return;
  clearTimeout(typing);
  typing = setTimeout(() => load(addressOf(form)), event.target.dataset.now === undefined ? 0 : 120);
});
document.addEventListener("change", (event) => {
  if (event.target.id === "all") for (const box of document.querySelectorAll("[data-row] input[name=id]")) box.checked = event.target.checked;
  ticked();
});
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.soft === undefined) return;
  event.preventDefault();
  if (form.method === "get") { load(addressOf(form)); return; }
  const body = new URLSearchParams(new FormData(form, event.submitter));
  if (body.has("filters") && !confirm(event.submitter.textContent.trim() + "?")) return;
  load(form.action, { body });
});
function ticked() {
  const label = document.getElementById("ticked");
  if (!label) return;
  const count = document.querySelectorAll("[data-row] input[name=id]:checked").length;
  label.textContent = count ? `${count} ticked` : "Tick findings to decide about them.";
}

// --- Live -----------------------------------------------------------------------------------------------------------
const live = document.getElementById("live");
let busy = false, again = false;
async function refresh() {
  if (document.querySelector("[data-wait]")) { load(location.href, { push: false }); return; } // there is more than regions to show
  if (busy) { again = true; return; }
  busy = true;
  try {
    const mine = asked;
    const answer = await fetch(location.href);
    if (answer.ok && mine === asked) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (mine === asked) for (const fresh of page.querySelectorAll("[data-region]")) update(fresh);
    }
  } catch { /* the stream says that the server is away */ }
  busy = false;
  if (again) { again = false; refresh(); }
}
function update(fresh) {
  const old = document.getElementById(fresh.id);
  if (!old || old.innerHTML === fresh.innerHTML || old.id === "notice") return;
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  if (focused && focused.matches("input:not([type=checkbox]), select, textarea")) return; // someone is writing there
  const boxes = new Set([...old.querySelectorAll("input[name=id]:checked")].map((box) => box.value));
  const at = [...old.querySelectorAll("[data-row]")].findIndex((row) => row.classList.contains("at"));
  const link = focused?.getAttribute("href");
  old.replaceChildren(...document.adoptNode(fresh).childNodes);
  for (const box of old.querySelectorAll("input[name=id]")) if (boxes.has(box.value)) box.checked = true;
  if (at >= 0) rows()[at]?.classList.add("at");
  if (link) [...old.querySelectorAll("a")].find((a) => a.getAttribute("href") === link)?.focus({ preventScroll: true });
  ticked();
}
const stream = new EventSource(`${base}/live`);
stream.addEventListener("hello", () => { live.hidden = false; live.classList.remove("away"); document.getElementById("live-text").textContent = "live"; if (document.querySelector("[data-wait], [data-partial]")) refresh(); });
stream.addEventListener("changed", (event) => {
  const kinds = JSON.parse(event.data), wanted = main().dataset.live.split(" ");
  if (wanted.includes("*") || kinds.some((kind) => wanted.includes(kind))) refresh();
});
stream.addEventListener("error", () => { live.hidden = false; live.classList.add("away"); document.getElementById("live-text").textContent = "not connected"; });
addEventListener("pagehide", () => stream.close());

// --- Keys -----------------------------------------------------------------------------------------------------------
const rows = () => [...document.querySelectorAll("[data-row]")];
function move(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("at"));
  const next = Math.max(0, Math.min(all.length - 1, at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by));
  all[at]?.classList.remove("at");
  all[next].classList.add("at");
  all[next].scrollIntoView({ block: "nearest" });
  (all[next].querySelector("a") || all[next].querySelector("input"))?.focus({ preventScroll: true });
}
let going = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input:not([type=checkbox]), select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const help = document.getElementById("help");
  if (help.open) return;
  if (going) {
    going = false;
    const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  const at = document.querySelector("[data-row].at");
  switch (event.key) {
    case "/": event.preventDefault(); document.getElementById("q")?.focus(); break;
    case "j": move(1); break;
    case "k": move(-1); break;
    case "x": { const box = at?.querySelector("input[name=id]"); if (box) { box.checked = !box.checked; ticked(); } break; }
    case "Enter": if (at && !event.target.closest("a, button")) at.querySelector("a")?.click(); break;
    case "n": document.querySelector("a[rel=next]")?.click(); break;
    case "p": document.querySelector("a[rel=prev]")?.click(); break;
    case "g": going = true; break;
    case "?": help.showModal(); break;
  }
});
document.getElementById("keys").addEventListener("click", () => document.getElementById("help").showModal());

// --- Colours --------------------------------------------------------------------------------------------------------
const themes = { "": "as the system has them", light: "light", dark: "dark" };
function showTheme() {
  document.getElementById("theme").setAttribute("aria-label", `Colours: ${themes[document.documentElement.dataset.theme || ""]}`);
}
document.getElementById("theme").addEventListener("click", () => {
  const names = Object.keys(themes), root = document.documentElement;
  const next = names[(names.indexOf(root.dataset.theme || "") + 1) % names.length];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  try { localStorage.setItem("strandline-theme", next); } catch { /* storage is off */ }
  showTheme();
});
showTheme();
ticked();
