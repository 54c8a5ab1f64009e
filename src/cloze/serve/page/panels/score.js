import { make, number, setValue } from "../dom.js";

const MOST = 15; // bits; a token with more has the same color

export default {
  name: "score",
  title: "Score",
  summary: "The probability of a text, token by token: the stronger the color, the less expected the token.",
  functions: ["score"],
  route: "api/score",
  fields: [{ name: "text", label: "Text", kind: "text", rows: 3, value: "The cat sat on the xylophone." }],
  body: ({ text }) => ({ text }),
  show({ tokens, log_probability, mean_log_probability, perplexity, unknown }) {
    const shown = tokens.map(({ token, log_probability: log }) => {
      const bits = -log / Math.LN2;
      const node = make("span", { class: "token", title: `${number(bits, 2)} bits` }, token, make("small", {}, number(bits, 1)));
      return setValue(node, bits / MOST);
    });
    const facts = [
      ["Perplexity", number(perplexity, 2)],
      ["Log-probability", number(log_probability, 2)],
      ["Mean of a token", number(mean_log_probability)],
      ["Tokens", tokens.length],
      unknown ? ["Unknown", unknown] : null,
    ].filter(Boolean);
    return [
      make("div", { class: "card" }, make("p", { class: "tokens", dir: "auto" }, shown),
        make("p", { class: "muted" }, "Below each token: its surprisal in bits.")),
      make("dl", { class: "facts" }, facts.map(([name, value]) =>
        make("div", { class: "fact" }, make("dt", {}, name), make("dd", { class: "value" }, value)))),
    ];
  },
};
