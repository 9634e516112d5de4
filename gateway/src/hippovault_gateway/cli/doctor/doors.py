"""Whether MCP hosts get in: over HTTP, and by the stdio door."""

from __future__ import annotations

import http.client
import json
import subprocess
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from hippovault_chassis.default_home import HOME_VARIABLE, default_home
from hippovault_gateway import http_address
from hippovault_gateway.cli.doctor.finding import Finding, fail, ok, warn
from hippovault_gateway.cli.doctor.patient import Patient
from hippovault_gateway.local import mcp_configuration

HTTP_OK = 200
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "hippovault doctor", "version": version("hippovault-gateway")},
    },
}


def http_door(patient: Patient) -> Finding:
    """Looks whether MCP over HTTP is served, and where."""
    url = patient.answered().mcp_http_url
    if not url:
        return ok("off, as it was told")
    try:
        status = _status(url, patient.seconds)
    except (OSError, http.client.HTTPException) as error:
        return fail(f"{url} does not answer: {error}", f"see {patient.home.logs / 'gateway.log'}")
    if status != HTTP_OK:
        return fail(f"{url} answers with status {status}", "see the checks of the processes and the model")
    well_known = urlsplit(f"http://{http_address.WELL_KNOWN}").port
    if patient.home.root == Path(default_home()) and not patient.settings.http and urlsplit(url).port != well_known:
        return warn(f"{url}, as another program has port {well_known}", "end that program, or give clients this URL")
    return ok(url)


def stdio_door(patient: Patient) -> Finding:
    """Starts what an MCP host would start, and shakes hands with it."""
    patient.answered()  # Else the door would start the memory.
    server = mcp_configuration.server(patient.home.root)
    command = [server["command"], *server["args"]]
    try:
        ended = subprocess.run(  # noqa: S603  # Our own program.
            [*command, "--home", str(patient.home.root)],
            input=f"{json.dumps(INITIALIZE)}\n".encode(),
            capture_output=True,
            timeout=patient.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return fail(f"no answer within {patient.seconds:g} s: {' '.join(command)}", "see the checks of the processes")
    try:
        info = json.loads(ended.stdout)["result"]["serverInfo"]
    except (ValueError, KeyError, TypeError):
        said = ended.stderr.decode(errors="replace").strip() or f"exit code {ended.returncode}"
        return fail(f"no handshake: {said}", f"run it by hand, with {HOME_VARIABLE} set: {' '.join(command)}")
    return ok(f"{info['name']} {info['version']} answers initialize: {' '.join(command)}")


def _status(url: str, seconds: float) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=seconds)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status
    finally:
        connection.close()
