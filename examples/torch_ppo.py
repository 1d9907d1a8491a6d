"""An agent learns by PPO to hold a mass in place, in the shape of CleanRL's ppo.py: no loader, and an environment.

    python -m examples.torch_ppo --logdir /tmp/torch-ppo --updates 100

Kill it in any way you like and type the same again: it goes on at its last checkpoint, with the same numbers. It takes
about 10 seconds on a CPU.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from supervisor_core import supervise

ENVS, STEPS, EPOCHS, MINIBATCHES = 8, 32, 4, 4


class Masses:
    """Masses in the wind: each is pushed left, not at all, or right, and shall stay in the middle.

    Args:
        seed: of the wind.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.places = np.zeros((ENVS, 2))  # position and velocity
        self.ages = np.zeros(ENVS, int)

    def reset(self) -> np.ndarray:
        """Put all masses somewhere."""
        self.places[:], self.ages[:] = self.rng.uniform(-1, 1, (ENVS, 2)), 0
        return self.places.astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the next observations, the rewards, and which episodes have ended."""
        self.places[:, 1] += 0.1 * (actions - 1) + 0.02 * self.rng.standard_normal(ENVS)
        self.places[:, 0] += 0.1 * self.places[:, 1]
        rewards = 1 - np.abs(self.places[:, 0])
        self.ages += 1
        done = (np.abs(self.places[:, 0]) > 2) | (self.ages >= 100)
        self.places[done], self.ages[done] = self.rng.uniform(-1, 1, (int(done.sum()), 2)), 0
        return self.places.astype(np.float32), rewards.astype(np.float32), done.astype(np.float32)

    def get_state(self) -> dict[str, Any]:
        """Return what a resume needs: an environment without this is named by the verdict."""
        return {"places": self.places, "ages": self.ages, "rng": self.rng.bit_generator.state}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on where a state was."""
        self.places[:], self.ages[:], self.rng.bit_generator.state = state["places"], state["ages"], state["rng"]


class Agent(nn.Module):
    """A policy, and what it expects of a state."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3))
        self.value = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))


def main(arguments: list[str] | None = None) -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", default="/tmp/torch-ppo")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--save-secs", type=float, default=2.0)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", force=True)
    torch.set_num_threads(1)
    torch.manual_seed(1)

    envs, agent = Masses(seed=1), Agent()
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)
    carry = {"obs": torch.tensor(envs.reset()), "frames": 0}
    state = {"agent": agent, "optimizer": optimizer, "envs": envs, "carry": carry}
    run = supervise(options.logdir, state=state, save_secs=options.save_secs)
    for update in run.steps(options.updates):
        optimizer.param_groups[0]["lr"] = 2.5e-3 * (1 - update / options.updates)
        obs, rows = carry["obs"], []
        for _ in range(STEPS):
            with torch.no_grad():
                policy, value = Categorical(logits=agent.policy(obs)), agent.value(obs).flatten()
                action = policy.sample()
            following, reward, done = map(torch.tensor, envs.step(action.numpy()))
            rows.append((obs, action, policy.log_prob(action), value, reward, done))
            obs = following
        carry.update(obs=obs, frames=carry["frames"] + STEPS * ENVS)
        loss, mean = learn(agent, optimizer, rows, obs)
        run.log({"loss": loss, "reward": mean})
        if update % 10 == 9:
            print(f"update {update}: {carry['frames']} frames, reward {mean:.6f}", flush=True)


def learn(agent: Agent, optimizer: torch.optim.Optimizer, rows: list[Any], last: Any) -> tuple[float, float]:
    """Make PPO's steps from what was played; return the last loss, and the mean reward."""
    obs, actions, chances, values, rewards, done = map(torch.stack, zip(*rows, strict=True))
    advantages, advantage = torch.zeros_like(rewards), torch.zeros(ENVS)
    with torch.no_grad():
        following = agent.value(last).flatten()
    for at in reversed(range(STEPS)):
        goes_on = 1 - done[at]
        advantage = rewards[at] + 0.99 * following * goes_on - values[at] + 0.99 * 0.95 * goes_on * advantage
        advantages[at], following = advantage, values[at]
    returns, loss = (advantages + values).flatten(), torch.zeros(())
    obs, actions, chances, gains = obs.flatten(0, 1), actions.flatten(), chances.flatten(), advantages.flatten()
    for _ in range(EPOCHS):
        for rows_now in torch.randperm(STEPS * ENVS).chunk(MINIBATCHES):
            policy = Categorical(logits=agent.policy(obs[rows_now]))
            ratio = (policy.log_prob(actions[rows_now]) - chances[rows_now]).exp()
            gain = (gains[rows_now] - gains[rows_now].mean()) / (gains[rows_now].std() + 1e-8)
            clipped = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            error = (agent.value(obs[rows_now]).flatten() - returns[rows_now]).square().mean()
            loss = -clipped + 0.5 * error - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    return loss.item(), rewards.mean().item()


if __name__ == "__main__":
    main()
