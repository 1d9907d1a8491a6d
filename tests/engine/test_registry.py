"""The services of a run, under names that are used once."""

from __future__ import annotations

import functools
import threading

import pytest

from supervisor_core.engine.service import ServiceRegistry
from supervisor_core.events.telemetry import ThreadStatus


class Service:
    def __init__(self, name: str) -> None:
        self.name = name

    def status(self) -> ThreadStatus:
        return ThreadStatus(name=self.name, state="idle")


def evaluate() -> None:
    """Stand for a user's function."""


class Evaluator:
    def __call__(self) -> None: ...

    def run(self) -> None: ...


def test_names_are_used_once() -> None:
    """A name is given out once; the next who wants it gets a number. Functions, methods, partials and objects give
    their names; a lambda has none worth showing."""
    registry = ServiceRegistry()
    wanted = ["save", "save", evaluate, Evaluator().run, functools.partial(evaluate), Evaluator(), lambda: None]
    names = ["save", "save-2", "evaluate", "run", "evaluate-2", "Evaluator", "loop"]
    assert [registry.reserve_name(each) for each in wanted] == names


def test_reserved_by_many_threads() -> None:
    """Threads that want the same name at once get different ones."""
    registry, barrier = ServiceRegistry(), threading.Barrier(8)
    names: list[str] = []

    def reserve() -> None:
        barrier.wait()
        names.append(registry.reserve_name("loop"))

    threads = [threading.Thread(target=reserve) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 8


def test_statuses_in_order() -> None:
    """Statuses come in the order of the names' reservation; names without a service yet are left out."""
    registry = ServiceRegistry()
    first = registry.reserve_name("first")
    registry.reserve_name("not yet")
    registry.add(Service("second"))
    registry.add(Service(first))
    assert [status.name for status in registry.statuses()] == ["first", "second"]


def test_same_name_twice() -> None:
    """Another service of the same name is refused; the same one again is fine."""
    registry = ServiceRegistry()
    service = registry.add(Service("save"))
    assert registry.add(service) is service
    with pytest.raises(ValueError, match="'save' already; take a name from reserve_name"):
        registry.add(Service("save"))


def test_clear() -> None:
    """Cleared it knows no services, and all names are free."""
    registry = ServiceRegistry()
    registry.add(Service("save"))
    registry.clear()
    assert registry.statuses() == ()
    assert registry.reserve_name("save") == "save"
