"""When a model is in memory: loaded once for all who come, gone when nobody has used it for a while."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import grpc
import pytest

from hippovault_chassis.errors import ServiceError
from hippovault_embedding.residency import Residency

SECONDS = 30
SOON = 0.001


@dataclass
class Model:
    """What is loaded and unloaded, as slowly as a test wants."""

    failure: BaseException | None = None
    loads: int = 0
    unloads: int = 0
    in_memory: bool = False
    loading: threading.Event = field(default_factory=threading.Event)
    may_load: threading.Event = field(default_factory=threading.Event)
    unloaded: threading.Event = field(default_factory=threading.Event)

    def load(self) -> None:
        self.loads += 1
        self.loading.set()
        assert self.may_load.wait(SECONDS)
        if self.failure:
            raise self.failure
        assert not self.in_memory
        self.in_memory = True

    def unload(self) -> None:
        self.unloads += 1
        assert self.in_memory
        self.in_memory = False
        self.unloaded.set()

    def residency(self, idle_seconds: float = 0) -> Residency:
        return Residency("m", self.load, self.unload, idle_seconds)


@pytest.fixture
def model() -> Model:
    return Model()


async def use(residency: Residency, model: Model) -> None:
    async with residency.use():
        assert residency.loaded
        assert model.in_memory


async def happened(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, SECONDS)


async def test_nothing_is_loaded_before_the_first_use(model: Model) -> None:
    residency = model.residency()
    await residency.close()
    assert (residency.loaded, model.loads, model.unloads) == (False, 0, 0)


async def test_uses_at_once_load_once(model: Model) -> None:
    residency = model.residency()
    users = [asyncio.create_task(use(residency, model)) for _ in range(20)]
    await happened(model.loading)
    model.may_load.set()
    await asyncio.gather(*users)
    await use(residency, model)
    assert model.loads == 1


async def test_who_goes_while_it_loads_takes_it_from_nobody(model: Model) -> None:
    residency = model.residency()
    first = asyncio.create_task(use(residency, model))
    await happened(model.loading)
    others = [asyncio.create_task(use(residency, model)) for _ in range(3)]
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    model.may_load.set()
    await asyncio.gather(*others)
    assert model.loads == 1


@pytest.mark.parametrize(
    "failure", [OSError(2, "No such file or directory", "model.onnx"), BaseException("model.onnx")]
)
async def test_a_failed_load_is_told_to_all_who_waited_and_tried_again(model: Model, failure: BaseException) -> None:
    residency = model.residency()
    model.failure = failure
    users = [asyncio.create_task(use(residency, model)) for _ in range(5)]
    await happened(model.loading)
    model.may_load.set()
    for result in await asyncio.gather(*users, return_exceptions=True):
        assert isinstance(result, ServiceError)
        assert result.code is grpc.StatusCode.UNAVAILABLE
        assert "the model m cannot be loaded: model.onnx" in result.message
    assert model.loads == 1
    assert (residency.loaded, "model.onnx" in residency.load_error) == (False, True)
    model.failure = None
    await use(residency, model)
    assert (residency.loaded, residency.load_error, model.loads) == (True, "", 2)


async def test_a_failed_load_that_nobody_waits_for_any_more_is_told_all_the_same(model: Model) -> None:
    residency = model.residency()
    model.failure = RuntimeError("damaged")
    user = asyncio.create_task(use(residency, model))
    await happened(model.loading)
    user.cancel()
    await asyncio.gather(user, return_exceptions=True)
    model.may_load.set()
    await residency.close()
    assert residency.load_error == "the model m cannot be loaded: damaged"


async def test_it_leaves_memory_when_it_is_idle_and_comes_back(model: Model) -> None:
    residency = model.residency(SOON)
    model.may_load.set()
    for times in (1, 2):
        model.unloaded.clear()
        await use(residency, model)
        await happened(model.unloaded)
        assert (model.loads, model.unloads) == (times, times)


async def test_it_is_unloaded_too_when_all_went_while_it_loaded(model: Model) -> None:
    residency = model.residency(SOON)
    user = asyncio.create_task(use(residency, model))
    await happened(model.loading)
    user.cancel()
    await asyncio.gather(user, return_exceptions=True)
    model.may_load.set()
    await happened(model.unloaded)


async def test_it_stays_for_good_when_told_so(model: Model) -> None:
    residency = model.residency(0)
    model.may_load.set()
    await use(residency, model)
    assert residency.loaded
    await residency.close()
    assert (residency.loaded, model.unloads) == (False, 1)


async def test_it_stays_while_it_is_used_however_long(model: Model) -> None:
    residency = model.residency(SOON)
    model.may_load.set()
    async with residency.use():
        await use(residency, model)  # Its end restarts the time, but somebody is left.
        await residency.close()
        assert residency.loaded
        assert model.unloads == 0
    await happened(model.unloaded)


async def test_a_use_while_it_is_unloaded_waits_and_loads_anew(model: Model) -> None:
    unloading, may_unload = threading.Event(), threading.Event()

    def unload() -> None:
        unloading.set()
        assert may_unload.wait(SECONDS)
        model.unload()

    residency = Residency("m", model.load, unload, SOON)
    model.may_load.set()
    await use(residency, model)
    await happened(unloading)
    user = asyncio.create_task(use(residency, model))
    await asyncio.sleep(0)
    may_unload.set()
    await user
    assert model.loads == 2
    await residency.close()  # Before its time is up again, which the test's loop would not live to see.


async def test_closing_while_it_loads_waits_and_unloads(model: Model) -> None:
    residency = model.residency()
    user = asyncio.create_task(use(residency, model))
    await happened(model.loading)
    user.cancel()
    closing = asyncio.create_task(residency.close())
    await asyncio.gather(user, return_exceptions=True)
    model.may_load.set()
    await closing
    assert (residency.loaded, model.loads, model.unloads) == (False, 1, 1)
