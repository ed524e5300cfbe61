// Live translation: words are translated while they are typed. What is agreed stays; the rest is grey and may change.

import { socket } from "../api.js";
import { element, get, sentenceOf } from "./dom.js";
import { chosen } from "./languages.js";

const IDLE = 700; // milliseconds without a key press after which the last word counts as whole
const PAUSE = 8000; // milliseconds without a word that end a sentence; who types is slower than who speaks
const AGAIN = 2000; // milliseconds until a connection that ended is opened again
const MOST = 1000; // words in a message
const LONG = /.{1,64}/gsu; // a word that is longer is refused, and is sent as several
// In scripts without blanks between words each character is one.
const WORD = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]|[^\s\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Tibetan}]+/gu;
const UNSPACED = /^(zh|ja|th|lo|km|my|bo)\b/;

let open = null; // the connection
let sent = []; // the words that the server has
let complete = 0; // words of sentences that are complete
let sentences = []; // the elements of the translation, by the numbers of the sentences
let timer;

// whole: whether the last word is whole even if nothing follows it
function words(whole) {
  const text = get("spoken").value, language = chosen().sourceLanguageCode;
  const parted = UNSPACED.test(language) ? text.match(WORD) ?? [] : text.split(/\s+/u).filter(Boolean);
  const found = parted.flatMap((word) => word.match(LONG));
  return whole || /\s$/u.test(text) || UNSPACED.test(language) ? found : found.slice(0, -1);
}

// Send the words that differ. Those of a complete sentence cannot be revised, so that the text begins anew.
function change(whole) {
  clearTimeout(timer);
  const now = words(whole);
  let common = 0;
  while (common < Math.min(now.length, sent.length) && now[common] === sent[common]) common += 1;
  if (common < complete) {
    restart();
    common = 0;
  }
  if (now.length > common || sent.length > common) send(common, now);
  if (!whole) timer = setTimeout(change, IDLE, true);
}

function send(from, now) {
  if (!open) begin();
  if (!open) return;
  for (let first = from; first < Math.max(now.length, from + 1); first += MOST) {
    const part = now.slice(first, first + MOST).map((text) => ({ text }));
    open.say({ words: { from: first, words: part } });
  }
  sent = now;
}

function begin() {
  const languages = chosen();
  if (!languages.sourceLanguageCode) return tell("Choose the language of the text.", true);
  const own = open = socket("v1/translate:live", (message) => own === open && receive(message), (...how) => own === open && lose(...how));
  open.say({ start: { ...languages, policy: get("policy").value, pauseMs: PAUSE } });
  tell("");
}

export function stop() {
  clearTimeout(timer);
  const before = open;
  open = null;
  before?.close();
  sent = [];
  sentences = [];
  complete = 0;
  get("heard").replaceChildren();
}

// Translate what is written, if nothing is under way.
export function resume() {
  if (!open && get("spoken").value.trim()) change(true);
}

function restart() {
  stop();
  begin();
}

function lose(reason, again) {
  stop();
  tell(reason, true);
  if (again && get("spoken").value.trim()) timer = setTimeout(resume, AGAIN);
}

function receive({ ready, update, error }) {
  if (error) return tell(sentenceOf(error.message), true);
  if (ready) get("heard").lang = ready.targetLanguageCode;
  if (!update) return;
  const { sentence = 0, agreed = "", tentative = "", isComplete = false, words: read = 0 } = update;
  if (!sentences[sentence]) {
    sentences[sentence] = { solid: element("span", ""), rest: element("span", "tentative") };
    get("heard").append(sentences[sentence].solid, sentences[sentence].rest);
  }
  const { solid, rest } = sentences[sentence];
  solid.append(agreed);
  rest.textContent = isComplete ? "" : tentative;
  if (isComplete) complete = Math.max(complete, read);
}

function tell(text, failed = false) {
  get("live-state").textContent = text;
  get("live-state").classList.toggle("warning", failed);
}

get("spoken").addEventListener("input", () => change(false));
get("policy").addEventListener("change", () => (stop(), resume()));
for (const id of ["source-language", "target-language"]) get(id).addEventListener("change", () => {
  stop();
  if (!get("live-view").hidden) resume();
});
