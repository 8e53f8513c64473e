"""Draws docs/disturbances.png and brings the tables of docs/disturbances.md up to date."""

from pathlib import Path

import gymnasium as gym
import numpy as np

from windward import envs
from windward.envs.ids import fgsm_pendulum
from windward.simulators.physics import physics_of

FOLDER = Path(__file__).parent
GALLERY = [
    "uniform:bound=0.1",
    "gaussian:scale=0.1",
    "sine:amp=0.2,period=60,phase=0/1.57",
    "square:amp=0.2,period=60,phase=0/1.57",
    "ou:scale=0.1,tau=20",
    "walk:scale=0.02,bound=0.3",
    "bias:value=0.1/-0.05",
    "step:size=0.2/-0.1,at=100",
    "impulse:size=1/0.5,at=50,width=3,every=100",
    "sine:amp=0.2,period=30,start=100,stop=200",
    "sine:amp=0.2,period=30,grow=250",
    "bias:value=0.1/-0.1,probability=0.1",
]
ENVIRONMENTS = [
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "HalfCheetah-v5",
    "InvertedPendulum-v5",
    "Pendulum-v1",
    "CartPole-v1",
    "MountainCarContinuous-v0",
]


def _gallery() -> dict[str, np.ndarray]:
    """Every disturbance once, and some schedules."""
    shown = {text: envs.sequence(text) for text in GALLERY}
    t = np.arange(150)
    gust = 0.2 * np.exp(-(((t - 75) / 25) ** 2))
    recorded = envs.Recorded(np.stack([gust, -gust / 2], axis=1), after="repeat")
    shown["recorded:sequence=gust.csv,after=repeat"] = envs.sequence(recorded)
    # The adversary needs somebody to push: a pendulum that hangs from a slight start.
    env = fgsm_pendulum("Pendulum", epsilon=(0.01, 0.05))
    env.reset(seed=0)
    pushes = [env.step(np.zeros(1, np.float32))[4]["disturbance"]["state"] for _ in range(200)]
    shown["fgsm:epsilon=0.01/0.05, on Pendulum-v1"] = np.array(pushes)
    return shown


def _rows(env_id: str) -> dict[str, str]:
    """How many numbers each channel of an environment takes, elements gathered under one name."""
    env = gym.make(env_id)
    rows: dict[str, str] = {}
    for name, channel in envs.channels_of(env).items():
        kind, _, element = name.partition(":")
        count = str(int(np.prod(channel.shape)))
        if element and channel.stage == "push":
            rows[f"{kind}:BODY"] = count
        elif not element:
            rows[name] = count
    env.close()
    return rows


def channel_table() -> str:
    """Markdown: how many numbers each channel takes, by environment."""
    found = {env_id: _rows(env_id) for env_id in ENVIRONMENTS}
    names = list(dict.fromkeys(name for rows in found.values() for name in rows))
    lines = [
        "| channel | " + " | ".join(ENVIRONMENTS) + " |",
        "| --- |" + " --- |" * len(ENVIRONMENTS),
    ]
    for name in names:
        cells = [found[env_id].get(name, "") for env_id in ENVIRONMENTS]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def element_table() -> str:
    """Markdown: names that stand for BODY in force:BODY, torque:BODY and mass:BODY."""
    lines = ["| environment | bodies |", "| --- | --- |"]
    for env_id in ENVIRONMENTS:
        env = gym.make(env_id)
        physics = physics_of(env.unwrapped)
        if physics is not None:
            names = physics.parameters.elements["mass"]
            lines.append(f"| {env_id} | {', '.join(f'`{name}`' for name in names)} |")
        env.close()
    return "\n".join(lines)


def with_tables(text: str) -> str:
    """The docs page with its tables as they are now."""
    for mark, table in (("channels", channel_table()), ("bodies", element_table())):
        before, start, rest = text.partition(f"<!-- {mark} -->\n")
        _, end, after = rest.partition(f"<!-- end of {mark} -->")
        if not start or not end:
            raise ValueError(f"the page has no place marked for {mark}")
        text = f"{before}{start}{table}\n{end}{after}"
    return text


if __name__ == "__main__":
    envs.plot(_gallery(), path=FOLDER / "disturbances.png")
    page = FOLDER / "disturbances.md"
    page.write_text(with_tables(page.read_text()))
