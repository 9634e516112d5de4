"""Which models a real process serves, and what becomes of folders that are not what they should be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import grpc
import onnx
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2

from hippovault.embedding.v1 import embedding_pb2 as pb
from hippovault.embedding.v1.embedding_pb2_grpc import EmbeddingServiceStub
from hippovault_chassis.errors import STATUS_KEY
from support import model_folders
from support.embedding import SECONDS, connected, embed, events, get_model, health_of, refusal, serving, vectors
from support.model_folders import TEXTS, TINY_DIMENSIONS, TINY_WINDOW, change_json, tiny
from support.processes import STOP_SECONDS, Process, environment
from support.waiting import until

MULTILINGUAL = "HIPPOVAULT_TEST_MULTILINGUAL"
PACKAGED = "all-MiniLM-L6-v2"
POOLINGS = ("mean", "cls", "max")
DAMAGED = {
    "gone": "",
    "network missing": "onnx/model.onnx",
    "tokenizer missing": "tokenizer.json",
    "config missing": "config.json",
    "pooling missing": "1_Pooling/config.json",
    "network damaged": "onnx/model.onnx",
    "tokenizer damaged": "tokenizer.json",
    "config damaged": "config.json",
    "pooling damaged": "1_Pooling/config.json",
    "modules damaged": "modules.json",
    "prompts damaged": "config_sentence_transformers.json",
}
"""What is wrong, and the file that is to be named."""


def flags(*references: str) -> list[str]:
    return [part for reference in references for part in ("--model", reference)]


def names(stub: EmbeddingServiceStub) -> list[str]:
    return [model.name for model in stub.ListModels(pb.ListModelsRequest(), timeout=SECONDS).models]


def run(home: Path, *references: str) -> subprocess.CompletedProcess[str]:
    """Runs a process that is expected to end by itself."""
    command = [sys.executable, "-m", "hippovault_embedding", *flags(*references)]
    variables = environment(home)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=STOP_SECONDS, check=False)


@pytest.fixture(scope="module")
def process(module_home: Path) -> Iterator[Process]:
    folders = [tiny(module_home.parent / f"tiny {pooling}", pooling) for pooling in POOLINGS]
    broken = [module_home.parent / name for name in DAMAGED]
    with serving(module_home, *flags(PACKAGED, *map(str, folders), *map(str, broken))) as process:
        yield process


@pytest.fixture(scope="module")
def stub(process: Process) -> Iterator[EmbeddingServiceStub]:
    with connected(process) as stub:
        yield stub


# Vectors


def test_the_default_model_gives_what_the_original_does(stub: EmbeddingServiceStub) -> None:
    cosines = (vectors(embed(stub, TEXTS)) * model_folders.reference("minilm")).sum(axis=1)
    assert cosines.min() >= 0.99
    assert cosines.mean() >= 0.998


@pytest.mark.parametrize("input_type", ["query", "document"])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_folder_gives_what_sentence_transformers_does(
    stub: EmbeddingServiceStub, pooling: str, input_type: str
) -> None:
    kind = pb.INPUT_TYPE_QUERY if input_type == "query" else pb.INPUT_TYPE_DOCUMENT
    answer = stub.Embed(pb.EmbedRequest(texts=TEXTS, input_type=kind, model=f"tiny {pooling}"), timeout=SECONDS)
    expected = model_folders.reference(f"tiny_{pooling}_{input_type}")
    assert (vectors(answer) * expected).sum(axis=1).min() >= 0.9999


def test_the_prefix_is_in_every_window_and_its_tokens_are_not_told(stub: EmbeddingServiceStub) -> None:
    def told(text: str, max_windows: int) -> pb.TextInfo:
        request = pb.EmbedRequest(
            texts=[text], model="tiny mean", max_windows=max_windows, token_encoding=pb.TOKEN_ENCODING_INT8
        )
        return stub.Embed(request, timeout=SECONDS).texts[0]

    short = told("a b c", 1)
    around = short.token_count - 3  # Special tokens and prefix.
    assert around > 2
    assert len(short.token_codes) == 3 * TINY_DIMENSIONS
    long = told("a " * 100, 8)
    assert not long.truncated
    capacity = TINY_WINDOW - around
    windows = 1 + -(-(100 - capacity) // (capacity - capacity // 8))
    assert long.windows == windows
    assert long.token_count == 100 + windows * around + (windows - 1) * (capacity // 8)
    assert len(long.token_codes) == 100 * TINY_DIMENSIONS


# Several models


def test_each_request_chooses_its_model(stub: EmbeddingServiceStub) -> None:
    answers = [embed(stub, ["x"], model) for model in ("", PACKAGED, "tiny mean", "tiny cls", "tiny max")]
    assert [answer.dimensions for answer in answers] == [384, 384, *[TINY_DIMENSIONS] * 3]
    assert answers[0].vectors == answers[1].vectors
    assert len({answer.model_revision for answer in answers[1:]}) == 4
    assert len({answer.vectors for answer in answers[1:]}) == 4


def test_models_of_one_process_compute_side_by_side(stub: EmbeddingServiceStub) -> None:
    models = ["", "tiny mean", "tiny cls", "tiny max"] * 4
    alone = {model: embed(stub, ["side by side"], model).vectors for model in models}
    calls = [
        stub.Embed.future(pb.EmbedRequest(texts=[f"text {number}", "side by side"], model=model), timeout=SECONDS)
        for number, model in enumerate(models)
    ]
    for model, call in zip(models, calls, strict=True):
        assert float(vectors(call.result())[1] @ vectors(pb_of(alone[model], call.result()))[0]) > 0.9999


def pb_of(row: bytes, like: pb.EmbedResponse) -> pb.EmbedResponse:
    return pb.EmbedResponse(vectors=row, dimensions=like.dimensions)


def test_models_are_listed_in_the_order_of_the_setting_and_none_is_loaded(home: Path) -> None:
    folder = tiny(home.parent / "tiny")
    with serving(home, *flags(f"first={folder}", PACKAGED, str(folder))) as process, connected(process) as stub:
        assert names(stub) == ["first", PACKAGED, "tiny"]
        assert get_model(stub).name == "first"
        described = get_model(stub, "tiny")
        assert (described.dimensions, described.max_tokens) == (TINY_DIMENSIONS, TINY_WINDOW)
        assert described.model_revision == get_model(stub, "first").model_revision
        assert embed(stub, ["x"], "tiny").model_revision == described.model_revision
        loaded = [model.loaded for model in stub.ListModels(pb.ListModelsRequest(), timeout=SECONDS).models]
        assert loaded == [False, False, True]
        assert len(events(process, "model loaded")) == 1


def test_models_come_from_the_variable_or_the_file(home: Path) -> None:
    folder = tiny(home.parent / "with space")
    with serving(home, HIPPOVAULT_EMBEDDING_MODEL=f"{folder},{PACKAGED}") as process, connected(process) as stub:
        assert names(stub) == ["with space", PACKAGED]
    (home / "hippovault.toml").write_text(f'[embedding]\nmodel = ["{PACKAGED}", "other={folder}"]\n')
    with serving(home) as process, connected(process) as stub:
        assert names(stub) == [PACKAGED, "other"]


def test_an_unknown_model_is_refused_with_those_that_are_served(stub: EmbeddingServiceStub) -> None:
    error = refusal(stub, pb.EmbedRequest(texts=["x"], model="tiny"))
    assert (error.code, error.field) == (grpc.StatusCode.INVALID_ARGUMENT, "model")
    assert "'tiny mean'" in error.message
    for call in (
        lambda: stub.Warm(pb.WarmRequest(model="tiny"), timeout=SECONDS),
        lambda: get_model(stub, "tiny"),
    ):
        with pytest.raises(grpc.RpcError):
            call()


@pytest.mark.parametrize(
    ("references", "problem"),
    [
        (["/models/a", "/other/a"], "two models are called 'a'"),
        (["all-minilm-l6-v2"], "'all-minilm-l6-v2' is not a model"),
        (["=/models/a"], "a model needs a name"),
    ],
)
def test_a_wrong_setting_ends_the_start_and_is_named(home: Path, references: Sequence[str], problem: str) -> None:
    ended = run(home, *references)
    assert ended.returncode == 1
    assert f"model: {problem}" in ended.stderr
    assert "Traceback" not in ended.stderr


# Folders that are not what they should be


@pytest.mark.parametrize("name", DAMAGED)
def test_a_wrong_file_is_named_and_mended(process: Process, stub: EmbeddingServiceStub, name: str) -> None:
    folder = process.log.parent / name
    file = folder / DAMAGED[name]
    if name == "gone":
        whole = None
    else:
        tiny(folder)
        whole = file.read_bytes()
        file.unlink()
        if name.endswith("damaged"):
            file.write_bytes(whole[:20])
    error = refusal(stub, pb.EmbedRequest(texts=["x"], model=name))
    assert error.code is grpc.StatusCode.UNAVAILABLE
    assert str(file).rstrip("/") in error.message
    described = get_model(stub, name)
    assert (described.name, described.loaded) == (name, False)
    assert described.load_error in error.message
    # The others do not mind.
    assert embed(stub, ["x"]).dimensions == 384
    assert health_of(process) == health_pb2.HealthCheckResponse.SERVING
    if whole is None:
        tiny(folder)
    else:
        file.write_bytes(whole)
    assert vectors(embed(stub, [name], name)).shape == (1, TINY_DIMENSIONS)
    assert get_model(stub, name).load_error == ""
    assert get_model(stub, name).model_revision == get_model(stub, "tiny mean").model_revision


def test_a_tokenizer_that_its_library_panics_at_is_named_and_mended(home: Path) -> None:
    folder = tiny(home.parent / "model")
    tokenizer = folder / "tokenizer.json"
    content = tokenizer.read_text()
    missing = [{"SpecialToken": {"id": "[MISSING]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": missing, "pair": missing, "special_tokens": {}}
    change_json(tokenizer, post_processor=template)
    with serving(home, *flags(str(folder))) as process, connected(process) as stub:
        error = refusal(stub, pb.EmbedRequest(texts=["x"]))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert f"{tokenizer} cannot tokenise" in error.message
        assert error.message.endswith(get_model(stub).load_error)
        tokenizer.write_text(content)
        assert vectors(embed(stub, ["x"])).shape == (1, TINY_DIMENSIONS)


def test_a_default_model_that_is_missing_is_unhealthy_until_it_is_there(home: Path) -> None:
    folder = home.parent / "model"
    with serving(home, *flags(str(folder), PACKAGED)) as process, connected(process) as stub:
        with pytest.raises(grpc.RpcError) as caught:
            stub.Warm(pb.WarmRequest(), timeout=SECONDS)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert health_of(process) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert embed(stub, ["x"], PACKAGED).dimensions == 384
        tiny(folder)
        stub.Warm(pb.WarmRequest(), timeout=SECONDS)
        assert health_of(process) == health_pb2.HealthCheckResponse.SERVING


def test_files_that_change_after_vectors_were_given_are_refused(home: Path) -> None:
    folder = tiny(home.parent / "model")
    with serving(home, *flags(str(folder)), "--idle-seconds", "0.05") as process, connected(process) as stub:
        before = embed(stub, ["one"])
        until(lambda: not get_model(stub).loaded)
        kept = shutil.copytree(folder, home.parent / "kept")
        network = model_folders.network(folder)
        model_folders.reverse_words(network)
        onnx.save(network, folder / "onnx" / "model.onnx")
        for _ in range(2):
            error = refusal(stub, pb.EmbedRequest(texts=["two"]))
            assert error.code is grpc.StatusCode.UNAVAILABLE
            assert "model.onnx has SHA-256" in error.message
        assert get_model(stub).model_revision == before.model_revision
        shutil.copy(kept / "onnx" / "model.onnx", folder / "onnx" / "model.onnx")
        assert vectors(embed(stub, ["two"])).shape == (1, TINY_DIMENSIONS)
        assert embed(stub, ["one"]).vectors == before.vectors


@pytest.mark.parametrize("fault", ["cut off", "overwritten", "deleted"])
def test_files_in_use_that_change_end_no_process_and_change_no_vector(home: Path, fault: str) -> None:
    folder = tiny(home.parent / "model")
    path = folder / "onnx" / "model.onnx"
    weights = model_folders.save_with_external_weights(model_folders.network(folder), path)
    with serving(home, *flags(str(folder)), "--cache-mebibytes", "0") as process, connected(process) as stub:
        before = embed(stub, TEXTS)
        for file in (weights, path, folder / "tokenizer.json"):
            if fault == "cut off":
                os.truncate(file, 0)
            elif fault == "overwritten":
                file.write_bytes(bytes(file.stat().st_size))
            else:
                file.unlink()
        assert embed(stub, TEXTS).vectors == before.vectors
        assert process.stop() == 0


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "onnx/model.onnx"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_could_be_read_for_ever_is_refused(home: Path, kind: str, file: str) -> None:
    path = tiny(home.parent / "model") / file
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with serving(home, *flags(str(home.parent / "model"))) as process, connected(process) as stub:
        error = refusal(stub, pb.EmbedRequest(texts=["x"]))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert f"{path} is no regular file" in error.message
        assert process.stop() == 0


def test_a_cause_of_any_length_is_told(home: Path) -> None:
    folder = tiny(home.parent / "model")
    model_folders.write_json(folder / "modules.json", [{"type": "模" * 50_000}])
    with serving(home, *flags(str(folder))) as process, connected(process) as stub:
        error = refusal(stub, pb.EmbedRequest(texts=["x"]))
        assert error.code is grpc.StatusCode.UNAVAILABLE
        assert f"{folder / 'modules.json'} has a module" in error.message
        assert get_model(stub).load_error


def test_files_that_change_before_they_are_used_get_another_revision(home: Path) -> None:
    folder = tiny(home.parent / "model")
    with serving(home, *flags(str(folder))) as process, connected(process) as stub:
        told = get_model(stub).model_revision
        network = model_folders.network(folder)
        model_folders.reverse_words(network)
        onnx.save(network, folder / "onnx" / "model.onnx")
        given = embed(stub, ["x"])
        assert given.model_revision != told
        assert get_model(stub).model_revision == given.model_revision


# Other languages

ASKED = {
    "旭川の冬はどのくらい寒いですか。": "旭川では一月の朝に気温がマイナス二十度まで下がることがあります。",
    "会議はいつに変更されましたか。": "木曜日の打ち合わせは来週の月曜日の午後三時に移りました。",
    "彼女は何のアレルギーを持っていますか。": "彼女はピーナッツのアレルギーがあります。",
    "データベースのポート番号を教えてください。": "検証環境のPostgreSQLは5433番で待ち受けています。",
    "¿Qué bebe el usuario por la mañana?": "Por las mañanas toma té verde sin azúcar.",
    "Wann fährt der letzte Zug nach Basel?": "Nach Basel geht um 23:47 Uhr die letzte Verbindung.",
    "What keeps the team's secrets safe?": "チームのパスワードは金庫アプリに保存し、毎週変更します。",
}
"""Questions, and the answers among which each is to find its own."""


@pytest.mark.skipif(MULTILINGUAL not in os.environ, reason=f"{MULTILINGUAL} must name a folder, see its README")
def test_questions_find_their_answers_in_other_languages(home: Path) -> None:
    with serving(home, *flags(f"multilingual={os.environ[MULTILINGUAL]}")) as process, connected(process) as stub:
        answers = embed(stub, list(ASKED.values()))
        request = pb.EmbedRequest(texts=list(ASKED), input_type=pb.INPUT_TYPE_QUERY)
        questions = stub.Embed(request, timeout=SECONDS)
        similar = vectors(questions) @ vectors(answers).T
        assert similar.argmax(axis=1).tolist() == list(range(len(ASKED)))
        assert not any(info.unknown_token_count for info in (*answers.texts, *questions.texts))
        # A query's prompt is another one than a document's.
        assert embed(stub, list(ASKED)).vectors != questions.vectors
        assert not events(process, "most of a text is unknown to the model; its language may be another")


# Texts


def test_every_wrong_text_is_told_by_its_index(stub: EmbeddingServiceStub) -> None:
    texts = ["good", "", "good", "a\x00b", "good", "x" * 65_537, "good", " \n"]
    message, wrong = wrong_fields(stub, texts)
    assert list(wrong) == ["texts[1]", "texts[3]", "texts[5]", "texts[7]"]
    assert all(wrong.values())
    assert "3 more fields" in message


@pytest.mark.parametrize("text", ["", "x" * 65_000 + "\x00"])
def test_more_wrong_texts_than_an_answer_can_name_are_counted(stub: EmbeddingServiceStub, text: str) -> None:
    message, wrong = wrong_fields(stub, [text] * 240)
    assert list(wrong) == [f"texts[{index}]" for index in range(len(wrong))]
    assert len(wrong) > 10
    assert "239 more fields" in message


def wrong_fields(stub: EmbeddingServiceStub, texts: Sequence[str]) -> tuple[str, dict[str, str]]:
    """What a request is refused with: the message, and the fields that are named with what is wrong."""
    with pytest.raises(grpc.RpcError) as caught:
        embed(stub, texts, "tiny mean")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    details = dict(cast("grpc.Call", caught.value).trailing_metadata() or ())
    status = status_pb2.Status.FromString(cast("bytes", details[STATUS_KEY]))
    bad_request = error_details_pb2.BadRequest()
    assert any(each.Unpack(bad_request) for each in status.details)
    return status.message, {each.field: each.description for each in bad_request.field_violations}
