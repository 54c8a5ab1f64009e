import { make, makeBars, makeRoving, makeUnread } from "../dom.js";
import { readNumber } from "../fields.js";

// A word: one Chinese or Japanese character, or letters and digits with what joins them.
const WORD = /\p{Script=Han}|[\p{L}\p{N}\p{M}]+(?:['’_-][\p{L}\p{N}\p{M}]+)*/gu;
const MOST = 4000; // parts of a text that can be clicked
const originals = []; // the words that masks replaced, in the order of the masks

export default {
  name: "fill",
  title: "Fill",
  summary: "Click a word to mask it, and see what the model expects in its place.",
  functions: ["fill"],
  route: "api/fill",
  action: "Predict",
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 3, value: "In winter the lake is covered with [MASK]." },
    { name: "top", label: "Predictions", kind: "number", min: 1, max: 50, value: "8" },
  ],
  body: ({ text, top }) => ({ text, top: readNumber(top) }),

  makeExtra(panel) {
    panel.words = makeRoving(make("p", { class: "words", dir: "auto", role: "group", "aria-label": "Words" }), "button.word");
    return make("div", { class: "field words-field" }, make("span", { class: "hint" }, "Words: click one to mask it, a mask to undo it"), panel.words);
  },

  update(panel) {
    const mask = panel.model.mask_token ?? "[MASK]";
    const { text } = panel.values();
    if (!mask.startsWith("[MASK") && text.includes("[MASK]")) return panel.set("text", text.replaceAll("[MASK]", mask));
    const parts = splitWords(text, mask);
    const masks = parts.filter((part) => part.isMask).length;
    if (masks !== originals.length) originals.length = 0;
    let place = 0;
    if (parts.length > MOST) return panel.words.replaceChildren("The text has too many words to click.");
    panel.words.replaceChildren(...parts.map((part) => {
      if (!part.isWord && !part.isMask) return part.text;
      const number = part.isMask ? place++ : place;
      return makeWord(panel, parts, part, number, mask);
    }));
    return panel.words.dispatchEvent(new Event("change"));
  },

  show({ masks, truncated_chars }, panel) {
    const columns = masks.map(({ predictions }, n) => {
      const rows = predictions.map(({ word, score, text }) => ({
        label: word, value: score, title: `Put in “${word}”`,
        pick: () => {
          originals.splice(n, 1);
          panel.set("text", text);
          panel.setStatus(`“${word}” is in the text.`);
          if (masks.length > 1) panel.run();
          else panel.app.saveState();
        },
      }));
      const title = masks.length > 1 ? make("h3", {}, `Mask ${n + 1}`) : null;
      return make("div", {}, title, makeBars(rows, { label: `Predictions for mask ${n + 1}` }));
    });
    return [make("div", { class: "columns" }, columns), makeUnread(truncated_chars)];
  },
};

// The parts of a text: words, masks, and what is between them.
function splitWords(text, mask) {
  const parts = [];
  text.split(mask).forEach((piece, n) => {
    if (n) parts.push({ text: mask, isMask: true });
    let end = 0;
    for (const found of piece.matchAll(WORD)) {
      if (found.index > end) parts.push({ text: piece.slice(end, found.index) });
      parts.push({ text: found[0], isWord: true });
      end = found.index + found[0].length;
    }
    if (end < piece.length) parts.push({ text: piece.slice(end) });
  });
  return parts;
}

function makeWord(panel, parts, part, number, mask) {
  const original = part.isMask ? originals[number] : undefined;
  const click = () => {
    if (part.isMask) {
      if (original === undefined) return;
      originals.splice(number, 1);
      part.text = original;
    } else {
      originals.splice(number, 0, part.text);
      part.text = mask;
    }
    const place = [...panel.words.children].indexOf(node);
    panel.set("text", parts.map((one) => one.text).join(""));
    panel.words.children[Math.min(place, panel.words.childElementCount - 1)]?.focus();
    if (panel.values().text.includes(mask)) panel.run();
    else panel.clear();
  };
  const label = part.isMask
    ? original === undefined ? "Mask" : `Mask in place of ${original}: undo`
    : `${part.text}: mask it`;
  const node = make("button", {
    type: "button", class: part.isMask ? "word mask" : "word", "aria-label": label, on: { click },
  }, part.isMask ? mask : part.text);
  return node;
}
