// Requests to the API of the server, and why they fail.

const key = document.getElementById("key");
const NO_ANSWER = "the server does not answer";
const PAUSE = 2; // seconds until a server that does not answer is tried again

export class ApiError extends Error {
  // status: that of HTTP; 0: there was no answer
  // wait: seconds until the same request may succeed; undefined: it will not
  constructor(message, status = 0, wait = undefined) {
    super(message);
    Object.assign(this, { status, wait });
  }
}

const unanswered = (error) => {
  throw error.name === "AbortError" ? error : new ApiError(NO_ANSWER, 0, PAUSE);
};

// A request without a body is a GET. body: a form, or what is sent as JSON
export async function send(path, body, signal) {
  const form = body instanceof FormData, headers = form ? {} : { "content-type": "application/json" };
  if (/[^\x20-\x7e]/.test(key.value)) throw new ApiError("the API key has characters that no key has");
  if (key.value) headers.authorization = `Bearer ${key.value.trim()}`;
  const request = body ? { method: "POST", headers, body: form ? body : JSON.stringify(body), signal } : { headers, signal };
  const reply = await fetch(path, request).catch(unanswered);
  if (reply.ok) return reply;
  const { message } = await reply.json().catch(() => ({}));
  const wait = Number(reply.headers.get("retry-after")) || undefined;
  if (reply.status === 401 || reply.status === 403) document.getElementById("key-field").hidden = false;
  const missing = reply.status === 401 && !key.value;
  throw new ApiError(missing ? "this server needs an API key" : message || `the server answered ${reply.status}`, reply.status, wait);
}

const MAY_SUCCEED = [1006, 1012, 1013, 4429, 4503, 4504]; // close codes after which the same may succeed

// A WebSocket with messages in JSON. received: called with each message
// lost: called when it ended without being done, with the reason, and whether the same may succeed later
// The key is a subprotocol, because a browser sets no headers of a WebSocket. Messages wait until it is open.
export function socket(path, received, lost) {
  const protocols = ["lingon.live.v1"], written = key.value.trim();
  if (written) protocols.push(`lingon.key.${btoa(written).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`);
  const url = new URL(path, location);
  url.protocol = url.protocol.replace("http", "ws");
  const own = new WebSocket(url, protocols), waiting = [];
  own.addEventListener("open", () => waiting.splice(0).forEach((each) => own.send(each)));
  own.addEventListener("message", ({ data }) => received(JSON.parse(data)));
  own.addEventListener("close", ({ code, reason }) => code === 1000 || lost(reason ? `${reason}.` : "The server does not answer.", MAY_SUCCEED.includes(code)));
  const say = (message) => own.readyState === WebSocket.CONNECTING ? waiting.push(JSON.stringify(message)) : own.send(JSON.stringify(message));
  return { say, close: () => own.close() };
}

export const call = async (path, body, signal) => (await send(path, body, signal)).json();

// The messages of a stream, until the one that says that the result is complete.
export async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read().catch(unanswered);
    if (done) throw new ApiError(NO_ANSWER, 0, PAUSE); // the connection ended early
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines.filter((each) => each.startsWith("data: "))) {
      const event = JSON.parse(line.slice(6));
      if (event.code) throw new ApiError(event.message);
      yield event;
      if (event.done) return;
    }
  }
}
