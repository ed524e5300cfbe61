// A text: translated while it is typed, with the words of its translation and what else may stand in their places.

import { ApiError, call, events, send } from "../api.js";
import { AttentionTable } from "./attention.js";
import { element, fail, get, part, points, say } from "./dom.js";
import { languagesOf, maxTexts } from "./languages.js";
import { closeMenu, menuItem, openMenu } from "./menu.js";
import { forgetTerms, showTerms, terms } from "./terms.js";
import { showWords } from "./words.js";

let running = null; // aborts the request that is under way
let languages = {}; // of the text and its translation, as a request names them
let sentences = []; // of the translation: source, target, score, confidence, warnings, and the text between them
let separators = []; // before the first sentence, between two, and after the last

const attention = new AttentionTable(call);

export const decoding = () => ({ beamSize: Number(get("search").value), longText: "LONG_TEXT_POLICY_SPLIT" });

function asked(options) {
  return { texts: [get("source").value], ...languages, text: { returnSentences: true }, options, terms: terms() };
}

// learned: called with the languages of the text when they are known
export async function translate(learned) {
  running?.abort();
  const own = running = new AbortController();
  const text = get("source").value;
  get("hypotheses").replaceChildren();
  closeMenu();
  forgetTerms();
  if (!text.trim()) return clear();
  get("live").setAttribute("aria-busy", "true");
  say("");
  try {
    const found = await languagesOf(text, own.signal);
    if (own !== running) return;
    learned(languages = found);
    await receive(await send("v1/translate:stream", asked({ ...decoding(), numHypotheses: 1 }), own.signal), text, own);
  } catch (error) {
    if (own !== running) return;
    if (error.wait === undefined) clear(); // the translation is not that of the text
    fail(error, () => own === running && translate(learned));
  } finally {
    if (own === running) get("live").setAttribute("aria-busy", "false");
  }
}

async function receive(reply, text, own) {
  const live = get("live");
  let begun = false;
  for await (const { delta, done } of events(reply)) {
    if (delta) live.textContent = (begun ? live.textContent : "") + delta.text;
    begun ||= Boolean(delta);
    if (done) await finish(text, done.result, own);
  }
}

function clear() {
  get("live").textContent = "";
  get("live").setAttribute("aria-busy", "false");
  get("words").hidden = true;
  sentences = [];
  attention.show(sentences, languages);
  enable(false);
  say("");
}

// There is something to copy.
function enable(on) {
  for (const id of ["copy", "best"]) get(id).disabled = !on;
}

async function finish(text, result, own) {
  if (result.status?.code) throw new ApiError(result.status.message);
  const translation = result.hypotheses[0].text;
  showTerms(result.terms ?? [], text, translation);
  enable(true);
  let end = 0;
  separators = [];
  sentences = (result.sentences ?? []).map((each) => {
    separators.push(part(translation, { begin: end, end: each.target?.begin ?? 0 }));
    end = each.target?.end ?? 0;
    return {
      source: part(text, each.source), target: part(translation, each.target), score: each.score ?? 0,
      confidence: each.confidence, warnings: each.warnings ?? [],
    };
  });
  separators.push(points(translation).slice(end).join(""));
  await align(own);
}

// Learn the links of all sentences, which tell what each word was translated from.
async function align(own) {
  const results = [], some = [...sentences];
  try {
    for (let begin = 0; begin < some.length; begin += maxTexts) {
      const pairs = some.slice(begin, begin + maxTexts).map(({ source, target }) => ({ source, target }));
      results.push(...(await call("v1/score", { pairs, ...languages, returnAlignment: true })).results);
      if (own && own !== running) return;
    }
  } catch (error) {
    if (own && own !== running) return;
    if (error.status !== 501) fail(error); // a model without attention has no links
  }
  some.forEach((each, index) => Object.assign(each, {
    links: results[index]?.alignment ?? [],
    sourceShown: results[index]?.normalisedSource ?? each.source,
    targetShown: results[index]?.normalisedTarget ?? each.target,
  }));
  showWords(sentences, languages, offer);
  attention.show(sentences, languages);
}

// Offer what else may stand in the place of a word of the translation of a sentence.
async function offer(button, index, word) {
  const sentence = sentences[index];
  const before = points(sentence.targetShown).slice(0, word.begin).join("").trimEnd();
  const request = { texts: [sentence.source], ...languages, options: { beamSize: 6, numHypotheses: 6 },
    targetPrefixes: [before], text: { splitSentences: "SENTENCE_SPLITTING_OFF" } };
  let items;
  try {
    const { hypotheses = [], status } = (await call("v1/translate", request)).results[0];
    if (status?.code) throw new ApiError(status.message);
    items = [...nextWords(hypotheses, before)].map(([next, whole]) => menuItem(next, () => choose(index, whole)));
  } catch (error) {
    items = [menuItem(error.message, () => closeMenu())];
  }
  if (sentence === sentences[index] && button.isConnected) openMenu(button, items);
}

// Map the word that follows the text before it to the best translation that has it there.
function nextWords(hypotheses, before) {
  const found = new Map();
  for (const { text, score = 0 } of hypotheses) {
    const next = text.slice(before.length).trim().split(/\s+/u)[0] || "(end)";
    if (!found.has(next)) found.set(next, { text, score });
  }
  return found;
}

async function choose(index, { text, score }) {
  closeMenu();
  forgetTerms();
  Object.assign(sentences[index], { target: text, score, confidence: undefined, warnings: [] });
  get("live").textContent = separators.map((each, place) => each + (sentences[place]?.target ?? "")).join("");
  await align(null);
  document.querySelectorAll(".sentence")[index]?.querySelector("button")?.focus();
}

async function showMore() {
  const own = running;
  say("Searching");
  try {
    const request = asked({ ...decoding(), beamSize: 4, numHypotheses: 4 });
    const { hypotheses = [], status } = (await call("v1/translate", request)).results[0];
    if (own !== running) return;
    if (status?.code) throw new ApiError(status.message);
    say("");
    get("hypotheses").replaceChildren(...hypotheses.map(({ text, score }) =>
      Object.assign(element("li", "", `${text} (${(score ?? 0).toFixed(2)})`), { dir: "auto" })));
  } catch (error) {
    if (own === running) fail(error);
  }
}

async function copy() {
  const text = get("live").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // browsers have a clipboard over HTTPS and on the machine itself alone
    getSelection().selectAllChildren(get("live"));
    if (!document.execCommand("copy")) return say("The browser does not let the page copy.", true);
  }
  say("Copied");
}

get("copy").addEventListener("click", copy);
get("best").addEventListener("click", showMore);
