"""Puts what a study left into docs/results: `python tools/keep.py out/studies/lds-low-laptop ...`.

Pages, summaries and PNGs as they are, raw data compressed; a folder that is there already, such as
docs/results/lds-low, is made the same in place. The folder is called after the study.
"""

import gzip
import json
import shlex
import shutil
import sys
from pathlib import Path

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
KEPT = (".json", ".html", ".png", ".gz")
OWN = "study.json"
"""what a folder says of itself, which summary.json has too"""


def keep(folder: Path) -> Path:
    """One folder; gives where it is now."""
    command = json.loads((folder / "summary.json").read_text())["command"]
    inside = folder.resolve().parent == RESULTS
    out = folder.resolve() if inside else RESULTS / shlex.split(command)[2]
    out.mkdir(exist_ok=True)
    for path in sorted(folder.iterdir()):
        if path.suffix == ".csv":
            # Without a time and a name the same rows give the same bytes.
            packed = gzip.compress(path.read_bytes(), mtime=0)
            (out / f"{path.name}.gz").write_bytes(packed)
        elif path.suffix in KEPT and path.name != OWN and not inside:
            shutil.copyfile(path, out / path.name)
        if inside and path.is_file() and (path.suffix not in KEPT or path.name == OWN):
            path.unlink()
    return out


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(keep(Path(name)))
