// A request as a command of curl, or as a Python program. A key is a variable, never its value; an
// image is read from its file.

import { server } from "./api.js";

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function writeCurl(path, body, { needsKey = false, isStream = false, out = "", fileNames = {} } = {}) {
  const hasFile = Object.keys(body).some((name) => Object.hasOwn(fileNames, name));
  const parts = [
    `curl ${isStream ? "-N " : ""}${quote(`${server}/${path}`)}`,
    "-H 'Content-Type: application/json'",
    needsKey && '-H "Authorization: Bearer $CLOZE_API_KEY"',
    hasFile ? "-d @-" : `-d ${quote(JSON.stringify(body))}`,
    out && `-o ${out}`,
  ];
  const command = parts.filter(Boolean).join(" \\\n  ");
  return hasFile ? `${command} <<END\n${writeWithFiles(body, fileNames)}\nEND` : command;
}

// JSON for a here-document, in which the shell puts the files in place of images.
function writeWithFiles(body, fileNames) {
  const entries = Object.entries(body).map(([name, value]) => {
    const text = Object.hasOwn(fileNames, name)
      ? `"$(base64 < ${quote(fileNames[name])} | tr -d '\\n')"`
      : JSON.stringify(value).replace(/[\\$`]/g, "\\$&");
    return `${JSON.stringify(name)}: ${text}`;
  });
  return `{${entries.join(", ")}}`;
}

export function writePython(path, body, { needsKey = false, isStream = false, out = "", fileNames = {} } = {}) {
  const hasFile = Object.keys(body).some((name) => Object.hasOwn(fileNames, name));
  const imports = [hasFile && "import base64\n", needsKey && "import os\n", hasFile && "from pathlib import Path\n"];
  const standard = imports.filter(Boolean).join("");
  const headers = needsKey ? `\nheaders = {"Authorization": f"Bearer {os.environ['CLOZE_API_KEY']}"}` : "";
  const given = needsKey ? ", headers=headers" : "";
  const start = `${standard ? `${standard}\n` : ""}import httpx

url = ${writeValue(`${server}/${path}`)}
body = ${writeValue(body, fileNames)}${headers}
`;
  if (isStream)
    return `${start}with httpx.stream("POST", url, json=body, timeout=120${given}) as answer:
    for line in answer.iter_lines():
        if line:
            print(line)
`;
  const last = out ? `open("${out}", "w", encoding="utf-8").write(answer.text)` : "print(answer.json())";
  return `${start}answer = httpx.post(url, json=body, timeout=120${given})
answer.raise_for_status()
${last}
`;
}

// A JSON value as a Python literal; an image is an expression that reads its file.
function writeValue(value, fileNames = {}) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map((one) => writeValue(one)).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value).map(([name, one]) =>
      `${JSON.stringify(name)}: ${Object.hasOwn(fileNames, name) ? writeFile(fileNames[name]) : writeValue(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

const writeFile = (name) => `base64.b64encode(Path(${JSON.stringify(name)}).read_bytes()).decode()`;

// Copy a text; true if the browser allowed it. Addresses without TLS need the older way.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "hidden";
    area.setAttribute("aria-hidden", "true");
    document.body.append(area);
    const focused = document.activeElement;
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return copied;
  }
}
