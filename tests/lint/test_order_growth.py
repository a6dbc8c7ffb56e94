"""The order walk of lint costs what a sequence's tasks do, no more: its steps are counted, not its seconds."""

from __future__ import annotations

from elfkiln.families.family import DesignRequest, render
from elfkiln.lint import lint, network, sequences
from projects import CHECKOUT
from rendered import design_of


def test_the_steps_of_the_order_walk_are_linear_in_the_tasks(monkeypatch):
    walk = sequences.lint_order
    look = network._Watch.look
    moves, looks = [], []

    def counted(*given):
        left = walk(*given)
        assert left is not None
        moves.append(network.MOST_MOVES - left)
        return left

    def looking(watch, node):
        looks.append(node)
        look(watch, node)

    monkeypatch.setattr(sequences, "lint_order", counted)
    monkeypatch.setattr(network._Watch, "look", looking)
    tasks, steps = [], []
    for panels in (2, 4, 8):
        generator = render(CHECKOUT, DesignRequest(512, panels * 1024, 128, "_b8", 8))
        design = design_of(generator.text)
        looks.clear()
        assert lint(design, "sim") == ()
        tasks.append(sum(len(sequence.tasks) for sequence in design.sequences))
        steps.append(moves[-1] + len(looks))
    assert tasks[1] == 2 * tasks[0]
    assert tasks[2] == 4 * tasks[0]
    # Each task more costs the same, and what is there without any is less than what the fewest tasks cost.
    first, second = ((steps[i + 1] - steps[i]) / (tasks[i + 1] - tasks[i]) for i in range(2))
    assert abs(second - first) < 0.02 * first
    assert 0 <= steps[0] - first * tasks[0] < first * tasks[0]
