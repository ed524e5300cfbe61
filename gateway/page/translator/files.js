// Files: each is sent to the server and comes back translated, one after the other.

import { send } from "../api.js";
import { element, get, sentenceOf } from "./dom.js";
import { chosen, nameOf } from "./languages.js";

const waiting = []; // files to send: { file, fields, state, aborts }
let busy = false;

function add(files) {
  for (const file of files) {
    const state = element("span", "quiet", "Waiting"), aborts = new AbortController();
    state.setAttribute("role", "status");
    const remove = Object.assign(element("button", "", "Remove"), { type: "button" });
    remove.setAttribute("aria-label", `Remove ${file.name}`);
    const line = element("li", "");
    line.append(element("span", "name", file.name), state, remove);
    remove.addEventListener("click", () => (aborts.abort(), line.remove()));
    get("file-list").append(line);
    waiting.push({ file, fields: { ...chosen(), beamSize: get("search").value }, state, aborts });
  }
  next();
}

async function next() {
  const job = busy ? undefined : waiting.shift();
  if (!job) return;
  busy = true;
  if (!job.aborts.signal.aborted) await translate(job);
  busy = false;
  next();
}

async function translate(job) {
  const { file, fields, state, aborts } = job;
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.append(name, value);
  form.append("file", file);
  tell(state, "Translating");
  try {
    const reply = await send("v1/translate:document", form, aborts.signal);
    const detected = reply.headers.get("x-lingon-detected-language");
    showResult(state, await reply.blob(), nameIn(reply), detected);
  } catch (error) {
    if (error.name === "AbortError") return;
    tell(state, sentenceOf(error.message) + (error.wait === undefined ? "" : " The page tries again."), true);
    if (error.wait !== undefined) setTimeout(() => (waiting.push(job), next()), 1000 * error.wait);
  }
}

function tell(state, text, failed = false) {
  state.textContent = text;
  state.classList.toggle("warning", failed);
}

const nameIn = (reply) => decodeURIComponent(reply.headers.get("content-disposition").split("filename*=UTF-8''")[1]);

function showResult(state, content, name, detected) {
  const link = Object.assign(element("a", "", name), { href: URL.createObjectURL(content), download: name });
  tell(state, detected ? `from ${nameOf(detected)} ` : "");
  state.append(link);
}

function dropped(event) {
  event.preventDefault();
  get("drop").classList.remove("over");
  add(event.dataTransfer.files);
}

// Without this a file that misses its place would replace the page.
for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
get("drop").addEventListener("dragover", () => get("drop").classList.add("over"));
get("drop").addEventListener("dragleave", () => get("drop").classList.remove("over"));
get("drop").addEventListener("drop", dropped);
get("file").addEventListener("change", () => {
  add(get("file").files);
  get("file").value = ""; // the same file can be chosen again
});
