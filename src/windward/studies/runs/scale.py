"""How much of a study is run: the paper's size, a laptop's, or hardly any."""

from typing import Literal

Scale = Literal["paper", "laptop", "smoke"]
SMOKE = "Scale smoke shows that everything works; its numbers mean nothing."
