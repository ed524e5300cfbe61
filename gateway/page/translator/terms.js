// Terms: how words are to be translated, and what became of them in both texts.

import { element, get, points } from "./dom.js";

const MEANS = {
  MISSED: "missing", FREE: "as the model wrote it", REPAIRED: "decoded again with it", CONSTRAINED: "forced by the search",
  TRAINED: "read by the model", KEPT: "kept as it is",
};

// The terms of a request. A line is "source = target"; one without a target is kept as it is.
export function terms() {
  return get("terms").value.split("\n").map((line) => line.split("=")).flatMap(([source, ...rest]) => {
    const [from, to] = [source.trim(), rest.join("=").trim()];
    return from ? [{ source: from, target: to || from }] : [];
  });
}

export function forgetTerms() {
  get("outcomes").replaceChildren();
  get("source-marks").replaceChildren();
}

// outcomes: of the terms, as a result has them
// text, translation: the two texts, in which the spans of the outcomes are
export function showTerms(outcomes, text, translation) {
  const source = marked(text, outcomes.map((each) => each.sourceSpan));
  const target = marked(translation, outcomes.map((each) => each.targetSpan));
  get("source-marks").replaceChildren(...source.nodes, "\n"); // the last line of a text field has a height without a text
  get("live").replaceChildren(...target.nodes);
  scroll();
  get("outcomes").replaceChildren(...outcomes.map((each, index) => {
    const means = each.means.replace("TERM_MEANS_", "");
    const both = [source.marks[index], target.marks[index]].filter(Boolean);
    return outcomeLine(each, MEANS[means], both, means === "MISSED");
  }));
}

function outcomeLine({ source, target }, means, marks, missed) {
  const line = document.createElement("li");
  const button = element("button", "outcome", source === target ? source : `${source} → ${target || "another word"}`);
  button.type = "button";
  const all = [button, ...marks], light = (on) => all.forEach((each) => each.classList.toggle("lit", on));
  all.forEach((each) => each.classList.toggle("missed", missed));
  for (const name of ["pointerenter", "focus"]) button.addEventListener(name, () => light(true));
  for (const name of ["pointerleave", "blur"]) button.addEventListener(name, () => light(false));
  line.append(button, " ", element("span", missed ? "warning" : "quiet", means));
  return line;
}

// The nodes of a text with a mark at each span, and the marks by the numbers of the spans, which may be undefined.
function marked(text, spans) {
  const all = points(text), nodes = [], marks = [];
  let end = 0;
  for (const index of [...spans.keys()].filter((each) => spans[each]).sort((a, b) => begin(spans[a]) - begin(spans[b]))) {
    const span = spans[index];
    if (begin(span) < end) { // two terms have one place in a translation
      marks[index] = nodes.at(-1);
      continue;
    }
    marks[index] = element("mark", "term", all.slice(begin(span), span.end).join(""));
    nodes.push(all.slice(end, begin(span)).join(""), marks[index]);
    end = span.end;
  }
  return { nodes: [...nodes, all.slice(end).join("")], marks };
}

const begin = (span) => span.begin ?? 0;

// The marks are behind the text field, whose text covers theirs.
function scroll() {
  get("source-marks").scrollTop = get("source").scrollTop;
}

get("source").addEventListener("scroll", scroll);
