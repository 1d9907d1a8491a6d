"""`ServiceRegistry`: the services of a session, with unique names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from supervisor_core.run.status import ThreadStatus


class HasStatus(Protocol):
    """Anything with a name and a health: a `ServiceThread`, or an adapter for another thread."""

    @property
    def name(self) -> str:
        """Its unique name."""

    def status(self) -> ThreadStatus:
        """Return its present health."""


ServiceT = TypeVar("ServiceT", bound=HasStatus)


class ServiceRegistry:
    """Keeps the services of a session in the order of their names' reservation. Thread-safe.

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
        """Return a name that no other service has or gets: the wanted one, else with ``-2``, ``-3``... appended.

        Args:
            wanted: a name, or a callable to take it from.
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
        """Add a service and return it.

        Raises:
            ValueError: another service has its name.
        """
        with self._services_lock:
            known = self._services.get(service.name)
            if known is not None and known is not service:
                raise ValueError(f"There is a service named {service.name!r} already; take a name from reserve_name().")
            self._services[service.name] = service
            return service

    def statuses(self) -> tuple[ThreadStatus, ...]:
        """Return the present health of each service, in the order of their names' reservation."""
        with self._services_lock:
            services = list(self._services.values())
        return tuple(service.status() for service in services if service is not None)

    def clear(self) -> None:
        """Remove all services and names, for a new session."""
        with self._services_lock:
            self._services.clear()


def _name_of(target: Callable[..., object]) -> str:
    inner = getattr(target, "func", target)  # functools.partial
    name = getattr(inner, "__name__", type(inner).__name__)
    return "loop" if name == "<lambda>" else str(name)
