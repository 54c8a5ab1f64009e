import { make, makeUnread, number } from "../dom.js";
import { readNumber } from "../fields.js";

export default {
  name: "summarize",
  title: "Summarize",
  summary: "A summary of a text.",
  functions: ["summarize"],
  route: "api/summarize",
  fields: [
    {
      name: "text", label: "Text", kind: "text", rows: 8,
      value: "A dog ran through the park in the morning. It chased a ball for an hour. Then it slept under a tree.",
    },
    { name: "beam", label: "Beams", kind: "number", min: 1, max: 16, value: "4" },
  ],
  body: ({ text, beam }) => ({ text, beam: readNumber(beam), truncate: true }),
  show({ summaries, truncated_chars }) {
    const [best] = summaries;
    return [
      make("div", { class: "card" }, make("p", { class: "written", dir: "auto" }, best.text || "(empty)")),
      make("p", { class: "muted" }, `Log-probability ${number(best.log_probability, 2)}`),
      makeUnread(truncated_chars),
    ];
  },
};
