"""Cost tables."""

import pytest

from swiftspec_daemon.errors import UsageError
from swiftspec_daemon.speculation.costs import CostTable


def test_straight_lines_between_and_beyond():
    table = CostTable({1: 10.0, 4: 13.0, 8: 21.0})
    assert [table(rows) for rows in (1, 2, 3, 4, 6, 8, 10)] == [10, 11, 12, 13, 17, 21, 25]
    assert table.measured() == {1: 10.0, 4: 13.0, 8: 21.0}


@pytest.mark.parametrize("seconds", [{1: 1.0}, {1: 1.0, 2: 3.0, 16: 4.0}, {1: 5.0, 4: 3.0, 5: 6.0}])
def test_the_list_is_the_function(seconds):
    table = CostTable(seconds)
    listed = table.upto(40)
    assert listed[1:41] == pytest.approx([table(rows) for rows in range(1, 41)])
    assert listed[0] == table(1)


def test_never_falls_with_more_rows():
    table = CostTable({1: 5.0, 4: 3.0, 8: 6.0})
    assert [table(1), table(2), table(4), table(6), table(8)] == [5, 5, 5, 5.5, 6]


def test_learns_what_it_sees_and_moves_the_rest_along_slowly():
    table = CostTable({1: 10.0, 8: 20.0})
    for _ in range(100):
        table.observe(8, 30.0)
    assert table(8) == pytest.approx(30.0, rel=0.01)
    slower = table(1) / 10.0
    assert 1.05 < slower < 1.5
    for _ in range(100):
        table.observe(1, 10.0)
    assert table(1) == pytest.approx(10.0, rel=0.01)


def test_a_machine_that_gets_quicker_is_found_so_for_rows_that_are_not_run():
    table = CostTable({1: 20.0, 4: 21.0, 8: 24.0})
    for _ in range(200):
        table.observe(1, 4.0)
    assert table(1) == pytest.approx(4.0, rel=0.01)
    assert table(8) == pytest.approx(24.0 / 5, rel=0.1)


def test_what_was_learned_of_many_rows_lasts_a_while():
    table = CostTable({1: 10.0, 8: 12.0})
    for _ in range(100):
        table.observe(8, 20.0)
    for _ in range(10):
        table.observe(1, 10.0)
    assert table(8) > 17.0


def test_an_outlier_counts_as_twice_at_most():
    wild, twice = CostTable({1: 10.0}), CostTable({1: 10.0})
    wild.observe(1, 1e9)
    twice.observe(1, 20.0)
    assert wild(1) == pytest.approx(twice(1))
    before = wild(1)
    for nothing in (0.0, -1.0, float("nan")):
        wild.observe(1, nothing)
    assert wild(1) == before


def test_a_time_between_two_measured_ones_moves_both():
    table = CostTable({1: 10.0, 3: 10.0, 9: 10.0})
    table.observe(2, 12.0)
    one, three, nine = (table(rows) for rows in (1, 3, 9))
    assert one == pytest.approx(three)
    assert one > 10.0
    assert nine <= three + 1e-9


@pytest.mark.parametrize(
    "seconds", [{}, {2: 1.0}, {1: 0.0}, {1: -1.0}, {1: float("nan")}, {0: 1.0, 1: 1.0}]
)
def test_bad_tables_are_refused(seconds):
    with pytest.raises(UsageError):
        CostTable(seconds)
