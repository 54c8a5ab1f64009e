// A request as a command of curl, or as a Python program. A key is a variable, never its value.

import { server } from "./api.js";

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function writeCurl(path, body, { needsKey = false, isStream = false, out = "" } = {}) {
  const parts = [
    `curl ${isStream ? "-N " : ""}${quote(`${server}/${path}`)}`,
    "-H 'Content-Type: application/json'",
    needsKey && '-H "Authorization: Bearer $CLOZE_API_KEY"',
    `-d ${quote(JSON.stringify(body))}`,
    out && `-o ${out}`,
  ];
  return parts.filter(Boolean).join(" \\\n  ");
}

export function writePython(path, body, { needsKey = false, isStream = false, out = "" } = {}) {
  const headers = needsKey ? `\nheaders = {"Authorization": f"Bearer {os.environ['CLOZE_API_KEY']}"}` : "";
  const given = needsKey ? ", headers=headers" : "";
  const start = `${needsKey ? "import os\n\n" : ""}import httpx

url = ${writeValue(`${server}/${path}`)}
body = ${writeValue(body)}${headers}
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

// A JSON value as a Python literal.
function writeValue(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(writeValue).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${writeValue(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

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
