// Markdown as models write it, into elements. Text only ever becomes text nodes: nothing of an answer is read as HTML, and
// links are http, https or mailto.

const make = (tag, attributes = {}, ...children) => {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  e.append(...children);
  return e;
};

const INLINE = /(`+)([\s\S]*?[^`])\1(?!`)|\*\*(?=\S)([\s\S]*?\S)\*\*|__(?=\S)([\s\S]*?\S)__|\*(?=\S)([\s\S]*?\S)\*|(?<!\w)_(?=\S)([\s\S]*?\S)_(?!\w)|~~(?=\S)([\s\S]*?\S)~~|\[([^\]\n]+)\]\(([^)\s]+)\)|(https?:\/\/[^\s<>()"'`]+[^\s<>()"'`.,;:!?])|\\([\\`*_{}[\]()#+\-.!~|>])/;
const DEPTH_MAX = 6;

function linkPut(out, href, label) {
  const safe = /^(https?:|mailto:)/i.test(href);
  if (!safe) return out.append(...label);
  out.append(make("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...label));
}

function inlinePut(out, text, depth = 0) {
  while (text) {
    const m = depth < DEPTH_MAX ? INLINE.exec(text) : null;
    if (!m) return out.append(text);
    if (m.index > 0) out.append(text.slice(0, m.index));
    const inner = (tag, s) => {
      const e = make(tag);
      inlinePut(e, s, depth + 1);
      out.append(e);
    };
    if (m[2] !== undefined) out.append(make("code", {}, m[2].trim() || m[2]));
    else if (m[3] ?? m[4]) inner("strong", m[3] ?? m[4]);
    else if (m[5] ?? m[6]) inner("em", m[5] ?? m[6]);
    else if (m[7]) inner("del", m[7]);
    else if (m[8]) {
      const label = make("span");
      inlinePut(label, m[8], depth + 1);
      linkPut(out, m[9], label.childNodes);
    } else if (m[10]) linkPut(out, m[10], [m[10]]);
    else out.append(m[11]);
    text = text.slice(m.index + m[0].length);
  }
}

// A list or a quotation stands on the side from which its first letter is read: dir="auto" does not look into elements
// that have a direction of their own, and the paragraphs inside do.
const sideOf = (text) => (/[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u
  .test(/\p{L}/u.exec(text)?.[0] ?? "") ? "rtl" : "ltr");

// Each paragraph, heading and cell runs in the direction of its own first letters.
function withInline(tag, text) {
  const e = make(tag, { dir: "auto" });
  inlinePut(e, text);
  return e;
}

function codeBlock(language, text) {
  const copy = make("button", { type: "button", class: "icon", "aria-label": "Copy this code", title: "Copy" });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const use = document.createElementNS("http://www.w3.org/2000/svg", "use");
  use.setAttribute("href", "#i-copy");
  svg.append(use);
  copy.append(svg);
  copy.addEventListener("click", () => copy.dispatchEvent(new CustomEvent("copytext", { bubbles: true, detail: text })));
  return make("div", { class: "block" }, make("div", {}, make("span", {}, language), copy),
    make("pre", { tabindex: "0", dir: "ltr" }, make("code", {}, text)));
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));
const isRule = (line) => /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(line) && line.includes("-");

function tablePut(out, lines, at) {
  const sides = cells(lines[at + 1]).map((c) => (!c.endsWith(":") ? "" : c.startsWith(":") ? "center" : "right"));
  const row = (tag, line) => {
    const tr = make("tr", {}, ...cells(line).map((c) => withInline(tag, c)));
    for (const [i, cell] of [...tr.children].entries()) if (sides[i]) cell.className = sides[i];
    return tr;
  };
  const head = row("th", lines[at]);
  const body = make("tbody");
  for (at += 2; at < lines.length && lines[at].includes("|"); at++) body.append(row("td", lines[at]));
  out.append(make("div", { class: "table" }, make("table", {}, make("thead", {}, head), body)));
  return at;
}

const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

// A list with the lists inside it, by indentation.
function listPut(out, lines, at, depth) {
  const [, indent, mark, first] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const list = make(ordered ? "ol" : "ul", { dir: sideOf(first) });
  if (ordered && parseInt(mark, 10) !== 1) list.setAttribute("start", parseInt(mark, 10));
  let inside = [];
  let item = null;
  const close = () => {
    if (item) blocksPut(item, inside, depth + 1, true);
    inside = [];
  };
  for (; at < lines.length; at++) {
    const m = ITEM.exec(lines[at]);
    const spaces = lines[at].length - lines[at].trimStart().length;
    if (m && m[1].length <= indent.length + 1) {
      if (m[1].length < indent.length || /\d/.test(m[2]) !== ordered) break;
      close();
      item = make("li");
      list.append(item);
      inside.push(m[3].replace(/^\[([ xX])\]\s+/, (_, done) => (done === " " ? "☐ " : "☑ ")));
    } else if (!lines[at].trim()) {
      const next = lines[at + 1] ?? "";
      if (!ITEM.test(next) && next.length - next.trimStart().length <= indent.length) break;
      inside.push("");
    } else if (spaces > indent.length || inside[inside.length - 1] !== "") {
      inside.push(lines[at].slice(Math.min(spaces, indent.length + mark.length + 1)));
    } else break;
  }
  close();
  out.append(list);
  return at;
}

function blocksPut(out, lines, depth = 0, tight = false) {
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = /^\s{0,3}(`{3,}|~{3,})\s*([^`\s]*)/.exec(line);
    if (fence) {
      const code = [];
      for (at++; at < lines.length && !lines[at].trim().startsWith(fence[1]); at++) code.push(lines[at]);
      out.append(codeBlock(fence[2], code.join("\n")));
      at++;
      continue;
    }
    const heading = /^\s{0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (heading) {
      out.append(withInline("h" + Math.min(heading[1].length, 4), heading[2]));
      at++;
    } else if (/^\s{0,3}([-*_])\s*(\1\s*){2,}$/.test(line)) {
      out.append(make("hr"));
      at++;
    } else if (depth < DEPTH_MAX && ITEM.test(line)) {
      at = listPut(out, lines, at, depth);
    } else if (depth < DEPTH_MAX && /^\s{0,3}>/.test(line)) {
      const inside = [];
      for (; at < lines.length && /^\s{0,3}>/.test(lines[at]); at++) inside.push(lines[at].replace(/^\s{0,3}> ?/, ""));
      const quote = make("blockquote", { dir: sideOf(inside.join(" ")) });
      blocksPut(quote, inside, depth + 1);
      out.append(quote);
    } else if (line.includes("|") && isRule(lines[at + 1] ?? "")) {
      at = tablePut(out, lines, at);
    } else if (!line.trim()) {
      at++;
    } else {
      const text = [line];
      for (at++; at < lines.length && lines[at].trim() && !/^\s{0,3}(#{1,6}\s|>|`{3,}|~{3,})/.test(lines[at]) &&
        !ITEM.test(lines[at]) && !isRule(lines[at + 1] ?? ""); at++) text.push(lines[at]);
      const p = withInline("p", text.map((l) => l.trim()).join("\n"));
      for (const node of [...p.childNodes]) // line ends of the answer stay line ends
        if (node.nodeType === Node.TEXT_NODE && node.data.includes("\n"))
          node.replaceWith(...node.data.split("\n").flatMap((t, i) => (i ? [make("br"), t] : [t])));
      if (tight && !out.hasChildNodes()) out.append(...p.childNodes); // further ones of an item are paragraphs
      else out.append(p);
    }
  }
}

export function markdown(out, text) {
  out.replaceChildren();
  blocksPut(out, text.replaceAll("\r", "").split("\n"));
}
