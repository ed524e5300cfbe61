"""Write lingon/fetching/catalogue.json from a table of the students of Firefox.

    python scripts/catalogue.py firefox-models.tsv

The table has a header and one model a line, in columns parted by tabs: the languages, the shape, the published scores,
and name, bytes and SHA-256 of each packed file, as the storage pointers of the repository say them. The catalogue has
facts alone, no files.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from lingon.fetching.catalogue import Catalogue, Offer, OfferedFile, parse, to_json

REPOSITORY = "mozilla/firefox-translations-models"
REVISION = "e7957fc"  # the last one: the repository is closed
PLACE = f"https://media.githubusercontent.com/media/{REPOSITORY}/main"
LICENCE = "MPL-2.0"
SCORES = {"flores-bleu": "flores_bleu", "flores-comet": "flores_comet"}
FILES = "files (name size sha256 of the .gz, separated by |)"
UNREAD = "qualityModel"  # estimates of quality, which Lingon does not read
OUTPUT = Path(__file__).parents[1] / "lingon" / "fetching" / "catalogue.json"


def offer(row: dict[str, str]) -> Offer:
    """Return the model of a line of the table."""
    source, target, size = row["source"], row["target"], row["architecture"]
    layers = f"{row['encoder_layers']}+{row['decoder_layers']} layers"
    return Offer(
        name=f"{source}-{target}-{size}",
        source_language=source,
        target_language=target,
        form="toolkit",
        size=size,
        shape=f"{row['dim']} wide, {layers}, {int(row['vocab']):,} pieces",
        folder=row["folder"],
        origin=f"{REPOSITORY}@{REVISION} {row['folder']}",
        licence=LICENCE,
        scores={name: float(row[column]) for name, column in SCORES.items() if row[column]},
        files=tuple(_file(each) for each in row[FILES].split("|") if not each.startswith(UNREAD)),
    )


def _file(text: str) -> OfferedFile:
    name, size, digest = text.split()
    return OfferedFile(name, int(size), digest)


def main() -> None:
    """Read the table and write the catalogue."""
    parser = argparse.ArgumentParser(description="Write lingon/fetching/catalogue.json from a table of models.")
    parser.add_argument("table", type=Path, help="the table, a file of values parted by tabs")
    with parser.parse_args().table.open(encoding="utf-8", newline="") as opened:
        models = tuple(map(offer, csv.DictReader(opened, delimiter="\t")))
    content = to_json(Catalogue(PLACE, models))
    parse(content, str(OUTPUT))  # raises an error for a line that the package would refuse
    OUTPUT.write_bytes(content)
    print(f"{OUTPUT}: {len(models)} models")


if __name__ == "__main__":
    main()
