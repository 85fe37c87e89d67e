// The chat page: what is shown, and what keys and buttons do.
import { answer, models } from "./page_stream.js";
import { markdown } from "./page_markdown.js";
import * as tree from "./page_tree.js";

const $ = (id) => document.getElementById(id);
const input = $("input");
const log = $("log");
const scroll = $("scroll");

let chat = tree.chatNew();
let settings = tree.settings.get();
let served = []; // models of the server
let running = null; // {chat, node, abort, turn}: the answer that is being made
let retry = 0; // timer: the server was not to be reached
let editing = null; // id of the node that is being edited

const element = (tag, attributes = {}, ...children) => {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
};

function icon(name, label, click) {
  const b = element("button", { type: "button", class: "icon", title: label, "aria-label": label });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", "#i-" + name);
  svg.append(use);
  b.append(svg);
  b.addEventListener("click", click);
  return b;
}

// heard: for readers of screens; others see it anyway.
function say(text, bad = false, heard = false) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", bad);
  $("status").classList.toggle("heard", heard);
}

// Pages of another machine without TLS have no navigator.clipboard.
async function copy(text) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else {
      const area = element("textarea", { readonly: "" });
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      if (!done) throw new Error();
    }
    say("Copied.");
    setTimeout(() => $("status").textContent === "Copied." && say(""), 1500);
  } catch {
    say("The browser did not let the text be copied.", true);
  }
}

function save(which = chat) {
  if (!tree.chatSave(which)) say("This browser's room for chats is used up: remove some, or save them as files.", true);
}

// ---------------------------------------------------------------------------------------------------------- statistics

const number = (v, digits = 1) => v.toLocaleString(undefined, { maximumFractionDigits: digits });

// What the last chunks of a stream tell, and what the page itself saw.
function statsOf(usage, timings, energy, firstMs) {
  const s = { firstMs };
  if (usage) {
    s.prompt = usage.prompt_tokens;
    s.answer = usage.completion_tokens;
    s.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  }
  if (timings) {
    s.speed = timings.predicted_per_second ?? undefined;
    if (timings.draft_rounds > 0) s.accepted = timings.draft_n_accepted / timings.draft_rounds;
    else if (timings.draft_n > 0) s.acceptedShare = timings.draft_n_accepted / timings.draft_n;
  }
  if (typeof energy?.joules === "number") s.joules = energy.joules;
  return s;
}

function statsPut(out, s) {
  const item = (value, unit, title) => out.append(element("span", { title }, element("b", {}, value), " " + unit));
  if (s.speed) item(number(s.speed), "tok/s", "Tokens of the answer in a second");
  if (s.answer) item(number(s.answer, 0), "tokens", "Tokens of the answer");
  if (s.firstMs !== undefined)
    item(s.firstMs < 1000 ? number(s.firstMs, 0) : number(s.firstMs / 1000, 2), s.firstMs < 1000 ? "ms to first" : "s to first",
      "From sending to the first piece of the answer");
  if (s.prompt) item(number(s.prompt, 0), s.cached ? `read (${number(s.cached, 0)} cached)` : "read", "Tokens of the prompt, and those that were known from before");
  if (s.accepted !== undefined) item(number(s.accepted, 2), "accepted a round", "Guessed tokens that were right, in each round");
  else if (s.acceptedShare !== undefined) item(number(100 * s.acceptedShare, 0) + " %", "of guesses accepted", "Guessed tokens that were right");
  if (s.joules !== undefined) item(number(s.joules), "J", "Energy of this answer, as the machine's meters say");
}

function roomShow() {
  const model = served.find((m) => m.id === $("model").value);
  const last = tree.path(chat).findLast((n) => n.stats?.prompt);
  const room = $("room");
  const used = last ? last.stats.prompt + (last.stats.answer ?? 0) : 0;
  const all = model?.meta?.n_ctx;
  room.textContent = used ? (all ? `${number(used, 0)} / ${number(all, 0)}` : number(used, 0)) : "";
  room.classList.toggle("full", Boolean(all) && used > 0.9 * all);
}

// ---------------------------------------------------------------------------------------------------------- the log

function branchPut(out, node) {
  const all = tree.siblings(chat, node);
  if (all.length < 2) return;
  const at = all.indexOf(node.id);
  const go = (to) => () => branchGo(node, to);
  const left = icon("left", "Earlier version", go(at - 1));
  const right = icon("right", "Later version", go(at + 1));
  left.disabled = at === 0;
  right.disabled = at === all.length - 1;
  out.append(element("span", { class: "branch" }, left, `${at + 1} / ${all.length}`, right));
}

function branchGo(node, to) {
  const all = tree.siblings(chat, node);
  if (running || to < 0 || to >= all.length) return;
  tree.nodePick(chat, chat.nodes[all[to]]);
  save();
  show();
}

function footPut(turn, node) {
  const foot = element("div", { class: "foot" });
  const tools = element("span", { class: "tools" });
  branchPut(foot, node);
  tools.append(icon("copy", "Copy", () => copy(node.text)));
  if (node.role === "user") tools.append(icon("edit", "Edit", () => editOpen(node)));
  else tools.append(icon("again", "Answer again", () => again(node)));
  foot.append(tools);
  if (node.stats) {
    const stats = element("span", { class: "stats" });
    statsPut(stats, node.stats);
    foot.append(stats);
  }
  if (node.end) foot.append(element("span", { class: "stats" }, node.end));
  turn.append(foot);
}

function thinkPut(out, node, open) {
  if (!node.reasoning) return;
  const details = element("details", { class: "think" }, element("summary", {}, "Thoughts"));
  const text = element("div");
  markdown(text, node.reasoning);
  details.open = open;
  details.append(text);
  out.append(details);
}

function answerPut(turn, node) {
  const body = element("div", { class: "body" });
  markdown(body, node.text);
  if (node.reasoning) {
    const think = document.createDocumentFragment();
    thinkPut(think, node, false);
    body.prepend(think);
  }
  for (const call of node.calls ?? [])
    body.append(element("div", { class: "block" }, element("div", {}, "calls " + call.name), element("pre", {}, element("code", {}, call.arguments))));
  turn.append(body);
  if (!node.fault) return;
  const fault = element("div", { class: "fault", role: "alert" }, node.fault);
  const retry = element("button", { type: "button" }, "Try again");
  retry.addEventListener("click", () => again(node));
  fault.append(retry);
  turn.append(fault);
}

function editPut(turn, node) {
  const text = element("textarea", { rows: "1", dir: "auto", "aria-label": "Edit your message" });
  const cancel = element("button", { type: "button" }, "Cancel");
  const send = element("button", { type: "button", class: "main" }, "Send");
  const close = () => {
    editing = null;
    show();
    input.focus();
  };
  const go = () => {
    if (!text.value.trim()) return;
    editing = null;
    ask(node.parent === null ? null : chat.nodes[node.parent], text.value);
  };
  text.value = node.text;
  text.addEventListener("input", () => grow(text));
  text.addEventListener("keydown", (e) => {
    if (e.key === "Escape") close();
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
      e.preventDefault();
      go();
    }
    if (e.key === "Escape") e.stopPropagation();
  });
  cancel.addEventListener("click", close);
  send.addEventListener("click", go);
  turn.append(element("div", { class: "edit" }, text, element("div", { class: "ends" }, cancel, send)));
  requestAnimationFrame(() => {
    grow(text);
    text.focus();
  });
}

function turnMake(node) {
  const turn = element("article", { class: "turn " + node.role, "aria-label": node.role === "user" ? "You" : "Answer" });
  if (editing === node.id) {
    editPut(turn, node);
    return turn;
  }
  if (node.role === "user") turn.append(element("div", { class: "body", dir: "auto" }, node.text));
  else answerPut(turn, node);
  footPut(turn, node);
  return turn;
}

const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; };

function show() {
  const nodes = tree.path(chat);
  log.replaceChildren(...nodes.map(turnMake));
  $("empty").hidden = nodes.length > 0;
  document.title = chat.title ? chat.title + " · tern" : "tern";
  if (running && nodes.includes(running.node)) running.turn = log.lastElementChild;
  roomShow();
  listShow();
}

// ---------------------------------------------------------------------------------------------------------- answers

const FIELDS = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];

function requestOf(node) {
  const body = { model: $("model").value, messages: tree.messages(chat, node) };
  if (settings.system) body.messages.unshift({ role: "system", content: settings.system });
  for (const name of FIELDS) if (settings[name] !== undefined) body[name] = settings[name];
  const stop = (settings.stop ?? "").split("\n").filter((s) => s);
  if (stop.length > 0) body.stop = stop;
  return body;
}

// An answer that is being made: redrawn at most once a frame.
function liveDraw(run, waiting) {
  if (run.drawn) return;
  run.drawn = requestAnimationFrame(() => {
    run.drawn = 0;
    if (!run.turn?.isConnected) return;
    const stay = atEnd();
    const body = element("div", { class: "body" });
    if (run.node.text) markdown(body, run.node.text);
    const think = document.createDocumentFragment();
    thinkPut(think, run.node, !run.node.text);
    body.prepend(think);
    if (waiting() !== null)
      body.append(element("div", { class: "wait" }, element("i"), element("i"), element("i"), element("span", {}, waiting())));
    run.turn.replaceChildren(body);
    if (stay) toEnd();
  });
}

function callsTake(node, deltas) {
  node.calls ??= [];
  for (const d of deltas) {
    node.calls[d.index] ??= { name: "", arguments: "" };
    node.calls[d.index].name += d.function?.name ?? "";
    node.calls[d.index].arguments += d.function?.arguments ?? "";
  }
}

// A server that has just begun says for a while that its model is being loaded: the question waits for it.
async function whenLoaded(signal, ask, on) {
  for (;;) {
    try {
      return await ask();
    } catch (e) {
      if (e.code !== "model_loading") throw e;
      on();
      await new Promise((go) => {
        const timer = setTimeout(go, 700);
        signal.addEventListener("abort", () => (clearTimeout(timer), go()), { once: true });
      });
      signal.throwIfAborted();
    }
  }
}

const ENDS = { length: "cut at the limit of tokens", tool_calls: "" };

async function run(node) {
  const begin = performance.now();
  const own = chat; // another may be opened meanwhile
  const live = { chat: own, node, abort: new AbortController(), turn: null, drawn: 0 };
  let wait = "";
  let first;
  let usage, timings, energy;
  const waiting = () => (node.text || (node.reasoning && first) ? null : wait);
  running = live;
  save();
  show();
  sendShow();
  liveDraw(live, waiting);
  toEnd();
  say("");
  const asked = requestOf(chat.nodes[node.parent]);
  try {
    await whenLoaded(live.abort.signal, () => answer(asked, {
      signal: live.abort.signal,
      key: settings.key,
      on(chunk) {
        usage = chunk.usage ?? usage;
        timings = chunk.timings ?? timings;
        energy = chunk.energy ?? energy;
        const p = chunk.prompt_progress;
        if (p && p.total > 0 && performance.now() - begin > 400) wait = `reading ${Math.floor((100 * p.processed) / p.total)} %`;
        const choice = chunk.choices?.[0];
        const delta = choice?.delta ?? {};
        if (delta.content || delta.reasoning_content || delta.tool_calls) first ??= performance.now() - begin;
        if (delta.content) node.text += delta.content;
        if (delta.reasoning_content) node.reasoning = (node.reasoning ?? "") + delta.reasoning_content;
        if (delta.tool_calls) callsTake(node, delta.tool_calls);
        if (choice?.finish_reason) node.end = ENDS[choice.finish_reason] || undefined;
        liveDraw(live, waiting);
      },
    }), () => {
      wait = "the model is being loaded";
      liveDraw(live, waiting);
    });
    node.stats = statsOf(usage, timings, energy, first);
    if (retry) modelsShow();
  } catch (e) {
    if (e.name === "AbortError") node.end = "stopped";
    else node.fault = e instanceof TypeError ? "The server cannot be reached. Is `tern serve` running?" : e.message;
    if (e.status === 401) settingsOpen("The server wants an API key.");
  }
  running = null;
  cancelAnimationFrame(live.drawn);
  own.time = Date.now();
  save(own);
  const stay = atEnd();
  show();
  if (stay) toEnd();
  sendShow();
  if (own === chat) say(node.fault ? "" : node.end === "stopped" ? "Stopped." : "Done.", false, true);
}

function ask(parent, text) {
  if (running || !text.trim()) return;
  const question = tree.nodeAdd(chat, parent, "user", text);
  chat.title ||= tree.titleOf(text);
  run(tree.nodeAdd(chat, question, "assistant", ""));
}

function again(node) {
  if (running) return;
  run(tree.nodeAdd(chat, chat.nodes[node.parent], "assistant", ""));
}

function editOpen(node) {
  if (running) return;
  editing = node.id;
  show();
}

function stop() {
  running?.abort.abort();
}

function sendShow() {
  const b = $("send");
  b.title = running ? "Stop (Esc)" : "Send (Enter)";
  b.setAttribute("aria-label", running ? "Stop" : "Send");
  b.querySelector("use").setAttribute("href", running ? "#i-stop" : "#i-send");
  b.disabled = !running && !input.value.trim();
}

// ---------------------------------------------------------------------------------------------------------- chats

const DAY = 24 * 3600 * 1000;
const age = (time) => {
  const today = new Date().setHours(0, 0, 0, 0);
  return time >= today ? "Today" : time >= today - DAY ? "Yesterday" : time >= today - 7 * DAY ? "This week" : "Earlier";
};

function listShow() {
  const wanted = $("find").value.trim().toLowerCase();
  const list = $("chats");
  let part = "";
  list.replaceChildren();
  for (const c of tree.chatList()) {
    if (wanted && !c.title.toLowerCase().includes(wanted) && !JSON.stringify(tree.chatLoad(c.id)?.nodes ?? {}).toLowerCase().includes(wanted)) continue;
    if (age(c.time) !== part) list.append(element("h3", {}, (part = age(c.time))));
    const open = element("button", { type: "button", title: c.title }, c.title || "Untitled");
    open.addEventListener("click", () => chatOpen(tree.chatLoad(c.id) ?? tree.chatNew()));
    const row = element("div", { class: "chat", "aria-current": String(c.id === chat.id) }, open);
    row.append(icon("bin", "Remove this chat", () => chatDrop(c)));
    list.append(row);
  }
}

function chatOpen(next) {
  stop();
  chat = next;
  editing = null;
  sideOpen(false);
  show();
  toEnd();
  say("");
  input.focus();
}

function chatDrop(c) {
  if (!confirm(`Remove "${c.title || "Untitled"}"?`)) return;
  tree.chatRemove(c.id);
  if (c.id === chat.id) chatOpen(tree.chatNew());
  else listShow();
}

function chatExport() {
  const url = URL.createObjectURL(new Blob([JSON.stringify(chat, null, 1)], { type: "application/json" }));
  element("a", { href: url, download: (chat.title || "chat").replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 50) + ".json" }).click();
  URL.revokeObjectURL(url);
}

async function chatImport(file) {
  try {
    chatOpen(tree.chatFromFile(await file.text()));
    save();
    listShow();
  } catch (e) {
    say("Not opened: " + e.message, true);
  }
}

function sideOpen(open) {
  document.body.classList.toggle("open", open);
  $("menu").setAttribute("aria-expanded", String(open));
  $("shade").hidden = !open;
}

// ---------------------------------------------------------------------------------------------------------- settings

function settingsOpen(note) {
  const form = $("settings").querySelector("form");
  for (const name of [...FIELDS, "system", "stop", "key"]) form.elements[name].value = settings[name] ?? "";
  if (note) say(note, true);
  $("settings").returnValue = "";
  if (!$("settings").open) $("settings").showModal();
}

function settingsTake() {
  const form = $("settings").querySelector("form");
  settings = {};
  if ($("settings").returnValue !== "clear") {
    for (const name of FIELDS) {
      const v = form.elements[name].valueAsNumber;
      if (!Number.isNaN(v)) settings[name] = v;
    }
    for (const name of ["system", "stop", "key"]) if (form.elements[name].value) settings[name] = form.elements[name].value;
  }
  tree.settings.set(settings);
  modelsShow();
  input.focus();
}

async function modelsShow() {
  clearTimeout(retry);
  try {
    served = await models(settings.key);
  } catch (e) {
    if (e.status === 401) return settingsOpen("The server wants an API key.");
    say(e instanceof TypeError ? "The server cannot be reached. Is `tern serve` running?" : e.message, true);
    retry = setTimeout(modelsShow, 3000);
    return;
  }
  if (retry) say("");
  retry = 0;
  const kept = localStorage.getItem("tern.model");
  $("model").replaceChildren(...served.map((m) => element("option", { value: m.id }, m.id)));
  if (served.some((m) => m.id === kept)) $("model").value = kept;
  const chosen = served.find((m) => m.id === $("model").value), meta = chosen?.meta;
  $("model").title = meta ? `${meta.architecture ?? ""} ${meta.format ?? ""}, context ${number(meta.n_ctx, 0)}`.trim() : "Model";
  roomShow();
  if (chosen?.status?.value === "loading") setTimeout(modelsShow, 2000);
}

function themeNext() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("tern.theme", root.dataset.theme);
}

// ---------------------------------------------------------------------------------------------------------- keys

function grow(area) {
  area.style.height = "auto";
  area.style.height = Math.min(area.scrollHeight, innerHeight * 0.4) + "px";
}

function submit() {
  if (running) return;
  const text = input.value;
  if (!text.trim()) return;
  input.value = "";
  grow(input);
  ask(tree.path(chat).at(-1) ?? null, text);
}

function keyGlobal(e) {
  const mod = e.ctrlKey || e.metaKey;
  const typing = e.target.matches("input, textarea, select");
  const last = tree.path(chat).at(-1);
  if (document.querySelector("dialog[open]")) return;
  if (e.key === "Escape") {
    if (running) stop();
    else sideOpen(false);
  } else if (mod && e.shiftKey && e.key.toLowerCase() === "o") chatOpen(tree.chatNew());
  else if (mod && e.key === ",") settingsOpen();
  else if (e.altKey && (e.key === "ArrowLeft" || e.key === "ArrowRight") && last)
    branchGo(last, tree.siblings(chat, last).indexOf(last.id) + (e.key === "ArrowLeft" ? -1 : 1));
  else if (e.altKey && e.key.toLowerCase() === "r" && last?.role === "assistant") again(last);
  else if (!typing && e.key === "/") input.focus();
  else if (!typing && e.key === "?") $("keys").showModal();
  else if (e.target === input && e.key === "ArrowUp" && !input.value) {
    const mine = tree.path(chat).findLast((n) => n.role === "user");
    if (mine) editOpen(mine);
    else return;
  } else return;
  e.preventDefault();
}

// Another tab has saved or removed something.
function otherTab(id) {
  if (id === chat.id && !running && editing === null) {
    const stay = atEnd();
    chat = tree.chatLoad(id) ?? chat;
    show();
    if (stay) toEnd();
  } else listShow();
}

// A page that goes in the middle of an answer keeps what it has of it.
function leave() {
  if (!running) return;
  running.node.end = "broken off";
  save(running.chat);
}

function begin() {
  const theme = localStorage.getItem("tern.theme");
  if (theme) document.documentElement.dataset.theme = theme;
  if (!/^(localhost|127\..*|\[::1\])$/.test(location.hostname))
    $("where").textContent = `The model runs on ${location.hostname}; your chats are kept in this browser.`;
  $("compose").addEventListener("submit", (e) => {
    e.preventDefault();
    if (running) stop();
    else submit();
  });
  input.addEventListener("input", () => {
    grow(input);
    sendShow();
  });
  input.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    submit();
  });
  log.addEventListener("copytext", (e) => copy(e.detail));
  document.addEventListener("keydown", keyGlobal);
  $("new").addEventListener("click", () => chatOpen(tree.chatNew()));
  $("menu").addEventListener("click", () => sideOpen(!document.body.classList.contains("open")));
  $("shade").addEventListener("click", () => sideOpen(false));
  $("find").addEventListener("input", listShow);
  $("theme").addEventListener("click", themeNext);
  $("tune").addEventListener("click", () => settingsOpen());
  $("help").addEventListener("click", () => $("keys").showModal());
  $("settings").addEventListener("close", settingsTake);
  $("model").addEventListener("change", () => {
    localStorage.setItem("tern.model", $("model").value);
    modelsShow();
  });
  $("export").addEventListener("click", chatExport);
  $("import").addEventListener("click", () => $("file").click());
  $("file").addEventListener("change", () => {
    if ($("file").files[0]) chatImport($("file").files[0]);
    $("file").value = "";
  });
  tree.chatsWatch(otherTab);
  addEventListener("pagehide", leave);
  show();
  sendShow();
  modelsShow();
  input.focus();
}

begin();
