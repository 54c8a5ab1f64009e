// One panel: its form, its result, its messages, and the request as a program.
//
// A panel is one file in panels/ and one line in panels.js. It is an object with
//   name, title, summary    name in the address, text of the tab, one sentence
//   functions               names of functions, all of which the model must have
//   route                   "api/…"
//   fields                  the form (fields.js)
//   body(values, model)     the request without `model`
//   show(result, context)   the nodes of the result
// and, where it differs from others,
//   action                  text of the button ("Run")
//   setup(context)          nodes between form and result, made once
//   makeExtra(context)      a node between the texts and the small fields, made once
//   update(context)         called when a field or the model changes
//   check(values)           a sentence on what is missing, if it cannot run yet
//   run(context)            in place of one request and `show`
//   request(values, model)  { path, body, isStream, out } of the programs, where it is not the route
//   clear(context)          remove what `setup` and `run` have shown
//   isLive                  whether it runs again while the text is edited
//   obstacle(model)         why a model does not work, in place of `functions`
// `context` is the panel: values(), set(name, value), run(), model, output, setStatus, signal.

import { postJson } from "./api.js";
import { make, makeSentence } from "./dom.js";
import { Fields } from "./fields.js";
import { copyText, writeCurl, writePython } from "./snippets.js";

const PAUSE = 700; // milliseconds without an input, after which a live panel runs

export class Panel {
  constructor(definition, app) {
    this.definition = definition;
    this.app = app;
    this.model = null;
    this.aborter = new AbortController();
    this.hasRun = false;
    this.element = make("section", {
      class: "panel", id: `panel-${definition.name}`, role: "tabpanel", hidden: true,
      "aria-labelledby": `tab-${definition.name}`,
    });
  }

  // The form is built when the panel is first shown.
  build() {
    if (this.fields) return;
    const { definition } = this;
    const extra = definition.makeExtra?.(this);
    this.fields = new Fields(definition.name, definition.fields, () => this.handleInput(), extra);
    this.output = make("div", { class: "output" });
    this.status = make("p", { class: "status", role: "status", "aria-live": "polite" });
    this.alert = make("div", { class: "problem", role: "alert", hidden: true });
    this.notice = make("div", { class: "notice", hidden: true });
    this.button = make("button", { type: "submit", class: "primary", title: "Ctrl + Enter" }, definition.action ?? "Run");
    this.stopButton = make("button", { type: "button", hidden: true, on: { click: () => this.stop() } }, "Stop");
    this.group = make(
      "fieldset", { class: "group" },
      make("legend", { class: "hidden" }, definition.title),
      this.fields.element,
      make("div", { class: "actions" }, this.button, this.stopButton, this.status, this.makeCopies()),
    );
    const form = make("form", { class: "card form", on: { submit: (event) => this.submit(event) } }, this.group);
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit(event);
    });
    this.element.append(
      make("h2", {}, definition.title), make("p", { class: "summary" }, definition.summary),
      this.notice, form, this.alert,
    );
    const between = definition.setup?.(this);
    if (between) this.element.append(...[between].flat());
    this.element.append(this.output);
  }

  makeCopies() {
    const copy = async (write) => {
      const { path, body, ...options } = this.request();
      const { fileNames } = this.fields;
      const text = write(path, body, { ...options, fileNames, needsKey: this.app.needsKey });
      await this.copy(text);
    };
    const button = (text, action) => make("button", { type: "button", class: "quiet", on: { click: action } }, text);
    return make(
      "span", { class: "copies" },
      button("Copy as curl", () => copy(writeCurl)),
      button("Copy as Python", () => copy(writePython)),
      button("Copy link", () => {
        this.app.saveState();
        return this.copy(location.href);
      }),
    );
  }

  async copy(text) {
    if (await copyText(text)) {
      this.setStatus("Copied.");
    } else {
      this.setStatus("The browser does not allow copying. Copy this text:");
      this.output.replaceChildren(make("pre", { class: "code", tabindex: "0" }, text));
    }
  }

  values() { return this.fields.read(); }
  set(name, value) {
    this.fields.set(name, value);
    this.definition.update?.(this);
  }
  get signal() { return this.aborter.signal; }

  request() {
    const { definition } = this;
    const values = this.values();
    const found = definition.request?.(values, this.model) ?? {
      path: definition.route, body: definition.body(values, this.model),
    };
    return { ...found, body: { model: this.model.name, ...found.body } };
  }

  handleInput() {
    this.definition.update?.(this);
    clearTimeout(this.timer);
    if (this.definition.isLive && this.hasRun) this.timer = setTimeout(() => this.run(), PAUSE);
  }

  setModel(model) {
    this.model = model;
    if (!this.fields) return;
    const obstacle = this.findObstacle();
    this.group.disabled = Boolean(obstacle);
    this.notice.hidden = !obstacle;
    this.notice.replaceChildren(...(obstacle ? this.describeObstacle(obstacle) : []));
    if (obstacle) this.clear();
    this.definition.update?.(this);
  }

  findObstacle(model = this.model) {
    if (this.definition.obstacle) return this.definition.obstacle(model);
    const missing = this.definition.functions.find((name) => !Object.hasOwn(model.functions, name));
    return missing ? `It needs ${model.unsupported[missing]}.` : "";
  }

  describeObstacle(obstacle) {
    const others = this.app.models.filter((one) => !this.findObstacle(one));
    const choose = others.map((one) =>
      make("button", { type: "button", on: { click: () => this.app.chooseModel(one.name) } }, `Use ${one.name}`));
    const text = `${this.model.name} (${this.model.description}) cannot do this. ${obstacle}`;
    return [make("p", {}, makeSentence(text)), choose.length ? make("p", { class: "choices" }, choose) : null].filter(Boolean);
  }

  submit(event) {
    event.preventDefault();
    return this.run();
  }

  stop() { this.aborter.abort(); }
  setStatus(text) { this.status.textContent = text; }
  clear() {
    this.output.replaceChildren();
    this.definition.clear?.(this);
    this.alert.hidden = true;
    this.setStatus("");
  }

  async run() {
    clearTimeout(this.timer);
    if (this.group.disabled) return;
    this.aborter.abort();
    const missing = this.definition.check?.(this.values());
    if (missing) return this.setStatus(missing);
    const aborter = (this.aborter = new AbortController());
    this.alert.hidden = true;
    this.hasRun = true;
    this.app.saveState();
    this.setStatus(this.model.is_loaded ? "Computing …" : `Loading ${this.model.name} …`);
    this.element.setAttribute("aria-busy", "true");
    const since = performance.now();
    try {
      const text = await this.compute();
      if (aborter.signal.aborted) return;
      this.model.is_loaded = true;
      const seconds = (performance.now() - since) / 1000;
      this.setStatus([text, `${seconds < 10 ? seconds.toFixed(2) : Math.round(seconds)} s`].filter(Boolean).join(" · "));
    } catch (error) {
      if (error.name !== "AbortError") this.showError(error);
      else if (this.aborter === aborter) this.setStatus("Stopped.");
    } finally {
      if (this.aborter === aborter) this.element.removeAttribute("aria-busy");
    }
  }

  async compute() {
    if (this.definition.run) return this.definition.run(this);
    const { path, body } = this.request();
    const signal = this.signal;
    const result = await postJson(path, body, signal);
    if (!signal.aborted) this.output.replaceChildren(...[this.definition.show(result, this)].flat().filter(Boolean));
    return "";
  }

  showError(error) {
    this.output.replaceChildren();
    this.setStatus("");
    this.alert.hidden = false;
    this.alert.replaceChildren(...describeError(error));
    if (error.status === 401) this.app.askKey();
  }
}

// An error in words, and what to do about it.
export function describeError(error) {
  const message = error.message || String(error);
  const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
  return [
    make("p", { class: "what" }, sentence(message)),
    error.fix ? make("p", { class: "fix" }, "Fix: ", makeSentence(error.fix), ".") : null,
  ].filter(Boolean);
}
