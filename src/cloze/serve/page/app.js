// The page: models, tabs, and the state in the address.

import { getJson, setKey } from "./api.js";
import { make } from "./dom.js";
import { Panel, describeError } from "./panel.js";
import definitions from "./panels.js";
import { readState, writeState } from "./state.js";

const find = (id) => document.getElementById(id);
const STEPS = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 };

class App {
  constructor() {
    this.models = [];
    this.needsKey = false;
    this.panels = new Map(definitions.map((one) => [one.name, new Panel(one, this)]));
    this.tabs = new Map();
    for (const panel of this.panels.values()) this.addTab(panel);
    find("tabs").addEventListener("keydown", (event) => this.moveTab(event));
    find("model").addEventListener("focus", () => this.refreshModels());
    find("model").addEventListener("change", (event) => this.chooseModel(event.target.value));
    find("key-form").addEventListener("submit", (event) => this.useKey(event));
    find("model-form").addEventListener("submit", (event) => event.preventDefault());
    find("skip").addEventListener("click", (event) => {
      event.preventDefault(); // the hash is the state
      find("panel").focus();
    });
    addEventListener("popstate", () => this.restore());
    const isWide = matchMedia("(min-width: 60rem)");
    const orient = () => find("tabs").setAttribute("aria-orientation", isWide.matches ? "vertical" : "horizontal");
    isWide.addEventListener("change", orient);
    orient();
  }

  addTab(panel) {
    const { name, title } = panel.definition;
    const tab = make("button", {
      type: "button", role: "tab", id: `tab-${name}`, "aria-selected": "false", tabindex: "-1",
      "aria-controls": `panel-${name}`, on: { click: () => this.select(name, { isNew: true }) },
    }, title);
    this.tabs.set(name, tab);
    find("tabs").append(tab);
    find("panel").append(panel.element);
  }

  async start() {
    try {
      const [models, { needs_key: needsKey }] = await Promise.all(["api/models", "page/settings.json"].map(getJson));
      Object.assign(this, { models, needsKey });
    } catch (error) {
      find("problem").replaceChildren(make("div", { class: "problem", role: "alert" }, describeError(error)));
      if (error.status === 401) this.askKey();
      return;
    }
    find("problem").replaceChildren();
    this.listModels();
    this.restore();
  }

  listModels() {
    const options = this.models.map((one) => make("option", { value: one.name }, `${one.name} – ${one.description}`));
    find("model").replaceChildren(...options);
  }

  // Models may come and go while the page is open.
  async refreshModels() {
    const found = await getJson("api/models").catch(() => this.models);
    const names = (models) => models.map((one) => one.name).join("\n");
    if (!this.model || names(found) === names(this.models)) return;
    this.models = found;
    this.listModels();
    find("model").value = this.model.name;
    this.model = found.find((one) => one.name === this.model.name) ?? found[0];
    this.updateModel();
  }

  // Show what the address says; a link with values is computed at once.
  restore() {
    const { panel, model, values } = readState();
    this.model = this.models.find((one) => one.name === model) ?? this.findModel(panel);
    const works = [...this.panels.values()].find((one) => !one.findObstacle(this.model));
    const name = this.panels.has(panel) ? panel : (works ?? [...this.panels.values()][0]).definition.name;
    this.updateModel();
    this.select(name, { values });
    if (Object.keys(values).length || (model && panel)) this.current.run();
  }

  findModel(panel) {
    const wanted = this.panels.get(panel);
    return (wanted && this.models.find((one) => !wanted.findObstacle(one))) ?? this.models[0];
  }

  chooseModel(name) {
    const hadResult = this.current.hasRun;
    this.model = this.models.find((one) => one.name === name);
    this.updateModel();
    this.current.clear();
    this.saveState();
    if (hadResult) this.current.run();
  }

  updateModel() {
    find("model").value = this.model.name;
    for (const [name, panel] of this.panels) {
      panel.setModel(this.model);
      const obstacle = panel.findObstacle();
      this.tabs.get(name).classList.toggle("unsupported", Boolean(obstacle));
      this.tabs.get(name).title = obstacle ? `Not with ${this.model.name}. ${obstacle}` : "";
    }
  }

  select(name, { values = null, isNew = false } = {}) {
    const panel = this.panels.get(name);
    panel.build();
    if (values) panel.fields.setAll(values);
    panel.setModel(this.model);
    for (const [other, tab] of this.tabs) {
      tab.setAttribute("aria-selected", String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
      this.panels.get(other).element.hidden = other !== name;
    }
    this.current = panel;
    document.title = `${panel.definition.title} – cloze`;
    const [strip, tab] = [find("tabs"), this.tabs.get(name)];
    strip.scrollLeft = tab.offsetLeft - (strip.clientWidth - tab.offsetWidth) / 2;
    if (isNew) this.saveState({ isNew });
  }

  moveTab(event) {
    const names = [...this.tabs.keys()];
    const at = names.indexOf(this.current?.definition.name);
    let next = at + (STEPS[event.key] ?? 0);
    if (event.key === "Home") next = 0;
    else if (event.key === "End") next = names.length - 1;
    else if (!STEPS[event.key] || at < 0) return;
    event.preventDefault();
    const name = names[(next + names.length) % names.length];
    this.select(name, { isNew: true });
    this.tabs.get(name).focus();
  }

  saveState(options) {
    const { definition, fields } = this.current;
    writeState({ panel: definition.name, model: this.model.name, values: fields.readChanged() }, options);
  }

  askKey() {
    this.needsKey = true;
    find("key-form").hidden = false;
    find("key").focus();
  }

  useKey(event) {
    event.preventDefault();
    setKey(find("key").value);
    if (this.models.length) this.current.run();
    else this.start();
  }
}

new App().start();
