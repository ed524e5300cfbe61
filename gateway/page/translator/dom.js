// What all parts of the page use: elements, places in texts, and the line that says what happens.

export const get = (id) => document.getElementById(id);

export function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

// Code points, in which the API counts; JavaScript counts UTF-16 units.
export const points = (text) => Array.from(text);
export const part = (text, span) => points(text).slice(span?.begin ?? 0, span?.end ?? 0).join("");

export const sentenceOf = (message) => `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;

export function say(text, failed = false) {
  get("state").textContent = text;
  get("state").classList.toggle("warning", failed);
}

// Say why something failed. again: does it once more, after the time in which it may succeed.
export function fail(error, again) {
  if (error.name === "AbortError") return;
  const retried = again && error.wait !== undefined;
  say(retried ? `${sentenceOf(error.message)} The page tries again.` : sentenceOf(error.message), true);
  if (retried) setTimeout(again, 1000 * error.wait);
}
