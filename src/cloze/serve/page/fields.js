// The fields of a form, from their descriptions:
// { name, label, kind: "text" | "line" | "number" | "select" | "check" | "image", value, rows, hint,
//   min, max, step, options, placeholder, isCode }. The values of a form are texts; that of an image
// is a data URL, which is not in the address.

import { make } from "./dom.js";
import { ImageInput } from "./image-input.js";

export class Fields {
  // `extra` is a node between the texts and the small fields.
  constructor(panel, descriptions, onChange, extra = null) {
    this.inputs = new Map();
    this.rows = new Map();
    const isSmall = (one) => ["number", "select", "check"].includes(one.kind) || one.isShort;
    const wide = descriptions.filter((one) => !isSmall(one));
    const small = descriptions.filter(isSmall);
    const build = (one) => this.build(`${panel}-${one.name}`, one, onChange);
    this.element = make(
      "div",
      { class: "fields" },
      wide.map(build),
      extra,
      small.length ? make("div", { class: "options" }, small.map(build)) : null,
    );
    this.defaults = Object.fromEntries(descriptions.map((one) => [one.name, String(one.value ?? "")]));
  }

  build(id, field, onChange) {
    const input = field.kind === "image" ? new ImageInput(id, field.label) : makeInput(id, field);
    input.addEventListener("input", () => onChange(field.name));
    this.inputs.set(field.name, input);
    const hint = field.hint ? make("span", { class: "hint", id: `${id}-hint` }, field.hint) : null;
    if (hint) input.setAttribute("aria-describedby", hint.id);
    const label = make("label", { for: id }, field.label);
    const row = make(
      "div",
      { class: `field field-${field.kind}` },
      label,
      input.element ?? input,
      hint,
    );
    this.rows.set(field.name, row);
    return row;
  }

  read() {
    const found = {};
    for (const [name, input] of this.inputs)
      found[name] = input.type === "checkbox" ? (input.checked ? "yes" : "") : input.value;
    return found;
  }

  // What differs from the defaults, for the address.
  readChanged() {
    return Object.fromEntries(
      Object.entries(this.read()).filter(
        ([name, value]) => value !== this.defaults[name] && this.inputs.get(name).type !== "image",
      ),
    );
  }

  set(name, value) {
    const input = this.inputs.get(name);
    if (!input || input.type === "image") return;
    if (input.type === "checkbox") input.checked = value === "yes" || value === true;
    else input.value = value;
    if (input.nodeName === "SELECT" && input.selectedIndex < 0) {
      input.dataset.wanted = value; // it may become an option later
      input.selectedIndex = 0;
    }
  }

  setAll(values) {
    for (const name of this.inputs.keys()) this.set(name, values[name] ?? this.defaults[name]);
  }

  // The names of the chosen files by field, for programs.
  get fileNames() {
    const images = [...this.inputs].filter(([, input]) => input.type === "image");
    return Object.fromEntries(images.map(([name, input]) => [name, input.fileName || `${name}.png`]));
  }

  show(name, isShown) {
    const row = this.rows.get(name);
    if (row) row.hidden = !isShown;
  }
}

function makeInput(id, field) {
  const { kind, value = "", min, max, step, placeholder } = field;
  if (kind === "select") {
    const options = field.options.map(([name, text]) => make("option", { value: name }, text));
    const node = make("select", { id }, options);
    if (value) node.value = value;
    return node;
  }
  if (kind === "check") {
    const node = make("input", { id, type: "checkbox" });
    node.checked = value === "yes";
    return node;
  }
  if (kind === "text") {
    const node = make("textarea", { id, rows: field.rows ?? 4, dir: "auto", placeholder });
    node.value = value;
    return node;
  }
  const type = kind === "number" ? "number" : "text";
  const node = make("input", { id, type, min, max, step, placeholder, dir: type === "text" ? "auto" : null });
  node.value = value;
  return node;
}

export const splitLines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
export const readNumber = (text) => (text.trim() === "" ? undefined : Number(text));
// The object without the entries that are undefined or empty.
export const compact = (values) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined && value !== ""));
