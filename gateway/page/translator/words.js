// The words of each sentence and of its translation: which one was translated from which.

import { element, get, points } from "./dom.js";

const WORD = /\S+/gu;

function words(text) {
  return [...text.matchAll(WORD)].map((found) => {
    const begin = points(text.slice(0, found.index)).length;
    return { text: found[0], begin, end: begin + points(found[0]).length };
  });
}

const meet = (word, span) => word.begin < (span?.end ?? 0) && (span?.begin ?? 0) < word.end;

// sentences: with sourceShown, targetShown and the links between them
// offer: called with the button of a word of a translation, the number of its sentence, and the word
export function showWords(sentences, languages, offer) {
  get("words").hidden = false;
  get("sentences").replaceChildren(...sentences.map((sentence, index) => {
    const box = element("div", "sentence");
    const source = words(sentence.sourceShown), target = words(sentence.targetShown);
    const pairs = sentence.links.flatMap((link) => target.flatMap((one, row) => meet(one, link.target)
      ? source.flatMap((other, column) => (meet(other, link.source) ? [[column, row]] : [])) : []));
    const above = source.map((word) => wordElement("span", word.text));
    const below = target.map((word) => wordElement("button", word.text));
    const light = (wanted, on) => pairs.filter(wanted).forEach(([column, row]) => {
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
    box.append(rowOf(above, languages.sourceLanguageCode), rowOf(below, languages.targetLanguageCode), quality(sentence));
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
