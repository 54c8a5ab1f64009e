import { makeBars, makeUnread, number, percent } from "../dom.js";
import { compact } from "../fields.js";

export default {
  name: "classify",
  title: "Classify",
  summary: "The labels of a text, or of a pair of texts, and their probabilities.",
  functions: ["classify"],
  obstacle: (model) => {
    if (model.reads_images) return "It classifies images: see the panel Classify images.";
    return Object.hasOwn(model.functions, "classify") ? "" : `It needs ${model.unsupported.classify}.`;
  },
  route: "api/classify",
  fields: [
    { name: "text", label: "Text", kind: "text", rows: 3, value: "A warm, funny and moving film." },
    { name: "pair", label: "Second text (optional)", kind: "text", rows: 2 },
  ],
  body: ({ text, pair }) => compact({ text, pair: pair || undefined }),
  show({ labels, predicted, truncated_chars }) {
    const isNumber = labels.length === 1 && (labels[0].score > 1 || labels[0].score < 0);
    const best = new Set(predicted ?? labels.slice(0, 1).map((one) => one.label));
    const rows = labels.map(({ label, score }) => ({
      label, value: isNumber ? 0 : score, shown: isNumber ? number(score) : percent(score), best: best.has(label),
    }));
    return [makeBars(rows, { label: "Labels" }), makeUnread(truncated_chars)];
  },
};
