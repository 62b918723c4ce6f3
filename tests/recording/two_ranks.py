"""One of two processes of a distributed training: ``python two_ranks.py MODE RANK FOLDER``; prints OK if all agrees."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import precsim as ps
from precsim.recording.sketching import local_tensor
from precsim.runs import read_sketches


def model_for(mode: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    if mode == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import fully_shard

    for part in (model[0], model[2]):
        fully_shard(part, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
    return fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))


def micro_batches(rank: int, step: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(10 * step + rank)
    return [torch.randn(3, 8, generator=generator) for _ in range(2)]


def train(mode: str, rank: int, folder: Path | None) -> list[dict[str, torch.Tensor]]:
    """Two steps of two micro-batches each, clipped; this process's gradients before clipping."""
    model = model_for(mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = None if folder is None else ps.record(model, optimizer, folder)
    seen = []
    for step in range(2):
        optimizer.zero_grad()
        for i, x in enumerate(micro_batches(rank, step)):
            if mode == "ddp" and i == 0:
                with model.no_sync():
                    model(x).square().mean().backward()
            else:
                model(x).square().mean().backward()
        named = ((name.removeprefix("module."), p) for name, p in model.named_parameters())
        seen.append({name: local_tensor(p.grad).clone() for name, p in named})
        nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
    if recorder is not None:
        recorder.close()
    return seen


def main(mode: str, rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    run = folder / "run"
    wanted = train(mode, rank, None)
    train(mode, rank, run)
    dist.barrier()
    for step, gradients in enumerate(wanted):
        rows = list(read_sketches(run / "sketches" / f"step-{step:010}.rank-{rank}.parquet"))
        found = {row.tensor: row.sketch for row in rows if row.kind == "grad"}
        assert found.keys() == gradients.keys(), (sorted(found), sorted(gradients))
        for name, gradient in gradients.items():
            assert found[name] == ps.sketch(gradient, errors=False), f"{name} at step {step} on rank {rank}"
        assert {row.rank for row in rows} == {rank}
        assert any(row.kind == "act_grad" for row in rows)
    dist.barrier()
    dist.destroy_process_group()
    print("OK")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
