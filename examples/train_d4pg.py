"""D4PG trained with the adaptive module on, as in the paper's experiments.

The networks are small and the run is short: it shows how, not how well.
Run it with: python examples/train_d4pg.py
"""

import windward as ww

agent = ww.agents.D4PG(
    "windward/SinePendulum-v0",
    seed=0,
    widths=(32, 32),
    min_replay=200,
    robust={"signal": "pd2", "h": 3, "eta": 1e-6, "every_episodes": 3},
)
agent.learn(600, eval_every=300, eval_episodes=2)
for row in agent.log.rows:
    print({name: row[name] for name in ("steps", "eval_return", "M_norm", "w_hat_norm")})
print(f"M has shape {agent.M.shape}")
