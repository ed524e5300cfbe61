#!/usr/bin/env bash
# Guess, written down first: where a sentence has no second reference, an empty string in the second stream means the same
# to sacreBLEU as None, and changes no score.
#
# Seen with sacrebleu 2.6.0: None means that for all metrics. An empty string is a reference of length 0 for BLEU, whose
# brevity penalty takes the closest length, so that short outputs score better (16.1 to 38.6 here). For TER it is a
# reference that must be reached, and averages the length: worse (56 to 100 here). chrF++ and chrF ignore it.
#
# Printed: the scores of the same outputs with one stream, and with a second one of None and of empty strings. Exits with 1
# if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sacrebleu==2.6.0
cat > "$folder/references.py" <<'PYTHON'
import sacrebleu

outputs = ["the cat sat", "dogs run very fast today"]
first = ["the cat sat on a mat .", "dogs run quite fast today in the park ."]
streams = {"one stream": [first], "None": [first, [None, None]], "empty": [first, ["", ""]]}
metrics = {"BLEU": sacrebleu.corpus_bleu, "chrF": sacrebleu.corpus_chrf, "TER": sacrebleu.corpus_ter}
scores = {
    name: {kind: score(outputs, references).score for kind, references in streams.items()}
    for name, score in metrics.items()
}
for name, found in scores.items():
    print(name, {kind: round(value, 1) for kind, value in found.items()})
as_none = all(found["None"] == found["one stream"] for found in scores.values())
better, worse = scores["BLEU"], scores["TER"]
changed = better["empty"] > 2 * better["None"] and worse["empty"] > worse["None"] + 20
raise SystemExit(not (as_none and changed and scores["chrF"]["empty"] == scores["chrF"]["None"]))
PYTHON
"$folder/venv/bin/python" "$folder/references.py"
