// The pairs of languages that models translate.

// Each pair is { source, target, model }. One that two models translate through the pivot language is there twice, once
// with each of them.
export function pairsOf(models, pivot) {
  const direct = models.flatMap((model) => {
    const sources = model.sourceLanguageCodes ?? [model.sourceLanguageCode];
    const targets = model.targetLanguageCodes ?? [model.targetLanguageCode];
    return sources.flatMap((source) => targets.map((target) => ({ source, target, model })));
  });
  return [...direct, ...throughPivot(direct, pivot)];
}

function throughPivot(pairs, pivot) {
  const known = new Set(pairs.map(({ source, target }) => `${source} ${target}`));
  const [into, outOf] = ["target", "source"].map((side) => pairs.filter((pair) => pair[side] === pivot));
  return into.flatMap(({ source, model }) => outOf
    .filter(({ target }) => target !== source && !known.has(`${source} ${target}`))
    .flatMap((second) => [model, second.model].map((each) => ({ source, target: second.target, model: each }))));
}
