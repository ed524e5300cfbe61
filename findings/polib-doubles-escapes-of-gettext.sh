#!/usr/bin/env bash
# Guess, written down first: polib reads the escapes of C that gettext knows, so that saving a catalogue changes no key.
#
# Seen with polib 1.2.0: it leaves \x65, \101 and \a as they are, and doubles their backslash when it saves. The key
# changes, so that a program that looks its own text up finds no translation. Files are read and written without an error.
#
# Printed: the key that gettext of Python finds in the compiled file before and after. Needs msgfmt. Exits with 1 if that
# changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check polib==1.2.0
cat > "$folder/messages.po" <<'PO'
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

msgid "caf\x65 \101 \a"
msgstr "Kaffee"
PO
cat > "$folder/keys.py" <<'PYTHON'
import gettext
import subprocess
import sys
from pathlib import Path

import polib

folder = Path(sys.argv[1])


def key(name: str) -> str:
    """Return the key of the only message of a file, as a program sees it."""
    compiled = folder / f"{name}.mo"
    subprocess.run(["msgfmt", folder / f"{name}.po", "-o", compiled], check=True)
    with compiled.open("rb") as file:
        (found,) = filter(None, gettext.GNUTranslations(file)._catalog)
    return found


polib.pofile(str(folder / "messages.po")).save(str(folder / "saved.po"))
before, after = key("messages"), key("saved")
print(f"before {before!r}")
print(f"after {after!r}")
raise SystemExit(not (before == "cafe A \a" and after == r"caf\x65 \101 \a"))
PYTHON
"$folder/venv/bin/python" "$folder/keys.py" "$folder"
