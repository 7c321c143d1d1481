"""Make dist/deskhand.mcpb: the manifest, the sources and what builds them, packed by the bundle's own tool."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOL = (
    ROOT / ".judges" / "node_modules" / "@anthropic-ai" / "mcpb" / "dist" / "cli" / "cli.js"
)
BESIDE = ("pyproject.toml", "README.md", "LICENSE")


def staged(folder: Path) -> Path:
    """The bundle's content as a folder."""
    shutil.copytree(
        ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in BESIDE:
        shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "packaging" / "mcpb" / "manifest.json", folder / "manifest.json")
    return folder


def packed(bundle: Path) -> Path:
    """The tool validates the manifest before it packs."""
    bundle.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        source = staged(Path(folder) / "deskhand")
        subprocess.run(
            ["node", str(TOOL), "pack", str(source), str(bundle)],
            check=True,
            capture_output=True,
            text=True,
        )
    return bundle


if __name__ == "__main__":
    if not TOOL.exists():
        sys.exit(
            "the bundle's tool is missing: `python3 run.py test` installs it where npm is"
        )
    print(packed(ROOT / "dist" / "deskhand.mcpb"))
