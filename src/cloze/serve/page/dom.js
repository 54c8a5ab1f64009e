// Elements and the parts that several panels show. Text only ever becomes text nodes.

// make("p", { class: "note", on: { click } }, "text", child): attributes that are null, undefined
// or false are left out.
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    } else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const percent = (value) => {
  if (!Number.isFinite(value)) return "–";
  return `${(100 * value).toFixed(value >= 0.01 || value === 0 ? 1 : 2)} %`;
};
export const number = (value, digits = 3) =>
  typeof value === "number" && Number.isFinite(value) ? value.toFixed(digits) : "–";
export const count = (many, one, several = `${one}s`) =>
  `${many.toLocaleString("en")} ${many === 1 ? one : several}`;

// Bars: rows of { label, value (0 to 1), shown, pick, title }. A row with `pick` is a button.
export function makeBars(rows, { label, shown = percent } = {}) {
  const items = rows.map((row) => {
    const inside = [
      make("span", { class: "bar-label", dir: "auto" }, row.label === "" ? "(empty)" : row.label),
      make("span", { class: "bar-value" }, row.shown ?? shown(row.value)),
    ];
    const attributes = { class: `bar-row${row.best ? " best" : ""}`, title: row.title };
    const node = row.pick
      ? make("button", { ...attributes, type: "button", on: { click: row.pick } }, inside)
      : make("div", attributes, inside);
    setValue(node, row.value);
    return make("li", {}, node);
  });
  return make("ol", { class: "bar-list", "aria-label": label }, items);
}

// The value of a bar or a cell, which its style reads.
export function setValue(node, value) {
  const inside = Number.isFinite(value) ? Math.min(1, Math.max(0, value)) : 0;
  node.style.setProperty("--value", inside.toFixed(4));
  return node;
}

// The parts of a text between and inside marks { start, end, … }, which are counted in characters
// (code points) as in Python, not in UTF-16 units as in JavaScript. Marks that overlap are left out.
export function splitText(text, marks) {
  const characters = Array.from(text);
  const parts = [];
  let end = 0;
  for (const mark of [...marks].sort((a, b) => a.start - b.start || b.end - a.end)) {
    if (mark.start < end || mark.end <= mark.start) continue;
    if (mark.start > end) parts.push([characters.slice(end, mark.start).join(""), null]);
    parts.push([characters.slice(mark.start, mark.end).join(""), mark]);
    end = mark.end;
  }
  if (end < characters.length) parts.push([characters.slice(end).join(""), null]);
  return parts;
}

export function makeMarked(text, marks, render) {
  const parts = splitText(text, marks).map(([part, mark]) => (mark ? render(part, mark) : part));
  return make("p", { class: "marked", dir: "auto" }, parts);
}

// The number (0 to 11) of the hue of a label: `plot.css` has a class h0 … h11 for each.
const HUES = { PER: 6, PERSON: 6, ORG: 4, LOC: 0, GPE: 0, MISC: 10, DATE: 5, TIME: 5 };
export function findHue(label) {
  const name = /^[BIES]-/.test(label) ? label.slice(2) : label;
  if (Object.hasOwn(HUES, name.toUpperCase())) return HUES[name.toUpperCase()];
  let hash = 7;
  for (const character of name) hash = (hash * 31 + character.codePointAt(0)) % 100003;
  return hash % 12;
}

// A sentence of the server or of the page, with `code` in backticks.
export const makeSentence = (text) =>
  text.split("`").map((part, n) => (n % 2 ? make("code", {}, part) : part));

// What was not read of a text that is too long.
export const makeUnread = (chars) =>
  chars ? make("p", { class: "muted" }, `${count(chars, "character")} of the text were not read.`) : null;

// Many buttons with one tab stop: the arrow keys move between them. A container whose buttons are
// replaced gets an event `change`.
export function makeRoving(container, selector) {
  const list = () => [...container.querySelectorAll(selector)];
  const setStop = (node) => list().forEach((one) => { one.tabIndex = one === node ? 0 : -1; });
  const reset = () => setStop(list().find((one) => one === document.activeElement) ?? list()[0]);
  container.addEventListener("change", reset);
  container.addEventListener("focusin", (event) => setStop(event.target));
  container.addEventListener("keydown", (event) => {
    const nodes = list();
    const at = nodes.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = { Home: 0, End: nodes.length - 1 }[event.key] ?? at + (step ?? NaN);
    if (!(next >= 0 && next < nodes.length)) return;
    event.preventDefault();
    nodes[next].focus();
  });
  reset();
  return container;
}
