import { make, makeRoving, makeUnread, number, percent, setValue } from "../dom.js";
import { readNumber } from "../fields.js";

export default {
  name: "translate",
  title: "Translate",
  summary: "A translation. Point at a word of it to see which words of the source it attends to.",
  functions: ["translate"],
  route: "api/translate",
  fields: [
    { name: "text", label: "Sentence", kind: "text", rows: 3, value: "A dog runs across the field." },
    { name: "beam", label: "Beams", kind: "number", min: 1, max: 16, value: "4" },
  ],
  body: ({ text, beam }) => ({ text, beam: readNumber(beam), align: true }),
  show({ translations, truncated_chars }) {
    const [best] = translations;
    return [
      make("div", { class: "card" }, make("p", { class: "written", dir: "auto" }, best.text || "(empty)")),
      make("p", { class: "muted" }, `Log-probability ${number(best.log_probability, 2)}`),
      best.alignment?.target.length ? makeAlignment(best.alignment) : null,
      makeUnread(truncated_chars),
    ];
  },
};

// Two lines of words; those of the target are buttons that color the source by its weights.
function makeAlignment({ source, target, weights }) {
  const words = source.map((word) => make("span", { class: "token", dir: "auto" }, word));
  const line = make("p", { class: "status", role: "status", "aria-live": "polite" });
  const buttons = target.map((word, n) => {
    const show = () => {
      words.forEach((node, m) => setValue(node, weights[n][m]));
      buttons.forEach((node, m) => node.setAttribute("aria-pressed", String(m === n)));
      const best = weights[n].indexOf(Math.max(...weights[n]));
      line.textContent = `“${word}” attends to “${source[best]}” most (${percent(weights[n][best])}).`;
    };
    return make("button", {
      type: "button", class: "word", dir: "auto", "aria-pressed": "false",
      on: { click: show, focus: show, pointerenter: show },
    }, word);
  });
  return make(
    "div", { class: "card alignment" },
    make("h3", {}, "Alignment"),
    make("p", { class: "muted" }, "Source"), make("p", { class: "tokens" }, words),
    make("p", { class: "muted" }, "Translation"), makeRoving(make("p", { class: "words" }, buttons), "button.word"),
    line,
  );
}
