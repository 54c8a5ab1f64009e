import { makeBars } from "../dom.js";
import { splitLines } from "../fields.js";

export default {
  name: "classify-images",
  title: "Classify images",
  summary: "The label of an image among those that you name, without any training (zero-shot).",
  functions: ["classify"],
  route: "api/classify",
  obstacle: (model) =>
    model.reads_images ? "" : "It needs a model of texts and images (`cloze pretrain --recipe clip` trains one).",
  fields: [
    { name: "image", label: "Image", kind: "image" },
    { name: "labels", label: "Labels, one per line", kind: "text", rows: 4, value: "a red heart\na dog\na car\na smiling face" },
    { name: "template", label: "Text of a label, with {} in its place", kind: "line", value: "a picture of {}" },
  ],
  check: ({ image, labels }) =>
    image ? (splitLines(labels).length ? "" : "Write the labels, one per line.") : "Choose an image.",
  body: ({ image, labels, template }) =>
    ({ image, labels: [...new Set(splitLines(labels))], ...(template ? { template } : {}) }),
  show: ({ labels }) => [
    makeBars(labels.map(({ label, score }, n) => ({ label, value: score, best: n === 0 })), { label: "Labels" }),
  ],
};
