import { makeBars, number } from "../dom.js";
import { readNumber } from "../fields.js";

export default {
  name: "similar",
  title: "Similar words",
  summary: "The nearest words by their vectors. Click a word to go on from there.",
  functions: ["similar"],
  route: "api/similar",
  fields: [
    { name: "word", label: "Word", kind: "line", value: "king" },
    { name: "top", label: "Words", kind: "number", min: 1, max: 100, value: "10" },
  ],
  body: ({ word, top }) => ({ word: word.trim(), top: readNumber(top) }),
  show({ words }, panel) {
    const rows = words.map(({ word, score }) => ({
      label: word, value: score, shown: number(score),
      pick: () => {
        panel.set("word", word);
        panel.run();
      },
    }));
    return makeBars(rows, { label: "Words" });
  },
};
