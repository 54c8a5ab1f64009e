import { make, makeUnread, number, setValue } from "../dom.js";
import { splitLines } from "../fields.js";

export default {
  name: "similarity",
  title: "Similarity",
  summary: "How similar texts are: the cosine of their embeddings, for every two of them.",
  functions: ["similarity"],
  route: "api/similarity",
  fields: [
    {
      name: "text", label: "Texts, one per line", kind: "text", rows: 6,
      value: "The cat sleeps on the sofa.\nA kitten is lying on the couch.\nThe bank raised its interest rates.\n" +
        "Loans will become more expensive.",
    },
  ],
  body: ({ text }) => ({ text: splitLines(text) }),
  show({ texts, scores, text, pair, score, truncated_chars }) {
    // two texts have one score, more of them a matrix
    const all = texts ?? [text, pair];
    const matrix = scores ?? [[1, score], [score, 1]];
    return [makeMatrix(all, matrix), makeUnread(truncated_chars)];
  },
};

// The colors show the range of the scores of different texts.
function makeMatrix(texts, scores) {
  const others = scores.flatMap((row, n) => row.filter((_, m) => m !== n));
  const [low, high] = [Math.min(...others), Math.max(...others)];
  const head = make("tr", {}, make("td"), texts.map((text, n) => make("th", { scope: "col", title: text }, n + 1)));
  const rows = texts.map((text, n) =>
    make(
      "tr", {},
      make("th", { scope: "row" }, make("span", { class: "place" }, n + 1), make("span", { dir: "auto" }, text)),
      scores[n].map((value, m) => {
        const cell = make("td", { class: n === m ? "same" : "cell", title: `${text} – ${texts[m]}` }, number(value, 2));
        return n === m ? cell : setValue(cell, high > low ? (value - low) / (high - low) : 1);
      }),
    ));
  const table = make("table", { class: "matrix" }, make("thead", {}, head), make("tbody", {}, rows));
  return make("div", { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Similarities" }, table);
}
