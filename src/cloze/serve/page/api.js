// Calls of the server. The key is kept in memory only: not in the address, not in storage.

const base = new URL("..", import.meta.url);
base.username = base.password = "";
let key = "";

export const server = base.href.replace(/\/$/, "");
export const setKey = (value) => { key = value; };

export class ApiError extends Error {
  constructor(message, { fix = "", status = 0, code = "" } = {}) {
    super(message);
    Object.assign(this, { fix, status, code });
  }
}

async function send(path, options) {
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let answer;
  try {
    answer = await fetch(new URL(path, base), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("the server does not answer", { fix: "check that `cloze serve` is running" });
  }
  if (!answer.ok) throw await readError(answer);
  return answer;
}

async function readError(answer) {
  const body = await answer.json().catch(() => ({}));
  const detail = typeof body.error === "object" ? body.error : { message: body.error };
  const retry = answer.headers.get("Retry-After");
  const fix = [detail?.fix, retry && `try again in ${retry} s`].filter(Boolean);
  return new ApiError(detail?.message || `the server answers with status ${answer.status}`, {
    fix: [...new Set(fix)].join("; "),
    status: answer.status,
    code: detail?.code ?? "",
  });
}

const post = (path, body, signal) =>
  send(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

export const getJson = async (path) => (await send(path, {})).json();
export const postJson = async (path, body, signal) => (await post(path, body, signal)).json();
export const postText = async (path, body, signal) => (await post(path, body, signal)).text();

// The events of a stream: each `data: JSON`, the last one `data: [DONE]`.
export async function* postStream(path, body, signal) {
  const reader = (await post(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (waiting + value).split("\n\n");
    waiting = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const found = JSON.parse(data);
      if (found.error) throw new ApiError(found.error.message ?? String(found.error), found.error);
      yield found;
    }
  }
}
