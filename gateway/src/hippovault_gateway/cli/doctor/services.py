"""What the running memory says: its processes, its model, its store."""

from __future__ import annotations

import grpc

from hippovault.embedding.v1 import embedding_pb2, embedding_pb2_grpc
from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.storage.v1 import maintenance_pb2, maintenance_pb2_grpc
from hippovault_chassis.errors import ServiceError
from hippovault_gateway import hints_gate
from hippovault_gateway.arguments import MAX_ID
from hippovault_gateway.cli.doctor.finding import Finding, fail, ok, warn
from hippovault_gateway.cli.doctor.patient import Patient
from hippovault_gateway.cli.models import SERVICE as EMBEDDING_SERVICE
from hippovault_gateway.cli.output import counted
from hippovault_gateway.cli.store import SERVICE as MAINTENANCE_SERVICE
from hippovault_gateway.cli.store import STORAGE
from hippovault_gateway.local.state import BEHIND_GATEWAY, GATEWAY, read_serving

EMBEDDING, STORE = BEHIND_GATEWAY
VERIFY_SECONDS = 10.0
"""What the look at the store gets; `hippovault verify` takes the time that it takes."""


def processes(patient: Patient) -> Finding:
    """Looks whether every process answers."""
    pid, start = patient.supervisor, patient.home.command("up --detach")
    answer = patient.answer
    if isinstance(answer, ServiceError):
        if answer.reason == "INVALID_SETTING":
            return warn("nobody can be asked, as the settings are wrong", "see the check of the settings")
        if pid is None:
            return fail("the memory is not running", f"start it: {start}")
        return fail(f"the gateway does not answer: {answer.message}", f"see {patient.home.logs / 'gateway.log'}")
    serving = {**dict.fromkeys((*BEHIND_GATEWAY, GATEWAY)), **read_serving(patient.home)} if pid is not None else {}
    down = [name for name, process in serving.items() if process is None]
    silent = [service.name for service in answer.services if not service.serving and not service.detail]
    if bad := down or silent:
        logs = ", ".join(str(patient.home.logs / f"{name}.log") for name in bad)
        reasons = "; ".join(service.reason for service in answer.services if service.name in bad)
        return fail(f"{' and '.join(bad)} down: {reasons or 'starting again'}", f"see {logs}")
    return ok(f"all answer, for {answer.uptime_seconds:.0f} s" + (f", run by pid {pid}" if pid else ", each by itself"))


def model(patient: Patient) -> Finding:
    """Looks whether the model can be loaded, and makes the vectors that the store holds."""
    patient.answered()
    target = patient.settings.embedding_target()
    request = embedding_pb2.EmbedRequest(texts=["Is the model well?"], input_type=embedding_pb2.INPUT_TYPE_QUERY)
    stub = embedding_pb2_grpc.EmbeddingServiceStub
    try:
        with patient.service(EMBEDDING, target, EMBEDDING_SERVICE, stub) as embedding:
            made = embedding.Embed(request, timeout=patient.seconds)
    except ServiceError as error:
        log = patient.home.logs / "embedding.log"
        return fail(error.message, f"see {log}; the model is named in hippovault.toml, table [embedding]")
    found = {service.name: service for service in patient.ping().services}
    if STORE in found and found[STORE].reason and found[EMBEDDING].serving:
        remedy = "name the store's model in hippovault.toml, table [embedding], or begin a new home with this one"
        return fail(found[STORE].reason, remedy)
    return ok(f"{found[EMBEDDING].detail}, {made.dimensions} dimensions, as in the store")


def store(patient: Patient) -> Finding:
    """Looks the store over, for as long as a look may take."""
    patient.answered()
    checks: list[maintenance_pb2.VerifyResponse] = []
    target, verify = patient.settings.storage_target(), patient.home.command("verify")
    stub = maintenance_pb2_grpc.MaintenanceServiceStub
    try:
        with patient.service(STORAGE, target, MAINTENANCE_SERVICE, stub) as maintenance:
            # Each as it comes: those that came before the time was over count.
            for check in maintenance.Verify(maintenance_pb2.VerifyRequest(), timeout=VERIFY_SECONDS):
                checks.append(check)  # noqa: PERF402
    except ServiceError as error:
        if error.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
            return fail(error.message, f"see {patient.home.logs / 'storage.log'}")
        rest = f"; {verify} makes all of them"
    else:
        rest = ""
    wrong = [check for check in checks if check.wrong]
    if wrong:
        told = f"{wrong[0].check}: {(wrong[0].problems or ['wrong'])[0]}"
        return fail(f"{counted(sum(check.wrong for check in wrong), 'thing')} wrong; {told}", f"see all: {verify}")
    return ok(f"{counted(len(checks), 'check')} found nothing wrong{rest}")


def pending(patient: Patient) -> Finding:
    """Looks whether memories wait for their vectors."""
    answer = patient.answered()
    if not answer.HasField("live_memories"):
        return warn("the storage service does not tell", f"see {patient.home.logs / 'storage.log'}")
    live = counted(answer.live_memories, "memory", "memories")
    if answer.pending_memories:
        wait = patient.home.command("reindex")
        remedy = f"they get them by themselves once the embedding service answers; {wait} waits until they have"
        return warn(f"{answer.pending_memories} of {live} wait for their vectors: only words find them", remedy)
    return ok(f"none of {live}")


def hints(patient: Patient) -> Finding:
    """Asks the gateway whether it accepts hints, by an update that changes nothing."""
    patient.answered()
    request = pb.UpdateMemoryRequest(
        ref=memory_pb2.MemoryRef(id=MAX_ID), memory=memory_pb2.Memory(hints=["Is this accepted?"]), dry_run=True
    )
    request.update_mask.paths.append("hints")
    with patient.gateway() as client:
        try:
            client.call(client.stub.UpdateMemory, request)
        except ServiceError as error:
            refused = error.reason == "HINTS_DISABLED"
            if not refused and error.code is not grpc.StatusCode.NOT_FOUND:
                raise
    if refused and hints_gate.is_open():
        restart = f"{patient.home.command('down')} && {patient.home.command('up --detach')}"
        return warn(f"refused, though {hints_gate.VARIABLE} is on here", f"start the memory from here: {restart}")
    return ok(f"refused, as {hints_gate.VARIABLE} is off where the memory was started" if refused else "accepted")
