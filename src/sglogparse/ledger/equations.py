"""SGLang's memory arithmetic as equations between what a launch prints, each behind the guard that allows it.

readings --> what holds on one rank + what holds between ranks --> facts and equations for the solver
"""

from __future__ import annotations

from fractions import Fraction

from sglogparse._launches import Launch
from sglogparse.ledger.group_equations import add_group
from sglogparse.ledger.model import Model, read_groups
from sglogparse.ledger.rank_equations import add_rank
from sglogparse.ledger.readings import Rank


def build(launch: Launch, ranks: tuple[Rank, ...], *, drift: Fraction, infers: bool = False) -> Model:
    """Return the facts and equations of a launch, with what free memory may drift by (GiB; 0: not at all).

    With `infers` the fraction that the arguments declare is left out, and nothing is taken to cap the pools:
    what the pools imply is then what the server must have been started with.
    """
    model = Model(drift, infers)
    for rank in ranks:
        add_rank(model, launch, rank)
    for group in read_groups(launch, ranks):
        add_group(model, launch, group)
    return model
