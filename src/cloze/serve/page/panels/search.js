import { make, number } from "../dom.js";
import { splitLines } from "../fields.js";

const showHit = ({ id, title, score, snippet, thumbnail, highlight: [start, end] }) => {
  const characters = [...snippet]; // offsets count characters, not UTF-16 units
  const cut = (low, high) => characters.slice(low, high).join("");
  return make(
    "li", {},
    make("p", {}, make("strong", {}, title ?? id), ` ${number(score)}`, title === null ? "" : ` · ${id}`),
    thumbnail ? make("img", { class: "thumbnail", src: `data:image/png;base64,${thumbnail}`, alt: snippet }) : null,
    make("p", { dir: "auto" }, cut(0, start), end > start ? make("mark", {}, cut(start, end)) : "", cut(end)),
  );
};

export default {
  name: "search",
  title: "Search",
  summary: "Documents of an index that fit a query; of an index of images, those that fit a text or an image.",
  functions: [],
  route: "api/search",
  obstacle: (model) => (model.indexes.length ? "" : "It needs an index that was made with it (cloze serve --index FOLDER)."),
  fields: [
    { name: "query", label: "Query", kind: "line", value: "How do plants make food?" },
    { name: "image", label: "Image, in place of the query", kind: "image" },
    { name: "filter", label: "Conditions on metadata, one per line", kind: "text", rows: 2, value: "" },
    {
      name: "mode", label: "Mode", kind: "select", value: "hybrid",
      options: [["hybrid", "vectors and words"], ["dense", "vectors"], ["bm25", "words"]],
    },
  ],
  update: ({ fields, model }) => fields.show("image", model.reads_images),
  body: ({ query, image, filter, mode }, { reads_images }) => {
    const conditions = splitLines(filter);
    const isByImage = reads_images && image;
    return {
      ...(isByImage ? { image } : { query, mode }),
      ...(reads_images ? { thumbnails: true } : {}),
      ...(conditions.length ? { filter: conditions } : {}),
    };
  },
  show({ hits }) {
    if (!hits.length) return [make("p", { class: "muted" }, "Nothing was found.")];
    const hasImages = hits.some(({ thumbnail }) => thumbnail);
    return [make("ol", { class: hasImages ? "hits gallery" : "hits" }, ...hits.map(showHit))];
  },
};
