"""Items evenly spread: from the first on, and none twice where there are fewer than wanted."""

from pipelines.evaluation.protocols.inputs import spread


def test_items_are_spread_and_none_is_there_twice() -> None:
    assert spread(range(8), 4) == [0, 2, 4, 6]
    assert spread(range(2), 4) == [0, 1]
    assert spread([], 4) == []
