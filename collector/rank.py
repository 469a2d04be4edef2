"""Which of several processes this one is, by what its launcher put into the environment. No torch here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

# Rank and world size as torchrun, Slurm, Open MPI and PMI (MPICH, Intel MPI) name them.
_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
# What is the same on all ranks of one launch, and another at the next one.
_LAUNCH = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Rank:
    """One of `world_size` processes. `run` names the launch."""

    rank: int
    world_size: int
    run: str

    @property
    def file_name(self) -> str:
        """`rank-0.json`: where its evidence stands in the folder of the run."""
        return f"rank-{self.rank}.json"


def rank_of(environment: Mapping[str, str] | None = None) -> Rank | None:
    """This process's rank; None where it is the only one, or no launcher says otherwise."""
    environment = os.environ if environment is None else environment
    for rank_name, size_name in _NAMES:
        try:
            rank, size = int(environment[rank_name]), int(environment[size_name])
        except (KeyError, ValueError):
            continue
        if 0 <= rank < size and size > 1:
            return Rank(rank, size, ":".join(environment.get(name, "") for name in _LAUNCH))
    return None
