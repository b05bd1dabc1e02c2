// The one script of the pages: asks for parts and puts them in place. Without it the form still works.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

const BINARY = { k: 1024, m: 1048576 };

function tokens(text) {
  const match = /^([\d,_]+(?:\.\d+)?)\s*([km]?)$/i.exec(text.trim());
  if (!match) return NaN;
  return Math.round(Number(match[1].replace(/[,_]/g, "")) * (BINARY[match[2].toLowerCase()] || 1));
}

function tokenText(count) {
  for (const [unit, size] of [["M", BINARY.m], ["k", BINARY.k]]) {
    if (count >= size && count % size === 0) return `${count / size}${unit}`;
  }
  return String(count);
}

function say(words) {
  const place = $("#said");
  if (place && words) place.textContent = words;
}

// --- parts -----------------------------------------------------------------------------------

const shown = new Map();

/** Puts every region of an answer in its place; what did not change is left alone. */
function place(html) {
  const answer = new DOMParser().parseFromString(html, "text/html");
  for (const region of $$("[data-region]", answer)) {
    const old = document.getElementById(region.id);
    if (!old || shown.get(region.id) === region.outerHTML) continue;
    shown.set(region.id, region.outerHTML);
    const open = $$("details[open][id]", old).map((each) => each.id);
    const focused = old.contains(document.activeElement) ? focusPath(old) : null;
    old.className = region.className || old.className;
    for (const { name, value } of region.attributes) if (name.startsWith("data-")) old.setAttribute(name, value);
    old.replaceChildren(...region.childNodes);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) restoreFocus(old, focused);
    prepare(old);
  }
}

function focusPath(root) {
  const kind = document.activeElement.tagName;
  return { kind, at: $$(kind, root).indexOf(document.activeElement) };
}

function restoreFocus(root, { kind, at }) {
  $$(kind, root)[at]?.focus({ preventScroll: true });
}

async function fetchPart(name, query, signal) {
  const answer = await fetch(`/part/${name}?${query}`, { signal, credentials: "same-origin" });
  if (!answer.ok) throw new Error(String(answer.status));
  return answer.text();
}

// --- planner ---------------------------------------------------------------------------------

const form = $("#ask");
let asking = new AbortController();

/** The inputs as the address has them: what is not said is left out. */
function query() {
  const said = new URLSearchParams();
  const data = new FormData(form);
  for (const [name, value] of data) {
    if (name === "gpu" || name === "gpus" || name === "full" || !String(value).trim()) continue;
    said.set(name, String(value).trim());
  }
  said.set("on", data.get("gpus") ? `${data.get("gpus")}x${data.get("gpu")}` : data.get("gpu"));
  for (const [name, usual] of [["isl", "8k"], ["osl", "1k"], ["cached-share", "0"], ["slo", "ttft_p99=2s,tpot_p99=50ms"]]) {
    if (said.get(name) === usual) said.delete(name);
  }
  return said;
}

const later = (ms, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(new DOMException("", "AbortError")); });
  });

/** Answers a change: at once on the layout that is shown, then the search, then what takes longer. */
async function ask({ settled = true } = {}) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const said = query();
  history.replaceState(null, "", `/?${said}`);
  for (const link of $$("[data-language]")) {
    const address = new URL(link.href);
    const language = address.searchParams.get("lang");
    link.href = `/?${said}&lang=${language}`;
  }
  const verdict = $("#r-verdict");
  try {
    if (verdict.dataset.keep) {
      const quick = new URLSearchParams(said);
      quick.set("keep", verdict.dataset.keep);
      place(await fetchPart("plan", quick, signal));
    }
    if (!settled) await later(160, signal);
    place(await fetchPart("plan", said, signal));
    say(verdict.dataset.said);
    document.body.dataset.settled = String(said);
    place(await fetchPart("speed", said, signal));
    await later(250, signal);
    await slowParts(said, signal);
  } catch (error) {
    if (error.name !== "AbortError") say(String(error.message));
  }
}

async function slowParts(said, signal) {
  const planned = Boolean($("#r-verdict").dataset.keep);
  const needed = $("#r-verdict").dataset.positive !== "1" && planned;
  const fixes = $("#fixes");
  fixes.hidden = !needed;
  busy(true);
  try {
    const names = [...(needed ? ["fixes"] : []), "cost", ...(planned ? ["recipe"] : [])];
    const parts = names.map((name) => fetchPart(name, said, signal));
    for (const part of await Promise.all(parts)) place(part);
    document.body.dataset.complete = String(said);
  } finally {
    busy(false);
  }
}

function busy(is) {
  const place = $("#busy");
  if (place) place.hidden = !is;
}

function setUpSlider(slider) {
  const { low, high, step } = Object.fromEntries(
    Object.entries(slider.dataset).map(([name, value]) => [name, Number(value)]),
  );
  const range = $("input[type=range]", slider);
  const field = $("input[name]", slider);
  const isTokens = field.name === "context";
  const show = (count) => (isTokens ? tokenText(count) : String(count));
  const read = () => (isTokens ? tokens(field.value) : Number(field.value));
  range.addEventListener("input", () => {
    const raw = low * 2 ** (Number(range.value) / 4);
    const count = Math.min(high, Math.max(low, Math.round(raw / step) * step || step));
    field.value = show(count);
    range.setAttribute("aria-valuetext", field.value);
    ask({ settled: false });
  });
  field.addEventListener("change", () => {
    const count = read();
    const bad = !(count >= 1);
    field.setAttribute("aria-invalid", String(bad));
    if (!bad) {
      range.value = String(Math.round(Math.log2(Math.min(high, Math.max(low, count)) / low) * 4));
      range.setAttribute("aria-valuetext", field.value);
    }
    ask();
  });
}

function setUpPlanner() {
  for (const slider of $$("[data-slider]", form)) setUpSlider(slider);
  for (const button of $$("[data-copy-link], button[data-part]")) button.hidden = false;
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  document.addEventListener("change", (event) => {
    const input = event.target;
    if (input.form !== form || input.closest("[data-slider]")) return;
    if (input.matches("[data-reload], [data-rack][name=gpu]")) {
      const said = query();
      if (input.matches("[data-reload]")) for (const name of ["variant", "engine"]) said.delete(name);
      location.assign(`/?${said}`);
      return;
    }
    ask();
  });
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-copy-link]");
    if (link) copy(link, location.href);
    const part = event.target.closest("button[data-part]");
    if (part) {
      part.disabled = true;
      busy(true);
      try {
        place(await fetchPart(part.dataset.part, query(), new AbortController().signal));
      } finally {
        part.disabled = false;
        busy(false);
      }
    }
  });
  document.body.dataset.settled = String(query());
  asking = new AbortController();
  slowParts(query(), asking.signal).catch(() => busy(false));
}

// --- bars ------------------------------------------------------------------------------------

/** Arrow keys walk the pieces of the bars; the readout says what is pointed at. */
function setUpBars(root) {
  const bars = $("[data-bars]", root);
  const readout = $("[data-readout]", root);
  if (!bars || !readout) return;
  const rows = $$(".bar-picture", bars).map((bar) => $$(".piece", bar)).filter((row) => row.length);
  const tell = (piece) => { readout.textContent = piece ? piece.getAttribute("aria-label") : readout.dataset.idle; };
  bars.addEventListener("mouseover", (event) => tell(event.target.closest(".piece")));
  bars.addEventListener("mouseleave", () => tell(null));
  bars.addEventListener("focusin", (event) => tell(event.target.closest(".piece")));
  bars.addEventListener("keydown", (event) => {
    const row = rows.findIndex((pieces) => pieces.includes(event.target));
    if (row < 0) return;
    const at = rows[row].indexOf(event.target);
    const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    const next = rows[Math.min(rows.length - 1, Math.max(0, row + move[0]))];
    const piece = next[Math.min(next.length - 1, Math.max(0, at + move[1]))];
    event.target.setAttribute("tabindex", "-1");
    piece.setAttribute("tabindex", "0");
    piece.focus();
  });
}

// --- live ------------------------------------------------------------------------------------

const LOOK_MS = 2000;

/** Looks again and again while the page is seen; an admin key stays in this page's memory only. */
function setUpLive() {
  let key = "";
  const nobody = new AbortController().signal;
  const showKeys = async () => {
    const answer = await fetch("/part/keys", { headers: { Authorization: `Bearer ${key}` } });
    place(await answer.text());
  };
  const keyForm = $("#key-form");
  keyForm.hidden = false;
  keyForm.addEventListener("submit", (event) => {
    event.preventDefault();
    key = keyForm.elements.key.value.trim();
    keyForm.elements.key.value = "";
    showKeys().catch((error) => say(error.message));
  });
  const look = async () => {
    try {
      if (!document.hidden) place(await fetchPart("live", "", nobody));
    } catch (error) {
      say(error.message);
    }
    setTimeout(look, LOOK_MS);
  };
  setTimeout(look, LOOK_MS);
}

// --- everywhere ------------------------------------------------------------------------------

async function copy(button, words) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(words);
    button.textContent = button.dataset.done;
    say(button.dataset.done);
  } catch {
    say(words);
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}

function prepare(root) {
  setUpBars(root);
  for (const button of $$("[data-copy]", root)) {
    button.addEventListener("click", () => copy(button, document.getElementById(button.dataset.copy).textContent));
  }
}

const THEMES = ["auto", "light", "dark"];

function setUpTheme() {
  const button = $("[data-theme-button]");
  const apply = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = button.dataset[theme];
  };
  let theme = "auto";
  try { theme = localStorage.getItem("heavylift-theme") || "auto"; } catch { /* no storage: automatic */ }
  if (!THEMES.includes(theme)) theme = "auto";
  apply(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    apply(theme);
    try { localStorage.setItem("heavylift-theme", theme); } catch { /* not kept */ }
  });
}

setUpTheme();
prepare(document);
if (form) setUpPlanner();
if ($("[data-live]")) setUpLive();
