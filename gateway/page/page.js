// The page: translates while you type, and shows where every word came from.

import { ApiError, call, events, send } from "./api.js";
import { AttentionTable } from "./attention.js";
import { pairsOf } from "./pairs.js";

const get = (id) => document.getElementById(id);
const PAUSE = 250; // milliseconds without a key press after which a text is translated
const WORD = /\S+/gu;

let models = []; // of the server
let pairs = []; // of languages that a model translates: source, target, model
let maxTexts = 1; // in one request
let running = null; // aborts the request that is under way
let sentences = []; // of the translation: source, target, score, confidence, warnings, and the text between them
let separators = []; // before the first sentence, between two, and after the last

const attention = new AttentionTable(call);

function say(text, failed = false) {
  get("state").textContent = text;
  get("state").classList.toggle("warning", failed);
}

// Say why something failed. again: does it once more, after the time in which it may succeed.
function fail(error, again) {
  if (error.name === "AbortError") return;
  const message = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  const retried = again && error.wait !== undefined;
  say(retried ? `${message}. The page tries again.` : `${message}.`, true);
  if (retried) setTimeout(again, 1000 * error.wait);
}

// Code points, in which the API counts; JavaScript counts UTF-16 units.
const points = (text) => Array.from(text);
const part = (text, span) => points(text).slice(span?.begin ?? 0, span?.end ?? 0).join("");

function languages() {
  return { sourceLanguageCode: get("source-language").value, targetLanguageCode: get("target-language").value };
}

function asked(extra = {}) {
  return { texts: [get("source").value], ...languages(), text: { returnSentences: true }, ...extra };
}

async function start() {
  try {
    await loadModels();
    changed();
  } catch (error) {
    fail(error, start);
  }
}

async function loadModels() {
  const found = await call("v1/models");
  ({ models = [], maxTexts } = found);
  if (!models.length) throw new ApiError("the server has no model", 200, 5);
  pairs = pairsOf(models, found.pivotLanguageCode);
  fill("source-language", pairs.map(({ source }) => source));
  showPair();
}

// Offer the languages into which the chosen one is translated, and name the models of the chosen pair.
function showPair() {
  const some = pairs.filter(({ source }) => source === get("source-language").value);
  fill("target-language", some.map(({ target }) => target));
  const { sourceLanguageCode, targetLanguageCode } = languages();
  const used = some.filter(({ target }) => target === targetLanguageCode).map(({ model }) => model);
  get("model").textContent = used.map((each) => `${each.name} ${each.version} (${each.precision})`).join(", ");
  get("source").lang = sourceLanguageCode;
  for (const id of ["live", "hypotheses", "menu"]) get(id).lang = targetLanguageCode;
}

function fill(id, tags) {
  const names = new Intl.DisplayNames(["en"], { type: "language" });
  const name = (tag) => { try { return names.of(tag); } catch { return tag; } };
  const before = get(id).value;
  get(id).replaceChildren(...[...new Set(tags)].map((tag) => new Option(name(tag), tag)));
  if (tags.includes(before)) get(id).value = before;
}

async function translate() {
  running?.abort();
  const own = running = new AbortController();
  const text = get("source").value;
  get("hypotheses").replaceChildren();
  closeMenu();
  if (!text.trim()) return clear();
  if (!models.length) return; // start says why
  const options = { beamSize: Number(get("search").value), numHypotheses: 1, longText: "LONG_TEXT_POLICY_SPLIT" };
  get("live").setAttribute("aria-busy", "true");
  say("");
  try {
    await receive(await send("v1/translate:stream", asked({ options }), own.signal), text, own);
  } catch (error) {
    if (own !== running) return;
    if (error.wait === undefined) clear(); // the translation is not that of the text
    fail(error, () => own === running && translate());
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
  attention.show(sentences, languages());
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
  get("live").textContent = translation;
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
      results.push(...(await call("v1/score", { pairs, ...languages(), returnAlignment: true })).results);
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
  showWords();
  attention.show(sentences, languages());
}

function words(text) {
  return [...text.matchAll(WORD)].map((found) => {
    const begin = points(text.slice(0, found.index)).length;
    return { text: found[0], begin, end: begin + points(found[0]).length };
  });
}

const meet = (word, span) => word.begin < (span?.end ?? 0) && (span?.begin ?? 0) < word.end;

function showWords() {
  get("words").hidden = false;
  get("sentences").replaceChildren(...sentences.map((sentence, index) => {
    const box = element("div", "sentence");
    const source = words(sentence.sourceShown), target = words(sentence.targetShown);
    const pairs = sentence.links.flatMap((link) => target.flatMap((one, row) => meet(one, link.target)
      ? source.flatMap((other, column) => (meet(other, link.source) ? [[column, row]] : [])) : []));
    const above = source.map((word) => wordElement("span", word.text));
    const below = target.map((word) => wordElement("button", word.text));
    const light = (chosen, on) => pairs.filter(chosen).forEach(([column, row]) => {
      above[column].classList.toggle("lit", on);
      below[row].classList.toggle("lit", on);
    });
    above.forEach((each, column) => watch(each, (on) => light((pair) => pair[0] === column, on)));
    below.forEach((each, row) => {
      watch(each, (on) => light((pair) => pair[1] === row, on));
      each.setAttribute("aria-haspopup", "menu");
      if (pairs.length) each.setAttribute("aria-description", describe(pairs, row, source));
      each.addEventListener("click", () => offer(each, index, target[row]));
    });
    const { sourceLanguageCode, targetLanguageCode } = languages();
    box.append(rowOf(above, sourceLanguageCode), rowOf(below, targetLanguageCode), quality(sentence));
    return box;
  }));
}

function describe(pairs, row, source) {
  const from = [...new Set(pairs.filter((pair) => pair[1] === row).map(([column]) => source[column].text))];
  return from.length ? `from ${from.join(" ")}` : "from no word";
}

function watch(each, light) {
  for (const name of ["pointerenter", "focus"]) each.addEventListener(name, () => light(true));
  for (const name of ["pointerleave", "blur"]) each.addEventListener(name, () => light(false));
}

function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

function wordElement(tag, text) {
  const made = element(tag, "word", text);
  if (tag === "button") made.type = "button";
  return made;
}

function rowOf(some, language) {
  const row = Object.assign(element("div", "row"), { lang: language, dir: "auto" });
  row.append(...some.flatMap((each) => [each, " "]));
  return row;
}

function quality({ confidence, score, warnings }) {
  const line = element("div", "meter");
  if (confidence !== undefined) {
    const meter = document.createElement("meter");
    Object.assign(meter, { min: 0, max: 1, low: 0.3, high: 0.6, optimum: 1, value: confidence });
    meter.setAttribute("aria-label", "confidence");
    line.append(meter, element("span", "", `confidence ${Math.round(100 * confidence)} %`));
  }
  line.append(element("span", "", `score ${score.toFixed(2)}`));
  for (const code of warnings) {
    line.append(element("span", "warning", code.replace("WARNING_CODE_", "").replaceAll("_", " ").toLowerCase()));
  }
  return line;
}

// Offer what else may stand in the place of a word of the translation of a sentence.
async function offer(button, index, word) {
  const sentence = sentences[index], menu = get("menu");
  const before = points(sentence.targetShown).slice(0, word.begin).join("").trimEnd();
  const options = { beamSize: 6, numHypotheses: 6 };
  const request = { texts: [sentence.source], ...languages(), options, targetPrefixes: [before],
    text: { splitSentences: "SENTENCE_SPLITTING_OFF" } };
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

function menuItem(text, chosen) {
  const item = Object.assign(element("button", "", text), { type: "button", dir: "auto" });
  item.setAttribute("role", "menuitem");
  item.addEventListener("click", chosen);
  return item;
}

function openMenu(button, items) {
  const menu = get("menu"), place = button.getBoundingClientRect();
  closeMenu();
  menu.replaceChildren(...items);
  menu.hidden = false;
  menu.opener = button;
  button.setAttribute("aria-expanded", "true");
  const right = document.documentElement.clientWidth - menu.offsetWidth - 8;
  menu.style.left = `${Math.max(Math.min(place.left, right), 8) + scrollX}px`;
  menu.style.top = `${place.bottom + scrollY + 4}px`;
  menu.firstElementChild.focus();
}

function closeMenu() {
  get("menu").hidden = true;
  get("menu").opener?.removeAttribute("aria-expanded");
}

// The keys of a menu: WAI-ARIA Authoring Practices, "Menu and Menubar Pattern".
function moveInMenu(event) {
  const menu = get("menu"), items = [...menu.children], place = items.indexOf(document.activeElement);
  if (menu.hidden) return;
  if (event.key === "Escape" || event.key === "Tab") {
    closeMenu();
    menu.opener.focus(); // Tab goes on from there
  }
  const next = { ArrowDown: place + 1, ArrowUp: place - 1, Home: 0, End: -1 }[event.key];
  if (next === undefined) return;
  items.at(next % items.length).focus();
  event.preventDefault();
}

async function choose(index, { text, score }) {
  closeMenu();
  Object.assign(sentences[index], { target: text, score, confidence: undefined, warnings: [] });
  get("live").textContent = separators.map((each, place) => each + (sentences[place]?.target ?? "")).join("");
  await align(null);
  document.querySelectorAll(".sentence")[index]?.querySelector("button")?.focus();
}

async function showMore() {
  const own = running;
  const request = asked({ options: { beamSize: 4, numHypotheses: 4, longText: "LONG_TEXT_POLICY_SPLIT" } });
  say("Searching");
  try {
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

function showCode() {
  const text = get("source").value || "Hello.", { sourceLanguageCode, targetLanguageCode } = languages();
  const options = { beamSize: Number(get("search").value), longText: "LONG_TEXT_POLICY_SPLIT" };
  const body = { texts: [text], sourceLanguageCode, targetLanguageCode, options };
  const headers = { "content-type": "application/json", ...(get("key").value && { authorization: "Bearer KEY" }) };
  const url = new URL("v1/translate", location).href, json = JSON.stringify(body);
  get("code-curl").textContent = [
    `curl ${url}`, ...Object.entries(headers).map(([name, value]) => `-H '${name}: ${value}'`),
    `-d '${json.replaceAll("'", "'\\''")}'`].join(" \\\n  ");
  get("code-python").textContent = [
    "import json, urllib.request", "",
    `request = urllib.request.Request(${JSON.stringify(url)}, json.dumps(${json}).encode(), ${JSON.stringify(headers)})`,
    'print(json.load(urllib.request.urlopen(request))["results"][0]["hypotheses"][0]["text"])'].join("\n");
  get("code-javascript").textContent = [
    `const reply = await fetch(${JSON.stringify(url)}, {`, `  method: "POST", headers: ${JSON.stringify(headers)},`,
    `  body: JSON.stringify(${json}),`, "});", "console.log((await reply.json()).results[0].hypotheses[0].text);"].join("\n");
}

// The fragment is never sent to a server, so that a link can hold a text.
function readFragment() {
  const text = new URLSearchParams(location.hash.slice(1)).get("text");
  if (text) get("source").value = text;
}

let timer;
function changed() {
  const { value, maxLength } = get("source"), length = points(value).length;
  get("count").textContent = length === 1 ? "1 character" : `${length.toLocaleString("en")} characters`;
  get("full").textContent = value.length < maxLength ? "" : "The page takes no longer text: what is beyond is left out.";
  showCode();
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
}

get("source").addEventListener("input", changed);
get("options").addEventListener("change", () => (showPair(), changed()));
get("options").addEventListener("submit", (event) => event.preventDefault());
get("key").addEventListener("change", start);
get("copy").addEventListener("click", copy);
get("best").addEventListener("click", showMore);
document.addEventListener("keydown", moveInMenu);
document.addEventListener("pointerdown", (event) => get("menu").contains(event.target) || closeMenu());
readFragment();
start();
