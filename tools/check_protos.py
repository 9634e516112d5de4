"""Fails when the generated code in protos/src is not what `make protos` makes of protos/hippovault."""

import filecmp
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROTOS = Path(__file__).resolve().parent.parent / "protos"


def generated(root: Path) -> set[Path]:
    """Returns the generated files below root, relative to it."""
    return {path.relative_to(root) for path in root.rglob("*_pb2*.py*") if "__pycache__" not in path.parts}


def main() -> None:
    """Generates into a temporary directory and compares file by file."""
    with tempfile.TemporaryDirectory() as fresh_name:
        fresh = Path(fresh_name)
        outputs = [f"--python_out={fresh}", f"--grpc_python_out={fresh}"]
        outputs += [f"--mypy_out=quiet:{fresh}", f"--mypy_grpc_out=quiet:{fresh}"]
        sources = sorted(str(path.relative_to(PROTOS)) for path in PROTOS.glob("hippovault/**/*.proto"))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", *outputs, *sources]
        subprocess.run(command, cwd=PROTOS, env={**os.environ, "PATH": path}, check=True)
        committed = PROTOS / "src"
        names = generated(fresh) | generated(committed)
        _, different, missing = filecmp.cmpfiles(committed, fresh, [str(name) for name in names], shallow=False)
        stale = sorted(different + missing)
    if stale:
        sys.exit("stale generated code, run `make protos`: " + ", ".join(stale))


if __name__ == "__main__":
    main()
