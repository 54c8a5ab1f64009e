import { ApiError, postStream } from "../api.js";
import { make } from "../dom.js";
import { compact, readNumber } from "../fields.js";

const SPOKEN = 5; // steps between two texts for screen readers

export default {
  name: "draw",
  title: "Draw",
  summary: "Images of a text, or of a text and an image.",
  functions: ["draw"],
  route: "api/draw",
  action: "Draw",
  fields: [
    { name: "text", label: "Text", kind: "line", value: "a red heart" },
    { name: "image", label: "Image to start from", kind: "image", hint: "Optional: the text changes it." },
    { name: "mask", label: "Mask", kind: "image", hint: "Optional, with an image: white parts are drawn anew." },
    { name: "samples", label: "Images", kind: "number", min: 1, max: 16, value: "4" },
    { name: "steps", label: "Steps", kind: "number", min: 1, max: 1000, value: "25" },
    { name: "guidance", label: "Guidance", kind: "number", min: 0, max: 100, step: 0.1, value: "3" },
    { name: "sampler", label: "Sampler", kind: "select", options: [
      ["", "Default"], ["ddpm", "DDPM"], ["ddim", "DDIM"], ["dpm-solver++", "DPM-Solver++"], ["euler", "Euler (flow matching)"],
    ] },
    { name: "strength", label: "Strength", kind: "number", min: 0.01, max: 1, step: 0.01, value: "0.7", hint: "Of the change of an image." },
    { name: "seed", label: "Seed", kind: "number", min: 0, value: "0" },
  ],
  body: ({ text, image, mask, samples, steps, guidance, sampler, strength, seed }) => ({
    text,
    ...compact({
      image, mask,
      samples: readNumber(samples), steps: readNumber(steps), guidance: readNumber(guidance),
      sampler, strength: readNumber(strength), seed: readNumber(seed), stream: true,
    }),
  }),
  request(values) { return { path: this.route, body: this.body(values), isStream: true }; },

  async run(panel) {
    const signal = panel.signal;
    const { path, body } = panel.request();
    const images = [];
    const card = make("div", { class: "card pictures" });
    panel.output.replaceChildren(card);
    panel.stopButton.hidden = false;
    let result = null;
    try {
      for await (const event of postStream(path, body, signal)) {
        if (event.result) ({ result } = event);
        else {
          showPictures(card, images, event, body.text);
          if (event.step === 1 || event.step % SPOKEN === 0) panel.setStatus(`Step ${event.step} of ${event.steps}`);
        }
      }
    } finally {
      panel.stopButton.hidden = true;
    }
    if (signal.aborted) return "";
    if (!result) throw new ApiError("the server ended the answer early", { fix: "try again" });
    showPictures(card, images, { first: 0, pictures: result.pictures }, body.text);
    return `${result.pictures.length} ${result.pictures.length === 1 ? "image" : "images"} of “${body.text}”`;
  },
};

// Put the pictures of a step in their places; later steps change the same elements.
function showPictures(card, images, { first, pictures }, text) {
  pictures.forEach(({ png, seed, width, height }, n) => {
    const at = first + n;
    if (!images[at]) {
      images[at] = make("img", { alt: `${text} (seed ${seed})`, title: `Seed ${seed}`, width: 2 * width, height: 2 * height });
      card.append(images[at]);
    }
    images[at].src = `data:image/png;base64,${png}`;
  });
}
