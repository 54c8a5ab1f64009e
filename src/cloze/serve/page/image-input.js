// A field for an image of the reader's machine: it is shown, and sent with the request only.

import { make } from "./dom.js";

const TYPES = "image/png,image/jpeg,image/webp,image/gif,image/bmp,image/tiff";
const LARGEST = 4 << 20; // bytes, as on the server

export class ImageInput {
  type = "image";
  value = ""; // a data URL
  fileName = "";

  constructor(id, label) {
    this.label = label;
    this.input = make("input", { id, type: "file", accept: TYPES });
    this.preview = make("span", { class: "preview" });
    this.problem = make("span", { class: "hint", role: "alert" });
    this.button = make("button", { type: "button", hidden: true, title: `Remove: ${label}`, on: { click: () => this.clear() } }, "Remove");
    this.element = make("div", { class: "image-input" }, this.input, this.button, this.problem, this.preview);
    this.listeners = [];
    this.input.addEventListener("change", () => this.read());
  }

  addEventListener(_, listener) { this.listeners.push(listener); }
  setAttribute(name, value) { this.input.setAttribute(name, value); }

  clear() {
    this.input.value = "";
    this.show("", "");
    this.input.focus();
  }

  read() {
    const [file] = this.input.files;
    if (!file) return this.show("", "");
    if (file.size > LARGEST) return this.show("", "", `The file is larger than ${LARGEST >> 20} MiB.`);
    const reader = new FileReader();
    reader.addEventListener("load", () => this.show(reader.result, file.name));
    reader.addEventListener("error", () => this.show("", "", "The file cannot be read."));
    reader.readAsDataURL(file);
  }

  show(value, fileName, problem = "") {
    Object.assign(this, { value, fileName });
    this.problem.textContent = problem;
    this.button.hidden = !value;
    this.preview.replaceChildren(...(value ? [make("img", { src: value, alt: `${this.label}: ${fileName}` })] : []));
    for (const listener of this.listeners) listener();
  }
}
