"""The memory ledger: printed numbers as intervals, SGLang's arithmetic as equations, and what follows."""
