"""MIG instances on GPUs whose geometry the core may change: where they fit, what has to go.

The state of a device is a mask of free memory slots. An instance of a profile occupies the slots
from one of its legal starts on; two instances may coexist when their slots are disjoint, which on
every model also keeps the compute slices within bounds. So every question is a look-up by mask:

- ``models``: the profiles of each GPU model;
- ``slots``: per profile and mask, how many more fit and which start is best;
- ``placing``: the start when instances that nobody uses are still there;
- ``search``: whom to evict so that a profile fits.

Where somebody else divides the GPUs, ``parts`` says what an instance counts as.
"""

from carrel_scheduler.core.mig.instances import (
    MASKS,
    Clearing,
    Instance,
    InstanceUser,
    Placement,
    cheapest_clearing,
    clearings,
    count,
    fitting,
    memory_rows,
    place,
    profile_rows,
    removals,
)
from carrel_scheduler.core.mig.models import (
    MEDIA,
    MODELS,
    GpuRequest,
    Model,
    Profile,
    counted_gpu_milli,
    full_slots,
    has_profile,
    instance_milli,
    is_profile,
    milli_of_profile,
    model_code,
    model_of,
    named_profile,
    profile_of_share,
    slots_of,
    smallest_profile,
    unnamed_milli,
    whole_device,
)

__all__ = [
    "MASKS",
    "MEDIA",
    "MODELS",
    "Clearing",
    "GpuRequest",
    "Instance",
    "InstanceUser",
    "Model",
    "Placement",
    "Profile",
    "cheapest_clearing",
    "clearings",
    "count",
    "counted_gpu_milli",
    "fitting",
    "full_slots",
    "has_profile",
    "instance_milli",
    "is_profile",
    "memory_rows",
    "milli_of_profile",
    "model_code",
    "model_of",
    "named_profile",
    "place",
    "profile_of_share",
    "profile_rows",
    "removals",
    "slots_of",
    "smallest_profile",
    "unnamed_milli",
    "whole_device",
]
