/* The page of one region. It shows what /events tells, and asks /api/command for the rest.
   Whatever comes from a stream is put in as text, never as HTML. */
"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const el = (tag, attrs, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attrs || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((each) => each != null && each !== false));
  return made;
};
const on = (id, kind, act) => $(id).addEventListener(kind, (event) => { if (kind === "submit") event.preventDefault(); act(event); });
const tr = (...inside) => el("tr", {}, ...inside), td = (...inside) => el("td", {}, ...inside), figure = (n) => el("td", {class: "n"}, typeof n === "string" ? n : num(n)), named = (...inside) => el("th", {scope: "row"}, ...inside);
const dimmed = (...inside) => el("span", {class: "dim"}, ...inside), button = (attrs, ...inside) => el("button", {type: "button", ...attrs}, ...inside);
const link = (href, key, ...inside) => el("a", {class: "link", href, "data-k": key}, ...inside);
const isOff = () => document.body.classList.contains("off");
const svg = (tag, attrs, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attrs || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
/* Only cells that changed are replaced, so that a press of a button, the focus and a selection last.
   What a button does must follow from its text and attributes, as those are what is compared. */
const fill = (table, rows) => {
  const body = typeof table === "string" ? $(table).tBodies[0] : table;
  const old = document.activeElement && body.contains(document.activeElement) ? document.activeElement.dataset.k : null;
  rows.forEach((row, index) => {
    const before = body.rows[index];
    if (!before) body.append(row);
    else if (before.cells.length !== row.cells.length) before.replaceWith(row);
    else {
      before.className = row.className;
      Object.assign(before.dataset, row.dataset);
      [...row.cells].forEach((cell, at) => { if (!before.cells[at].isEqualNode(cell)) before.cells[at].replaceWith(cell); });
    }
  });
  while (body.rows.length > rows.length) body.deleteRow(-1);
  if (old && !body.contains(document.activeElement)) for (const each of body.querySelectorAll("[data-k]")) if (each.dataset.k === old) { each.focus({preventScroll: true}); break; }
};
const nothing = (columns, text) => [tr(el("td", {colspan: columns, class: "dim"}, text))];
/* Words are text; what is no text is {b64}, and a very long name {cut, size}. */
const bytesOf = (word) => typeof word === "object" ? Uint8Array.from(atob(word.b64), (c) => c.charCodeAt(0)) : new TextEncoder().encode(word);
const wordOf = (bytes) => { try { return new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(bytes); } catch { return {b64: btoa(String.fromCharCode(...bytes))}; } };
const joined = (...words) => wordOf(Uint8Array.from(words.flatMap((word) => [...bytesOf(word)])));
const hex = (word, before) => [...bytesOf(word)].map((b) => before + b.toString(16).padStart(2, "0")).join("");
const shown = (raw) => typeof raw !== "object" || raw === null ? String(raw) : raw.size ? `${raw.cut}… (${size(raw.size)})` : "0x" + hex(raw, "");
const brief = (raw) => { const text = shown(raw); return text.length > 300 ? text.slice(0, 300) + "…" : text; };
const LISTED = 100;
const first = (rows) => rows.length > LISTED ? [...rows].sort((a, b) => b.pending - a.pending || b.lag - a.lag).slice(0, LISTED) : rows;
const others = (columns, rows) => rows.length > LISTED ? nothing(columns, `and ${rows.length - LISTED} with fewer pending`) : [];
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const num = (n) => n == null ? "–" : n >= 1e6 ? (n / 1e6).toFixed(1) + "M" : n >= 1e4 ? (n / 1e3).toFixed(n >= 1e5 ? 0 : 1) + "k" : String(n >= 100 ? Math.round(n) : Math.round(n * 10) / 10);
const size = (n) => { let u = 0; while (n >= 1024 && u < 4) { n /= 1024; u++; } return (u ? n.toFixed(1) : Math.round(n)) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][u]; };
const span = (ms) => ms == null ? "–" : ms < 1000 ? Math.round(ms) + " ms" : ms < 10000 ? (ms / 1000).toFixed(1) + " s" : ms < 180000 ? Math.round(ms / 1000) + " s" : ms < 3600000 ? Math.round(ms / 60000) + " min" : (ms / 3600000).toFixed(1) + " h";
const clock = (ms) => new Date(ms).toLocaleTimeString([], {hour12: false});
const ROOT = document.documentElement;
const css = (name) => getComputedStyle(ROOT).getPropertyValue(name).trim();
const say = (text) => { $("spoken").textContent = text; };
/* -- who asks -- */
let credentials = sessionStorage.getItem("anabranch") || "";
if (location.hash.startsWith("#token=")) {
  let token = location.hash.slice(7);
  try { token = decodeURIComponent(token); } catch { /* "%" stands for itself */ }
  credentials = "Bearer " + token;
  sessionStorage.setItem("anabranch", credentials);
  history.replaceState(null, "", location.pathname + location.search);
}
const headers = () => ({"X-Anabranch-Act": "1", ...(credentials ? {Authorization: credentials} : {})});
on("sign", "click", () => $("login").showModal());
on("login", "close", () => {
  const how = $("login").returnValue;
  if (how === "ok") {
    const bytes = new TextEncoder().encode($("user").value + ":" + $("password").value);
    credentials = $("token").value ? "Bearer " + $("token").value : "Basic " + btoa(String.fromCharCode(...bytes));
  } else if (how === "out") credentials = "";
  $("token").value = $("password").value = "";
  if (!how) return;
  credentials ? sessionStorage.setItem("anabranch", credentials) : sessionStorage.removeItem("anabranch");
  connect();
});
on("theme", "click", () => {
  $("dark").media = matchMedia($("dark").media).matches ? "not all" : "all";
  makeCharts(); soon(); drawAll();
});
/* -- the feed -- */
let state = null, running = null, heardAt = 0, watched = null, paused = false;
const placeQuery = (place) => "db=" + place.db + "&" + (typeof place.key === "object" ? "key64=" + encodeURIComponent(place.key.b64) : "key=" + encodeURIComponent(place.key));
async function connect() {
  if (running) running.abort();
  running = null;
  try { new Headers(headers()); } catch { return offline("the token has characters that cannot be sent", true); }
  const mine = running = new AbortController();
  while (running === mine) {
    let why = "connection lost";
    try {
      followed = filterOf();
      const answer = await fetch("/events" + (watched ? "?" + placeQuery(watched) + followed : ""), {headers: headers(), signal: mine.signal, cache: "no-store"});
      if (!answer.ok) {
        const problem = await answer.json().catch(() => ({description: answer.statusText}));
        offline(why = problem.description, answer.status === 401);
        if (answer.status === 401) { running = null; return; } /* a try counts as failed AUTH */
      } else await read(answer.body.getReader());
    } catch (problem) {
      if (mine.signal.aborted) return;
      why = "no answer";
    }
    if (running === mine) { offline(why); await new Promise((done) => setTimeout(done, 1000)); }
  }
}
async function read(reader) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    text += decoder.decode(value, {stream: true});
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const message = text.slice(0, end);
      text = text.slice(end + 2);
      const event = /^event: (.*)$/m.exec(message), data = /^data: (.*)$/m.exec(message);
      if (!event || !data) continue;
      const content = JSON.parse(data[1]);
      heardAt = Date.now();
      event[1] === "status" ? takeStatus(content) : takeEntries(content);
    }
  }
}
function offline(why, sign) {
  document.body.classList.add("off");
  badge($("health"), "bad", "✕ " + why);
  $("converged").hidden = true;
  if (sign) $("who").textContent = "not signed in";
}
/* A browser has six connections to a server: a page hidden for a minute gives its own back. */
let unseen = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(unseen);
  if (document.hidden) unseen = setTimeout(() => { if (running) running.abort(); running = null; offline("not followed while hidden"); }, 60000);
  else if (!running) connect();
});
setInterval(() => { if (heardAt && Date.now() - heardAt > 4000 && !isOff()) offline("nothing heard of this region for " + span(Date.now() - heardAt)); }, 1000);
const badge = (at, kind, text) => { at.className = "badge " + kind; if (at.textContent !== text) at.textContent = text; at.hidden = false; };
/* -- regions -- */
const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
const indexOf = (region) => Math.max(0, (state?.regions || []).findIndex((each) => each.region === region));
const colour = (region) => css("--r" + indexOf(region) % 5);
const nameOf = (region) => { const found = (state?.regions || []).find((each) => each.region === region); return found ? found.name : region ? "region " + region : "this server"; };
function shapePath(kind, x, y, r) {
  if (kind === "square") return `M${x - r} ${y - r}h${2 * r}v${2 * r}h${-2 * r}z`;
  if (kind === "triangle") return `M${x} ${y - r * 1.2}L${x + r * 1.15} ${y + r}H${x - r * 1.15}z`;
  if (kind === "diamond") return `M${x} ${y - r * 1.35}L${x + r * 1.35} ${y}L${x} ${y + r * 1.35}L${x - r * 1.35} ${y}z`;
  if (kind === "cross") { const a = r * .45; return `M${x - a} ${y - r}h${2 * a}v${r - a}h${r - a}v${2 * a}h${a - r}v${r - a}h${-2 * a}v${a - r}h${a - r}v${-2 * a}h${r - a}z`; }
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
}
const shapeOf = (region) => SHAPES[indexOf(region) % SHAPES.length];
const WORDS = {in_sync: ["good", "✓ in sync"], catching_up: ["warn", "↻ catching up"], alive_via: ["warn", "⤳ by way of others"], cut: ["bad", "✂ cut"], unreachable: ["bad", "✕ unreachable"], connecting: ["warn", "… connecting"]};
const worded = (peer) => { const known = WORDS[peer.state] || ["warn", peer.state]; return peer.delay_ms && peer.state !== "cut" ? ["warn", known[1] + ", slowed"] : known; };
const gone = (peer) => peer.state === "cut" || peer.state === "unreachable";
const STALE_MS = 4000;
let spokenStates = "";
function showRegions() {
  const regions = state.regions;
  for (const each of document.querySelectorAll(".of-regions")) each.hidden = !regions;
  if (!regions) { $("converged").hidden = true; return; }
  const peers = new Map(state.peers.map((each) => [each.region, each]));
  const told = new Map(state.links.map((each) => [each.region, each]));
  const map = $("map"), count = regions.length, at = new Map();
  regions.forEach((each, index) => {
    const angle = count === 2 ? Math.PI * (1 - index) : -Math.PI / 2 + 2 * Math.PI * index / count;
    at.set(each.region, [300 + 205 * Math.cos(angle), (count === 3 ? 185 : 165) + 115 * Math.sin(angle)]);
  });
  const parts = [];
  for (let i = 0; i < count; i++) for (let j = i + 1; j < count; j++) {
    const a = regions[i].region, b = regions[j].region, [x, y] = at.get(a), [u, v] = at.get(b);
    const peer = a === state.region ? peers.get(b) : b === state.region ? peers.get(a) : null;
    let kind, label, sub = "", flow = false;
    if (peer) {
      [kind, label] = worded(peer);
      const missing = lacks(peer.region);
      sub = kind === "good" ? (peer.round_trip_ms == null ? "" : peer.round_trip_ms.toFixed(1) + " ms") : missing !== "0" ? "lacks " + missing : peer.heard_ms > STALE_MS ? "heard " + span(peer.heard_ms) + " ago" : "";
      flow = peer.state === "in_sync" && (traffic.get(peer.region) || 0) > 200;
    } else {
      const known = [told.get(a), told.get(b)].filter(Boolean).sort((p, q) => p.age_ms - q.age_ms)[0];
      const linked = known && known.with.includes(known.region === a ? b : a);
      kind = !known || known.age_ms > STALE_MS ? "wait" : linked ? "good" : "bad";
      label = !known ? "? unknown" : linked ? "✓ linked" : "✕ no link";
      sub = known && known.age_ms > STALE_MS ? "told " + span(known.age_ms) + " ago" : "";
    }
    const stroke = css({good: "--good", warn: "--warn", bad: "--bad", wait: "--dim"}[kind]);
    const width = peer ? Math.min(7, 2 + Math.log10(1 + (traffic.get(peer.region) || 0))) : 2;
    parts.push(svg("line", {x1: x, y1: y, x2: u, y2: v, stroke, "stroke-width": width, "stroke-dasharray": kind === "bad" ? "2 9" : kind === "wait" ? "3 6" : kind === "warn" ? "9 5" : "none"}));
    if (flow) parts.push(svg("line", {x1: x, y1: y, x2: u, y2: v, stroke: css("--card"), "stroke-width": 1.5, class: "flow"}));
    if (!peer && count > 3) [label, sub] = [label.slice(0, 1), ""]; /* no room for more */
    const mx = (x + u) / 2, my = (y + v) / 2, wide = 14 + Math.max(label.length * 8, sub.length * 6.5);
    parts.push(svg("rect", {x: mx - wide / 2, y: my - 19, width: wide, height: sub ? 38 : 24, rx: 6, fill: css("--card"), stroke}));
    parts.push(svg("text", {x: mx, y: my - 2, "text-anchor": "middle"}, label));
    if (sub) parts.push(svg("text", {x: mx, y: my + 14, "text-anchor": "middle", class: "dim sub"}, sub));
  }
  for (const each of regions) {
    const [x, y] = at.get(each.region), above = y < 165 && count > 2;
    parts.push(svg("path", {d: shapePath(shapeOf(each.region), x, y, each.region === state.region ? 17 : 13), fill: colour(each.region), stroke: css("--card"), "stroke-width": 3}));
    parts.push(svg("text", {x, y: above ? y - 25 : y + 37, "text-anchor": "middle", "font-weight": 700}, each.name + (each.region === state.region ? " (this)" : "")));
  }
  map.replaceChildren(...parts);
  const acts = state.may_act && state.links_can_be_cut;
  fill("links", state.peers.map((peer) => {
    const [kind, label] = worded(peer), cut = peer.state === "cut";
    const change = (text, label, words) => button({disabled: !acts, "data-k": text + peer.region, "aria-label": label + " the link with " + peer.name, onclick: () => run(["AB.LINK", peer.name, ...words])}, text);
    return el("tr", {"data-region": peer.name, "data-state": peer.state}, named(mark(peer.region), " ", peer.name), td(el("span", {class: "badge " + kind}, label), peer.refusal && kind !== "good" ? el("div", {class: "why"}, "Refused: " + peer.refusal) : null),
      td(el("span", {class: "acts in"}, cut || peer.delay_ms ? change("Heal", "Heal", ["RESUME"]) : change("Cut", "Cut", ["PAUSE"]), cut || peer.delay_ms ? null : change("Slow", "Slow down by 300 ms", ["DELAY", "300", "100"]))),
      figure(lacks(peer.region)), figure(cellOf(state.region, peer.region).text), figure(peer.lag_s == null ? "–" : span(peer.lag_s * 1000)),
      figure(peer.round_trip_ms == null ? "–" : peer.round_trip_ms.toFixed(1) + " ms"), figure(peer.heard_ms == null ? "never" : span(peer.heard_ms)));
  }));
  $("isolate").disabled = !acts || state.peers.every((peer) => peer.state === "cut");
  $("heal").disabled = !acts || !state.peers.some((peer) => peer.state === "cut" || peer.delay_ms);
  $("isolate").textContent = "Isolate " + state.name;
  $("link-why").textContent = acts ? "" : !state.links_can_be_cut ? "Links can be cut where the server was started with enable-debug-command." : "Sign in to cut, slow and heal links.";
  showMatrix();
  showConflicts();
  const states = state.peers.map((peer) => peer.name + " " + worded(peer)[1].slice(2)).join(", ");
  if (spokenStates && states !== spokenStates) say(states);
  spokenStates = states;
}
const mark = (region) => svg("svg", {width: 14, height: 14, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false"}, svg("path", {d: shapePath(shapeOf(region), 8, 8, 5.5), fill: colour(region)}));
const each = (what) => (id) => on(id, "click", async () => { for (const peer of state.peers) await run(["AB.LINK", peer.name, what]); });
each("PAUSE")("isolate"); each("RESUME")("heal");
/* What one region lacks of the effects of another. The links, the map and the matrix all say this. */
function cellOf(holder, of) {
  const row = state.matrix.find((each) => each.holder === holder), column = state.matrix.find((each) => each.holder === of);
  const lacking = row?.missing?.[of] ?? null, age = Math.max(row?.age_ms ?? Infinity, column?.age_ms ?? Infinity);
  const old = age > STALE_MS || state.peers.some((peer) => gone(peer) && (peer.region === holder || peer.region === of));
  return {lacking, age, old, text: lacking == null ? "?" : lacking + (old ? "+" : "")};
}
function lacks(holder) {
  const cells = state.regions.map((each) => cellOf(holder, each.region)), known = cells.filter((cell) => cell.lacking != null);
  return known.length ? known.reduce((sum, cell) => sum + cell.lacking, 0) + (cells.some((cell) => cell.old || cell.lacking == null) ? "+" : "") : "?";
}
/* With traffic some effects are always under way: regions count as converged until they lag for some
   refreshes in a row, or one of them cannot be heard. */
const PATIENCE = 3;
let wholeSince = 0, wasWhole = null, unlike = 0;
function isWhole(missing, calm, unheard) {
  if (unheard || !missing || calm === wasWhole) { unlike = 0; return !unheard && (!missing || calm); }
  unlike++;
  return unlike < PATIENCE ? wasWhole || false : calm;
}
/* What regions changed at once: one key, or all that hide a value. */
function showConflicts() {
  const {idmp_conflicts, hidden_values} = state.cluster;
  $("conflicts-say").textContent = `Messages that two regions accepted: ${num(idmp_conflicts)}. Keys that hide a value of another type: ${num(hidden_values)}.`;
}
function conflictsOf({writes = [], increments = [], ...about}) {
  const all = (items) => [items].flat().slice(0, LISTED).map(brief).join(", "), of = (region) => [mark(region), " ", nameOf(region)];
  return [
    ...writes.map(([region, , , stamp, data], at) => [at ? "written at once, and hidden" : "written: this counts", of(region), `${brief(data)} (${timeOf(stamp + "-0")})`]),
    ...(writes[0] || increments[1] ? increments : []).map(([region, , , amount]) => ["added", of(region), brief(amount)]),
    ...(about["set-at-once"] || []).map((items) => ["set at once: the first counts", "", all(items)]),
    ...["string", "set", "list"].filter((kind) => about["hidden-" + kind] != null).map((kind) => [`a ${kind} that is hidden`, "", all(about["hidden-" + kind])]),
  ];
}
async function look(db, key) {
  const reply = await run(["AB.INFO", ...(key === "" ? [] : [key])], {...QUIET, db}), about = pairsOf(reply || []);
  const hides = ([of, name]) => ["hides a value", "", button({class: "link", "data-k": of + JSON.stringify(name), onclick: () => { $("look-key").value = shown(name); look(of, name); }}, brief(name))];
  const rows = key === "" ? (about["hidden-values"] || []).map(hides) : conflictsOf(about);
  fill("conflicts", rows[0] ? rows.map(([what, region, value]) => tr(named(what), td(region), td(value))) : nothing(3, !reply ? "There is no such key." : key === "" ? "No key hides a value." : "It had no conflict."));
}
on("look", "submit", () => look(watched ? watched.db : 0, wordOf(bytesOf($("look-key").value))));
function showMatrix() {
  const regions = state.regions, fault = state.peers.find(gone), silent = new Set(state.peers.filter(gone).map((peer) => peer.region));
  let missing = 0, stale = null;
  const calm = state.peers.every((peer) => !gone(peer) && (peer.lag_s || 0) < 1 && (peer.receive_lag_s || 0) < 1);
  fill($("matrix").tHead, [tr(td(""), regions.map((each) => el("th", {}, "of ", mark(each.region), " ", each.name)))]);
  fill("matrix", state.matrix.map((row) => tr(named(mark(row.holder), " ", nameOf(row.holder), row.holder === state.region ? " (this)" : ""), regions.map((each) => {
    const {lacking, age, old, text} = cellOf(row.holder, each.region);
    if (age > STALE_MS && (stale == null || age > stale)) stale = age;
    missing += lacking || 0;
    const kind = row.holder === each.region && !lacking ? "self" : lacking ? (calm && !old ? "warn" : "bad") : old || lacking == null ? "warn" : "good";
    return el("td", {class: kind, "data-cell": nameOf(row.holder) + "/" + each.name, title: `${nameOf(row.holder)} lacks ${text} effects of ${each.name}` + (old ? `, told ${age === Infinity ? "never" : span(age) + " ago"}` : "")}, text);
  }))));
  const whole = isWhole(missing, calm, stale != null || fault);
  if (whole && !wasWhole) { wholeSince = state.now_ms; if (wasWhole === false) say("All regions have converged"); }
  wasWhole = whole;
  if (whole) badge($("converged"), "good", "✓ converged since " + clock(wholeSince) + (missing ? `, ${missing} under way` : ""));
  else if (missing) badge($("converged"), "bad", "✕ apart: effects missing: " + num(missing));
  else badge($("converged"), "warn", "? " + (fault ? fault.name + " is " + worded(fault)[1].slice(2) : "nothing heard for " + (stale === Infinity ? "ever" : span(stale))));
  $("matrix-say").textContent = whole ? missing ? "Every region has everything but what is under way now." : "Every region has everything that any region has." : missing ? "Equal effects make equal data: regions differ until these have arrived." : `What ${silent.size ? [...silent].map(nameOf).join(" and ") : "the others"} may lack is not known at present.`;
}
/* -- figures -- */
const samples = [[], [], [], [], [], []];
const sparks = new Map(), traffic = new Map();
let lastSent = null, lastSurvey = -1, errorsBefore = null;
function takeStatus(next) {
  const first = !state;
  state = next;
  document.body.classList.remove("off");
  const name = state.regions ? state.name : "port " + state.port;
  $("name").textContent = name;
  $("s-durability").classList.toggle("wide", !state.regions);
  $("version").textContent = `Anabranch ${state.version}, port ${state.port}`;
  $("who").textContent = state.may_act ? "signed in as " + state.user : "read only";
  $("act-why").textContent = state.may_act ? "" : "Read only: sign in to act.";
  for (const form of ["add", "trim"]) for (const each of $(form).elements) each.disabled = !state.may_act;
  if (state.durability.trouble) badge($("health"), "bad", "✕ log: " + state.durability.trouble);
  else if (state.not_ready) badge($("health"), "warn", "… " + state.not_ready);
  else if (state.refuses_writes) badge($("health"), "warn", "! " + state.refuses_writes);
  else badge($("health"), "good", "✓ serving");
  const sent = state.peers ? state.peers.map((peer) => [peer.region, peer.sent_bytes + peer.received_bytes]) : [];
  if (lastSent) for (const [region, bytes] of sent) traffic.set(region, Math.max(0, bytes - (lastSent.get(region) || bytes)) / Math.max(.2, (state.now_ms - lastSent.get("now")) / 1000));
  lastSent = new Map([...sent, ["now", state.now_ms]]);
  const s = state.survey, before = errorsBefore;
  errorsBefore = [state.error_replies, state.now_ms];
  const errors = before && state.now_ms > before[1] ? Math.max(0, state.error_replies - before[0]) * 1000 / (state.now_ms - before[1]) : null;
  totals([[state.per_second.commands, "commands/s"], [errors, "errors/s"], [s.added_rate, "entries added/s"], [s.entries, "entries"], [s.streams, "streams"], [s.groups, "groups"], [s.lag, "lag of groups"], [s.pending, "pending"], [state.clients, "clients"]]);
  $("rate-say").textContent = state.survey_age_s > 5 ? `Figures of streams were taken ${state.survey_age_s} s ago: with many streams they come less often.` : "";
  showRegions();
  if (s.count && s.count !== lastSurvey) {
    lastSurvey = s.count;
    const rates = s.count > 1 ? [s.added_rate, s.delivered_rate, s.acknowledged_rate] : [null, null, null]; /* of two */
    const row = [state.now_ms / 1000, ...rates, s.lag, s.pending];
    row.forEach((value, index) => { samples[index].push(value); if (samples[index].length > 300) samples[index].shift(); });
    for (const stream of state.streams) {
      const id = stream.db + JSON.stringify(stream.key), known = sparks.get(id) || [];
      if (s.count > 1) known.push(stream.added_rate); if (known.length > 60) known.shift();
      sparks.set(id, known);
    }
    if (sparks.size > 200) sparks.clear();
    drawAll();
  }
  showDurability();
  if (first) { entitle(); makeCharts(); list(); }
  const one = watched ? null : state.streams.find((row) => !row.key.size);
  if (one) watch(one.db, one.key);
}
function totals(items) {
  const list = $("totals");
  if (list.children.length !== items.length) list.replaceChildren(...items.map(() => el("li", {}, el("b", {}, ""), el("span", {}, ""))));
  items.forEach(([value, label], index) => { const [b, s] = list.children[index].children; if (b.textContent !== num(value)) b.textContent = num(value); s.textContent = label; });
}
let rateChart = null, lagChart = null;
const CHART_PX = 190, wide = (id) => Math.max(240, $(id).clientWidth);
function makeCharts() {
  const make = (id, series) => {
    $(id).replaceChildren();
    const line = {stroke: css("--line"), width: 1}, axis = {stroke: css("--dim"), grid: line, ticks: line};
    const latest = (u, v, index) => v ?? (u.data[index] || []).at(-1); /* without a cursor */
    return new uPlot({width: wide(id), height: CHART_PX, cursor: {drag: {x: false}}, scales: {x: {range: (u, low) => [low && Math.min(low, samples[0].at(-1) - 60), low && samples[0].at(-1)]}, y: {range: (u, low, high) => [0, Math.max(1, high * 1.1)]}}, axes: [{...axis, space: 90, values: (u, v) => v.map((s) => clock(s * 1000))}, {...axis, size: 48, values: (u, v) => v.map((n) => n < 10 ? +n.toFixed(2) : num(n))}],
      series: [{label: "at", value: (u, v, i) => clock(latest(u, v, i) * 1000)}, ...series.map(([label, name, dash]) => ({label, stroke: css(name), width: 2, dash, points: {show: false}, value: (u, v, i) => num(latest(u, v, i))}))]}, [[]], $(id));
  };
  if (!window.uPlot) return;
  rateChart = make("rate-chart", [["added/s", "--r0"], ["delivered/s", "--r2", [6, 4]], ["acknowledged/s", "--r1", [2, 3]]]);
  lagChart = make("lag-chart", [["lag", "--r3"], ["pending", "--r4", [6, 4]]]);
  feedCharts();
}
function feedCharts() {
  rateChart?.setData(samples.slice(0, 4));
  lagChart?.setData([samples[0], ...samples.slice(4)]);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (state) { makeCharts(); drawAll(); soon(); } });
addEventListener("resize", () => { for (const [chart, id] of [[rateChart, "rate-chart"], [lagChart, "lag-chart"]]) chart?.setSize({width: wide(id), height: CHART_PX}); });
/* On a narrow screen a table says that it has more columns than are to be seen. */
const narrow = new ResizeObserver((seen) => { for (const {target} of seen) { const box = target.closest(".scroll"); box.classList.toggle("over", box.scrollWidth > box.clientWidth + 1); } });
for (const box of document.querySelectorAll(".scroll")) {
  box.tabIndex = 0; /* to be scrolled by keys */
  box.setAttribute("role", "region");
  narrow.observe(box);
  narrow.observe(box.firstElementChild);
}
const spark = (values) => {
  const high = Math.max(1, ...values), line = values.map((v, i) => (i * 120 / Math.max(1, values.length - 1)).toFixed(1) + "," + (18 - 16 * v / high).toFixed(1)).join(" ");
  return svg("svg", {width: 120, height: 20, viewBox: "0 0 120 20", role: "img", "aria-label": "at most " + num(Math.max(0, ...values)) + " a second"}, svg("polyline", {points: line, fill: "none", stroke: css("--r0"), "stroke-width": 1.5}));
};
const open = (row) => row.key.size ? shown(row.key) : link(address(row.db, row.key), row.db + JSON.stringify(row.key), brief(row.key) + (row.db ? ` (db ${row.db})` : ""));
function drawAll() {
  if (!state) return;
  feedCharts();
  const busy = [...state.streams].sort((a, b) => b.added_rate - a.added_rate || b.lag - a.lag || b.length - a.length).slice(0, 8);
  fill("busy", busy.length ? busy.map((row) => tr(named(open(row)), td(spark(sparks.get(row.db + JSON.stringify(row.key)) || [])), ...[row.added_rate, row.delivered_rate, row.acknowledged_rate, row.lag].map(figure))) : nothing(6, "There are no streams yet. Add an entry: XADD key * field value"));
  $("known").replaceChildren(...busy.filter((row) => !row.key.size).map((row) => el("option", {value: shown(row.key)})));
  showHeat(); showProducers(); showMemory();
}
function showHeat() {
  const columns = ["< 1 s", "< 10 s", "< 1 min", "< 10 min", "older"];
  fill($("heat").tHead, [tr(el("th", {}, "Group"), ...columns.map((text) => el("th", {}, text)), el("th", {}, "Delivered once · twice · 3–4 · more"))]);
  const most = Math.max(1, ...state.heat.flatMap((row) => row.ages));
  fill("heat", state.heat.length ? state.heat.map((row) => {
    const sum = Math.max(1, row.deliveries.reduce((a, b) => a + b, 0));
    const name = shown(row.key) + " / " + shown(row.group);
    return tr(named(row.key.size || row.group.size ? name : link(address(row.db, row.key, row.group), name, name), row.count > row.looked_at ? dimmed(` ${num(row.looked_at)} of ${num(row.count)}`) : null),
      ...row.ages.map((n) => { const cell = el("td", {class: "c"}, n ? num(n) : ""); if (n) cell.style.background = `rgba(${css("--heat")},${(.08 + .3 * Math.log(1 + n) / Math.log(1 + most)).toFixed(2)})`; return cell; }),
      td(row.deliveries.map((n) => Math.round(100 * n / sum) + " %").join(" · ")));
  }) : nothing(7, "Nothing is pending."));
}
const bar = (share) => { const inside = el("i"); inside.style.width = Math.min(100, 100 * share).toFixed(1) + "%"; return el("div", {class: "bar", "aria-hidden": "true"}, inside); };
function showProducers() {
  const rows = state.streams.filter((row) => row.attempts).sort((a, b) => b.duplicates - a.duplicates || b.attempts - a.attempts).slice(0, 8);
  fill("producers", rows.length ? rows.map((row) => {
    const short = row.window_ms < row.duration_s * 1000;
    return tr(named(open(row)), figure(`${num(row.duplicates)} / ${num(row.attempts)}`),
      td(bar(row.window_ms / (row.duration_s * 1000)), `${span(row.window_ms)} of ${span(row.duration_s * 1000)}` + (short ? " — too small" : "")),
      td(bar(row.remembered / Math.max(1, row.room)), `${num(row.remembered)} of ${num(row.room)}`));
  }) : nothing(4, "No idempotent producer. Retries are safe with XADD key IDMPAUTO producer * …"));
}
function showDurability() {
  const d = state.durability;
  const wait = {always: "a reply waits for the disk", everysec: "replies do not wait for the disk; syncs come each second", no: "the system decides when data reaches the disk"}[d.appendfsync];
  $("lost").textContent = d.trouble ? "Writes are refused: " + d.trouble : !d.aof_enabled ? "Everything since the last snapshot: there is no log." : d.oplog_unsynced_bytes ? `After a power failure: ${size(d.oplog_unsynced_bytes)} of the log. After a crash of the process: nothing.` : "Nothing: all is on the disk.";
  const rows = [["appendfsync", `${d.appendfsync}: ${wait}`], ["latest sync", d.oplog_last_fsync_usec == null ? "–" : span(d.oplog_last_fsync_usec / 1000)], ["log", d.aof_current_size == null ? "off" : `${size(d.aof_current_size)} in ${d.oplog_segments} file(s)`], ["latest snapshot", d.rdb_last_save_time ? clock(d.rdb_last_save_time * 1000) + (d.rdb_last_bgsave_status === "ok" ? "" : " (the last attempt failed)") : "none"], ["recovered at the start", d.recovery_effects == null ? "–" : `${num(d.recovery_effects)} effects` + (d.recovery_cut_bytes ? `, ${size(d.recovery_cut_bytes)} cut off` : "")], ["up for", span(state.uptime_s * 1000)]];
  $("durability").replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
function showMemory() {
  const m = state.memory, parts = Object.entries(state.memory_by_cause), known = parts.reduce((sum, [, n]) => sum + n, 0);
  const scale = !known ? 0 : state.sees_all ? (m.keys_bytes - m.opened_bytes - m.held_tag_bytes) / known : 1;
  const rows = [...parts.map(([cause, n]) => [cause, n * scale]), ["opened nodes", m.opened_bytes], ["held tags", m.held_tag_bytes], ["buffers of clients", m.buffer_bytes]].filter(([, n]) => n >= 1).sort((a, b) => b[1] - a[1]);
  const beside = [[m.script_bytes, "scripts"], [m.offloaded_bytes, "nodes in a file"]].filter(([n]) => n).map(([n, what]) => `${size(n)} of ${what}`).join(", ");
  $("memory-say").textContent = `${size(m.used_bytes)} in data and buffers` + (m.max_bytes ? ` of ${size(m.max_bytes)} allowed` : "") + (beside ? ", beside it " + beside : "") + `; the process has ${size(m.rss_bytes)}. Causes are estimated from the largest streams.`;
  fill("memory", rows.map(([cause, n]) => tr(named(cause), td(bar(n / Math.max(1, m.used_bytes))), figure(size(n)))));
}
/* -- the timeline -- */
let points = [], arrivals = new Map(), about = {groups: []}, fresh = [], tailedAt = 0;
const KEPT = 4000, ROWS = 100;
/* Drawn once a frame at most, where it can be seen: layout is asked for once, too. */
let canvasWidth = 0, inView = true, frame = 0, drawnAt = 0;
const soon = () => { if (inView && !frame) frame = requestAnimationFrame(() => { frame = 0; draw(); }); };
new ResizeObserver((seen) => { canvasWidth = Math.round(seen[seen.length - 1].contentRect.width); soon(); }).observe($("timeline"));
new IntersectionObserver((seen) => { inView = seen[seen.length - 1].isIntersecting; soon(); }).observe($("timeline"));
function watch(db, key) {
  watched = {db, key};
  points = []; arrivals = new Map(); about = {groups: []}; fresh = [];
  $("watch-key").value = shown(key);
  connect();
}
on("watch", "submit", () => {
  const text = $("watch-key").value, known = state && state.streams.find((row) => shown(row.key) === text);
  if (text) location.hash = address(known ? known.db : 0, known ? known.key : wordOf(bytesOf(text)));
});
/* -- views: each has an address, so that "back" works and a link can be sent to somebody -- */
const asPart = (word) => typeof word === "object" ? "~" + encodeURIComponent(word.b64) : encodeURIComponent(word).replace(/^~/, "%7E");
const ofPart = (part) => part[0] === "~" ? {b64: decodeURIComponent(part.slice(1))} : decodeURIComponent(part);
const address = (db, key, group) => `#/stream/${db}/${asPart(key)}` + (group == null ? "" : "/group/" + asPart(group));
let view = "overview", group = null;
function placeOf(hash) {
  const [, kind, db, key, , name] = hash.split("/");
  if (kind === "streams") return {view: "streams"};
  try {
    if (kind === "stream" && /^\d+$/.test(db) && key != null) return {view: name == null ? "stream" : "group", db: +db, key: ofPart(key), group: name == null ? null : ofPart(name)};
  } catch { /* not ours */ }
  return {view: "overview"};
}
function entitle() {
  const of = view === "overview" || view === "streams" ? "" : brief(watched.key) + (view === "group" ? " / " + brief(group) : "") + " – ";
  document.title = of + "Anabranch" + (state ? " " + (state.regions ? state.name : "port " + state.port) : "");
}
function go(event) {
  if (event && location.hash && !location.hash.startsWith("#/")) return; /* a place on this view */
  const place = placeOf(location.hash);
  view = $("main").dataset.view = place.view;
  group = place.group ?? null;
  if (place.key != null && !(watched && watched.db === place.db && same(watched.key, place.key))) { fill("groups", []); watch(place.db, place.key); }
  if (view === "stream" || view === "group") {
    const {db, key} = watched, name = brief(key) + (db ? ` (db ${db})` : "");
    $("nav-stream").textContent = name; $("nav-stream").href = address(db, key); $("nav-stream").hidden = false;
    $("h-stream").textContent = "Stream " + name;
    if (group != null) { $("nav-group").textContent = brief(group); $("nav-group").href = address(db, key, group); $("h-group").textContent = `Group ${brief(group)} of stream ${name}`; fill("pending", []); fill("consumers", []); $("group-say").textContent = $("pending-say").textContent = ""; inGroup(); }
    else openStream();
  }
  $("nav-group").hidden = group == null;
  for (const each of document.querySelectorAll("nav a")) each.dataset.view === view ? each.setAttribute("aria-current", "page") : each.removeAttribute("aria-current");
  if (view === "streams") list();
  if (view === "overview" && state) { dispatchEvent(new Event("resize")); drawAll(); }
  entitle();
  if (!event) return;
  scrollTo(0, 0);
  const heading = {streams: "h-browse", stream: "h-stream", group: "h-group"}[view];
  if (heading) $(heading).focus({preventScroll: true});
}
addEventListener("hashchange", go);
const toggle = (id, act) => on(id, "click", () => { const on = $(id).getAttribute("aria-pressed") !== "true"; $(id).setAttribute("aria-pressed", on); act(on); });
toggle("pause", (on) => { paused = on; if (!on) soon(); });
on("span", "change", soon);
function takeEntries(seen) {
  if (!watched) return;
  if (seen.error) { $("timeline-say").textContent = seen.error; return; }
  about = seen;
  if (seen.first) { points = []; arrivals = new Map(); if (tailing) { fill("entries", []); fresh = []; sayTail(); } }
  const here = state ? state.region : 0;
  for (const entry of seen.entries) {
    entry.ms = +entry.id.split("-")[0];
    points.push(entry);
    if (entry.region !== here && !seen.first) arrivals.set(entry.id + "/" + here, entry.at);
  }
  if (points.length > KEPT) points.splice(0, points.length - KEPT);
  noteArrivals(seen.applied, seen.first ? BEFORE : seen.now_ms);
  showRetention(seen.retention);
  if (tailing) { fresh = [...fresh, ...seen.entries.filter((entry) => entry.wanted)].slice(-ROWS); showFresh(); }
  if (!paused) soon();
}
function showRetention(kept) {
  $("of-retention").hidden = !kept;
  if (!kept) return;
  const chips = chipsOf(kept.policies), [slowest, from] = kept.needed_by[0] || [], {db, key} = watched;
  if (!same([...$("retention").children].map((each) => each.textContent), chips.map((each) => each.textContent))) $("retention").replaceChildren(...chips);
  const text = !kept.policies.keep || kept.policies.keep === "none" ? "Nothing is held back: groups do not count." : slowest == null ? "Nothing is held back: no group needs an entry." : null;
  const held = kept.held_back ? `${counted(kept.held_back)} beyond the limits stay: ` : "", more = kept.needed_by.length - 1;
  const parts = text ? [text] : [held + "group ", link(address(db, key, slowest), "k" + shown(slowest), brief(slowest)), ` needs what is there from ${from} on` + (more ? `, and ${more} other${more === 1 ? "" : "s"} from a later one on.` : ".")];
  const made = el("p", {}, ...parts);
  if (made.textContent !== $("retention-say").textContent) $("retention-say").replaceChildren(...made.childNodes);
}
/* When another region has an entry follows from how far it says to have applied its region's effects.
   When it got those that it had before somebody looked is not known. */
const BEFORE = 0;
function noteArrivals(applied, when) {
  for (const {region, vector} of applied || []) {
    const upto = new Map(vector);
    for (let i = points.length - 1, n = 0; i >= 0 && n < 800; i--, n++) {
      const entry = points[i], id = entry.id + "/" + region;
      if (entry.region !== region && !arrivals.has(id) && upto.get(entry.replica_id) >= entry.number) arrivals.set(id, when);
    }
  }
  if (arrivals.size > 4 * KEPT) arrivals = new Map([...arrivals].slice(-2 * KEPT));
}
const FONT = "12px system-ui, sans-serif";
/* A line for each place where groups are, with their names, in rows where they would overlap. */
function flagsOf(place, end, measure) {
  const flags = [], ends = [];
  for (const {at: id, name} of about.groups || []) {
    const at = place(+id.split("-")[0]), known = flags.find((flag) => Math.abs(flag.at - at) < 3);
    if (at != null) known ? known.names.push(brief(name)) : flags.push({at, names: [brief(name)]});
  }
  for (const flag of flags.sort((a, b) => a.at - b.at)) {
    flag.text = "▸ " + flag.names.slice(0, 4).join(", ") + (flag.names.length > 4 ? ` and ${flag.names.length - 4} more` : "");
    const wide = measure(flag.text);
    flag.begin = flag.at + 4 + wide > end ? Math.max(0, flag.at - 4 - wide) : flag.at + 4;
    const free = ends.findIndex((before) => before + 8 < flag.begin);
    flag.row = free < 0 ? ends.length : free;
    ends[flag.row] = Math.max(ends[flag.row] || 0, flag.begin + wide, flag.at);
  }
  return flags;
}
function draw() {
  drawnAt = performance.now();
  const canvas = $("timeline"), ratio = devicePixelRatio || 1, width = canvasWidth || canvas.clientWidth, regions = state && state.regions || [{region: 0, name: "entries"}];
  const lane = Math.max(34, Math.min(62, 190 / regions.length));
  const c = canvas.getContext("2d"), seconds = +$("span").value, newest = points.length ? Math.max(points[points.length - 1].ms, points[Math.max(0, points.length - 50)].ms) : 0;
  const now = state ? state.now_ms : 0, end = newest && newest < now - seconds * 1000 ? newest + seconds * 50 : now + 500, from = end - seconds * 1000;
  const left = 78, x = (ms) => left + (ms - from) / (end - from) * (width - left - 12);
  c.font = FONT;
  const flags = flagsOf((ms) => ms < from || ms > end ? null : x(ms), width - 12, (text) => c.measureText(text).width), top = 4 + 15 * Math.max(1, ...flags.map((flag) => flag.row + 1)), height = top + regions.length * lane + 26;
  canvas.parentNode.style.height = height + "px";
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) { canvas.width = width * ratio; canvas.height = height * ratio; }
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  const stroke = (style, x, y, u, v) => { c.strokeStyle = style; c.beginPath(); c.moveTo(x, y); c.lineTo(u, v); c.stroke(); };
  if (!state) return;
  const ink = css("--ink"), dim = css("--dim"), line = css("--line"), warn = css("--warn");
  const lanes = new Map(regions.map((each, index) => [each.region, top + (index + .5) * lane])), y = (region) => lanes.get(region) ?? top + lane / 2;
  c.font = FONT; c.textBaseline = "middle";
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900].find((s) => seconds / s <= width / 110) || 1800;
  c.textAlign = "center";
  for (let t = Math.ceil(from / 1000 / step) * step; t * 1000 < end; t += step) {
    stroke(line, x(t * 1000), top, x(t * 1000), height - 22);
    c.fillStyle = dim; c.fillText(clock(t * 1000), Math.min(x(t * 1000), width - 28), height - 10);
  }
  c.textAlign = "left";
  const path = new Map(), dots = new Map();
  for (const each of regions) {
    const at = y(each.region), paint = colour(each.region);
    stroke(line, left, at, width - 12, at);
    c.fillStyle = paint; c.fill(new Path2D(shapePath(shapeOf(each.region), 12, at, 6)));
    c.fillStyle = ink; c.fillText(each.name, 24, at, left - 28);
    path.set(each.region, paint); dots.set(each.region, new Path2D(shapePath(shapeOf(each.region), 0, 0, 4)));
  }
  let late = 0; const seen = new Map(), dense = points.length > 1200, bars = new Map();
  for (const entry of points) {
    seen.set(entry.region, (seen.get(entry.region) || 0) + 1);
    if (entry.late) late++;
    if (entry.ms < from || entry.ms > end) continue;
    const px = x(entry.ms), py = y(entry.region);
    if (dense && !entry.late) { const id = entry.region + "/" + Math.round(px / 4); bars.set(id, (bars.get(id) || 0) + 1); continue; }
    for (const each of regions) {
      const when = each.region === entry.region ? null : arrivals.get(entry.id + "/" + each.region);
      if (!when || dense) continue;
      const ax = Math.min(x(when), width - 12), ay = y(each.region);
      c.lineWidth = 1.5; stroke(path.get(entry.region) || dim, ax, ay - lane * .3, ax, ay - lane * .12); c.lineWidth = 1;
    }
    c.fillStyle = path.get(entry.region) || dim;
    c.translate(px, py); c.fill(dots.get(entry.region) || dots.values().next().value); c.translate(-px, -py);
    if (entry.late) { c.strokeStyle = warn; c.lineWidth = 2; c.beginPath(); c.arc(px, py, 9, 0, 7); c.stroke(); c.lineWidth = 1; }
  }
  const tallest = Math.max(1, ...bars.values());
  for (const [id, n] of bars) { const [region, slot] = id.split("/").map(Number), h = Math.max(3, lane * .7 * n / tallest); c.fillStyle = path.get(region) || dim; c.fillRect(slot * 4, y(region) - h / 2, 3, h); }
  for (const {at, text, begin, row} of flags) {
    c.setLineDash([4, 3]); stroke(ink, at, 15 * row + 8, at, height - 22); c.setLineDash([]);
    c.fillStyle = ink; c.fillText(text, begin, 15 * row + 8);
  }
  const text = !watched ? "Choose a stream." : `${brief(watched.key)}: ${num(about.length)} entries${about.scheduled ? `, ${num(about.scheduled)} scheduled` : ""}; shown: ${points.length}` + (seen.size && state.regions ? " (" + [...seen].map(([region, n]) => nameOf(region) + " " + n).join(", ") + ")" : "") + (late ? `; ${late} came late: a reader by XREAD that was at the end skips them, AB.READ and groups do not` : "") + (about.passed_over ? `; ${num(about.passed_over)} passed over, too fast to show` : "");
  if ($("timeline-say").textContent !== text) { $("timeline-say").textContent = text; canvas.setAttribute("aria-label", "Timeline. " + text); }
  if (!$("legend").children.length) $("legend").append(...(state.regions ? ["shape and colour: the writing region", "tick: another region received it", "◯ ring: it came late"] : []).concat("dashed line: the last delivered ID of a group").map((words) => el("li", {}, words)));
}
setInterval(() => {
  if (document.hidden || isOff()) return;
  showFresh();
  if (watched && !paused && performance.now() - drawnAt > 450) soon();
}, 500);
/* -- browsing -- */
let offset = 0;
const PAGE = 20, DEEPEST = 2000;
async function list() {
  const query = `sort=${$("sort").value}&search=${encodeURIComponent($("search").value)}&offset=${offset}&limit=${PAGE}`;
  const answer = await fetch("/api/streams?" + query, {headers: headers()}).then((r) => r.ok ? r.json() : null).catch(() => null);
  if (!answer) return;
  fill("streams", answer.streams.length ? answer.streams.map((row) => tr(named(open(row)), el("td", {class: "of-regions", hidden: !state?.regions}, state?.regions ? row.regions.map((each) => el("span", {class: "chip"}, mark(each), " ", nameOf(each))) : null), ...[row.length, row.added_rate, row.groups, row.lag, row.pending].map(figure), figure(size(row.size)))) : nothing(8, "No stream has this in its name."));
  $("found").textContent = answer.count ? `${answer.offset + 1}–${answer.offset + answer.streams.length} of ${answer.count}` : "none";
  $("earlier").hidden = !offset; $("more").hidden = offset + PAGE >= Math.min(answer.count, DEEPEST);
}
on("find", "submit", () => { offset = 0; list(); });
on("sort", "change", () => { offset = 0; list(); });
on("more", "click", () => { offset += PAGE; list(); });
on("earlier", "click", () => { offset = Math.max(0, offset - PAGE); list(); });
setInterval(() => { if (state && view === "streams" && !document.hidden && !isOff() && document.activeElement !== $("search")) list(); }, 5000);
let tailing = true;
function openStream() {
  walking = null;
  setTailing(true);
  $("from").value = $("field").value = $("value").value = "";
  follow(); groups();
}
/* JSON over several lines, as it was written: long numbers would change if they were read. */
function inLines(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 20000) return null;
  try { JSON.parse(text); } catch { return null; }
  let made = "", depth = 0;
  const line = () => "\n" + "  ".repeat(depth);
  const parts = text.match(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/g);
  parts.forEach((part, at) => {
    if (part === "{" || part === "[") { depth++; made += part + (parts[at + 1] === "}" || parts[at + 1] === "]" ? "" : line()); }
    else if (part === "}" || part === "]") { depth--; made += (parts[at - 1] === "{" || parts[at - 1] === "[" ? "" : line()) + part; }
    else made += part === "," ? "," + line() : part === ":" ? ": " : part;
  });
  return made;
}
const SHORT = 40;
function valueOf(raw) {
  const text = shown(raw), lines = text.length > SHORT ? inLines(text) : null;
  return lines == null ? text : el("code", {class: "json"}, lines);
}
const fieldsOf = ({fields, left_out: more, is_cut: cut, too_large: large}) => { const parts = []; for (let i = 0; i < fields.length; i += 2) parts.push(el("span", {class: "f"}, el("b", {}, shown(fields[i]) + " "), valueOf(fields[i + 1]))); if (more) parts.push(dimmed(`and ${more} more `)); if (cut) parts.push(dimmed("(long values are cut: Search shows them)")); if (large) parts.push(dimmed(`${size(large)}: too large to be read here, and not compared with the filter`)); return parts; };
const timeOf = (id) => { const ms = +id.split("-")[0]; return ms < 8.64e15 ? new Date(ms).toISOString() : "no time"; };
const entryRow = (entry) => el("tr", {class: entry.late ? "late" : ""}, td(el("time", {title: timeOf(entry.id)}, entry.id)), el("td", {class: "of-regions", hidden: !state?.regions}, entry.region ? [mark(entry.region), " ", nameOf(entry.region)] : ""), td(fieldsOf(entry), entry.left_out || entry.is_cut || entry.too_large ? null : copies(["XADD", watched.key, "*", ...entry.fields], `Copy ${entry.id} as a line of redis-cli`)));
function tail(entries) {
  const body = $("entries").tBodies[0];
  body.prepend(...entries.slice().reverse().slice(0, ROWS).map(entryRow));
  while (body.rows.length > ROWS) body.deleteRow(-1);
  sayTail();
}
/* A few new rows come at once, a flood once a second. */
function showFresh() {
  if (!fresh.length || fresh.length > 20 && performance.now() - tailedAt < 1000) return;
  tailedAt = performance.now();
  tail(fresh.splice(0));
}
/* -- following and walking -- */
const filterOf = () => { const field = $("field").value, value = $("value").value; return (field ? "&field=" + encodeURIComponent(field) : "") + (value ? `&value=${encodeURIComponent(value)}&match=${$("match").value}` : ""); };
const filterWords = () => { const field = $("field").value, value = $("value").value; return !field && !value ? "" : !value ? `with the field ${field}` : `whose ${field ? "value of " + field : "value of any field"} ${$("match").value === "part" ? "contains" : "is equal to"} “${value}”`; };
const counted = (n) => n.toLocaleString("en") + (n === 1 ? " entry" : " entries");
function setTailing(on) {
  tailing = on; fresh = []; $("tail").setAttribute("aria-pressed", on);
  for (const id of ["older", "newer"]) $(id).disabled = on && id === "newer";
  $("halt").hidden = true;
}
function sayTail() {
  const count = $("entries").tBodies[0].rows.length, words = filterWords();
  $("walk-say").textContent = about.length === 0 ? "The stream has no entries." : words ? `Following entries ${words}: ${count} of those that came lately. Search looks at the whole stream.` : count ? `The newest ${count} of ${counted(about.length ?? count)}.` : "";
}
const follow = () => { edges = {older: "", newer: null}; fill("entries", []); fresh = []; tail(points.filter((point) => point.wanted).slice(-ROWS)); };
toggle("tail", (on) => {
  walking = null;
  setTailing(on);
  if (on) filterOf() === followed ? follow() : connect();
});
/* Entries from an ID on in one direction; with a filter, until there are enough or the end is reached. */
let walking = null, edges = {older: "", newer: null}, followed = "";
async function walk(direction, from) {
  const mine = walking = {}, {db, key} = watched, filter = filterOf(), words = filterWords(), found = [];
  let looked = 0, at = from, answer, opposite;
  const back = direction === "older" ? "newer" : "older";
  setTailing(false);
  $("halt").hidden = false;
  const draw = () => fill("entries", (direction === "older" ? found : [...found].reverse()).map(entryRow));
  do {
    answer = await fetch(`/api/entries?${placeQuery({db, key})}&direction=${direction}&limit=${ROWS - found.length}${at ? "&from=" + at : ""}${filter}`, {headers: headers()}).then((r) => r.json()).catch(() => ({error: "no answer"}));
    if (walking !== mine) return;
    if (answer.error || answer.description) { $("halt").hidden = true; $("walk-say").textContent = answer.error || answer.description; return; }
    opposite ??= {edge: answer[back]};
    looked += answer.looked_at; found.push(...answer.entries); at = answer[direction];
    $("walk-say").textContent = `Looking: ${looked.toLocaleString("en")} of ${counted(answer.length ?? looked)}, ${found.length} found …`;
    if (found.length && found.length !== answer.entries.length) draw();
  } while (at && filter && found.length < ROWS && !mine.halted);
  $("halt").hidden = true;
  edges = {[direction]: at, [back]: from ? opposite.edge : null};
  draw();
  $("older").disabled = !edges.older; $("newer").disabled = !edges.newer;
  const whole = !from && !at, side = direction === "older" ? "older" : "newer", length = answer.length ?? looked;
  const reach = mine.halted ? `stopped after ${counted(looked)}` : at ? `looked at ${looked.toLocaleString("en")} of ${counted(length)}; ${side} ones may match, too` : whole ? `looked at all ${counted(looked)}` : `looked at all ${looked.toLocaleString("en")} that are ${side}, of ${counted(length)}`;
  $("walk-say").textContent = !length ? "The stream has no entries." : filter ? `${found.length ? counted(found.length) : "No entry"} ${words}; ${reach}.` : found.length ? `${found.length} of ${counted(length)}${at ? "" : ", up to the " + (direction === "older" ? "oldest" : "newest")}.` : `The stream has no ${side} entries; it has ${counted(length)}.`;
  if (!found.length && !filter) fill("entries", nothing(3, $("walk-say").textContent));
}
on("older", "click", () => { if (watched) walk("older", tailing ? olderThanShown() : edges.older); });
on("newer", "click", () => { if (watched && edges.newer) walk("newer", edges.newer); });
on("oldest", "click", () => { if (watched) walk("newer", ""); });
on("halt", "click", () => { if (walking) walking.halted = true; });
/* The ID below the last one that is shown. */
function olderThanShown() {
  const shownLast = $("entries").tBodies[0].rows, id = shownLast.length ? shownLast[shownLast.length - 1].cells[0].textContent : "";
  if (!id) return "";
  const [ms, seq] = id.split("-").map(BigInt);
  return seq ? `${ms}-${seq - 1n}` : ms ? `${ms - 1n}-18446744073709551615` : "0-0";
}
on("range", "submit", () => {
  if (!watched) return;
  const text = $("from").value.trim();
  let start = text;
  if (text && !/^\d+(-\d+)?$/.test(text)) {
    const day = new Date().toLocaleDateString("sv"), when = Date.parse(/^\d\d?:/.test(text) ? day + "T" + text : text);
    if (isNaN(when)) return refuse("from", "This is neither an ID nor a time");
    start = String(when);
  }
  walk(text ? "newer" : "older", start);
});
const pairsOf = (list) => Object.fromEntries(list.map(([name, value]) => [shown(name), value]));
async function groups() {
  const {db, key} = watched, reply = await run(["XINFO", "GROUPS", key], QUIET);
  if (!reply) { fill("groups", nothing(5, "–")); return; }
  const rows = reply.map(pairsOf);
  const lags = new Map((about.groups || []).map((each) => [shown(each.name), each.lag]));
  fill("groups", rows.length ? first(rows).map((row) => tr(named(link(address(db, key, row.name), "g" + shown(row.name), brief(row.name))), figure(row.consumers), figure(row.lag ?? lags.get(shown(row.name))), figure(row.pending), td(shown(row["last-delivered-id"])))).concat(others(5, rows)) : nothing(5, "No consumer group."));
}
const PENDING = 50;
let letters = null; /* the dead-letter stream of the group that is shown */
async function inGroup() {
  const {db, key} = watched, name = group;
  const [all, consumers, pending, more] = await Promise.all([run(["XINFO", "GROUPS", key], QUIET), run(["XINFO", "CONSUMERS", key, name], QUIET), run(["XPENDING", key, name, "-", "+", String(PENDING)], QUIET), run(["AB.INFO", key, "GROUP", name], QUIET)]);
  const isHere = () => same(name, group) && watched.db === db && same(watched.key, key);
  if (!isHere()) return;
  const own = (all || []).map(pairsOf).find((row) => same(row.name, name));
  if (!own || !consumers || !pending) { $("group-say").textContent = all && !own ? "There is no such group, or no longer." : "The group cannot be read: see Commands."; fill("consumers", []); fill("pending", []); return; }
  const told = (about.groups || []).find((each) => same(each.name, name)), ab = more ? pairsOf(more) : {policies: [], consumers: []};
  const policies = pairsOf(ab.policies), lease = shown(policies.lease ?? "none"), leases = new Map(ab.consumers.map(pairsOf).map((row) => [shown(row.name), row]));
  $("group-say").replaceChildren("Stream ", link(address(db, key), "s", brief(key)), ` · lag ${num(own.lag ?? told?.lag)} · ${num(own.pending)} pending · ${num(own.consumers)} consumer${own.consumers === 1 ? "" : "s"} · last delivered ID ${own["last-delivered-id"]} · entries read ${own["entries-read"] ?? "not known"} `, ...chipsOf(policies));
  $("pending-say").textContent = pending.length < own.pending ? `${pending.length} of ${own.pending.toLocaleString("en")}, the oldest IDs first` : "";
  const rows = consumers.map(pairsOf), can = state?.may_act, columns = lease === "none" ? 4 : 5;
  for (const each of document.querySelectorAll(".of-lease")) each.hidden = lease === "none";
  fill("consumers", rows.length ? first(rows).map((row) => tr(named(brief(row.name)), figure(row.pending), figure(span(row.idle)), figure(row.inactive < 0 ? "never" : span(row.inactive)), lease === "none" ? null : td(heldBy(row, lease, leases.get(shown(row.name)))))).concat(others(columns, rows)) : nothing(columns, "No consumer."));
  letters = policies["dead-letter"] ?? null;
  const again = () => { if (isHere()) inGroup(); };
  const act = (can, text, what, id, start) => button({disabled: !can, "data-k": text + id + JSON.stringify([key, name]), "aria-label": what, onclick: async () => { await start(); again(); }}, text);
  fill("pending", pending.length ? pending.map(([id, owner, idle, count]) => {
    const to = rows.find((row) => !same(row.name, owner)), ends = shown(owner) && lease.startsWith("time:") ? msOf(lease.slice(5)) - idle : null;
    return tr(td(id), td(brief(owner) || "released"), figure(span(idle) + (ends == null ? "" : ends > 0 ? `, ${span(ends)} left` : ", over")), figure(count), td(el("span", {class: "acts in"},
      act(can, "Ack", "Ack " + id, id, () => run(["XACK", key, name, id], {sure: "The group will not be given this entry again" + everywhere()})),
      to ? act(can, "Claim", `Claim ${id} for ${brief(to.name)}`, id, () => run(["XCLAIM", key, name, to.name, "0", id])) : null,
      shown(owner) ? act(can, "Release", "Release " + id, id, () => run(["XNACK", key, name, "FAIL", "IDS", "1", id])) : null,
      act(can, "Bury", `Bury ${id}: move it to the dead letters`, id, () => bury(key, name, id)))));
  }) : nothing(5, "Nothing is pending."));
  await dead(db, key, name, isHere, act);
}
const chipsOf = (policies) => Object.entries(policies).map(([policy, value]) => el("span", {class: "chip"}, `${policy} ${shown(value)}`));
const msOf = (text) => { const [, n, unit] = /^(\d+)(\w*)$/.exec(text); return n * ({s: 1000, m: 60000, h: 3600000, d: 86400000}[unit] || 1); };
function heldBy(row, lease, known) {
  if (!row.pending) return "–";
  if (lease.startsWith("time:")) return "each entry by itself";
  const ends = known?.["lease-ends-in"], open = known?.connections.length || 0;
  if (lease.startsWith("connection") && open) return `held by ${open} connection${open === 1 ? "" : "s"}`;
  return ends == null ? "not known" : ends > 0 ? `ends in ${span(ends)}` : "over";
}
/* Dead letters of this group among the newest ones of the stream that its policy names. */
async function dead(db, key, name, isHere, act) {
  $("of-dead").hidden = letters == null;
  if (letters == null) return;
  const from = letters, found = await run(["XREVRANGE", from, "+", "-", "COUNT", String(PENDING)], QUIET);
  if (!isHere() || letters !== from) return;
  const rows = (found || []).map(([id, words]) => ({id, of: pairsOf(words.flatMap((word, at) => at % 2 ? [] : [[word, words[at + 1]]]).slice(0, 9))})).filter(({of}) => same(of["ab-origin"], key) && same(of["ab-group"], name));
  $("dead-say").replaceChildren("In ", link(address(db, from), "d" + shown(from), brief(from)), !found ? ", which cannot be read: see Commands." : rows.length ? `: ${rows.length} of this group among the newest ${found.length}` : ": none of this group");
  const can = state?.may_act;
  $("redrive").disabled = !can || !rows.length;
  fill("dead", rows.length ? rows.map(({id, of}) => tr(td(el("span", {title: `Given up as ${id}, delivered last ${timeOf(shown(of["ab-last"]) + "-0")}`}, shown(of["ab-id"]))), td(shown(of["ab-reason"])), figure(shown(of["ab-deliveries"])), td(brief(of["ab-consumer"])), td(el("span", {class: "acts in"},
    act(can, "Redrive", `Redrive ${shown(of["ab-id"])}: give it back to the group`, id, () => run(["AB.REDRIVE", from, "IDS", "1", id], {sure: "The group is given this entry once more, as if it had never been delivered" + everywhere()})))))) : nothing(5, "No dead letter."));
}
on("redrive", "click", async () => {
  if (letters != null && await run(["AB.REDRIVE", letters, "COUNT", "1000"], {sure: "Gives up to 1,000 dead letters of this stream back to the groups that gave them up" + everywhere(), word: letters}) != null) inGroup();
});
/* Where no policy names a stream: as "anabranch pending --dead-letter" does it, so that a second try adds nothing. */
async function bury(key, name, id) {
  if (letters != null) return run(["XNACK", key, name, "FATAL", "IDS", "1", id], {sure: `Moves the entry to the stream ${brief(letters)} and acknowledges it` + everywhere()});
  const [found, pending] = await Promise.all([run(["XRANGE", key, id, id], QUIET), run(["XPENDING", key, name, id, id, "1"], QUIET)]);
  if (!found || !pending || !pending.length) return;
  const [[, owner, , count]] = pending, dead = joined(key, ".dead");
  const origin = ["origin-key", key, "origin-id", id, "origin-group", name, "origin-consumer", owner, "origin-deliveries", String(count)];
  const add = ["XADD", dead, "IDMPAUTO", joined("dead-letter:", key, ":", name), "*", ...(found[0] ? found[0][1] : []), ...origin];
  if (await run(add, {sure: `Moves the entry to the stream ${brief(dead)} and acknowledges it` + everywhere()}) != null) await run(["XACK", key, name, id]);
}
setInterval(() => { if (watched && !document.hidden && !isOff()) { if (view === "stream") groups(); if (view === "group") inGroup(); } }, 3000);
/* -- acting -- */
/* As redis-cli reads and writes words: what is no text, or cannot be seen, as \xff. */
const HIDDEN = /[\0-\x1f\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/gu;
const escaped = (word) => typeof word === "object" ? hex(word, "\\x") : word.replace(HIDDEN, (c) => hex(c, "\\x"));
const quoted = (word) => typeof word === "object" ? `"${escaped(word)}"` : /^[\w.:*$+@%=\/,-]+$/.test(word) ? word : `"${escaped(word.replace(/["\\]/g, "\\$&"))}"`;
const asLine = (words) => words.map(quoted).join(" ");
const forShell = (text) => /^[\w.:+@%=/,-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
const ESCAPES = {n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07"};
const unescaped = (text) => joined(...(text.match(/\\x[\da-fA-F]{2}|\\.|[^\\]+/gu) || []).map((part) => part[0] !== "\\" ? part : part[3] ? {b64: btoa(String.fromCharCode(parseInt(part.slice(2), 16)))} : ESCAPES[part[1]] || part.slice(1)));
/* The words in a field; none if a quote is not closed. */
function words(id) {
  const line = $(id).value.trimEnd(), found = [];
  let at = 0;
  for (const [all, word] of line.matchAll(/\s*((?:[^\s"']|"(?:[^"\\]|\\.)*"(?!\S)|'(?:\\'|[^'\\]|\\(?!'))*'(?!\S))+)/gy)) {
    at += all.length;
    found.push(joined(...[...word.matchAll(/"((?:[^"\\]|\\.)*)"|'((?:\\'|[^'])*)'|[^"']+/g)].map(([bare, double, single]) => double != null ? unescaped(double) : single != null ? single.replaceAll("\\'", "'") : bare)));
  }
  if (at < line.length) refuse(id, "A quote is not closed, or text follows it");
  return at < line.length ? [] : found;
}
function refuse(id, why) { const field = $(id); field.setCustomValidity(why); field.reportValidity(); field.oninput = () => field.setCustomValidity(""); }
const QUIET = {quiet: true}, everywhere = () => state?.regions ? ", in all regions." : ".";
/* Runs a command as this user; the reply, or null after an error. Each act shows its command.
   With asks the server says of a command that deletes what to ask first. */
async function run(command, {quiet = false, sure = "", word = watched?.key, asks = false, db = watched ? watched.db : 0} = {}) {
  if (sure && !(await confirmed(command, sure, word))) return null;
  let answer;
  try {
    const response = await fetch("/api/command", {method: "POST", headers: {...headers(), "Content-Type": "application/json"}, body: JSON.stringify({command, db, ask: asks})});
    answer = await response.json();
  } catch { answer = {error: "no answer"}; }
  if (answer.ask) return await confirmed(command, answer.ask.what, answer.ask.name) ? run(command, {db}) : null;
  const error = answer.error || answer.description;
  if (!quiet || (error && !/no such key/.test(error))) note(command, error, answer.reply, quiet);
  return error ? null : answer.reply;
}
const copies = (command, label) => {
  const client = `redis-cli -p ${state ? state.port : 6379}${watched && watched.db ? " -n " + watched.db : ""}`;
  const line = command.every((word) => word === escaped(word)) ? client + " " + command.map(forShell).join(" ") : `printf '%s\\n' ${forShell(asLine(command))} | ${client}`;
  return button({class: "link", "aria-label": label, onclick: () => { if (navigator.clipboard) navigator.clipboard.writeText(line).then(() => say("Copied")); }}, "copy");
};
let lastNote = "";
function note(command, error, reply, quiet) {
  const line = asLine(command);
  if (quiet && line + error === lastNote) return;
  lastNote = quiet ? line + error : "";
  const text = error ? error : typeof reply === "string" ? reply : JSON.stringify(reply, null, 1);
  $("log").prepend(el("li", {}, el("code", {}, line), " ", copies(command, "Copy as a line of redis-cli"), el("pre", {tabindex: "0", "aria-label": "Reply"}, (error ? "✕ " : "") + String(text).slice(0, 20000))));
  while ($("log").children.length > 8) $("log").lastChild.remove();
  say(error ? "Error: " + error : "Done: " + line);
}
function confirmed(command, what, word) {
  const dialog = $("sure"), name = escaped(shown(word));
  $("sure-what").textContent = what; $("sure-command").textContent = asLine(command);
  $("sure-label").firstChild.textContent = `Type ${name} to confirm `; $("sure-name").value = "";
  const check = () => { $("sure-ok").disabled = $("sure-name").value !== name; };
  check(); $("sure-name").oninput = check;
  dialog.returnValue = ""; dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "ok"), {once: true}));
}
on("type", "submit", async () => { const found = words("line"); if (found.length) await run(found, {asks: true}); });
on("add", "submit", async () => { const found = words("pairs"); if (watched && found.length) { if (await run(["XADD", watched.key, "*", ...found]) != null) $("pairs").value = ""; } });
on("trim", "submit", async () => { if (watched && $("keep").value !== "") await run(["XTRIM", watched.key, "MAXLEN", $("keep").value], {sure: `Deletes all but the newest ${$("keep").value} entries` + everywhere()}); });
addEventListener("hashchange", () => { if ($("sure").open) $("sure").close(""); });
go();
connect();
})();
