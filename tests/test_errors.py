from __future__ import annotations

import copy
from multiprocessing.reduction import ForkingPickler

from hypothesis import given
from hypothesis import strategies as st

from tvmlab import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
TEXT = st.text(max_size=40)


@given(st.sampled_from(CLASSES), TEXT, st.none() | TEXT, st.none() | TEXT)
def test_an_error_survives_copying_and_process_borders(
    kind: type[errors.TvmlabError], what: str, where: str | None, fix: str | None
) -> None:
    error = kind(what, where=where, fix=fix)
    sent = ForkingPickler.loads(ForkingPickler.dumps(error))
    for other in (sent, copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert (other.what, other.where, other.fix) == (what, where, fix)
        assert str(other) == str(error)


def test_every_class_is_listed_and_derived_from_the_base() -> None:
    defined = {name for name, item in vars(errors).items() if isinstance(item, type)}
    assert defined == set(errors.__all__)
    assert all(issubclass(kind, errors.TvmlabError) for kind in CLASSES)
    assert issubclass(errors.UnsupportedOperatorError, errors.ModelError)
    assert issubclass(errors.ShapeError, errors.ModelError)
