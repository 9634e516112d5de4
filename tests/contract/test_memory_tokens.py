"""Token codes and vectors of hints: asked of the real model at a write, and compared at a recall."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from hippovault.embedding.v1 import embedding_pb2
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault.memory.v1 import memory_pb2
from hippovault.memory.v1 import memory_service_pb2 as pb
from hippovault.memory.v1.memory_service_pb2_grpc import MemoryServiceStub
from hippovault.storage.v1 import maintenance_pb2
from hippovault.storage.v1.maintenance_pb2_grpc import MaintenanceServiceStub
from support.stack import Stack, running
from support.storage import Ref
from support.waiting import until

SECONDS = 60
CONTENT = "The crossing by the school was repainted in May."
HINTS = ("when were the stripes done", "who painted the road")
ROW = 384
MAX_CODES = 262_144
ENCODING = "HIPPOVAULT_GATEWAY_TOKEN_ENCODING"


class Vault:
    """A stack of its own, and what its services say."""

    def __init__(self, stack: Stack, cleanup: ExitStack) -> None:
        self.stack = stack
        self.namespace = ""
        self._cleanup = cleanup
        self.connect()
        channels = {
            name: cleanup.enter_context(grpc.insecure_channel(f"unix:{stack.home / 'run' / name}.sock"))
            for name in ("embedding", "storage")
        }
        self.embedding = EmbeddingServiceStub(channels["embedding"])
        self.maintenance = MaintenanceServiceStub(channels["storage"])

    def connect(self) -> None:
        """Reaches the gateway that runs now."""
        self.gateway: MemoryServiceStub = self._cleanup.enter_context(self.stack.client())

    def remember(self, content: str = CONTENT, hints: tuple[str, ...] = (), **fields: str) -> memory_pb2.Memory:
        request = pb.RememberRequest(namespace=self.namespace, content=content, hints=hints, **fields)  # type: ignore[arg-type]
        return self.gateway.Remember(request, timeout=SECONDS).memory

    def update(self, memory: memory_pb2.Memory, **fields: object) -> None:
        request = pb.UpdateMemoryRequest(
            namespace=self.namespace,
            ref=Ref(id=memory.id),
            memory=memory_pb2.Memory(**fields),  # type: ignore[arg-type]
            update_mask=FieldMask(paths=fields),
        )
        self.gateway.UpdateMemory(request, timeout=SECONDS)

    def record(self, content: str = CONTENT) -> maintenance_pb2.MemoryRecord:
        """All that is stored of a memory."""
        request = maintenance_pb2.ExportMemoriesRequest(namespace=self.namespace)
        records = self.maintenance.ExportMemories(request, timeout=SECONDS)
        (record,) = [told.record for told in records if told.record.memory.content == content]
        return record

    def embedded(self, *texts: str, encoding: str = "INT8") -> embedding_pb2.EmbedResponse:
        """What the model says of texts."""
        value = embedding_pb2.TokenEncoding.Value(f"TOKEN_ENCODING_{encoding}")
        request = embedding_pb2.EmbedRequest(texts=texts, max_windows=64, token_encoding=value)
        return self.embedding.Embed(request, timeout=SECONDS)

    def says_of_hints(self, *hints: str, content: str = CONTENT) -> bool:
        """Whether what is stored of the hints is what the model says of these."""
        record, model = self.record(content), self.embedded(*hints) if hints else embedding_pb2.EmbedResponse()
        vectors = np.frombuffer(record.hint_vectors, "<f4"), np.frombuffer(model.vectors, "<f4")
        codes = b"".join(info.token_codes for info in model.texts)
        same = vectors[0].shape == vectors[1].shape and np.allclose(*vectors, atol=1e-3)
        return same and record.hint_token_codes.codes == codes


@pytest.fixture(scope="module")
def served(module_home: Path) -> Iterator[Vault]:
    environment = {"HIPPOVAULT_HINTS_ENABLED": "1", ENCODING: "int8"}
    with running(module_home, environment) as stack, ExitStack() as cleanup:
        yield Vault(stack, cleanup)


@pytest.fixture
def vault(served: Vault, request: pytest.FixtureRequest) -> Vault:
    served.namespace = request.node.name
    return served


def test_what_the_model_says_of_content_and_hints_is_stored_and_compared(vault: Vault) -> None:
    vault.remember(hints=HINTS)
    for other in ("The school opens at eight.", "May was warm."):
        vault.remember(other)
    record, model = vault.record(), vault.embedded(CONTENT)
    assert (record.vectors, record.memory.model_revision) == (model.vectors, model.model_revision)
    assert (record.token_codes.encoding, record.token_codes.codes) == ("int8", model.texts[0].token_codes)
    assert len(record.token_codes.codes) >= 8 * ROW
    assert record.hint_token_codes.encoding == "int8"
    assert vault.says_of_hints(*HINTS)
    request = pb.RecallRequest(namespace=vault.namespace, query=HINTS[0], no_surprise_boost=True)
    hits = vault.gateway.Recall(request, timeout=SECONDS).hits
    assert hits[0].memory.content == CONTENT
    assert hits[0].cosine_similarity == pytest.approx(1, abs=1e-3)
    assert hits[0].late_interaction.score == pytest.approx(1, abs=0.02)
    assert {hit.late_interaction.rank for hit in hits} == {1, 2, 3}


def test_a_batch_has_the_same_and_each_memory_its_own(vault: Vault) -> None:
    contents = [f"{number} boats lay in the harbour" for number in range(30)]
    requests = [
        pb.RememberRequest(
            namespace=vault.namespace, content=content, hints=[f"how many: {content}"] * (number % 3 > 1)
        )
        for number, content in enumerate(contents)
    ]
    answer = vault.gateway.BatchRemember(pb.BatchRememberRequest(requests=requests), timeout=SECONDS)
    assert all(result.HasField("response") for result in answer.results)
    for number in (0, 1, 2, 17, 29):
        record, model = (
            vault.record(contents[number]),
            vault.embedded(contents[number], f"how many: {contents[number]}"),
        )
        assert record.vectors == model.vectors[: 4 * ROW]
        assert record.token_codes.codes == model.texts[0].token_codes
        hinted = number % 3 > 1
        assert record.hint_token_codes.codes == (model.texts[1].token_codes if hinted else b"")
        assert len(record.hint_vectors) == 4 * ROW * hinted


def test_new_hints_alone_are_embedded_and_old_ones_go(vault: Vault) -> None:
    memory = vault.remember(hints=HINTS, key="k")
    vectors = vault.record().vectors
    vault.update(memory, hints=["what was painted"])
    assert vault.says_of_hints("what was painted")
    vault.remember(hints=("where is it", "which month"), key="k")
    assert vault.says_of_hints("where is it", "which month")
    vault.remember(hints=("where is it", "which month"))
    assert vault.says_of_hints("where is it", "which month")
    vault.update(memory, hints=[])
    assert vault.says_of_hints()
    assert vault.record().vectors == vectors
    assert vault.record().memory.version == 1
    vault.update(memory, content="It was May.", hints=["which month"])
    record = vault.record("It was May.")
    assert record.token_codes.codes == vault.embedded("It was May.").texts[0].token_codes
    assert record.hint_token_codes.codes == vault.embedded("which month").texts[0].token_codes


def test_a_text_with_more_tokens_than_are_kept_has_the_first_of_them(vault: Vault) -> None:
    text = " ".join(f"{number} boats" for number in range(400))
    vault.remember(text, hints=HINTS)
    record, (info,) = vault.record(text), vault.embedded(text).texts
    assert len(record.vectors) == info.windows * 4 * ROW > 3 * 4 * ROW
    assert len(info.token_codes) > MAX_CODES
    assert record.token_codes.codes == info.token_codes[: MAX_CODES // ROW * ROW]
    assert vault.says_of_hints(*HINTS, content=text)


def test_hints_that_come_while_the_embedder_is_away_are_embedded_later(vault: Vault) -> None:
    memory = vault.remember(hints=HINTS)
    vault.stack.processes["embedding"].stop()
    vault.update(memory, hints=["what was painted"])
    record = vault.record()
    assert list(record.memory.hints) == ["what was painted"]
    assert record.hint_vectors == record.hint_token_codes.codes == b""
    assert record.token_codes.codes
    vault.stack.restart("embedding")
    until(lambda: bool(vault.record().hint_token_codes.codes))
    assert vault.says_of_hints("what was painted")


def test_another_encoding_is_made_of_all_that_there_is_and_off_leaves_it(vault: Vault) -> None:
    vault.remember(hints=HINTS)
    vault.remember("The second one.")

    def encodings() -> list[str]:
        record, second = vault.record(), vault.record("The second one.")
        return [codes.encoding for codes in (record.token_codes, record.hint_token_codes, second.token_codes)]

    def restart(encoding: str) -> None:
        vault.stack.processes["gateway"].stop()
        vault.stack.environment[ENCODING] = encoding  # type: ignore[index]  # This test's own.
        vault.stack.restart("gateway")
        vault.connect()

    assert encodings() == ["int8"] * 3
    restart("sign")
    until(lambda: encodings() == ["sign"] * 3)
    record, model = vault.record(), vault.embedded(CONTENT, *HINTS, encoding="SIGN")
    assert record.token_codes.codes == model.texts[0].token_codes
    assert record.hint_token_codes.codes == b"".join(info.token_codes for info in model.texts[1:])
    assert vault.gateway.Recall(pb.RecallRequest(namespace=vault.namespace, query="stripes"), timeout=SECONDS).hits
    restart("off")
    vault.remember("The third one.", hints=HINTS)
    third = vault.record("The third one.")
    assert third.hint_vectors
    assert third.token_codes.codes == third.hint_token_codes.codes == b""
    assert encodings() == ["sign"] * 3
    restart("int8")
    until(lambda: vault.record("The third one.").hint_token_codes.encoding == "int8")
