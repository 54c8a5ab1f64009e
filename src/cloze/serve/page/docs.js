// The page of the routes: their fields, and a request of each as a program, from openapi.json.

import { getJson, setKey } from "./api.js";
import { make, makeSentence } from "./dom.js";
import { describeError } from "./panel.js";
import { copyText, writeCurl, writePython } from "./snippets.js";

const root = document.getElementById("routes");
const TITLES = {
  functions: "Functions", openai: "OpenAI", "text-embeddings-inference": "text-embeddings-inference",
  cohere: "Cohere", jobs: "Jobs", status: "Operations",
};
// Values of fields in examples; others are made from their types.
const EXAMPLES = {
  text: "A fine film.", question: "Who slept?", context: "The dog slept.", options: ["It rained.", "It snowed."],
  word: "king", query: "Who slept?", documents: ["The dog slept.", "It rains."], texts: ["The dog slept.", "It rains."],
  inputs: "A fine film.", input: "A fine film.", prompt: "The king", from_text: "A dull film.", view: "attention",
  input_type: "search_query", embedding_types: ["float"], source_sentence: "A dog.", sentences: ["A cat."],
};
const BY_ROUTE = { "/api/fill": { text: "The [MASK] sat." } };

class Description {
  constructor(openapi) { this.openapi = openapi; }

  resolve(schema) {
    if (!schema?.$ref) return schema ?? {};
    return schema.$ref.slice(2).split("/").reduce((value, part) => value[part], this.openapi);
  }

  // The schemas of the body of an operation: one, or one for each view.
  findBodies(operation) {
    const schema = this.resolve(operation.requestBody?.content?.["application/json"]?.schema);
    const several = schema.oneOf ?? (schema.anyOf?.every((one) => one.$ref) ? schema.anyOf : null);
    if (several) return several.map((one) => this.resolve(one));
    return schema.properties ? [schema] : [];
  }

  nameType(schema) {
    const one = this.resolve(schema);
    if (one.const !== undefined) return JSON.stringify(one.const);
    if (one.enum) return one.enum.map((value) => JSON.stringify(value)).join(" | ");
    const several = one.anyOf ?? one.oneOf;
    if (several) return [...new Set(several.map((some) => this.nameType(some)))].join(" | ");
    if (one.type === "array") return `list of ${this.nameType(one.items ?? {})}`;
    return one.type ?? "any";
  }

  makeExample(path, schema) {
    const names = schema.required ?? [];
    const found = names.map((name) => [name, this.makeValue(path, name, schema.properties[name])]);
    return Object.fromEntries(found);
  }

  makeValue(path, name, schema) {
    const one = this.resolve(schema);
    if (one.const !== undefined) return one.const;
    if (BY_ROUTE[path]?.[name]) return BY_ROUTE[path][name];
    const isList = one.type === "array";
    if (name === "model") return "cloze-en";
    if (Object.hasOwn(EXAMPLES, name)) {
      const value = EXAMPLES[name];
      return isList && !Array.isArray(value) ? [value, "The dog slept."] : value;
    }
    if (one.enum) return one.enum[0];
    return isList ? [] : { integer: 1, number: 1, boolean: true, object: {} }[one.type] ?? "text";
  }
}

function makeFields(description, schema) {
  const rows = Object.entries(schema.properties).map(([name, field]) => {
    const isRequired = schema.required?.includes(name);
    const preset = field.default === undefined || field.default === null ? "" : JSON.stringify(field.default);
    return make(
      "tr", {},
      make("th", { scope: "row" }, make("code", {}, name)),
      make("td", {}, description.nameType(field), isRequired ? make("b", {}, " required") : null),
      make("td", {}, preset ? make("code", {}, preset) : "–"),
      make("td", {}, makeSentence(field.description ?? description.resolve(field).description ?? "")),
    );
  });
  const heads = ["Field", "Type", "Default", "Meaning"].map((name) => make("th", { scope: "col" }, name));
  const table = make("table", { class: "fields-table" }, make("thead", {}, make("tr", {}, heads)), make("tbody", {}, rows));
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Fields of ${schema.title}` }, table);
}

function makePrograms(description, path, schema, needsKey) {
  const body = description.makeExample(path, schema);
  const shown = make("pre", { class: "code", tabindex: "0" }, writeCurl(path.slice(1), body, { needsKey }));
  const status = make("span", { class: "muted", role: "status" });
  const button = (text, write) => make("button", {
    type: "button", class: "quiet",
    on: {
      click: async () => {
        const program = write(path.slice(1), body, { needsKey });
        shown.textContent = program;
        status.textContent = (await copyText(program)) ? "Copied." : "";
      },
    },
  }, text);
  return [shown, make("p", {}, button("Copy as curl", writeCurl), button("Copy as Python", writePython), status)];
}

function makeBody(description, path, schema, needsKey) {
  return [makeFields(description, schema), ...makePrograms(description, path, schema, needsKey)];
}

function makeRoute(description, path, method, operation) {
  const needsKey = Boolean(description.openapi.security);
  const bodies = description.findBodies(operation);
  const [first, rest] = [bodies[0], bodies.slice(1)];
  const text = operation.description ?? operation.summary ?? "";
  const paragraphs = text.split("\n\n").filter((one) => one !== findSummary(operation));
  const parts = paragraphs.map((one) => make("p", {}, makeSentence(one)));
  const answers = Object.entries(operation.responses ?? {}).map(([status, { description: what }]) =>
    make("li", {}, make("code", {}, status), ` ${what ?? ""}`));
  return make(
    "details", { class: "card route" },
    make("summary", {}, make("span", { class: "method" }, method.toUpperCase()), make("code", {}, path),
      make("span", { class: "muted" }, " ", makeSentence(findSummary(operation)))),
    parts,
    rest.length ? make("h3", {}, nameView(first)) : null,
    first ? makeBody(description, path, first, needsKey) : null,
    rest.map((one) => make("details", { class: "view-fields" }, make("summary", {}, nameView(one)), makeBody(description, path, one, needsKey))),
    make("details", { class: "answers" }, make("summary", {}, "Answers"), make("ul", {}, answers)),
  );
}

const findSummary = ({ summary = "", description = "" }) => (description || summary).split("\n")[0].split(/(?<=\.) /)[0];
const nameView = (schema) => `View ${schema?.properties.view?.const ?? schema?.title}`;

function show(openapi) {
  const description = new Description(openapi);
  const groups = new Map();
  for (const [path, methods] of Object.entries(openapi.paths))
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "status";
      groups.set(tag, [...(groups.get(tag) ?? []), makeRoute(description, path, method, operation)]);
    }
  root.replaceChildren(
    make("p", { class: "summary" }, makeSentence(openapi.info.description), " The description for programs is ",
      make("a", { href: "openapi.json" }, "openapi.json"), "."),
    ...[...groups].sort(([a], [b]) => place(a) - place(b)).flatMap(([tag, routes]) => [make("h2", {}, TITLES[tag] ?? tag), make("div", { class: "stack" }, routes)]),
  );
}

const place = (tag) => {
  const found = Object.keys(TITLES).indexOf(tag);
  return found < 0 ? Object.keys(TITLES).length : found;
};

async function start() {
  try {
    show(await getJson("openapi.json"));
  } catch (error) {
    root.replaceChildren(make("div", { class: "problem", role: "alert" }, describeError(error)));
    if (error.status === 401) document.getElementById("key-form").hidden = false;
  }
}

document.getElementById("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(document.getElementById("key").value);
  start();
});
start();
