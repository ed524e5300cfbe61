// The page: its options, the text and its code, and files.

import { fail, get, points } from "./dom.js";
import { chosen, choosePair, loadLanguages, showPair } from "./languages.js";
import { showCode } from "./code.js";
import { terms } from "./terms.js";
import { decoding, translate } from "./text.js";
import "./files.js";
import { resume, stop } from "./live.js";

const PAUSE = 250; // milliseconds without a key press after which a text is translated

let ready = false; // the languages are known
let timer;

async function start() {
  try {
    await loadLanguages();
    ready = true;
    changed();
  } catch (error) {
    fail(error, start);
  }
}

function changed() {
  const { value, maxLength } = get("source"), length = points(value).length;
  get("count").textContent = length === 1 ? "1 character" : `${length.toLocaleString("en")} characters`;
  get("full").textContent = value.length < maxLength ? "" : "The page takes no longer text: what is beyond is left out.";
  showRequest(chosen());
  clearTimeout(timer);
  if (ready) timer = setTimeout(translate, PAUSE, showRequest); // else start says why not
}

function showRequest(languages) {
  const named = Object.fromEntries(Object.entries(languages).filter(([, tag]) => tag));
  showCode({ texts: [get("source").value || "Hello."], ...named, options: decoding(), terms: terms() });
}

// Translate back: the languages change places, and the translation becomes the text.
function swap() {
  choosePair({ sourceLanguageCode: chosen().targetLanguageCode, targetLanguageCode: get("source").lang });
  get("source").value = get("live").textContent;
  changed();
}

function showView() {
  const { value } = document.querySelector("[name=view]:checked");
  get("text-view").hidden = value !== "text";
  get("live-view").hidden = value !== "live";
  get("files-view").hidden = value !== "files";
  value === "live" ? resume() : stop();
}

// The fragment is never sent to a server, so that a link can hold a text.
function readFragment() {
  const text = new URLSearchParams(location.hash.slice(1)).get("text");
  if (text) get("source").value = text;
}

for (const id of ["source", "terms"]) get(id).addEventListener("input", changed);
for (const id of ["source-language", "target-language"]) get(id).addEventListener("change", showPair);
get("options").addEventListener("change", () => (showView(), changed()));
get("options").addEventListener("submit", (event) => event.preventDefault());
get("swap").addEventListener("click", swap);
get("key").addEventListener("change", start);
readFragment();
showView(); // which browsers keep when a page is loaded again
start();
