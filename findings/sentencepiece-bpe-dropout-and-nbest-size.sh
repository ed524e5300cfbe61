#!/usr/bin/env bash
# Guess, written down first: BPE-dropout of sentencepiece takes no notice of nbest_size, since a BPE model has no n-best
# list; nbest_size=1 then samples as -1 does.
#
# Seen with sentencepiece 0.2.3: with a BPE model 2 and 64 are taken and ignored, since 200 samples with nbest_size=2 have
# more than two segmentations. 0 and 1 raise ValueError, before the kind of the model is looked at.
#
# Printed: for each nbest_size the number of different segmentations in 200 samples, or the error. Exits with 1 if that
# changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check sentencepiece==0.2.3
cat > "$folder/sample.py" <<'PYTHON'
import io

import sentencepiece

lines = [f"{word} {other}" for word in ("the", "some", "her") for other in ("house", "gardens", "rivers")] * 5
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_writer=model, vocab_size=40, model_type="bpe", minloglevel=2
)
pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def different(nbest_size: int) -> int | str:
    """Return how many segmentations 200 samples have, or the error."""
    try:
        found = [
            pieces.encode("some gardens", out_type=str, enable_sampling=True, nbest_size=nbest_size, alpha=0.1)
            for _ in range(200)
        ]
    except ValueError:
        return "ValueError"
    return len({tuple(each) for each in found})


found = {size: different(size) for size in (-1, 0, 1, 2, 64)}
for size, result in found.items():
    print(f"nbest_size={size}: {result}")
sampled = [found[size] for size in (-1, 2, 64)]
as_stated = all(isinstance(count, int) and count > 2 for count in sampled)
raise SystemExit(not (as_stated and found[0] == found[1] == "ValueError"))
PYTHON
"$folder/venv/bin/python" "$folder/sample.py"
