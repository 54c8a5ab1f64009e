import { postJson, postStream } from "../api.js";
import { make, makeBars } from "../dom.js";
import { compact, readNumber } from "../fields.js";

const TOP = 10;
const END = /^(<\/s>|\[SEP\]|<\|endoftext\|>|<eos>)$/; // tokens that end a text

export default {
  name: "generate",
  title: "Generate",
  summary: "Continue a text, or choose its next words one by one.",
  functions: ["generate", "suggest"],
  route: "api/generate",
  action: "Generate",
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 4, value: "The king" },
    { name: "max_new_tokens", label: "Tokens", kind: "number", min: 1, max: 2000, value: "50" },
    { name: "temperature", label: "Temperature", kind: "number", min: 0.01, max: 10, step: 0.01, value: "1" },
    { name: "top_p", label: "Top p", kind: "number", min: 0.01, max: 1, step: 0.01, value: "1" },
    { name: "seed", label: "Seed", kind: "number", min: 0, value: "0" },
  ],
  body: ({ text, max_new_tokens, temperature, top_p, seed }) => compact({
    text, max_new_tokens: readNumber(max_new_tokens), temperature: readNumber(temperature),
    top_p: readNumber(top_p), seed: readNumber(seed), stream: true,
  }),
  request(values) { return { path: this.route, body: this.body(values), isStream: true }; },

  setup(panel) {
    panel.written = make("p", { class: "written", dir: "auto" });
    panel.story = make("div", { class: "card story", hidden: true }, panel.written);
    panel.next = make("div", { class: "next" });
    const show = make("button", { type: "button", class: "quiet", on: { click: () => suggest(panel) } }, `Show the next ${TOP} words`);
    panel.nextButton = show;
    return [panel.story, make("div", { class: "next-head" }, make("h3", {}, "Next word"), show), panel.next];
  },

  clear(panel) {
    panel.story.hidden = true;
    panel.next.replaceChildren();
  },

  update(panel) { panel.nextButton.disabled = Boolean(panel.findObstacle()); },

  async run(panel) {
    const signal = panel.signal;
    const { path, body } = panel.request();
    panel.story.hidden = false;
    panel.stopButton.hidden = false;
    const added = make("span", { class: "added" });
    panel.written.replaceChildren(make("span", { class: "muted" }, body.text), added);
    let result = null;
    try {
      for await (const event of postStream(path, body, signal)) {
        if (event.result) ({ result } = event);
        else added.append(event.text);
      }
    } finally {
      panel.stopButton.hidden = true;
    }
    if (signal.aborted) return "";
    const [{ full_text: full, tokens, finish_reason: reason }] = result.continuations;
    panel.written.append(make("button", {
      type: "button", class: "quiet", on: { click: () => { panel.set("text", full); return suggest(panel); } },
    }, "Continue from here"));
    await suggest(panel, full);
    return `${Array.isArray(tokens) ? tokens.length : tokens} tokens, ended by ${reason === "end" ? "the end token" : reason}`;
  },
};

// The most probable next words; one that is clicked is put at the end of the text.
async function suggest(panel, text = panel.values().text) {
  try {
    const { suggestions } = await postJson("api/suggest", { model: panel.model.name, text, top: TOP }, panel.signal);
    const rows = suggestions.map(({ word, probability }) => END.test(word)
      ? { label: `${word} (end of the text)`, value: probability }
      : {
        label: word, value: probability, title: `Add “${word}”`,
        pick: () => { panel.set("text", join(text, word, suggestions)); return suggest(panel); },
      });
    panel.next.replaceChildren(makeBars(rows, { label: "Next words" }));
    panel.app.saveState();
  } catch (error) {
    if (error.name !== "AbortError") panel.showError(error);
  }
}

// A word after a text. Tokens of byte-level vocabularies begin with their space, parts of words with
// ##; all others are words.
function join(text, word, suggestions) {
  if (word.startsWith("##")) return text + word.slice(2);
  const hasSpaces = suggestions.some((one) => /^\s/.test(one.word));
  if (hasSpaces || /\s$/.test(text) || !text || /^[.,;:!?)’'”]/.test(word)) return text + word;
  return `${text} ${word}`;
}
