"""Makes `.venv` what requirements.lock and the workspace say; does nothing when it is that already.

Needs only the standard library. Two runs at once wait for each other, so `make run` and `make test` may start together.
"""

import fcntl
import hashlib
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
DISTRIBUTIONS = ("protos", "services/chassis", "services/embedding", "services/storage", "gateway")
STAMP = VENV / "setup.sha256"
MINIMUM = (3, 11)


def fingerprint() -> str:
    """Returns a digest of all that decides what is installed, this interpreter included."""
    digest = hashlib.sha256(f"{sys.version}{sys.base_prefix}{ROOT}".encode())
    for path in (LOCK, Path(__file__), *(ROOT / name / "pyproject.toml" for name in DISTRIBUTIONS)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def interpreter(python: Path) -> str:
    """Returns what tells an interpreter from another; empty when it does not run, or has no pip."""
    code = "import pip, sys; print(sys.version, sys.base_prefix)"
    if not python.exists():
        return ""
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False).stdout


def install() -> None:
    """Creates the environment and installs the locked packages, then the workspace in place.

    An environment of the same interpreter is kept, since a running memory may be using it.
    """
    print(f"Setting up {VENV} (the first time takes a minute) …", flush=True)
    if interpreter(VENV / "bin/python") != interpreter(Path(sys.executable)):
        venv.EnvBuilder(clear=True, with_pip=True).create(VENV)
    pip = [str(VENV / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--require-hashes", "--only-binary", ":all:", "--requirement", str(LOCK)], check=True)
    editable = [argument for name in DISTRIBUTIONS for argument in ("--editable", str(ROOT / name))]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", *editable], check=True)


def main() -> None:
    """Brings the environment up to date under a lock."""
    if sys.version_info < MINIMUM:
        sys.exit(f"Python {sys.version.split()[0]} is too old: 3.11 or later is needed (make PYTHON=python3.12 …)")
    with (ROOT / ".venv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = fingerprint()
        if STAMP.exists() and STAMP.read_text() == wanted:
            return
        try:
            install()
        except subprocess.CalledProcessError as error:
            sys.exit(f"setup failed: {' '.join(error.cmd[:5])} … exited with {error.returncode}")
        STAMP.write_text(wanted)


if __name__ == "__main__":
    main()
