"""Build the wheel and the sdist, and write the bill of materials beside them: `python3 run.py build [FOLDER]`.

The same sources give the same bytes, in a clone and in an unpacked sdist. SOURCE_DATE_EPOCH sets the time in them.
"""

import contextlib
import datetime as dt
import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from hatchling.build import build_sdist, build_wheel
from hatchling.builders.utils import get_reproducible_timestamp

ROOT = Path(__file__).resolve().parent.parent
LICENCES = ROOT / "packaging" / "licences.toml"
# What each lock is to somebody who installs the wheel.
SCOPES = {
    "desk": "required",
    "postgresql": "optional",
    "notify": "optional",
    "documents": "optional",
    "dev": "excluded",
    "installer": "excluded",
}


def build(folder: Path) -> list[Path]:
    """The wheel, the sdist and their bill of materials."""
    folder = folder.resolve()
    with contextlib.chdir(ROOT):
        sdist = folder / build_sdist(str(folder))
        wheel = folder / build_wheel(str(folder))
    bill = folder / f"{'-'.join(wheel.name.split('-')[:2])}.cdx.json"
    bill.write_text(json.dumps(bill_of(wheel), indent=1) + "\n")
    return [sdist, wheel, bill]


def bill_of(wheel: Path) -> dict[str, Any]:
    """What the wheel brings and needs, in CycloneDX's form."""
    name, version = wheel.name.split("-")[:2]
    digest = sha256(wheel)
    made = dt.datetime.fromtimestamp(get_reproducible_timestamp(), dt.UTC)
    components = list(locked())
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": made.isoformat().replace("+00:00", "Z"),
            "component": component(name, version, "MIT", [digest])
            | {"type": "application"},
        },
        "components": components,
        "dependencies": [
            {"ref": purl(name, version), "dependsOn": list(direct(components))}
        ],
    }


def locked() -> Iterator[dict[str, Any]]:
    """Each package of locks/, with the hash of every file of it that may be installed."""
    licences = {
        name: licence
        for licence, names in tomllib.loads(LICENCES.read_text()).items()
        for name in names
    }
    for lock, scope in SCOPES.items():
        text = (ROOT / "locks" / f"{lock}.lock").read_text()
        for entry in re.split(r"\n(?=\S)", text.strip()):
            name, version = re.match(r"(\S+?)==(\S+)", entry).groups()  # type: ignore[union-attr]
            hashes = re.findall(r"--hash=sha256:(\w+)", entry)
            yield component(name, version, licences[name], hashes) | {"scope": scope}


def component(name: str, version: str, licence: str, hashes: list[str]) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": purl(name, version),
        "name": name,
        "version": version,
        "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
        "licenses": [{"expression": licence}],
        "purl": purl(name, version),
    }


def purl(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def direct(components: list[dict[str, Any]]) -> Iterator[str]:
    """What the wheel itself asks for, in its extras too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    asked = {
        re.split(r"[^\w.-]", each)[0] for each in chain(project["dependencies"], *extras)
    }
    for each in components:
        if each["name"] in asked:
            yield each["bom-ref"]


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    for made in build(Path(*sys.argv[1:] or [ROOT / "dist"])):
        print(made)
