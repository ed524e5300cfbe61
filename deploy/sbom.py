"""Writes the list of the parts of an image (SBOM) as CycloneDX JSON, from the file system of the image.

    python deploy/sbom.py --name lingon --version 0.1.0-cpu FOLDER > sbom.json

FOLDER is the root of the image's file system. The parts are its Debian packages, its Python and Python packages, and
the shipped models with the digests of their manifests. It needs cyclonedx-python-lib (deploy/locks/images.txt); the
result is checked against the schema of CycloneDX.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

SCHEMA = SchemaVersion.V1_6


def debian_packages(root: Path) -> Iterator[Component]:
    """The installed packages of the Debian in root."""
    release = dict(
        re.findall(r'^(\w+)="?([^"\n]*)', (root / "etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    )
    text = (root / "var/lib/dpkg/status").read_text(encoding="utf-8")
    for paragraph in text.split("\n\n"):
        fields = dict(re.findall(r"^([\w-]+): (.*)$", paragraph, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            qualifiers = {"arch": fields["Architecture"], "distro": f"{release['ID']}-{release['VERSION_ID']}"}
            url = PackageURL("deb", release["ID"], fields["Package"], fields["Version"], qualifiers)
            yield _part(fields["Package"], fields["Version"], url)


def python_packages(root: Path) -> Iterator[Component]:
    """The Python packages in root: of the server's environment, and of the Python that it uses."""
    for folder in sorted(root.glob("opt/lingon/lib/python*/site-packages")) + sorted(
        root.glob("usr/local/lib/python*/*-packages")
    ):
        for found in sorted(distributions(path=[str(folder)]), key=lambda each: each.name.lower()):
            name = re.sub(r"[-_.]+", "-", found.name).lower()
            yield _part(name, found.version, PackageURL("pypi", None, name, found.version))


def interpreter(root: Path) -> Component:
    """The Python of the server, which is no Debian package in the official image."""
    text = (root / "opt/lingon/pyvenv.cfg").read_text(encoding="utf-8")
    found = re.search(r"^version = (\S+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"{root}/opt/lingon/pyvenv.cfg: names no version of Python")
    return _part("python", found[1], PackageURL("generic", None, "python", found[1]))


def models(root: Path) -> Iterator[Component]:
    """The shipped models."""
    for path in sorted(root.glob("models/*/*/manifest.json")):
        name, version = path.parts[-3:-1]
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        yield Component(
            type=ComponentType.MACHINE_LEARNING_MODEL,
            name=name,
            version=version,
            bom_ref=f"model/{name}/{version}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest)],
            properties=[Property(name="lingon:hash-of", value="manifest.json")],
        )


def _part(name: str, version: str, url: PackageURL) -> Component:
    return Component(type=ComponentType.LIBRARY, name=name, version=version, purl=url, bom_ref=url.to_string())


def sbom(root: Path, name: str, version: str) -> str:
    """The parts of the image in root as CycloneDX JSON. Raises ValueError if the schema does not allow the result."""
    bom = Bom(components=[*debian_packages(root), interpreter(root), *python_packages(root), *models(root)])
    bom.metadata.component = Component(type=ComponentType.CONTAINER, name=name, version=version, bom_ref="image")
    bom.register_dependency(bom.metadata.component, bom.components)
    text = make_outputter(bom, OutputFormat.JSON, SCHEMA).output_as_string(indent=1)
    if problem := JsonStrictValidator(SCHEMA).validate_str(text):
        raise ValueError(f"the list does not follow the schema of CycloneDX: {problem}")
    return text


def main() -> int:
    """Print the list for the folder that the arguments name."""
    parser = argparse.ArgumentParser(description="Write the list of the parts of an image as CycloneDX JSON.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    arguments = parser.parse_args()
    sys.stdout.write(f"{sbom(arguments.folder, arguments.name, arguments.version)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
