import { make, makeBars, makeMarked, makeUnread } from "../dom.js";
import { readNumber } from "../fields.js";

export default {
  name: "answer",
  title: "Answer",
  summary: "The part of a passage that answers a question, or that there is no answer.",
  functions: ["answer"],
  route: "api/answer",
  fields: [
    { name: "question", label: "Question", kind: "line", value: "Where did Ada Lovelace live?" },
    {
      name: "context", label: "Passage", kind: "text", rows: 6,
      value: "Ada Lovelace was an English mathematician and writer. She lived in London and is known for her work on " +
        "the Analytical Engine of Charles Babbage, for which she wrote what is often called the first program.",
    },
    { name: "top", label: "Answers", kind: "number", min: 1, max: 20, value: "3" },
  ],
  body: ({ question, context, top }) => ({ question, context, top: readNumber(top) }),
  show({ context, answers, truncated_chars }) {
    const passage = make("div", { class: "card" });
    const highlight = (answer) => {
      const marks = answer.text ? [answer] : [];
      passage.replaceChildren(makeMarked(context, marks, (part) => make("mark", {}, part)));
    };
    const rows = answers.map((answer, place) => ({
      label: answer.text || "No answer in the passage", value: answer.probability, best: place === 0,
      pick: () => highlight(answer), title: "Show it in the passage",
    }));
    highlight(answers[0]);
    return [makeBars(rows, { label: "Answers" }), passage, makeUnread(truncated_chars)];
  },
};
