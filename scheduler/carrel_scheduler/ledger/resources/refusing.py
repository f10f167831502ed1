"""Errors of the API server as errors of the ledger."""

from collections.abc import Iterator
from contextlib import contextmanager

from carrel_scheduler.kube import errors
from carrel_scheduler.ledger.errors import InvalidArgument, LedgerUnavailable
from carrel_scheduler.ledger.rows.objects import full_name
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.objects import Object


class Lost(LedgerUnavailable):
    """No response was received: the change may have been made."""


@contextmanager
def refusals(obj: Object | None = None) -> Iterator[None]:
    """Raise the ledger's errors for those of the API server; ``obj`` is what it is about."""
    try:
        yield
    except errors.NotFound as error:
        raise ObjectNotFound(error.message) from error
    except errors.AlreadyExists as error:
        raise ObjectExists(f"{_name(obj)} exists") from error
    except errors.Conflict as error:
        raise VersionConflict(f"{_name(obj)}: {error.message}") from error
    except errors.Invalid as error:
        causes = error.details.causes or ()
        field = causes[0].field if causes else _name(obj)
        raise InvalidArgument(field, _name(obj), f"taken: {error.message}") from error
    except errors.Unavailable as error:
        raise Lost(f"the cluster's API: {error}") from error
    except errors.KubeError as error:
        raise LedgerUnavailable(f"the cluster's API: {error}") from error


def _name(obj: Object | None) -> str:
    if obj is None:
        return "the object"
    return f"{type(obj).__name__} {full_name(obj.meta.project, obj.meta.name)}"
