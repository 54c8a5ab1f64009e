import { postText } from "../api.js";
import { make } from "../dom.js";
import { compact, splitLines } from "../fields.js";

const EXAMPLES = {
  masked: "Paris is the capital of [MASK].",
  text: "The animal didn't cross the street because it was too tired.",
  lines: "She put her money in the bank.\nThe bank raised its interest rates.\nThey sat on the bank of the river.\n" +
    "The boat drifted to the other bank.",
  word: "king",
};
// The fields of a view besides the text; all others are left to programs.
const VIEW_FIELDS = {
  attention: ["pair", "target_text"],
  saliency: ["pair", "target", "method", "signed"],
  neurons: ["pair"],
  ablation: ["pair", "target"],
  patching: ["from_text", "target"],
  layers: ["pair", "candidates"],
  occurrences: ["word"],
};
const LISTS = ["heads", "cka", "occurrences"]; // views of many texts, one per line
const EXTRA = ["pair", "target_text", "from_text", "target", "candidates", "word", "method", "signed"];

const policy = globalThis.trustedTypes?.createPolicy("cloze-view", { createHTML: (text) => text });

export default {
  name: "explain",
  title: "Explain",
  summary: "How a model reads a text. The figure follows the text while you edit it.",
  isLive: true,
  action: "Show",
  obstacle: (model) => (Object.keys(model.views).length ? "" : "No view of `cloze explain` applies to it."),
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 2, value: EXAMPLES.masked },
    { name: "pair", label: "Second text (optional)", kind: "line" },
    { name: "target_text", label: "Translation (default: that of the model)", kind: "line" },
    { name: "from_text", label: "Text to take parts from", kind: "line", value: "Berlin is the capital of [MASK]." },
    { name: "word", label: "Word that occurs in all lines", kind: "line", value: "bank" },
    { name: "candidates", label: "Candidates (separated by commas)", kind: "line" },
    { name: "view", label: "View", kind: "select", options: [["attention", "attention"]], hint: " " },
    { name: "target", label: "Output", kind: "line", isShort: true, placeholder: "what it predicts" },
    {
      name: "method", label: "Method", kind: "select",
      options: [["gradient", "gradient"], ["integrated", "integrated gradients"], ["leave-one-out", "leave one out"]],
    },
    { name: "signed", label: "Signed", kind: "check" },
  ],

  setup(panel) {
    panel.frame = make("iframe", { class: "view", sandbox: "allow-scripts", title: "View", hidden: true });
    addEventListener("message", ({ source, data }) => {
      if (source === panel.frame.contentWindow && data?.cloze === "height" && data.height > 0)
        panel.frame.style.height = `${Math.min(20000, Math.ceil(data.height))}px`;
    });
    return panel.frame;
  },

  // The views of the model, and the fields of the chosen one.
  update(panel) {
    const select = panel.fields.inputs.get("view");
    const { views, unsupported_views: others } = panel.model;
    if (panel.viewsOf !== panel.model.name) {
      panel.viewsOf = panel.model.name;
      const chosen = select.dataset.wanted || select.value;
      const options = Object.keys(views).map((name) => make("option", { value: name }, name.replace("_", " ")));
      const missing = Object.entries(others).map(([name, why]) =>
        make("option", { value: name, disabled: true }, `${name.replace("_", " ")} (${why})`));
      select.replaceChildren(...options, ...missing);
      select.value = Object.hasOwn(views, chosen) ? chosen : Object.keys(views)[0] ?? "";
    }
    const view = select.value;
    panel.fields.rows.get("view").querySelector(".hint").textContent = views[view] ?? "";
    for (const name of EXTRA) panel.fields.show(name, VIEW_FIELDS[view]?.includes(name));
    if (!("translate" in panel.model.functions)) panel.fields.show("target_text", false);
    panel.fields.show("text", view !== "layer_weights");
    const isList = LISTS.includes(view);
    panel.fields.rows.get("text").querySelector("label").textContent = isList ? "Texts, one per line" : "Text";
    panel.fields.inputs.get("text").rows = isList ? 6 : 2;
    const { text } = panel.values();
    if (Object.values(EXAMPLES).includes(text)) panel.fields.set("text", findExample(panel.model, view));
  },

  clear(panel) { panel.frame.hidden = true; },

  body(values) {
    const { view, text } = values;
    const shown = VIEW_FIELDS[view] ?? [];
    const given = Object.fromEntries(shown.map((name) => [name, values[name]]));
    if (given.candidates !== undefined) given.candidates = splitCommas(given.candidates);
    if (given.signed !== undefined) given.signed = given.signed === "yes" || undefined;
    if (given.method === "gradient") delete given.method;
    const texts = LISTS.includes(view) ? splitLines(text) : text;
    return compact({ view, text: view === "layer_weights" ? undefined : texts, ...given });
  },
  request(values) {
    return { path: "api/explain", body: { ...this.body(values), format: "html" }, out: "view.html" };
  },

  async run(panel) {
    const signal = panel.signal;
    const { path, body } = panel.request();
    panel.frame.classList.add("waiting");
    try {
      const document = await postText(path, body, signal);
      if (signal.aborted) return "";
      panel.frame.srcdoc = policy ? policy.createHTML(document) : document;
      panel.frame.title = `${body.view} of ${body.model}`;
      panel.frame.hidden = false;
      panel.output.replaceChildren();
    } finally {
      panel.frame.classList.remove("waiting");
    }
    return "";
  },
};

function findExample(model, view) {
  if (LISTS.includes(view)) return EXAMPLES.lines;
  if (view === "neighbors") return EXAMPLES.word;
  return model.mask_token === "[MASK]" && "fill" in model.functions && view !== "attention" ? EXAMPLES.masked : EXAMPLES.text;
}

const splitCommas = (text) => {
  const found = text.split(",").map((one) => one.trim()).filter(Boolean);
  return found.length ? found : undefined;
};
