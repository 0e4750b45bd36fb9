
"use strict";
// Whatever comes from the data becomes a text node or an attribute, never markup; the page's policy forbids that too.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const FIELDS = ["id", "rule", "secret", "source", "kind", "path", "point", "place", "confidence", "level", "state",
    "first", "via", "commit", "cell", "others", "who", "why", "decided", "firstCommit", "lastCommit", "head", "owners", "verified", "checked"];
  const LEVELS = ["high", "medium", "low"];
  const STATES = ["open", "confirmed", "false-positive", "revoked"];
  const CHUNK = 120;
  const SVG = "http://www.w3.org/2000/svg";
  const byId = (id) => document.getElementById(id);
  const number = (value) => value.toLocaleString("en-US");
  const many = (count, one, more) => `${number(count)} ${count === 1 ? one : more}`;
  const day = (seconds) => (seconds ? new Date(seconds * 1000).toISOString().slice(0, 10) : "");
  const moment = (seconds) => (seconds ? new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "");
  const words = (state) => state.replace("-", " ");

  function put(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    for (const child of children.flat()) if (child !== null && child !== undefined && child !== "") node.append(child);
    return node;
  }
  const el = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

  // ---- the findings

  const findings = data.findings.map((row, at) => {
    const one = { at };
    FIELDS.forEach((name, place) => { one[name] = row[place]; });
    [one.ruleName, one.about, one.provider, one.tags] = data.rules[one.rule];
    const slash = one.path.lastIndexOf("/");
    one.folder = slash < 0 ? "." : one.path.slice(0, slash);
    one.top = one.folder.split("/").slice(0, 3).join("/");
    one.day = one.first ? Math.floor(one.first / 86400) : null;
    one.hay = [one.id, one.ruleName, one.about, one.provider, one.place, one.path, one.commit, one.firstCommit, one.lastCommit, one.why, one.via.join(" "), one.owners.join(" ")]
      .join("\n").toLowerCase();
    return one;
  });
  const places = new Map();
  for (const one of findings) places.set(one.secret, [...(places.get(one.secret) || []), one]);
  const spots = (rows) => rows.reduce((sum, one) => sum + 1 + one.others.length, 0);

  // ---- what is asked for

  const asked = { text: "", rule: "", provider: "", level: "", state: "", source: "", top: "", confidence: "", bucket: "", secret: "" };
  const view = { sort: "confidence", down: true, group: "", byRule: false, shown: CHUNK, open: new Set() };
  let buckets = null;

  const sourceKey = (one) => (data.sources.length > 1 ? String(one.source) : one.kind);
  const tests = {
    rule: (one, value) => one.ruleName === value,
    provider: (one, value) => one.provider === value,
    level: (one, value) => one.level === value,
    state: (one, value) => one.state === value,
    source: (one, value) => sourceKey(one) === value,
    top: (one, value) => one.top === value,
    confidence: (one, value) => String(one.confidence) === value,
    bucket: (one, value) => one.day !== null && String(buckets.of(one.day)) === value,
    secret: (one, value) => String(one.secret) === value,
  };
  function chosen(except) {
    const terms = asked.text.toLowerCase().split(/\s+/).filter(Boolean);
    const active = Object.entries(tests).filter(([name]) => asked[name] !== "" && name !== except);
    return findings.filter((one) => active.every(([name, test]) => test(one, asked[name]))
      && terms.every((term) => one.hay.includes(term)));
  }
  function ask(name, value) {
    asked[name] = asked[name] === value ? "" : value;
    view.shown = CHUNK;
    refresh();
  }
  function counted(rows, key, weight = () => 1) {
    const counts = new Map();
    for (const row of rows) { const at = key(row); counts.set(at, (counts.get(at) || 0) + weight(row)); }
    return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
  }

  // ---- charts

  const tip = byId("tip");
  function withTip(node, text) {
    const show = () => {
      const box = node.getBoundingClientRect();
      tip.textContent = text;
      tip.hidden = false;
      tip.style.left = `${Math.max(8, Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, innerWidth - tip.offsetWidth - 8))}px`;
      tip.style.top = `${Math.max(8, box.top - tip.offsetHeight - 7)}px`;
    };
    for (const name of ["mouseenter", "focus"]) node.addEventListener(name, show);
    for (const name of ["mouseleave", "blur", "click"]) node.addEventListener(name, () => { tip.hidden = true; });
    return node;
  }
  const pressable = (act) => ({ onclick: act, onkeydown: (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); act(); }
  } });

  function card(title, body, { wide = false, extra = null } = {}) {
    return el("figure", { class: wide ? "card wide" : "card" }, el("figcaption", { class: "head" }, el("h2", {}, title), extra), body);
  }
  function bars(name, key, { path = false, limit = 7 } = {}) {
    const counts = counted(chosen(name), key);
    if (!counts.length) return el("p", { class: "empty" }, "Nothing to show");
    const picked = counts.findIndex(([label]) => label === asked[name]);
    if (picked >= limit) counts.unshift(...counts.splice(picked, 1));
    const most = Math.max(...counts.map(([, count]) => count));
    const list = el("ul", { class: "bars" }, counts.slice(0, limit).map(([label, count]) => el("li", {},
      el("button", { type: "button", "aria-pressed": String(asked[name] === label), title: label, "data-key": `${name} ${label}`,
        onclick: () => ask(name, label) },
        el("span", { class: path ? "label path" : "label" }, path ? el("bdi", {}, label) : label),
        el("span", { class: "n" }, number(count)),
        svg("svg", { "aria-hidden": "true" }, svg("rect", { class: "track", width: "100%", height: 6 }),
          svg("rect", { class: "f-accent", width: `${Math.max(1, 100 * count / most)}%`, height: 6 }))))));
    const rest = counts.slice(limit).reduce((sum, [, count]) => sum + count, 0);
    return el("div", {}, list, rest ? el("p", { class: "others" }, `and ${number(rest)} in ${many(counts.length - limit, "other", "others")}`) : null);
  }
  function columns(values, { label, tone, name, ticks, width = 420, height = 232 }) {
    const bottom = 22, top = 8, left = 30;
    const most = Math.max(1, ...values.map((one) => one.count));
    const step = niceStep(most / 3);
    const ceiling = Math.ceil(most / step) * step;
    const y = (count) => top + (height - top - bottom) * (1 - count / ceiling);
    const each = (width - left) / values.length;
    const plot = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label });
    for (let at = 0; at <= ceiling; at += step) {
      plot.append(svg("line", { class: "grid", x1: left, x2: width, y1: y(at), y2: y(at) }),
        svg("text", { x: left - 7, y: y(at) + 4, "text-anchor": "end" }, number(at)));
    }
    values.forEach((one, at) => {
      const thick = Math.min(30, each * 0.72);
      const said = `${one.title}: ${many(one.count, "finding", "findings")}`;
      const mark = svg("g", { role: "button", tabindex: one.count ? 0 : -1, "aria-label": said,
        "aria-pressed": String(asked[name] === one.key), "data-key": `${name} ${one.key}`, ...pressable(() => ask(name, one.key)) },
        svg("rect", { class: "hit", x: left + each * at, y: top, width: each, height: height - top - bottom, rx: 4 }),
        svg("rect", { class: `f-${tone(one)}`, x: left + each * at + (each - thick) / 2, y: y(one.count), width: thick,
          height: Math.max(one.count ? 2 : 0, y(0) - y(one.count)), rx: Math.min(3, thick / 3) }));
      plot.append(withTip(mark, said));
      if (ticks(one, at)) plot.append(svg("text", { x: left + each * (at + 0.5), y: height - 6, "text-anchor": "middle" }, one.short));
    });
    return plot;
  }
  function niceStep(rough) {
    const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
    return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough) || 10 * power;
  }
  function timeBuckets() {
    const days = findings.map((one) => one.day).filter((at) => at !== null);
    if (!days.length) return null;
    const first = Math.min(...days), last = Math.max(...days), span = last - first + 1;
    const size = [1, 7, 30, 91, 365].find((days_) => span / days_ <= 26) || Math.ceil(span / 26);
    const count = Math.max(8, Math.ceil(span / size));
    const start = last - count * size + 1;
    return { size, count, start, of: (at) => Math.floor((at - start) / size), at: (place) => (start + place * size) * 86400 };
  }
  buckets = timeBuckets();

  function confidenceChart() {
    const counts = Array(11).fill(0);
    for (const one of chosen("confidence")) counts[one.confidence] += 1;
    const values = counts.map((count, at) => ({ count, key: String(at), short: at, title: `Confidence ${at} of 10` }));
    const tone = (one) => (one.key >= data.high ? "high" : one.key >= data.medium ? "medium" : "low");
    const totals = new Map(counted(chosen("confidence"), (one) => one.level));
    return el("div", {}, columns(values, { label: "Findings by confidence", name: "confidence", tone, ticks: () => true }),
      legend(LEVELS.map((level) => [level, level, totals.get(level) || 0])));
  }
  function timeChart() {
    if (!buckets) return el("p", { class: "empty" }, "Nothing to show");
    const counts = Array(buckets.count).fill(0);
    for (const one of chosen("bucket")) if (one.day !== null) counts[buckets.of(one.day)] += 1;
    const values = counts.map((count, at) => {
      const from = day(buckets.at(at)), to = day(buckets.at(at) + (buckets.size - 1) * 86400);
      return { count, key: String(at), short: from.slice(buckets.size < 91 ? 5 : 0, buckets.size < 91 ? 10 : 7), title: from === to ? from : `${from} to ${to}` };
    });
    const every = Math.max(1, Math.ceil(buckets.count / 6));
    const size = { 1: "a day", 7: "a week", 30: "30 days", 91: "a quarter", 365: "a year" }[buckets.size] || `${buckets.size} days`;
    return el("div", {}, columns(values, { label: "Findings by the time they were first seen", name: "bucket", tone: () => "accent", width: 660,
      ticks: (_, at) => (buckets.count - 1 - at) % every === 0 }),
      el("p", { class: "others" }, `A column is ${size} (UTC).`));
  }
  function stateChart() {
    const totals = new Map(counted(chosen("state"), (one) => one.state));
    const tones = { open: "accent", confirmed: "high", "false-positive": "none", revoked: "good" };
    const parts = STATES.map((state) => [tones[state], words(state), totals.get(state) || 0]);
    return el("div", {}, stack(parts), legend(parts));
  }
  function stack(parts) {
    const total = parts.reduce((sum, [, , count]) => sum + count, 0) || 1;
    const plot = svg("svg", { class: "stack plot", viewBox: "0 0 1000 18", preserveAspectRatio: "none", role: "img",
      "aria-label": parts.map(([, label, count]) => `${label}: ${number(count)}`).join(", ") });
    let x = 0;
    for (const [tone, label, count] of parts) {
      if (!count) continue;
      const wide = Math.max(4, 1000 * count / total);
      plot.append(withTip(svg("rect", { class: `f-${tone}`, x, y: 0, width: Math.max(1, wide - 2), height: 18 }), `${label}: ${number(count)}`));
      x += wide;
    }
    return plot;
  }
  const legend = (parts) => el("ul", { class: "legend" }, parts.map(([tone, label, count]) => el("li", {},
    svg("svg", { viewBox: "0 0 9 9", "aria-hidden": "true" }, svg("circle", { class: `f-${tone}`, cx: 4.5, cy: 4.5, r: 4.5 })),
    `${label} `, el("b", {}, number(count)))));

  function drawCharts() {
    const key = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.key : null;
    const swap = el("button", { type: "button", class: "swap", "data-key": "swap", onclick: () => { view.byRule = !view.byRule; drawCharts(); } },
      view.byRule ? "by provider" : "by rule");
    const box = byId("charts");
    box.replaceChildren(
      card(view.byRule ? "Rules" : "Providers", view.byRule ? bars("rule", (one) => one.ruleName) : bars("provider", (one) => one.provider), { extra: swap }),
      card("Confidence", confidenceChart()),
      card("Folders", bars("top", (one) => one.top, { path: true })),
      card("First seen", timeChart(), { wide: true }),
      card("Decisions", el("div", {}, stateChart(), secretsBox()), { wide: true }));
    if (key) { const again = [...box.querySelectorAll("[data-key]")].find((node) => node.dataset.key === key); if (again) again.focus(); }
  }
  function secretsBox() {
    const spread = counted(chosen("secret"), (one) => one.secret, (one) => spots([one])).filter(([, count]) => count > 1).slice(0, 4);
    if (!spread.length) return null;
    const most = spread[0][1];
    return el("div", {}, el("p", { class: "others" }, "Secrets that stand in most places"), el("ul", { class: "bars" }, spread.map(([secret, count]) => {
      const one = places.get(secret)[0];
      return el("li", {}, el("button", { type: "button", "aria-pressed": String(asked.secret === String(secret)), "data-key": `secret ${secret}`,
        onclick: () => ask("secret", String(secret)) },
        el("span", { class: "label" }, `${one.ruleName} in ${one.place}`), el("span", { class: "n" }, many(count, "place", "places")),
        svg("svg", { "aria-hidden": "true" }, svg("rect", { class: "track", width: "100%", height: 6 }),
          svg("rect", { class: `f-${one.level}`, width: `${100 * count / most}%`, height: 6 }))));
    })));
  }

  // ---- the table

  const COLUMNS = [
    ["place", "Place", (one) => one.place], ["rule", "Rule", (one) => one.ruleName], ["confidence", "Confidence", (one) => one.confidence],
    ["same", "Same secret", (one) => spots(places.get(one.secret))], ["first", "First seen", (one) => one.first], ["state", "State", (one) => STATES.indexOf(one.state)],
  ];
  const GROUPS = { "": "nothing", secret: "secret", rule: "rule", folder: "folder" };

  function drawHead() {
    byId("head").replaceChildren(el("th", { scope: "col" }, el("span", { class: "hidden" }, "Details")), ...COLUMNS.map(([name, label]) => {
      const sorted = view.sort === name;
      return el("th", { scope: "col", "aria-sort": sorted ? (view.down ? "descending" : "ascending") : null },
        el("button", { type: "button", onclick: () => {
          view.down = sorted ? !view.down : ["confidence", "same", "first"].includes(name);
          view.sort = name;
          drawHead();
          drawRows();
          byId("head").querySelectorAll("button")[COLUMNS.findIndex((one) => one[0] === name)].focus();
        } }, label, el("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (view.down ? " ↓" : " ↑") : "")));
    }));
  }
  const isLive = (one) => (one.verified.startsWith("live") ? 1 : 0);
  // Live ones come first in any order.
  function sorted(rows) {
    const value = COLUMNS.find(([name]) => name === view.sort)[2];
    const sign = view.down ? -1 : 1;
    return rows.map((one) => [value(one), one]).sort(([a, x], [b, y]) => (isLive(y) - isLive(x) || (a < b ? -sign : a > b ? sign : x.at - y.at))).map(([, one]) => one);
  }
  function lines(rows) {
    if (!view.group) return rows;
    const key = { secret: (one) => one.secret, rule: (one) => one.ruleName, folder: (one) => one.folder }[view.group];
    const groups = new Map();
    for (const one of rows) { const at = key(one); if (!groups.has(at)) groups.set(at, []); groups.get(at).push(one); }
    return [...groups.values()].sort((a, b) => b.length - a.length).flatMap((members) => [{ members }, ...members]);
  }
  function groupRow({ members }) {
    const [one] = members;
    const files = new Set(members.map((member) => member.path)).size;
    const title = { secret: spots(members) > 1 ? `The same secret in ${many(spots(members), "place", "places")}` : "A secret in one place",
      rule: one.ruleName, folder: one.folder }[view.group];
    const more = view.group === "secret" ? `${one.ruleName} · ${many(files, "file", "files")}` : `${many(members.length, "finding", "findings")}${view.group === "rule" && one.about ? " · " + one.about : ""}`;
    return el("tr", { class: "group" }, el("th", { colspan: 7, scope: "rowgroup" }, title, el("small", {}, more)));
  }
  function placeCell(one) {
    const slash = one.path.lastIndexOf("/") + 1;
    return el("td", { class: "place mono" }, el("span", { class: "dir" }, one.path.slice(0, slash)), el("span", { class: "file" }, one.path.slice(slash)),
      el("span", { class: "at" }, one.point), " ", one.via.map((step) => el("span", { class: "tag" }, step)),
      one.others.length ? el("span", { class: "tag" }, `+ ${many(one.others.length, "place", "places")}`) : null);
  }
  function row(one) {
    const isOpen = view.open.has(one.id);
    const toggle = () => { if (isOpen) view.open.delete(one.id); else view.open.add(one.id); redraw(line, one); };
    const button = el("button", { type: "button", "aria-expanded": String(isOpen), "aria-label": `Details of ${one.ruleName} in ${one.place}`,
      onclick: (event) => { event.stopPropagation(); toggle(); } }, svg("svg", { viewBox: "0 0 14 14", "aria-hidden": "true" }, svg("path", { d: "m4 2 6 5-6 5" })));
    const same = spots(places.get(one.secret));
    const line = el("tr", { class: "row", onclick: (event) => { if (!String(getSelection())) toggle(); event.stopPropagation(); } },
      el("td", { class: "open" }, button),
      placeCell(one),
      el("td", { class: "rule" }, el("b", {}, one.ruleName), el("small", {}, one.about)),
      el("td", { class: "num level" }, el("span", { class: `badge b-${one.level}` }, `${one.confidence} ${one.level}`)),
      el("td", { class: "num alike" }, same > 1 ? el("button", { type: "button", class: "same", title: "Show them", onclick: (event) => { event.stopPropagation(); ask("secret", String(one.secret)); } }, many(same, "place", "places")) : ""),
      el("td", { class: "when" }, day(one.first)),
      el("td", { class: "state" }, el("span", { class: `badge b-${one.state}` }, words(one.state)),
        isLive(one) ? el("span", { class: "badge b-high" }, "live") : ""));
    return line;
  }
  function redraw(line, one) {
    const isOpen = view.open.has(one.id);
    if (line.nextSibling && line.nextSibling.classList.contains("details")) line.nextSibling.remove();
    const again = row(one);
    line.replaceWith(again);
    if (isOpen) again.after(details(one));
    again.querySelector("button").focus({ preventScroll: true });
  }
  function details(one) {
    const same = places.get(one.secret).filter((other) => other !== one);
    const pairs = [
      ["What", one.about || one.ruleName], ["Tags", one.tags.map((tag) => el("span", { class: "tag" }, tag))],
      ["Where", el("code", {}, one.place)], ["Commit", one.commit && el("code", {}, one.commit)],
      ["Owners", one.owners.join(" ")], ["First commit", one.firstCommit], ["Last commit", one.lastCommit], ["At HEAD", one.head], ["Cell", one.cell], ["Read through", one.via.join(" → ")],
      ["Also in this item", one.others.length ? el("ul", {}, one.others.map((other) => el("li", { class: "mono" }, other))) : ""],
      ["Same secret in", same.length ? el("ul", {}, same.slice(0, 20).map((other) => el("li", { class: "mono" }, other.place)),
        same.length > 20 ? el("li", {}, `and ${many(same.length - 20, "other place", "other places")}`) : null) : ""],
      ["Verified", one.verified && `${one.verified}, ${moment(one.checked)}`],
      ["First seen", moment(one.first)],
      ["Decision", one.decided ? `${words(one.state)}, by ${one.who} on ${moment(one.decided)}${one.why ? ": " + one.why : ""}` : ""],
      ["Source", data.sources[one.source] ? data.sources[one.source].join(": ") : one.kind],
      ["Finding", el("code", {}, one.id)], ["Decide", el("code", {}, `strandline findings triage ${one.id.slice(0, 12)} --as confirmed`)],
    ].filter(([, value]) => value && value.length !== 0);
    return el("tr", { class: "details" }, el("td", { colspan: 7 }, el("dl", {}, pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]))));
  }

  let listed = [];
  let drawn = 0;
  function drawRows() {
    const rows = sorted(chosen());
    listed = lines(rows);
    drawn = 0;
    byId("rows").replaceChildren();
    drawMore();
    const all = rows.length === findings.length;
    byId("count").textContent = rows.length ? `${all ? "" : number(rows.length) + " of "}${many(findings.length, "finding", "findings")}`
      : findings.length ? "No finding fits these filters" : "Nothing was found";
  }
  function drawMore() {
    const part = document.createDocumentFragment();
    for (const one of listed.slice(drawn, view.shown)) {
      part.append(one.members ? groupRow(one) : row(one));
      if (one.id && view.open.has(one.id)) part.append(details(one));
    }
    drawn = Math.min(listed.length, view.shown);
    byId("rows").append(part);
    byId("more").parentNode.hidden = drawn >= listed.length;
    byId("more").textContent = `Show more (${number(listed.length - drawn)} left)`;
  }
  function more() { view.shown = drawn + CHUNK; drawMore(); }

  function drawChips() {
    const said = { provider: asked.provider, top: asked.top, confidence: asked.confidence && `confidence ${asked.confidence}`,
      bucket: asked.bucket && `first seen from ${day(buckets.at(Number(asked.bucket)))}`, secret: asked.secret && "one secret" };
    byId("chips").replaceChildren(...Object.entries(said).filter(([, text]) => text).map(([name, text]) =>
      el("button", { type: "button", class: "chip", "aria-label": `Remove the filter ${text}`, onclick: () => ask(name, asked[name]) }, `${text} ✕`)));
    for (const name of ["rule", "level", "state", "source"]) byId(name).value = asked[name];
    byId("reset").disabled = !Object.values(asked).some(Boolean);
  }
  function refresh() { drawCharts(); drawHead(); drawRows(); drawChips(); }

  // ---- coverage

  const TONES = { scanned: "good", partial: "medium", skipped: "none", failed: "high" };
  function drawCoverage() {
    const box = byId("cover");
    const totals = Object.keys(TONES).map((status) => [TONES[status], status, data.coverage.filter(([of]) => of === status).reduce((sum, row) => sum + row[3], 0)]);
    if (!totals.some(([, , count]) => count)) return;
    box.hidden = false;
    box.append(stack(totals), legend(totals));
    const rows = data.coverage.filter(([status]) => status !== "scanned");
    if (rows.length) box.append(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["Status", "Why", "Items"].map((label) => el("th", { scope: "col" }, label)))),
      el("tbody", {}, rows.map(([status, why, code, items]) => el("tr", {}, el("td", {}, status), el("td", {}, why, el("span", { class: "code mono" }, code)), el("td", { class: "num" }, number(items))))))));
    if (data.incomplete.length) {
      const list = el("div", { class: "items", tabindex: 0 });
      const unfold = el("details", { ontoggle: () => { if (unfold.open && !list.firstChild) list.append(itemsTable()); } },
        el("summary", {}, `Items that were not, or not fully, looked at${data.incomplete.length < data.left ? ` (the first ${number(data.incomplete.length)})` : ""}`), list);
      box.append(unfold);
    }
  }
  const itemsTable = () => el("table", {}, el("tbody", {}, data.incomplete.map(([status, why, path]) =>
    el("tr", {}, el("td", {}, status), el("td", { class: "mono" }, path), el("td", {}, why)))));

  // ---- controls

  function options(id, all, values) {
    byId(id).append(el("option", { value: "" }, all), ...values.map(([value, label]) => el("option", { value }, label)));
    byId(id).addEventListener("change", (event) => { asked[id] = event.target.value; view.shown = CHUNK; refresh(); });
  }
  options("rule", "all rules", counted(findings, (one) => one.ruleName).sort().map(([name, count]) => [name, `${name} (${number(count)})`]));
  options("level", "any", LEVELS.map((level) => [level, level]));
  options("state", "any", STATES.map((state) => [state, words(state)]));
  options("source", "all", data.sources.length > 1 ? data.sources.map(([kind, name], at) => [String(at), `${kind}: ${name}`])
    : [...new Set(findings.map((one) => one.kind))].sort().map((kind) => [kind, kind]));
  byId("group").append(...Object.entries(GROUPS).map(([value, label]) => el("option", { value }, label)));
  byId("group").addEventListener("change", (event) => { view.group = event.target.value; view.shown = CHUNK; drawRows(); });
  let timer = 0;
  byId("text").addEventListener("input", (event) => {
    clearTimeout(timer);
    timer = setTimeout(() => { asked.text = event.target.value; view.shown = CHUNK; refresh(); }, findings.length > 2000 ? 120 : 0);
  });
  byId("reset").addEventListener("click", () => {
    for (const name of Object.keys(asked)) asked[name] = "";
    byId("text").value = "";
    refresh();
  });
  byId("more").addEventListener("click", more);
  new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting) && drawn < listed.length) more(); }, { rootMargin: "600px" }).observe(byId("more"));
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); byId("text").focus(); }
    if (event.key === "Escape" && event.target.id === "text") { event.target.value = ""; asked.text = ""; refresh(); }
  });
  const dark = () => document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  byId("theme").setAttribute("aria-pressed", String(dark()));
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    byId("theme").setAttribute("aria-pressed", String(dark()));
  });

  byId("charts").hidden = findings.length === 0;
  byId("list").hidden = false;
  refresh();
  drawCoverage();
})();
