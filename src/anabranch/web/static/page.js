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
const svg = (tag, attrs, ...children) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attrs || {})) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
/* Only cells that changed are replaced, so that a press of a button, the focus and a selection last.
   What a button does must follow from its text and attributes, as those are what is compared. */
const fill = (body, rows) => {
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
const nothing = (columns, text) => [el("tr", {}, el("td", {colspan: columns, class: "dim"}, text))];
const shown = (raw) => typeof raw === "object" && raw !== null ? "0x" + [...atob(raw.b64)].map((c) => c.charCodeAt(0).toString(16).padStart(2, "0")).join("") : String(raw);
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
const num = (n) => n == null ? "–" : n >= 1e6 ? (n / 1e6).toFixed(1) + "M" : n >= 1e4 ? (n / 1e3).toFixed(n >= 1e5 ? 0 : 1) + "k" : String(n >= 100 ? Math.round(n) : Math.round(n * 10) / 10);
const size = (n) => { let u = 0; while (n >= 1024 && u < 4) { n /= 1024; u++; } return (u ? n.toFixed(1) : Math.round(n)) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][u]; };
const span = (ms) => ms == null ? "–" : ms < 1000 ? Math.round(ms) + " ms" : ms < 10000 ? (ms / 1000).toFixed(1) + " s" : ms < 180000 ? Math.round(ms / 1000) + " s" : ms < 3600000 ? Math.round(ms / 60000) + " min" : (ms / 3600000).toFixed(1) + " h";
const clock = (ms) => new Date(ms).toLocaleTimeString([], {hour12: false});
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const say = (text) => { $("spoken").textContent = text; };

/* -- who asks ------------------------------------------------------------------------------ */
let credentials = sessionStorage.getItem("anabranch") || "";
if (location.hash.startsWith("#token=")) {
  credentials = "Bearer " + decodeURIComponent(location.hash.slice(7));
  sessionStorage.setItem("anabranch", credentials);
  history.replaceState(null, "", location.pathname + location.search);
}
const headers = () => credentials ? {Authorization: credentials} : {};
$("sign").addEventListener("click", () => $("login").showModal());
$("login").addEventListener("close", () => {
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
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  makeCharts(); soon(); drawAll();
});

/* -- the feed ------------------------------------------------------------------------------ */
let state = null, running = null, heardAt = 0, watched = null, paused = false;
const placeQuery = (place) => "db=" + place.db + "&" + (typeof place.key === "object" ? "key64=" + encodeURIComponent(place.key.b64) : "key=" + encodeURIComponent(place.key));
async function connect() {
  if (running) running.abort();
  const mine = running = new AbortController();
  while (running === mine) {
    try {
      const answer = await fetch("/events" + (watched ? "?" + placeQuery(watched) : ""), {headers: headers(), signal: mine.signal, cache: "no-store"});
      if (!answer.ok) {
        const problem = await answer.json().catch(() => ({description: answer.statusText}));
        offline(problem.description, answer.status === 401);
      } else await read(answer.body.getReader());
    } catch (problem) {
      if (mine.signal.aborted) return;
      offline("the server does not answer");
    }
    if (running === mine) { offline("connection lost"); await new Promise((done) => setTimeout(done, 1000)); }
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
setInterval(() => { if (heardAt && Date.now() - heardAt > 4000 && !document.body.classList.contains("off")) offline("nothing heard of this region for " + span(Date.now() - heardAt)); }, 1000);
const badge = (at, kind, text) => { at.className = "badge " + kind; if (at.textContent !== text) at.textContent = text; at.hidden = false; };

/* -- regions ------------------------------------------------------------------------------- */
const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
const indexOf = (region) => Math.max(0, (state && state.regions || []).findIndex((each) => each.region === region));
const colour = (region) => css("--r" + indexOf(region) % 5);
/* The region that made an ID: a server numbers the IDs of one millisecond so that it shows. */
const madeBy = (id) => { const number = Number(BigInt(id.split("-")[1]) % 256n); return (state && state.regions || []).some((each) => each.region === number) ? number : 0; };
const nameOf = (region) => { const found = (state && state.regions || []).find((each) => each.region === region); return found ? found.name : region ? "region " + region : "this server"; };
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
      const missing = (peer.lag_effects || 0) + (peer.receive_lag_effects || 0);
      sub = kind === "good" ? (peer.round_trip_ms == null ? "" : peer.round_trip_ms.toFixed(1) + " ms") : missing ? num(missing) + " missing" : peer.heard_ms > STALE_MS ? "heard " + span(peer.heard_ms) + " ago" : "";
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
    if (!peer && count > 3) [label, sub] = [label.slice(0, 1), ""]; /* there is no room for more */
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
  fill($("links").tBodies[0], state.peers.map((peer) => {
    const [kind, label] = worded(peer), cut = peer.state === "cut";
    const button = (text, label, words) => el("button", {type: "button", disabled: !acts, "data-k": text + peer.region, "aria-label": label + " the link with " + peer.name, onclick: () => run(["AB.LINK", peer.name, ...words])}, text);
    return el("tr", {"data-region": peer.name, "data-state": peer.state}, el("th", {scope: "row"}, mark(peer.region), " ", peer.name), el("td", {}, el("span", {class: "badge " + kind}, label)),
      el("td", {}, el("span", {class: "acts in"}, cut || peer.delay_ms ? button("Heal", "Heal", ["RESUME"]) : button("Cut", "Cut", ["PAUSE"]), cut || peer.delay_ms ? null : button("Slow", "Slow down by 300 ms", ["DELAY", "300", "100"]))),
      el("td", {class: "n"}, num(peer.lag_effects)), el("td", {class: "n"}, num(peer.receive_lag_effects)), el("td", {class: "n"}, peer.lag_s == null ? "–" : span(peer.lag_s * 1000)),
      el("td", {class: "n"}, peer.round_trip_ms == null ? "–" : peer.round_trip_ms.toFixed(1) + " ms"), el("td", {class: "n"}, peer.heard_ms == null ? "never" : span(peer.heard_ms)));
  }));
  $("isolate").disabled = !acts || state.peers.every((peer) => peer.state === "cut");
  $("heal").disabled = !acts || !state.peers.some((peer) => peer.state === "cut" || peer.delay_ms);
  $("isolate").textContent = "Isolate " + state.name;
  $("link-why").textContent = acts ? "" : !state.links_can_be_cut ? "Links can be cut where the server was started with enable-debug-command." : "Sign in to cut, slow and heal links.";
  showMatrix(peers);
  const states = state.peers.map((peer) => peer.name + " " + worded(peer)[1].slice(2)).join(", ");
  if (spokenStates && states !== spokenStates) say(states);
  spokenStates = states;
}
const mark = (region) => svg("svg", {width: 14, height: 14, viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false"}, svg("path", {d: shapePath(shapeOf(region), 8, 8, 5.5), fill: colour(region)}));
const each = (what) => (button) => $(button).addEventListener("click", async () => { for (const peer of state.peers) await run(["AB.LINK", peer.name, what]); });
each("PAUSE")("isolate"); each("RESUME")("heal");

let wholeSince = 0, wasWhole = null;
function showMatrix(peers) {
  const regions = state.regions, ages = new Map(state.matrix.map((row) => [row.holder, row.age_ms]));
  let missing = 0, stale = null;
  const fault = state.peers.find((peer) => peer.state === "cut" || peer.state === "unreachable");
  const silent = new Set(state.peers.filter((peer) => peer.state === "cut" || peer.state === "unreachable").map((peer) => peer.region));
  const calm = state.peers.every((peer) => peer.state === "in_sync" && (peer.lag_s || 0) < 1 && (peer.receive_lag_s || 0) < 1);
  fill($("matrix").tHead, [el("tr", {}, el("td", {}, ""), regions.map((each) => el("th", {scope: "col"}, "of ", mark(each.region), " ", each.name)))]);
  fill($("matrix").tBodies[0], state.matrix.map((row) => el("tr", {}, el("th", {scope: "row"}, mark(row.holder), " ", nameOf(row.holder), row.holder === state.region ? " (this)" : ""), regions.map((each) => {
    const lacking = row.missing && row.missing[each.region];
    const age = Math.max(row.age_ms == null ? Infinity : row.age_ms, ages.get(each.region) == null ? Infinity : ages.get(each.region));
    const old = age > STALE_MS || [row.holder, each.region].some((region) => silent.has(region));
    if (age > STALE_MS && (stale == null || age > stale)) stale = age;
    missing += lacking || 0;
    const text = lacking == null ? "?" : lacking + (old ? "+" : "");
    const kind = row.holder === each.region && !lacking ? "self" : lacking ? (calm && !old ? "warn" : "bad") : old || lacking == null ? "warn" : "good";
    return el("td", {class: kind, "data-cell": nameOf(row.holder) + "/" + each.name, title: `${nameOf(row.holder)} lacks ${text} effects of ${each.name}` + (old ? `, told ${age === Infinity ? "never" : span(age) + " ago"}` : "")}, text);
  }))));
  const whole = stale == null && !fault && (!missing || calm && wasWhole === true && missing < 1000);
  if (whole && !wasWhole) { wholeSince = state.now_ms; if (wasWhole === false) say("All regions have converged"); }
  wasWhole = whole;
  if (whole) badge($("converged"), "good", "✓ converged since " + clock(wholeSince) + (missing ? `, ${missing} under way` : ""));
  else if (missing) badge($("converged"), "bad", "✕ apart: " + num(missing) + " effects missing");
  else badge($("converged"), "warn", "? " + (fault ? fault.name + " is " + worded(fault)[1].slice(2) : "nothing heard for " + (stale === Infinity ? "ever" : span(stale))));
  $("matrix-say").textContent = whole ? missing ? "Every region has everything but what is under way now." : "Every region has everything that any region has." : missing ? "Equal effects make equal data: regions differ until these have arrived." : `What ${silent.size ? [...silent].map(nameOf).join(" and ") : "the others"} may lack is not known at present.`;
}

/* -- figures ------------------------------------------------------------------------------- */
const samples = [[], [], [], [], [], []];
const sparks = new Map(), traffic = new Map();
let lastSent = null, lastSurvey = -1;
function takeStatus(next) {
  const first = !state;
  state = next;
  document.body.classList.remove("off");
  const name = state.regions ? state.name : "port " + state.port;
  document.title = "Anabranch " + name;
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
  const s = state.survey;
  totals([[num(state.per_second.commands), "commands/s"], [num(s.added_rate), "entries added/s"], [num(s.entries), "entries"], [num(s.streams), "streams"], [num(s.groups), "groups"], [num(s.lag), "lag of groups"], [num(s.pending), "pending"], [num(state.clients), "clients"]]);
  $("rate-say").textContent = state.survey_age_s > 5 ? `Figures of streams were taken ${state.survey_age_s} s ago: with many streams they come less often.` : "";
  showRegions();
  if (s.count && s.count !== lastSurvey) {
    lastSurvey = s.count;
    const rates = s.count > 1 ? [s.added_rate, s.delivered_rate, s.acknowledged_rate] : [null, null, null]; /* it takes two */
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
  if (first) { makeCharts(); list(); }
  if (!watched && state.streams.length) watch(state.streams[0].db, state.streams[0].key, true);
}
function totals(items) {
  const list = $("totals");
  if (list.children.length !== items.length) list.replaceChildren(...items.map(() => el("li", {}, el("b", {}, ""), el("span", {}, ""))));
  items.forEach(([value, label], index) => { const [b, s] = list.children[index].children; if (b.textContent !== value) b.textContent = value; s.textContent = label; });
}
let rateChart = null, lagChart = null;
const CHART_PX = 190;
function makeCharts() {
  const make = (id, series) => {
    $(id).replaceChildren();
    const axis = {stroke: css("--dim"), grid: {stroke: css("--line"), width: 1}, ticks: {stroke: css("--line")}};
    const latest = (u, v, index) => v ?? (u.data[index] || []).at(-1); /* where there is no cursor */
    return new uPlot({width: Math.max(240, $(id).clientWidth), height: CHART_PX, cursor: {drag: {x: false, y: false}}, scales: {y: {range: (u, low, high) => [0, Math.max(1, high * 1.1)]}}, axes: [{...axis, space: 90, values: (u, v) => v.map((s) => clock(s * 1000))}, {...axis, size: 48, values: (u, v) => v.map(num)}],
      series: [{label: "at", value: (u, v, i) => clock(latest(u, v, i) * 1000)}, ...series.map(([label, name, dash]) => ({label, stroke: css(name), width: 2, dash, points: {show: false}, value: (u, v, i) => num(latest(u, v, i))}))]}, [[]], $(id));
  };
  if (!window.uPlot) return;
  rateChart = make("rate-chart", [["added/s", "--r0"], ["given/s", "--r2", [6, 4]], ["acked/s", "--r1", [2, 3]]]);
  lagChart = make("lag-chart", [["lag", "--r3"], ["pending", "--r4", [6, 4]]]);
  feedCharts();
}
function feedCharts() {
  if (rateChart) rateChart.setData([samples[0], samples[1], samples[2], samples[3]]);
  if (lagChart) lagChart.setData([samples[0], samples[4], samples[5]]);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (state) { makeCharts(); drawAll(); soon(); } });
addEventListener("resize", () => { for (const [chart, id] of [[rateChart, "rate-chart"], [lagChart, "lag-chart"]]) if (chart) chart.setSize({width: Math.max(240, $(id).clientWidth), height: CHART_PX}); });
const spark = (values) => {
  const high = Math.max(1, ...values), line = values.map((v, i) => (i * 120 / Math.max(1, values.length - 1)).toFixed(1) + "," + (18 - 16 * v / high).toFixed(1)).join(" ");
  return svg("svg", {width: 120, height: 20, viewBox: "0 0 120 20", role: "img", "aria-label": "at most " + num(Math.max(0, ...values)) + " a second"}, svg("polyline", {points: line, fill: "none", stroke: css("--r0"), "stroke-width": 1.5}));
};
const open = (row, text) => el("button", {type: "button", class: "link", "data-k": row.db + JSON.stringify(row.key), onclick: () => watch(row.db, row.key)}, text || shown(row.key) + (row.db ? ` (db ${row.db})` : ""));
function drawAll() {
  if (!state) return;
  feedCharts();
  const busy = [...state.streams].sort((a, b) => b.added_rate - a.added_rate || b.lag - a.lag || b.length - a.length).slice(0, 8);
  fill($("busy").tBodies[0], busy.length ? busy.map((row) => el("tr", {}, el("th", {scope: "row"}, open(row)), el("td", {}, spark(sparks.get(row.db + JSON.stringify(row.key)) || [])), ...[row.added_rate, row.delivered_rate, row.acknowledged_rate, row.lag].map((n) => el("td", {class: "n"}, num(n))))) : nothing(6, "There are no streams yet. Add an entry: XADD key * field value"));
  $("known").replaceChildren(...busy.map((row) => el("option", {value: shown(row.key)})));
  showHeat(); showProducers(); showMemory();
}
function showHeat() {
  const columns = ["< 1 s", "< 10 s", "< 1 min", "< 10 min", "older"];
  fill($("heat").tHead, [el("tr", {}, el("th", {scope: "col"}, "Group"), ...columns.map((text) => el("th", {scope: "col"}, text)), el("th", {scope: "col"}, "Delivered once · twice · 3–4 · more"))]);
  const most = Math.max(1, ...state.heat.flatMap((row) => row.ages));
  fill($("heat").tBodies[0], state.heat.length ? state.heat.map((row) => {
    const sum = Math.max(1, row.deliveries.reduce((a, b) => a + b, 0));
    return el("tr", {}, el("th", {scope: "row"}, open(row, shown(row.key) + " / " + shown(row.group)), row.count > row.looked_at ? el("span", {class: "dim"}, ` ${num(row.looked_at)} of ${num(row.count)}`) : null),
      ...row.ages.map((n) => { const cell = el("td", {class: "c"}, n ? num(n) : ""); if (n) cell.style.background = `rgba(${css("--heat")},${(.08 + .3 * Math.log(1 + n) / Math.log(1 + most)).toFixed(2)})`; return cell; }),
      el("td", {}, row.deliveries.map((n) => Math.round(100 * n / sum) + " %").join(" · ")));
  }) : nothing(7, "Nothing is pending."));
}
const bar = (share) => { const inside = el("i"); inside.style.width = Math.min(100, 100 * share).toFixed(1) + "%"; return el("div", {class: "bar", "aria-hidden": "true"}, inside); };
function showProducers() {
  const rows = state.streams.filter((row) => row.attempts).sort((a, b) => b.duplicates - a.duplicates || b.attempts - a.attempts).slice(0, 8);
  fill($("producers").tBodies[0], rows.length ? rows.map((row) => {
    const short = row.window_ms < row.duration_s * 1000;
    return el("tr", {}, el("th", {scope: "row"}, open(row)), el("td", {class: "n"}, `${num(row.duplicates)} / ${num(row.attempts)}`),
      el("td", {}, bar(row.window_ms / (row.duration_s * 1000)), `${span(row.window_ms)} of ${span(row.duration_s * 1000)}` + (short ? " — too small" : "")),
      el("td", {}, bar(row.remembered / Math.max(1, row.room)), `${num(row.remembered)} of ${num(row.room)}`));
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
  fill($("memory").tBodies[0], rows.map(([cause, n]) => el("tr", {}, el("th", {scope: "row"}, cause), el("td", {}, bar(n / Math.max(1, m.used_bytes))), el("td", {class: "n"}, size(n)))));
}

/* -- the timeline -------------------------------------------------------------------------- */
let points = [], arrivals = new Map(), about = {groups: []}, fresh = [], tailedAt = 0;
const KEPT = 4000, ROWS = 100;
/* Drawn once in a frame at most, and only where it can be seen: layout is asked for once, too. */
let canvasWidth = 0, inView = true, frame = 0, drawnAt = 0;
const soon = () => { if (inView && !frame) frame = requestAnimationFrame(() => { frame = 0; draw(); }); };
new ResizeObserver((seen) => { canvasWidth = Math.round(seen[seen.length - 1].contentRect.width); soon(); }).observe($("timeline"));
new IntersectionObserver((seen) => { inView = seen[seen.length - 1].isIntersecting; soon(); }).observe($("timeline"));
function watch(db, key, quietly) {
  watched = {db, key};
  points = []; arrivals = new Map(); about = {groups: []}; fresh = [];
  $("watch-key").value = shown(key);
  connect();
  if (!quietly) { openStream(); $("s-stream").scrollIntoView({block: "nearest"}); $("h-stream").focus({preventScroll: true}); }
}
$("watch").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("watch-key").value, known = state && state.streams.find((row) => shown(row.key) === text);
  if (text) watch(known ? known.db : 0, known ? known.key : text);
});
const toggle = (id, act) => $(id).addEventListener("click", () => { const on = $(id).getAttribute("aria-pressed") !== "true"; $(id).setAttribute("aria-pressed", on); act(on); });
toggle("pause", (on) => { paused = on; if (!on) soon(); });
$("span").addEventListener("change", soon);
function takeEntries(seen) {
  if (!watched) return;
  if (seen.error) { $("timeline-say").textContent = seen.error; return; }
  about = seen;
  if (seen.first) { points = []; arrivals = new Map(); }
  const here = state ? state.region : 0;
  for (const entry of seen.entries) {
    entry.ms = +entry.id.split("-")[0];
    points.push(entry);
    if (entry.region !== here && !seen.first) arrivals.set(entry.id + "/" + here, entry.at);
  }
  if (points.length > KEPT) points.splice(0, points.length - KEPT);
  noteArrivals(seen.applied, seen.first ? BEFORE : seen.now_ms);
  if (!$("s-stream").hidden && tailing) { fresh = [...fresh, ...seen.entries].slice(-ROWS); showFresh(); }
  if (!paused) soon();
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
function draw() {
  drawnAt = performance.now();
  const canvas = $("timeline"), ratio = devicePixelRatio || 1, width = canvasWidth || canvas.clientWidth, regions = state && state.regions || [{region: 0, name: "entries"}];
  const lane = Math.max(34, Math.min(62, 190 / regions.length)), height = regions.length * lane + 26;
  canvas.parentNode.style.height = height + "px";
  if (canvas.width !== width * ratio || canvas.height !== height * ratio) { canvas.width = width * ratio; canvas.height = height * ratio; }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  if (!state) return;
  const ink = css("--ink"), dim = css("--dim"), line = css("--line"), warn = css("--warn");
  const seconds = +$("span").value, newest = points.length ? Math.max(points[points.length - 1].ms, points[Math.max(0, points.length - 50)].ms) : 0;
  const end = newest && newest < state.now_ms - seconds * 1000 ? newest + seconds * 50 : state.now_ms + 500, from = end - seconds * 1000;
  const left = 78, x = (ms) => left + (ms - from) / (end - from) * (width - left - 12), lanes = new Map(regions.map((each, index) => [each.region, (index + .5) * lane])), y = (region) => lanes.get(region) ?? lane / 2;
  c.font = "12px system-ui, sans-serif"; c.textBaseline = "middle";
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900].find((s) => seconds / s <= width / 110) || 1800;
  c.textAlign = "center";
  for (let t = Math.ceil(from / 1000 / step) * step; t * 1000 < end; t += step) {
    c.strokeStyle = line; c.beginPath(); c.moveTo(x(t * 1000), 0); c.lineTo(x(t * 1000), height - 22); c.stroke();
    c.fillStyle = dim; c.fillText(clock(t * 1000), x(t * 1000), height - 10);
  }
  c.textAlign = "left";
  const path = new Map(), dots = new Map();
  for (const each of regions) {
    const at = y(each.region), paint = colour(each.region);
    c.strokeStyle = line; c.beginPath(); c.moveTo(left, at); c.lineTo(width - 12, at); c.stroke();
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
      c.strokeStyle = path.get(entry.region) || dim; c.lineWidth = 1.5;
      c.beginPath(); c.moveTo(ax, ay - lane * .3); c.lineTo(ax, ay - lane * .12); c.stroke(); c.lineWidth = 1;
    }
    c.fillStyle = path.get(entry.region) || dim;
    c.translate(px, py); c.fill(dots.get(entry.region) || dots.values().next().value); c.translate(-px, -py);
    if (entry.late) { c.strokeStyle = warn; c.lineWidth = 2; c.beginPath(); c.arc(px, py, 9, 0, 7); c.stroke(); c.lineWidth = 1; }
  }
  const tallest = Math.max(1, ...bars.values());
  for (const [id, n] of bars) { const [region, slot] = id.split("/").map(Number), h = Math.max(3, lane * .7 * n / tallest); c.fillStyle = path.get(region) || dim; c.fillRect(slot * 4, y(region) - h / 2, 3, h); }
  for (const group of about.groups || []) {
    const ms = +group.at.split("-")[0];
    if (ms < from || ms > end) continue;
    c.strokeStyle = ink; c.setLineDash([4, 3]); c.beginPath(); c.moveTo(x(ms), 0); c.lineTo(x(ms), height - 22); c.stroke(); c.setLineDash([]);
    const label = "▸ " + shown(group.name); c.fillStyle = ink; c.textAlign = x(ms) > width - 120 ? "right" : "left"; c.fillText(label, x(ms) + (x(ms) > width - 120 ? -4 : 4), 8); c.textAlign = "left";
  }
  const text = !watched ? "Choose a stream." : `${shown(watched.key)}: ${num(about.length || 0)} entries; shown: ${points.length}` + (seen.size && state.regions ? " (" + [...seen].map(([region, n]) => nameOf(region) + " " + n).join(", ") + ")" : "") + (late ? `; ${late} came late: a reader by XREAD that was at the end skips them, AB.READ and groups do not` : "") + (about.passed_over ? `; ${num(about.passed_over)} passed over, too fast to show` : "");
  if ($("timeline-say").textContent !== text) { $("timeline-say").textContent = text; canvas.setAttribute("aria-label", "Timeline. " + text); }
  if (!$("legend").children.length) $("legend").append(...(state.regions ? ["shape and colour: the writing region", "tick: another region received it", "◯ ring: it came late"] : []).concat("dashed line: how far a group was given entries").map((words) => el("li", {}, words)));
}
setInterval(() => {
  if (document.hidden || document.body.classList.contains("off")) return;
  showFresh();
  if (watched && !paused && performance.now() - drawnAt > 450) soon();
}, 500);

/* -- browsing ------------------------------------------------------------------------------ */
let offset = 0;
const PAGE = 20, DEEPEST = 2000;
async function list() {
  const query = `sort=${$("sort").value}&search=${encodeURIComponent($("search").value)}&offset=${offset}&limit=${PAGE}`;
  const answer = await fetch("/api/streams?" + query, {headers: headers()}).then((r) => r.ok ? r.json() : null).catch(() => null);
  if (!answer) return;
  fill($("streams").tBodies[0], answer.streams.length ? answer.streams.map((row) => el("tr", {}, el("th", {scope: "row"}, open(row)), el("td", {class: "of-regions", hidden: !(state && state.regions)}, state && state.regions ? row.regions.map((each) => el("span", {class: "chip"}, mark(each), " ", nameOf(each))) : null), ...[row.length, row.added_rate, row.groups, row.lag, row.pending].map((n) => el("td", {class: "n"}, num(n))), el("td", {class: "n"}, size(row.size)))) : nothing(8, "No stream has this in its name."));
  $("found").textContent = answer.count ? `${answer.offset + 1}–${answer.offset + answer.streams.length} of ${answer.count}` : "none";
  $("earlier").hidden = !offset; $("more").hidden = offset + PAGE >= Math.min(answer.count, DEEPEST);
}
$("find").addEventListener("submit", (event) => { event.preventDefault(); offset = 0; list(); });
$("sort").addEventListener("change", () => { offset = 0; list(); });
$("more").addEventListener("click", () => { offset += PAGE; list(); });
$("earlier").addEventListener("click", () => { offset = Math.max(0, offset - PAGE); list(); });
setInterval(() => { if (state && !document.hidden && document.activeElement !== $("search")) list(); }, 5000);

let tailing = true, group = null;
function openStream() {
  $("s-stream").hidden = false;
  $("h-stream").textContent = "Stream " + shown(watched.key);
  $("group").hidden = true; group = null;
  tailing = true; $("tail").setAttribute("aria-pressed", "true"); $("from").value = "";
  fill($("entries").tBodies[0], []);
  groups();
}
const pretty = (value) => { const text = shown(value); if (/^\s*[[{]/.test(text)) try { return JSON.stringify(JSON.parse(text)); } catch { /* it is text */ } return text; };
const fieldsOf = ({fields, left_out: more, is_cut: cut}) => { const parts = []; for (let i = 0; i < fields.length; i += 2) parts.push(el("span", {class: "f"}, el("b", {}, shown(fields[i]) + " "), pretty(fields[i + 1]))); if (more) parts.push(el("span", {class: "dim"}, `and ${more} more `)); if (cut) parts.push(el("span", {class: "dim"}, "(long values are cut: Look shows them)")); return parts; };
const wanted = (fields) => { const [name, ...rest] = $("filter").value.split("="), value = rest.join("="); if (!name) return true; for (let i = 0; i < fields.length; i += 2) if (shown(fields[i]) === name && (!rest.length || shown(fields[i + 1]).includes(value))) return true; return false; };
const entryRow = (entry) => el("tr", {class: entry.late ? "late" : ""}, el("td", {}, el("time", {title: new Date(entry.ms).toISOString()}, entry.id)), el("td", {}, entry.region ? [mark(entry.region), " ", nameOf(entry.region)] : ""), el("td", {}, fieldsOf(entry), entry.left_out || entry.is_cut ? null : copies(["XADD", watched.key, "*", ...entry.fields], `Copy ${entry.id} as a line of redis-cli`)));
function tail(entries) {
  const body = $("entries").tBodies[0];
  body.prepend(...entries.filter((entry) => wanted(entry.fields)).reverse().slice(0, ROWS).map(entryRow));
  while (body.rows.length > ROWS) body.deleteRow(-1);
}
/* A few new rows come at once, a flood once a second: nobody reads it faster. */
function showFresh() {
  if (!fresh.length || fresh.length > 20 && performance.now() - tailedAt < 1000) return;
  tailedAt = performance.now();
  tail(fresh.splice(0));
}
toggle("tail", (on) => { tailing = on; if (on) { fill($("entries").tBodies[0], []); fresh = []; tail(points.slice(-ROWS)); } });
$("filter").addEventListener("change", () => { if (tailing) { fill($("entries").tBodies[0], []); fresh = []; tail(points.slice(-ROWS)); } });
$("range").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!watched) return;
  tailing = false; $("tail").setAttribute("aria-pressed", "false");
  const text = $("from").value.trim();
  let start = text;
  if (text && !/^\d+(-\d+)?$/.test(text)) {
    const day = new Date().toLocaleDateString("sv"), when = Date.parse(/^\d\d?:/.test(text) ? day + "T" + text : text);
    if (isNaN(when)) { say("This is neither an ID nor a time"); $("from").setAttribute("aria-invalid", "true"); return; }
    start = String(when);
  }
  $("from").removeAttribute("aria-invalid");
  const reply = await run(text ? ["XRANGE", watched.key, start, "+", "COUNT", "100"] : ["XREVRANGE", watched.key, "+", "-", "COUNT", "100"], {quiet: true});
  if (reply == null) return;
  const known = new Map(points.map((point) => [point.id, point]));
  const rows = reply.filter(([, fields]) => wanted(fields)).map(([id, fields]) => entryRow(known.get(id) || {id, fields, ms: +id.split("-")[0], region: madeBy(id)}));
  fill($("entries").tBodies[0], rows.length ? rows : nothing(3, "No entry there."));
});
const pairsOf = (list) => Object.fromEntries(list.map(([name, value]) => [shown(name), value]));
async function groups() {
  if (!watched) return;
  const reply = await run(["XINFO", "GROUPS", watched.key], {quiet: true});
  if (!reply) { fill($("groups").tBodies[0], nothing(5, "–")); return; }
  const rows = reply.map(pairsOf);
  const lags = new Map((about.groups || []).map((each) => [shown(each.name), each.lag]));
  fill($("groups").tBodies[0], rows.length ? rows.map((row) => el("tr", {}, el("th", {scope: "row"}, el("button", {type: "button", class: "link", "data-k": "g" + shown(row.name), onclick: () => { group = row.name; inGroup(true); }}, shown(row.name))), el("td", {class: "n"}, num(row.consumers)), el("td", {class: "n"}, num(row.lag ?? lags.get(shown(row.name)))), el("td", {class: "n"}, num(row.pending)), el("td", {}, shown(row["last-delivered-id"])))) : nothing(5, "No consumer group."));
}
async function inGroup(focus) {
  if (group == null) return;
  const [consumers, pending] = await Promise.all([run(["XINFO", "CONSUMERS", watched.key, group], {quiet: true}), run(["XPENDING", watched.key, group, "-", "+", "50"], {quiet: true})]);
  if (!consumers || !pending) { $("group").hidden = true; return; }
  $("group").hidden = false; $("h-group").textContent = "Group " + shown(group);
  if (focus) $("h-group").focus();
  const rows = consumers.map(pairsOf), can = state && state.may_act, name = group, key = watched.key;
  fill($("consumers").tBodies[0], rows.length ? rows.map((row) => el("tr", {}, el("th", {scope: "row"}, shown(row.name)), el("td", {class: "n"}, num(row.pending)), el("td", {class: "n"}, span(row.idle)))) : nothing(3, "No consumer."));
  const others = (owner) => rows.filter((row) => !same(row.name, owner));
  fill($("pending").tBodies[0], pending.length ? pending.map(([id, owner, idle, count]) => {
    const act = (text, what, start) => el("button", {type: "button", disabled: !can, "data-k": text + id + JSON.stringify([key, name]), "aria-label": what, onclick: async () => { await start(); inGroup(); groups(); }}, text);
    const to = others(owner)[0];
    return el("tr", {}, el("td", {}, id), el("td", {}, shown(owner) || "released"), el("td", {class: "n"}, span(idle)), el("td", {class: "n"}, num(count)), el("td", {}, el("span", {class: "acts in"},
      act("Ack", "Ack " + id, () => run(["XACK", key, name, id], {sure: "The group will not be given this entry again."})),
      to ? act("Claim", `Claim ${id} for ${shown(to.name)}`, () => run(["XCLAIM", key, name, to.name, "0", id])) : null,
      shown(owner) ? act("Release", "Release " + id, () => run(["XNACK", key, name, "FAIL", "IDS", "1", id])) : null,
      act("Bury", `Bury ${id}: move it to the dead letters`, () => bury(key, name, id, owner, count)))));
  }) : nothing(5, "Nothing is pending."));
}
/* As "anabranch pending --dead-letter" does it, so that a second try adds nothing. */
async function bury(key, name, id, owner, count) {
  const found = await run(["XRANGE", key, id, id], {quiet: true});
  if (!found) return;
  const origin = ["origin-key", key, "origin-id", id, "origin-group", name, "origin-consumer", owner, "origin-deliveries", String(count)];
  const add = ["XADD", shown(key) + ".dead", "IDMPAUTO", `dead-letter:${shown(key)}:${shown(name)}`, "*", ...(found[0] ? found[0][1] : []), ...origin];
  if (await run(add, {sure: `Moves the entry to the stream ${shown(key)}.dead and acknowledges it.`}) != null) await run(["XACK", key, name, id]);
}
setInterval(() => { if (watched && !$("s-stream").hidden && !document.hidden && !document.body.classList.contains("off")) { groups(); if (group != null) inGroup(); } }, 3000);

/* -- acting -------------------------------------------------------------------------------- */
const quoted = (word) => { const text = shown(word); return /^[\w.:*$+@%=\/,-]+$/.test(text) ? text : JSON.stringify(text); };
/* For a shell: bytes that are no text, and control characters, as $'...' */
const forShell = (word) => {
  if (typeof word === "object") return "$'" + [...atob(word.b64)].map((c) => "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0")).join("") + "'";
  const text = String(word);
  if (/^[\w.:+@%=/,-]+$/.test(text)) return text;
  return /[\0-\x1f]/.test(text) ? "$'" + text.replace(/[\\']/g, "\\$&").replace(/[\0-\x1f]/g, (c) => "\\x" + c.charCodeAt(0).toString(16).padStart(2, "0")) + "'" : "'" + text.replaceAll("'", "'\\''") + "'";
};
const asLine = (words) => words.map(quoted).join(" ");
function words(line) {
  const found = [];
  for (const [, double, single, bare] of line.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'|(\S+)/g)) found.push(double != null ? double.replace(/\\(.)/g, (_, c) => ({n: "\n", t: "\t", r: "\r"})[c] || c) : single ?? bare);
  return found;
}
/* Runs a command as this user; the reply, or null after an error. Each act shows its command. */
async function run(command, {quiet = false, sure = "", db = watched ? watched.db : 0} = {}) {
  if (sure && !(await confirmed(command, sure))) return null;
  let answer;
  try {
    const response = await fetch("/api/command", {method: "POST", headers: {...headers(), "Content-Type": "application/json", "X-Anabranch-Act": "1"}, body: JSON.stringify({command, db})});
    answer = await response.json();
  } catch { answer = {error: "the server does not answer"}; }
  const error = answer.error || answer.description;
  if (!quiet || (error && !/no such key/.test(error))) note(command, error, answer.reply, quiet);
  return error ? null : answer.reply;
}
const copies = (command, label) => {
  const line = `redis-cli -p ${state ? state.port : 6379}${watched && watched.db ? " -n " + watched.db : ""} ` + command.map(forShell).join(" ");
  return el("button", {type: "button", class: "link", "aria-label": label, onclick: () => { if (navigator.clipboard) navigator.clipboard.writeText(line).then(() => say("Copied")); }}, "copy");
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
function confirmed(command, what) {
  const dialog = $("sure"), name = watched ? shown(watched.key) : "";
  $("sure-what").textContent = what; $("sure-command").textContent = asLine(command);
  $("sure-label").firstChild.textContent = `Type ${name} to confirm `; $("sure-name").value = "";
  const check = () => { $("sure-ok").disabled = $("sure-name").value !== name; };
  check(); $("sure-name").oninput = check;
  dialog.returnValue = ""; dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "ok"), {once: true}));
}
$("type").addEventListener("submit", async (event) => { event.preventDefault(); const found = words($("line").value); if (found.length) await run(found); });
$("add").addEventListener("submit", async (event) => { event.preventDefault(); const found = words($("pairs").value); if (watched && found.length) { if (await run(["XADD", watched.key, "*", ...found]) != null) $("pairs").value = ""; } });
$("trim").addEventListener("submit", async (event) => { event.preventDefault(); if (watched && $("keep").value !== "") await run(["XTRIM", watched.key, "MAXLEN", $("keep").value], {sure: `Deletes all but the newest ${$("keep").value} entries, in all regions.`}); });

connect();
})();
