#!/usr/bin/env bash
# Guess, written down first: Transformers 5 reads the tokenizer of an NLLB folder that has the sentencepiece model alone,
# as Transformers 4 did, and NllbTokenizer(vocab_file=...) reads that file.
#
# Seen with transformers 5.24.0: the folder is read, but without the codes of its languages: eng_Latn and deu_Latn are
# both <unk>, so that the model would be told neither source nor target language. NllbTokenizer(vocab_file=...) does not
# read the file: a name that does not exist gives the same tokenizer, whose words are all <unk>. Nothing is reported.
# save_pretrained writes tokenizer.json and no sentencepiece model.
#
# Printed: ids of the codes, ids of a text with the file and without it, and the files. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check transformers==5.24.0 sentencepiece==0.2.3 protobuf==7.36.2
cat > "$folder/codes.py" <<'PYTHON'
import io
import json
import sys
from pathlib import Path

import sentencepiece
from transformers import AutoTokenizer, NllbTokenizer

folder = Path(sys.argv[1])
lines = [f"{a} {b} {c}" for a in ("the", "some", "her") for b in ("house", "river", "stone") for c in ("is", "was")]
model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines), model_writer=model, vocab_size=50, model_type="bpe", minloglevel=2
)
pieces = folder / "sentencepiece.bpe.model"
pieces.write_bytes(model.getvalue())
settings = {"tokenizer_class": "NllbTokenizer", "src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
(folder / "tokenizer_config.json").write_text(json.dumps(settings))
(folder / "config.json").write_text(json.dumps({"model_type": "m2m_100"}))

automatic = AutoTokenizer.from_pretrained(folder)
codes = automatic.convert_tokens_to_ids(["eng_Latn", "deu_Latn"])
named, absent = NllbTokenizer(vocab_file=str(pieces)), NllbTokenizer(vocab_file=str(folder / "absent"))
ids = named("the house").input_ids
named.save_pretrained(folder / "saved")
saved = sorted(path.name for path in (folder / "saved").iterdir())
print("codes of two languages:", codes, "unknown:", automatic.unk_token_id)
print("with the file:", ids, "without it:", absent("the house").input_ids)
print("saved:", saved)
unread = ids == absent("the house").input_ids and ids.count(named.unk_token_id) >= 2
raise SystemExit(not (set(codes) == {automatic.unk_token_id} and unread and saved[0] == "tokenizer.json" and len(saved) == 2))
PYTHON
mkdir "$folder/model"
"$folder/venv/bin/python" "$folder/codes.py" "$folder/model"
