import { findHue, make, makeMarked, makeUnread, percent } from "../dom.js";

export default {
  name: "tag",
  title: "Tag",
  summary: "Names and other spans of a text, each with its label.",
  functions: ["tag"],
  route: "api/tag",
  fields: [
    {
      name: "text", label: "Text", kind: "text", rows: 4,
      value: "Ada Lovelace was born in London and worked with Charles Babbage.",
    },
  ],
  body: ({ text }) => ({ text }),
  show({ text, spans, truncated_chars }) {
    const counts = new Map();
    for (const { label } of spans) counts.set(label, (counts.get(label) ?? 0) + 1);
    const legend = [...counts].map(([label, many]) =>
      make("li", {}, make("span", { class: `swatch h${findHue(label)}` }), `${label} `, make("span", { class: "muted" }, many)));
    const marked = makeMarked(text, spans, (part, { label, score }) =>
      make("mark", { class: `h${findHue(label)}`, title: `${label}, ${percent(score)}` }, part, make("small", {}, label)));
    return [
      make("div", { class: "card" }, marked),
      spans.length
        ? make("ul", { class: "legend", "aria-label": "Labels" }, legend)
        : make("p", { class: "muted" }, "No spans were found."),
      makeUnread(truncated_chars),
    ];
  },
};
