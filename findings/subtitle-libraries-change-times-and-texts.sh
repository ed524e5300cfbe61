#!/usr/bin/env bash
# Guess, written down first: a cue of WebVTT after its hundredth hour, with a speaker and a reference, comes out of a
# reader and a writer of subtitles with the same time and the same text.
#
# Seen with pycaption 2.3.14: hours are written modulo 24, so that 100:00:00 becomes 04:00:00, and the name of the speaker
# becomes a word of the text. Seen with webvtt-py 0.6.0: the time and the speaker are right, and its `text`, which has
# no tags, still has the references: `Fish &amp; chips`.
#
# Printed: the time and the text by both. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pycaption==2.3.14 webvtt-py==0.6.0
cat > "$folder/cues.py" <<'PYTHON'
import io

import pycaption
import webvtt

FILE = "WEBVTT\n\n100:00:00.000 --> 100:00:02.000\n<v Ann>Fish &amp; chips</v>\n"
written = pycaption.WebVTTWriter().write(pycaption.WebVTTReader().read(FILE)).splitlines()
(cue,) = webvtt.from_buffer(io.StringIO(FILE))
print("pycaption:", written[2], "/", written[3])
print("webvtt-py:", cue.start, "/", cue.voice, "/", cue.text)
right = written[2:4] == ["04:00:00.000 --> 04:00:02.000", "Ann: Fish &amp; chips"]
raise SystemExit(not (right and (cue.start, cue.voice, cue.text) == ("100:00:00.000", "Ann", "Fish &amp; chips")))
PYTHON
"$folder/venv/bin/python" "$folder/cues.py"
