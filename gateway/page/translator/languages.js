// The languages that models translate, and those that are chosen.

import { ApiError, call } from "../api.js";
import { get } from "./dom.js";

const DETECTED = ""; // the source language that is detected in each text
const NAMES = new Intl.DisplayNames(["en"], { type: "language" });

let pairs = []; // of languages: source, target, and a model that translates it
export let maxTexts = 1; // in one request

export function nameOf(tag) {
  try { return NAMES.of(tag); } catch { return tag; }
}

export async function loadLanguages() {
  const found = await call("v1/models"), { models = [] } = found;
  if (!models.length) throw new ApiError("the server has no model", 200, 5);
  ({ maxTexts } = found);
  pairs = pairsOf(models, found.pivotLanguageCodes ?? []);
  const sources = [...new Set(pairs.map(({ source }) => source))];
  fill("source-language", sources.length > 1 ? [DETECTED, ...sources] : sources);
  showPair();
}

// Each pair is { source, target, model }. One that two models translate through a pivot language is there twice, once
// with each of them.
function pairsOf(models, pivots) {
  const direct = models.flatMap((model) => {
    const sources = model.sourceLanguageCodes ?? [model.sourceLanguageCode];
    const targets = model.targetLanguageCodes ?? [model.targetLanguageCode];
    return sources.flatMap((source) => targets
      .filter((target) => target !== source).map((target) => ({ source, target, model })));
  });
  return [...direct, ...pivots.flatMap((pivot) => throughPivot(direct, pivot))];
}

function throughPivot(direct, pivot) {
  const known = new Set(direct.map(({ source, target }) => `${source} ${target}`));
  const [into, outOf] = ["target", "source"].map((side) => direct.filter((pair) => pair[side] === pivot));
  return into.flatMap(({ source, model }) => outOf
    .filter(({ target }) => target !== source && !known.has(`${source} ${target}`))
    .flatMap((second) => [model, second.model].map((each) => ({ source, target: second.target, model: each }))));
}

function fill(id, tags) {
  const before = get(id).value;
  get(id).replaceChildren(...[...new Set(tags)].map((tag) => new Option(tag ? nameOf(tag) : "Detect language", tag)));
  if (tags.includes(before)) get(id).value = before;
}

export function chosen() {
  return { sourceLanguageCode: get("source-language").value, targetLanguageCode: get("target-language").value };
}

// Offer the languages into which the chosen one is translated.
export function showPair() {
  const source = get("source-language").value;
  fill("target-language", pairs.filter((pair) => source === DETECTED || pair.source === source).map(({ target }) => target));
  showModels(chosen());
}

// Name the models of a pair, and mark the texts with its languages.
export function showModels({ sourceLanguageCode, targetLanguageCode }) {
  const used = pairs.filter(({ source, target }) => source === sourceLanguageCode && target === targetLanguageCode);
  get("model").textContent = used.map(({ model: { name, version, precision } }) => `${name} ${version} (${precision})`).join(", ");
  get("detected").textContent =
    chosen().sourceLanguageCode === DETECTED && sourceLanguageCode ? `${nameOf(sourceLanguageCode)} detected` : "";
  get("swap").disabled = !pairs.some(({ source, target }) => source === targetLanguageCode && target === sourceLanguageCode);
  get("source").lang = sourceLanguageCode;
  for (const id of ["live", "hypotheses", "menu"]) get(id).lang = targetLanguageCode;
}

export function choosePair({ sourceLanguageCode, targetLanguageCode }) {
  get("source-language").value = sourceLanguageCode;
  showPair();
  get("target-language").value = targetLanguageCode;
  showModels(chosen());
}

// The languages of a request for a text; raises ApiError for a text that no model translates.
export async function languagesOf(text, signal) {
  const languages = chosen(), { targetLanguageCode } = languages;
  if (languages.sourceLanguageCode === DETECTED) {
    const { languageCode } = await call("v1/translate:source", { texts: [text], targetLanguageCode }, signal);
    if (languageCode === targetLanguageCode) throw new ApiError(`the text is in ${nameOf(languageCode)} already`);
    languages.sourceLanguageCode = languageCode;
  }
  showModels(languages);
  return languages;
}
