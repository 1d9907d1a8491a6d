"""`ServiceRegistry`: the services of a run, under names that are used once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from supervisor_core.run.status import ThreadStatus


class HasStatus(Protocol):
    """Anything whose health can be shown: a `ServiceThread`, or a stand-in for a thread that is not ours."""

    @property
    def name(self) -> str:
        """Under which it is shown."""

    def status(self) -> ThreadStatus:
        """Return its health at this moment."""


ServiceT = TypeVar("ServiceT", bound=HasStatus)


class ServiceRegistry:
    """Keeps the services of a run in the order they were added; any thread may call anything.

    Example:
        >>> registry = ServiceRegistry()
        >>> def evaluate(): ...
        >>> registry.reserve_name(evaluate), registry.reserve_name(evaluate)
        ('evaluate', 'evaluate-2')
    """

    def __init__(self) -> None:
        self._services_lock = threading.Lock()
        self._services: dict[str, HasStatus | None] = {}

    def reserve_name(self, wanted: str | Callable[..., object]) -> str:
        """Return a name that no other service has or gets: the one wanted, else with ``-2``, ``-3``... at its end.

        Args:
            wanted: a name, or a function (or any other callable) to take it from.
        """
        base = wanted if isinstance(wanted, str) else _name_of(wanted)
        with self._services_lock:
            name, count = base, 1
            while name in self._services:
                count += 1
                name = f"{base}-{count}"
            self._services[name] = None
            return name

    def add(self, service: ServiceT) -> ServiceT:
        """Show a service from now on, and return it.

        Raises:
            ValueError: another service has its name; take one from `reserve_name`.
        """
        with self._services_lock:
            known = self._services.get(service.name)
            if known is not None and known is not service:
                raise ValueError(f"There is a service named {service.name!r} already; take a name from reserve_name().")
            self._services[service.name] = service
            return service

    def statuses(self) -> tuple[ThreadStatus, ...]:
        """Return the health of each service at this moment, in the order of their names' reservation."""
        with self._services_lock:
            services = list(self._services.values())
        return tuple(service.status() for service in services if service is not None)

    def clear(self) -> None:
        """Forget all services and names, as before a new session of the same run."""
        with self._services_lock:
            self._services.clear()


def _name_of(target: Callable[..., object]) -> str:
    inner = getattr(target, "func", target)  # functools.partial
    name = getattr(inner, "__name__", type(inner).__name__)
    return "loop" if name == "<lambda>" else str(name)
