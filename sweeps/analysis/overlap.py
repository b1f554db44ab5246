"""How far the training sets of a dataset's seeds overlap, as the corrected t-test wants it."""

from __future__ import annotations

from sweeps.spec import LoadedSpec

_KNOWN: dict[tuple[str, str], float] = {}


def correlation_ratio(loaded: LoadedSpec, dataset: str) -> float:
    """n_test / n_train of a dataset that every seed divides anew; 0 where seeds draw fresh data.

    Nadeau and Bengio (2003) derive it for test rows that are drawn anew with every seed. Here
    they are the same for all seeds, on purpose: no choice may be made on what is tested later.
    So the intervals and tests of such a dataset speak of *these* rows: of what initialisation,
    order and another division of the training rows do to the result. They do not speak of other
    data from the same source: a difference that these test rows, or this pool of training
    rows, favour by chance looks real to every seed. The bootstrap intervals of a single seed
    show how much the choice of test rows matters.

    Only sizes are read, once per dataset and protocol. Methods that learn on held-out rows
    train on somewhat less than the n_train used here.
    """
    data, spec = loaded.datasets[dataset], loaded.spec
    if data.independent_draws:
        return 0.0
    known = (data.fingerprint, spec.protocol.model_dump_json())
    if known not in _KNOWN:
        trained = len(data.split(spec.protocol, spec.seed, held_out=False).train.labels)
        _KNOWN[known] = len(data.test(spec.seed).labels) / trained
    return _KNOWN[known]
