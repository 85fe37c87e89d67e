// Conversations. Each is a tree: an edited message or a second answer is a sibling, and `pick` says which child of a node
// is shown. They are kept in this browser's localStorage, one entry for each, and nowhere else.

const LIST = "tern.chats";
const chatKey = (id) => "tern.chat." + id;
const makeId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);

function stored(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export const settings = {
  get: () => stored("tern.settings", {}),
  set: (value) => localStorage.setItem("tern.settings", JSON.stringify(value)),
};

// [{id, title, time}], newest first.
export const chatList = () => stored(LIST, []);

export function chatNew() {
  return { id: makeId(), title: "", time: Date.now(), nodes: {}, pick: {}, top: [] };
}

export function chatLoad(id) {
  const chat = stored(chatKey(id), null);
  return chat && isChat(chat) ? chat : null;
}

// The same chat may be open in another tab. Nodes are only ever added and texts only grow, so what both have made stays.
function chatMerge(chat) {
  const kept = chatLoad(chat.id);
  if (!kept) return;
  const join = (ours, theirs) => ours.push(...theirs.filter((id) => !ours.includes(id)));
  for (const [id, node] of Object.entries(kept.nodes)) {
    const own = chat.nodes[id];
    if (!own) chat.nodes[id] = node;
    else join(own.children, node.children);
    if (own && node.text.length > own.text.length) Object.assign(own, { ...node, children: own.children });
  }
  join(chat.top, kept.top);
}

// False: the browser's room for this page is used up.
export function chatSave(chat) {
  chatMerge(chat);
  const list = chatList().filter((c) => c.id !== chat.id);
  list.unshift({ id: chat.id, title: chat.title, time: chat.time });
  list.sort((a, b) => b.time - a.time);
  try {
    localStorage.setItem(chatKey(chat.id), JSON.stringify(chat));
    localStorage.setItem(LIST, JSON.stringify(list));
    return true;
  } catch {
    return false;
  }
}

// Calls on(id) when another tab has saved a chat, on(null) when one came or went.
export function chatsWatch(on) {
  addEventListener("storage", (e) => {
    if (e.key === LIST || e.key === null) on(null);
    else if (e.key.startsWith(chatKey("")) && e.newValue !== null) on(e.key.slice(chatKey("").length));
  });
}

export function chatRemove(id) {
  localStorage.removeItem(chatKey(id));
  localStorage.setItem(LIST, JSON.stringify(chatList().filter((c) => c.id !== id)));
}

// What chatSave() and the file of a chat hold; a file is not believed.
function isChat(chat) {
  if (typeof chat !== "object" || typeof chat.nodes !== "object" || !Array.isArray(chat.top)) return false;
  for (const [id, node] of Object.entries(chat.nodes)) {
    if (node.id !== id || !["user", "assistant"].includes(node.role) || typeof node.text !== "string") return false;
    if (!Array.isArray(node.children) || node.children.some((c) => chat.nodes[c]?.parent !== id)) return false;
    if (node.parent !== null && !chat.nodes[node.parent]?.children.includes(id)) return false;
  }
  return chat.top.every((id) => chat.nodes[id] && chat.nodes[id].parent === null) && typeof chat.pick === "object";
}

export function chatFromFile(text) {
  const chat = JSON.parse(text);
  if (!isChat(chat)) throw new Error("this file holds no chat of tern");
  return { ...chat, id: makeId(), title: String(chat.title ?? "").slice(0, 200), time: Date.now() };
}

export const siblings = (chat, node) => (node.parent === null ? chat.top : chat.nodes[node.parent].children);

export function nodeAdd(chat, parent, role, text) {
  const node = { id: makeId(), parent: parent ? parent.id : null, role, text, children: [] };
  chat.nodes[node.id] = node;
  siblings(chat, node).push(node.id);
  nodePick(chat, node);
  return node;
}

export function nodePick(chat, node) {
  chat.pick[node.parent ?? ""] = node.id;
}

// The nodes that are shown, from the top.
export function path(chat) {
  const nodes = [];
  for (let ids = chat.top, parent = ""; ids.length > 0;) {
    const id = ids.includes(chat.pick[parent]) ? chat.pick[parent] : ids[ids.length - 1];
    nodes.push(chat.nodes[id]);
    ids = chat.nodes[id].children;
    parent = id;
  }
  return nodes;
}

// The messages that come before a node, and it, as the server wants them.
export function messages(chat, node) {
  const list = [];
  for (let n = node; n; n = n.parent === null ? null : chat.nodes[n.parent])
    if (n.text || n.role === "user") list.unshift({ role: n.role, content: n.text }); // an answer that failed is none
  return list;
}

export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0];
  return line.length > 60 ? line.slice(0, 59) + "…" : line;
}
