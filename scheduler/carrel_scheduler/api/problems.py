"""Errors of the API, as RFC 9457 problems with stable codes.

::

    Problem
    ├── BadRequest       400   the request is not readable
    ├── Unauthenticated  401   no token, or one that nobody knows
    ├── PermissionDenied        403   known, but not allowed
    ├── Missing          404   not there, or not for these eyes
    ├── WrongMethod      405
    ├── Conflicting      409   the present state refuses it
    ├── TooLarge         413
    ├── WrongMediaType   415
    ├── InvalidRequest          422   readable and wrong; ``errors`` names each field
    ├── TooMany          429
    ├── Broken           500   our fault; the log has the details under the same id
    └── ServiceUnavailable      503   something we need does not answer

Codes are part of the API: they may be added, never renamed.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Final

from carrel_schema.governance.roles import roles_with
from carrel_schema.problems import FieldError, ProblemBody

MEDIA_TYPE: Final = "application/problem+json"
LONGEST_VALUE: Final = 120


class Code(StrEnum):
    """The stable codes of problems and of their field errors."""

    # Unreadable requests.
    MALFORMED_JSON = "malformed_json"
    MALFORMED_REQUEST = "malformed_request"
    WEBSOCKET_EXPECTED = "websocket_expected"
    BODY_TOO_LARGE = "body_too_large"
    WRONG_MEDIA_TYPE = "wrong_media_type"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    # Authentication and rights.
    UNAUTHENTICATED = "unauthenticated"
    MISSING_SCOPE = "missing_scope"
    MISSING_PERMISSION = "missing_permission"
    BUDGET_USED_UP = "budget_used_up"
    NOT_DELIVERED = "not_delivered"
    NOT_A_MEMBER = "not_a_member"
    NOT_THE_OWNER = "not_the_owner"
    SPAWNER_ONLY = "spawner_only"
    USER_EXPECTED = "user_expected"
    TASK_TOKEN_EXPIRED = "task_token_expired"  # noqa: S105 - a code
    WRONG_NODE_TOKEN = "wrong_node_token"  # noqa: S105 - a code
    NOT_FOR_JOBS = "not_for_jobs"
    WRONG_TASK_TOKEN = "wrong_task_token"  # noqa: S105 - a code, not a secret
    TOO_MANY_STREAMS = "too_many_streams"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    TOO_MANY_REQUESTS = "too_many_requests"
    # Missing objects.
    NOT_FOUND = "not_found"
    UNKNOWN_PROJECT = "unknown_project"
    UNKNOWN_DEPARTMENT = "unknown_department"
    UNKNOWN_NODE_GROUP = "unknown_node_group"
    UNKNOWN_USER = "unknown_user"
    NO_LOGS = "no_logs"
    NO_RESULT = "no_result"
    NO_SUCH_FILE = "no_such_file"
    NO_SUCH_ROUTE = "no_such_route"
    # Conflicts with the present state.
    ALREADY_EXISTS = "already_exists"
    ALREADY_REMOVED = "already_removed"
    CANNOT_RERUN = "cannot_rerun"
    CONFLICT = "conflict"
    ENGINE_REFUSED = "engine_refused"
    IDEMPOTENCY_KEY_REUSED = "idempotency_key_reused"
    LIBRARY_MISSING = "library_missing"
    NO_CLUSTER = "no_cluster"
    NO_FREE_NAME = "no_free_name"
    NOT_A_WORKSPACE = "not_a_workspace"
    NOT_AN_EXPERIMENT = "not_an_experiment"
    NOT_A_TRIAL = "not_a_trial"
    NOT_A_WORKER = "not_a_worker"
    NO_BEST_TRIAL = "no_best_trial"
    NOT_CORDONED = "not_cordoned"
    NOT_PENDING = "not_pending"
    NOT_RUNNING = "not_running"
    NOT_STOPPED = "not_stopped"
    ALREADY_STOPPED = "already_stopped"
    BEING_DELETED = "being_deleted"
    PROJECT_IN_USE = "project_in_use"
    DEPARTMENT_IN_USE = "department_in_use"
    NODE_GROUP_IN_USE = "node_group_in_use"
    # Errors of fields.
    INVALID = "invalid"
    UNKNOWN_FIELD = "unknown_field"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    WRONG_FORM = "wrong_form"
    NOT_FINITE = "not_finite"
    TOO_SMALL = "too_small"
    TOO_BIG = "too_big"
    TOO_LONG = "too_long"
    TOO_SHORT = "too_short"
    UNKNOWN_VALUE = "unknown_value"
    BAD_NAME = "bad_name"
    RESERVED_NAME = "reserved_name"
    BAD_ENVIRONMENT_NAME = "bad_environment_name"
    BAD_LABEL = "bad_label"
    BAD_PATH = "bad_path"
    PATH_ESCAPES = "path_escapes"
    FILES_TOO_LARGE = "files_too_large"
    COMMAND_REQUIRED = "command_required"
    SECTION_REQUIRED = "section_required"
    SECTION_OF_ANOTHER_KIND = "section_of_another_kind"
    BAD_SEARCH_SPACE = "bad_search_space"
    BAD_SUGGESTION = "bad_suggestion"
    BAD_RANGE = "bad_range"
    BAD_CRON = "bad_cron"
    UNKNOWN_JOB = "unknown_job"
    UNKNOWN_CODE = "unknown_code"
    BAD_CODE = "bad_code"
    BAD_LIMIT = "bad_limit"
    BAD_STALL_RULE = "bad_stall_rule"
    BAD_RULE = "bad_rule"
    LOOSENS_POLICY = "loosens_policy"
    POLICY = "policy"
    UNKNOWN_SECRET = "unknown_secret"  # noqa: S105 - a code
    UNKNOWN_ASSET = "unknown_asset"
    UNKNOWN_TEMPLATE = "unknown_template"
    CANNOT_CHANGE = "cannot_change"
    TOO_DEEP = "too_deep"
    TOO_MANY_DESCENDANTS = "too_many_descendants"
    OWN_PROGRAM = "own_program"
    BAD_TIME_ZONE = "bad_time_zone"
    FIXED_PORT = "fixed_port"
    ROUTE_TWICE = "route_twice"
    NAME_REQUIRED = "name_required"
    NAME_AND_PREFIX = "name_and_prefix"
    NAME_TWICE = "name_twice"
    BAD_DEVICE = "bad_device"
    BAD_GPU_SHARE = "bad_gpu_share"
    GPU_MEMORY_AND_GPUS = "gpu_memory_and_gpus"
    BAD_GPU_DEVICES = "bad_gpu_devices"
    GPU_TYPE_WITHOUT_GPUS = "gpu_type_without_gpus"
    GPU_TYPE_TWICE = "gpu_type_twice"
    TOPOLOGY_OF_GANG = "topology_of_gang"
    BAD_MIG_PROFILE = "bad_mig_profile"
    MIG_AND_GPUS = "mig_and_gpus"
    NO_MIG = "no_mig"
    NO_IMAGE = "no_image"
    BAD_ELASTIC = "bad_elastic"
    UNKNOWN_PRIORITY = "unknown_priority"
    WORKSPACE_SINGLE_TASK = "workspace_single_task"
    EXTERNAL_WORKSPACE = "external_workspace"
    LIMIT_BELOW_QUOTA = "limit_below_quota"
    GROUP_QUOTAS_ABOVE_QUOTA = "node_group_quotas_above_quota"
    QUOTA_NEVER_MET = "quota_never_met"
    LIMIT_NEVER_MET = "limit_never_met"
    NEVER_FITS = "never_fits"
    # Failures of the service.
    INTERNAL_ERROR = "internal_error"
    HUB_UNAVAILABLE = "hub_unavailable"
    LEDGER_UNAVAILABLE = "ledger_unavailable"
    STORAGE_FULL = "storage_full"


class Problem(Exception):  # noqa: N818 - the name that the standard gives it
    """Base of everything the API refuses; ``detail`` is a sentence for people."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Problem"

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail = str(code), detail
        self.errors, self.headers = tuple(errors), dict(headers or {})

    def body(self) -> ProblemBody:
        """The problem on the wire."""
        return ProblemBody(
            title=self.title,
            status=self.status,
            code=self.code,
            detail=self.detail,
            errors=self.errors,
        )


class BadRequest(Problem):
    """400."""

    status, title = 400, "The request cannot be read"


class Unauthenticated(Problem):
    """401."""

    status, title = 401, "Who are you?"

    def __init__(self, detail: str) -> None:
        super().__init__(
            Code.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": 'Bearer realm="carrel"'}
        )


class PermissionDenied(Problem):
    """403."""

    status, title = 403, "Not allowed"


class Missing(Problem):
    """404."""

    status, title = 404, "Not found"


class WrongMethod(Problem):
    """405."""

    status, title = 405, "Method not allowed"

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        allow = ", ".join(sorted(allowed))
        super().__init__(
            Code.METHOD_NOT_ALLOWED,
            f"{method} is not for this path; it takes {allow}",
            headers={"Allow": allow},
        )


class Conflicting(Problem):
    """409."""

    status, title = 409, "The present state refuses this"


class TooLarge(Problem):
    """413."""

    status, title = 413, "Too large"


class WrongMediaType(Problem):
    """415."""

    status, title = 415, "Wrong content type"


class InvalidRequest(Problem):
    """422."""

    status, title = 422, "Not accepted"


class TooMany(Problem):
    """429."""

    status, title = 429, "Too many"


class Broken(Problem):
    """500: has only the id under which the log has the details."""

    status, title = 500, "Something went wrong here"

    def __init__(self, error_id: str) -> None:
        super().__init__(
            Code.INTERNAL_ERROR, f"The service failed; its log has the details as {error_id}"
        )


class ServiceUnavailable(Problem):
    """503."""

    status, title = 503, "Not available at the moment"


def shown(value: object) -> Any:
    """A refused value as it may be shown: scalars as they are, anything long cut short."""
    if value is None or (isinstance(value, bool | int) and abs(value) < 2**63):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def invalid_field(field: str, code: Code, value: object, expected: str) -> InvalidRequest:
    """A problem about one invalid field; both have the same code."""
    error = FieldError(field=field, code=code, value=shown(value), expected=expected)
    return InvalidRequest(code, f"{field}: expected {expected}{_instead_of(value)}", errors=[error])


LONGEST_IN_A_SENTENCE: Final = 60


def _instead_of(value: object) -> str:
    """A refused value at the end of a sentence, where it is short enough to be read there."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    text = f"`{value}`" if isinstance(value, str) else str(value)
    fits = value != "" and len(text) <= LONGEST_IN_A_SENTENCE and text.isprintable()
    return f", not {text}" if fits else ""


def not_permitted(permission: str, where: str, hint: str = "") -> PermissionDenied:
    """A problem: no role of the caller has a permission in a scope."""
    roles = ", ".join(roles_with(permission))
    return PermissionDenied(
        Code.MISSING_PERMISSION,
        f"This needs the permission `{permission}` in {where}. Roles with it are {roles}; who "
        f"administers the scope gives them{hint}",
    )
