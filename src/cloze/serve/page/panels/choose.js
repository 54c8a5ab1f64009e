import { makeBars, makeUnread } from "../dom.js";
import { compact, splitLines } from "../fields.js";

export default {
  name: "choose",
  title: "Choose",
  summary: "Which of several options fits a text best.",
  functions: ["choose"],
  route: "api/choose",
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 3, value: "She opened the umbrella and stepped outside." },
    { name: "question", label: "Question (optional)", kind: "line" },
    {
      name: "options", label: "Options, one per line", kind: "text", rows: 3,
      value: "It was raining.\nThe sun was hot on the snow.\nThe soup was cold.",
    },
  ],
  body: ({ text, question, options }) => compact({ text, question, options: splitLines(options) }),
  show({ choices, truncated_chars }) {
    const rows = choices.map(({ text, score }, place) => ({ label: text, value: score, best: place === 0 }));
    return [makeBars(rows, { label: "Options" }), makeUnread(truncated_chars)];
  },
};
