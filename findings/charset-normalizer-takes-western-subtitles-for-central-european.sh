#!/usr/bin/env bash
# Guess, written down first: of a paragraph of subtitles in a Western European language in Windows-1252, the likeliest
# encoding of charset-normalizer gives the text back; of twenty such paragraphs it surely does.
#
# Seen with charset-normalizer 3.4.4 and Python 3.11: Swedish, Danish, Italian and Spanish are taken for Windows-1250, and
# French for Windows-1257, with one paragraph and with twenty. Swedish "sjön" stays, but "å" becomes "ĺ". German is taken for
# Windows-1250 too, in which its letters are the same.
#
# Printed: for each language the encodings that were found, and whether the text came back. Exits with 1 if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check charset-normalizer==3.4.4
cat > "$folder/detect.py" <<'PYTHON'
from charset_normalizer import from_bytes

TEXTS = {
    "Swedish": "Det är en varm dag. Barnen åker till sjön för att bada, och föräldrarna lagar mat på stranden. Vi går hem "
    "när solen går ner över öarna.",
    "Danish": "Det er en varm dag. Børnene går ned til søen for at bade, og forældrene laver mad på stranden. Vi går hjem, "
    "når solen går ned over øerne.",
    "Italian": "Perché è così caldo oggi? La città è vuota, però il caffè è già aperto e più tardi andrò lì con la società.",
    "Spanish": "El niño pequeño comió ayer más pan en la montaña; después jugó con el avión en el jardín y cantó.",
    "French": "L'été dernier, nous sommes allés à la forêt où les chênes étaient déjà très âgés, près de l'hôtel.",
    "German": "Die Bäume blühen schön, und die Vögel hören früh auf zu singen. Größere Flüsse führen über die Brücke.",
}
seen = {}
for language, text in TEXTS.items():
    found = [from_bytes((text * times).encode("cp1252")).best() for times in (1, 20)]
    seen[language] = all(str(best) == text * times for best, times in zip(found, (1, 20)))
    print(f"{language}: {', '.join(best.encoding for best in found)}; {'the text' if seen[language] else 'another text'}")
raise SystemExit(seen != {language: language == "German" for language in TEXTS})
PYTHON
"$folder/venv/bin/python" "$folder/detect.py"
