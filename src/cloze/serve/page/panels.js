// The panels, in the order of their tabs. To add one, write panels/NAME.js (see panel.js), import it
// and add it here.

import answer from "./panels/answer.js";
import choose from "./panels/choose.js";
import classify from "./panels/classify.js";
import classifyImages from "./panels/classify-images.js";
import draw from "./panels/draw.js";
import explain from "./panels/explain.js";
import fill from "./panels/fill.js";
import generate from "./panels/generate.js";
import rerank from "./panels/rerank.js";
import score from "./panels/score.js";
import search from "./panels/search.js";
import similar from "./panels/similar.js";
import similarity from "./panels/similarity.js";
import summarize from "./panels/summarize.js";
import tag from "./panels/tag.js";
import translate from "./panels/translate.js";

export default [
  fill, similarity, rerank, search, classify, classifyImages, tag, answer, choose,
  generate, score, translate, summarize, similar, draw, explain,
];
