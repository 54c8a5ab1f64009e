import { make, makeBars, makeUnread, number } from "../dom.js";
import { splitLines } from "../fields.js";

const KINDS = { probability: "Probabilities of the label.", number: "Predicted scores.", cosine: "Cosines of embeddings." };

export default {
  name: "rerank",
  title: "Rerank",
  summary: "Documents in the order in which they fit a query.",
  functions: ["rerank"],
  route: "api/rerank",
  fields: [
    { name: "query", label: "Query", kind: "line", value: "How do plants make food?" },
    {
      name: "documents", label: "Documents, one per line", kind: "text", rows: 5,
      value: "Leaves use sunlight to turn water and carbon dioxide into sugar.\nThe stock market fell on Monday.\n" +
        "Plants grow faster in fertile soil.\nThe recipe needs two eggs and some flour.",
    },
  ],
  body: ({ query, documents }) => ({ query, documents: splitLines(documents) }),
  show({ kind, documents, truncated_chars }) {
    const scores = documents.map((one) => one.score);
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    const place = (score) => (kind === "probability" ? score : high > low ? 0.08 + (0.92 * (score - low)) / (high - low) : 1);
    const rows = documents.map(({ text, score }, n) => ({
      label: text, value: place(score), shown: number(score), best: n === 0,
    }));
    return [makeBars(rows, { label: "Documents" }), make("p", { class: "muted" }, KINDS[kind] ?? kind), makeUnread(truncated_chars)];
  },
};
