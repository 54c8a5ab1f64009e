import { make } from "../dom.js";
import { compact, readNumber } from "../fields.js";

export default {
  name: "draw",
  title: "Draw",
  summary: "Images of a text.",
  functions: ["draw"],
  route: "api/draw",
  action: "Draw",
  fields: [
    { name: "text", label: "Text", kind: "line", value: "a red heart" },
    { name: "samples", label: "Images", kind: "number", min: 1, max: 16, value: "4" },
    { name: "steps", label: "Steps", kind: "number", min: 1, max: 1000, value: "25" },
    { name: "guidance", label: "Guidance", kind: "number", min: 0, max: 100, step: 0.1, value: "3" },
    { name: "seed", label: "Seed", kind: "number", min: 0, value: "0" },
  ],
  body: ({ text, samples, steps, guidance, seed }) => ({
    text,
    ...compact({
      samples: readNumber(samples), steps: readNumber(steps),
      guidance: readNumber(guidance), seed: readNumber(seed),
    }),
  }),
  show({ text, pictures }) {
    const images = pictures.map(({ png, seed, width, height }) => make("img", {
      src: `data:image/png;base64,${png}`, alt: `${text} (seed ${seed})`, title: `Seed ${seed}`, width: 2 * width, height: 2 * height,
    }));
    return [make("div", { class: "card pictures" }, images)];
  },
};
