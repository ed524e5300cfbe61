// The page: translates while you type, and shows where every word came from.

import { AttentionTable } from "./attention.js";

const get = (id) => document.getElementById(id);
const PAUSE = 250; // milliseconds without a key press after which a text is translated
const WORD = /\S+/gu;

let models = []; // of the server
let running = null; // aborts the request that is under way
let sentences = []; // of the translation: source, target, score, confidence, warnings, and the text between them
let separators = []; // before the first sentence, between two, and after the last

class ApiError extends Error {}

async function send(path, body, signal) {
  const headers = { "content-type": "application/json" };
  if (get("key").value) headers.authorization = `Bearer ${get("key").value}`;
  const request = body ? { method: "POST", headers, body: JSON.stringify(body), signal } : { headers, signal };
  const reply = await fetch(path, request);
  if (reply.ok) return reply;
  const error = await reply.json().catch(() => ({}));
  if (reply.status === 401 || reply.status === 403) get("key-field").hidden = false;
  throw new ApiError(error.message || `the server answered ${reply.status}`);
}

const call = async (path, body) => (await send(path, body)).json();
const attention = new AttentionTable(call);

function say(text) {
  get("state").textContent = text;
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

async function loadModels() {
  models = (await call("v1/models")).models ?? [];
  const pairs = models.flatMap((model) => {
    const sources = model.sourceLanguageCodes ?? [model.sourceLanguageCode];
    const targets = model.targetLanguageCodes ?? [model.targetLanguageCode];
    return sources.flatMap((source) => targets.map((target) => [source, target]));
  });
  fill("source-language", pairs.map(([source]) => source));
  fill("target-language", pairs.map(([, target]) => target));
  const named = models.map((model) => `${model.name} ${model.version} (${model.precision})`);
  get("model").textContent = named.join(", ");
  showCode();
}

function fill(id, tags) {
  const names = new Intl.DisplayNames(["en"], { type: "language" });
  const name = (tag) => { try { return names.of(tag); } catch { return tag; } };
  const before = get(id).value;
  get(id).replaceChildren(...[...new Set(tags)].map((tag) => new Option(name(tag), tag)));
  if (before) get(id).value = before;
}

async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
  }
}

async function translate() {
  running?.abort();
  const own = running = new AbortController();
  const text = get("source").value;
  get("hypotheses").replaceChildren();
  closeMenu();
  if (!text.trim()) return clear();
  const options = { beamSize: Number(get("search").value), numHypotheses: 1, longText: "LONG_TEXT_POLICY_SPLIT" };
  const live = get("live");
  live.setAttribute("aria-busy", "true");
  say("");
  try {
    let begun = false;
    for await (const event of events(await send("v1/translate:stream", asked({ options }), own.signal))) {
      if (event.code) throw new ApiError(event.message);
      if (event.delta) {
        if (!begun) live.textContent = "";
        begun = true;
        live.textContent += event.delta.text;
      }
      if (event.done) await finish(text, event.done.result, own);
    }
  } catch (error) {
    if (error.name !== "AbortError") {
      say(error instanceof ApiError ? error.message : "The server does not answer. Your text is kept; it is tried again.");
      if (!(error instanceof ApiError)) setTimeout(() => own === running && translate(), 2000);
    }
  } finally {
    if (own === running) live.setAttribute("aria-busy", "false");
  }
}

function clear() {
  get("live").textContent = "";
  get("live").setAttribute("aria-busy", "false");
  get("words").hidden = true;
  sentences = [];
  say("");
}

async function finish(text, result, own) {
  if (result.status?.code) throw new ApiError(result.status.message);
  const translation = result.hypotheses[0].text;
  get("live").textContent = translation;
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
  const pairs = sentences.map(({ source, target }) => ({ source, target }));
  if (!pairs.length) return;
  const { results } = await call("v1/score", { pairs, ...languages(), returnAlignment: true })
    .catch(() => ({ results: [] })); // a model without attention has no links
  if (own && own !== running) return;
  sentences.forEach((each, index) => Object.assign(each, {
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
      each.setAttribute("aria-description", describe(pairs, row, source));
      each.addEventListener("click", () => offer(each, index, target[row]));
    });
    box.append(rowOf(above), rowOf(below), quality(sentence));
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

function rowOf(some) {
  const row = element("div", "row");
  row.append(...some.flatMap((each) => [each, " "]));
  return row;
}

function quality({ confidence, score, warnings }) {
  const line = element("div", "meter");
  if (confidence !== undefined) {
    const meter = document.createElement("meter");
    Object.assign(meter, { min: 0, max: 1, low: 0.3, high: 0.6, optimum: 1, value: confidence });
    meter.setAttribute("aria-label", "confidence");
    line.append(meter, `confidence ${Math.round(100 * confidence)} %`);
  }
  line.append(` score ${score.toFixed(2)}`);
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
  let found;
  try {
    found = (await call("v1/translate", request)).results[0].hypotheses ?? [];
  } catch (error) {
    return say(error.message);
  }
  const seen = new Map();
  for (const { text, score } of found) {
    const next = text.slice(before.length).trim().split(/\s+/u)[0] || "(end)";
    if (!seen.has(next)) seen.set(next, { text, score: score ?? 0 });
  }
  menu.replaceChildren(...[...seen].map(([next, whole]) => {
    const item = element("button", "", next);
    item.type = "button";
    item.setAttribute("role", "menuitem");
    item.title = whole.text;
    item.addEventListener("click", () => choose(index, whole));
    return item;
  }));
  const place = button.getBoundingClientRect();
  menu.style.left = `${Math.min(place.left, innerWidth - 200) + scrollX}px`;
  menu.style.top = `${place.bottom + scrollY + 4}px`;
  menu.hidden = false;
  menu.opener = button;
  menu.firstElementChild?.focus();
}

function closeMenu() {
  get("menu").hidden = true;
}

async function choose(index, { text, score }) {
  closeMenu();
  Object.assign(sentences[index], { target: text, score, confidence: undefined, warnings: [] });
  get("live").textContent = separators.map((each, place) => each + (sentences[place]?.target ?? "")).join("");
  await align(null);
  document.querySelectorAll(".sentence")[index]?.querySelector("button")?.focus();
}

async function showMore() {
  const request = asked({ options: { beamSize: 4, numHypotheses: 4, longText: "LONG_TEXT_POLICY_SPLIT" } });
  try {
    const { hypotheses = [] } = (await call("v1/translate", request)).results[0];
    get("hypotheses").replaceChildren(...hypotheses.map(({ text, score }) =>
      element("li", "", `${text} (${(score ?? 0).toFixed(2)})`)));
  } catch (error) {
    say(error.message);
  }
}

function showCode() {
  const text = get("source").value || "Hello.", { sourceLanguageCode, targetLanguageCode } = languages();
  const body = { texts: [text], sourceLanguageCode, targetLanguageCode };
  const url = `${location.origin}/v1/translate`, json = JSON.stringify(body);
  get("code-curl").textContent = `curl ${url} -H 'content-type: application/json' -d '${json.replaceAll("'", "'\\''")}'`;
  get("code-python").textContent = [
    "import json, urllib.request", "",
    `request = urllib.request.Request(${JSON.stringify(url)}, json.dumps(${json}).encode(), {"content-type": "application/json"})`,
    'print(json.load(urllib.request.urlopen(request))["results"][0]["hypotheses"][0]["text"])'].join("\n");
  get("code-javascript").textContent = [
    `const reply = await fetch(${JSON.stringify(url)}, {`, '  method: "POST", headers: { "content-type": "application/json" },',
    `  body: JSON.stringify(${json}),`, "});", "console.log((await reply.json()).results[0].hypotheses[0].text);"].join("\n");
}

// The fragment is never sent to a server, so that a link can hold a text.
function readFragment() {
  const text = new URLSearchParams(location.hash.slice(1)).get("text");
  if (text) get("source").value = text;
}

let timer;
function changed() {
  get("count").textContent = points(get("source").value).length;
  showCode();
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE);
}

function darken() {
  const dark = get("theme").getAttribute("aria-pressed") !== "true";
  get("theme").setAttribute("aria-pressed", String(dark));
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

get("theme").setAttribute("aria-pressed", String(matchMedia("(prefers-color-scheme: dark)").matches));
get("theme").addEventListener("click", darken);
get("source").addEventListener("input", changed);
get("options").addEventListener("change", changed);
get("options").addEventListener("submit", (event) => event.preventDefault());
get("key").addEventListener("change", () => loadModels().then(changed).catch((error) => say(error.message)));
get("copy").addEventListener("click", () => navigator.clipboard.writeText(get("live").textContent).then(() => say("copied")));
get("best").addEventListener("click", showMore);
document.addEventListener("keydown", (event) => {
  const menu = get("menu"), items = [...menu.children], place = items.indexOf(document.activeElement);
  if (menu.hidden) return;
  if (event.key === "Escape") { closeMenu(); menu.opener?.focus(); }
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { items[(place + step + items.length) % items.length]?.focus(); event.preventDefault(); }
});
document.addEventListener("pointerdown", (event) => get("menu").contains(event.target) || closeMenu());
readFragment();
loadModels().then(changed).catch((error) => say(error.message));
