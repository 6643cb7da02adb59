"""Output of `tailrace backup`: plans and results."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailrace.cli.common import output

if TYPE_CHECKING:
    from tailrace.backup.create import Plan, Result
    from tailrace.backup.manifest import Manifest
    from tailrace.backup.restore import Restored
    from tailrace.backup.verify import BackupVerification


def created(result: "Result") -> dict[str, object]:
    return {**summary(result.manifest), "damage": result.manifest.damage, "notes": result.notes}


def summary(manifest: "Manifest") -> dict[str, object]:
    return {
        "backup": manifest.id,
        "source": manifest.source,
        "began_ms": manifest.began_ms,
        "ended_ms": manifest.ended_ms,
        "logs": len(manifest.logs),
        "bytes": manifest.size,
        "copied_bytes": manifest.copied_bytes,
        "damaged_ranges": len(manifest.damage),
    }


def show_plan(plan: "Plan", destination: Path, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(as_json_object(plan), indent=2))
        return
    print(f"would back up {output.plural(plan.logs, 'log')}, {output.size(plan.bytes)}, to {destination}")
    segments = output.plural(plan.segments_to_copy, "segment")
    print(f"would copy {segments} of {plan.segments:,}, {output.size(plan.bytes_to_copy)}; nothing was done")


def show_created(result: "Result", destination: Path) -> None:
    manifest = result.manifest
    logs, sizes = output.plural(len(manifest.logs), "log"), output.size(manifest.size)
    seconds = (manifest.ended_ms - manifest.began_ms) / 1000
    print(f"backed up {logs}, {sizes}, as {manifest.id} in {seconds:.1f} s")
    reused = max(0, manifest.size - manifest.copied_bytes)
    print(f"copied {output.size(manifest.copied_bytes)}; {output.size(reused)} were in {destination} already")
    for note in result.notes:
        output.warn(note)
    for damage in manifest.damage:
        first, last = int(damage["first_offset"]), int(damage["last_offset"])
        offsets = f"offsets {first} to {last}" if first <= last else "surplus bytes, no offset is lost"
        output.warn(f"{damage['file']} is damaged in {manifest.source}: {offsets} ({damage['reason']})")
    if manifest.damage:
        output.warn("what is damaged was copied as it is; everything else is sound (`tailrace log verify` says more)")


def show_verified(result: "BackupVerification") -> None:
    manifest, logs = result.manifest, result.logs
    console = output.console()
    records = output.plural(sum(partition.records for partition in logs.partitions), "record")
    counts = f"{output.plural(len(manifest.logs), 'log')}, {records}, {output.size(manifest.size)}"
    console.print(f"{manifest.id}: {counts}", markup=False, soft_wrap=True)
    for bad in result.bad_objects:
        console.print(f"  {bad.path}: {bad.reason}", style="red", markup=False, soft_wrap=True)
        console.print(f"    it is {', '.join(bad.files)}", markup=False, soft_wrap=True)
    for line in (*map(str, logs.damage), *map(str, logs.tail), *map(str, logs.derived), *logs.notes):
        console.print(f"  {line}", markup=False, soft_wrap=True)
    if result.healthy:
        console.print("  every byte is as it was copied, and every batch is sound", style="bold green")
    elif result.bad_objects:
        console.print(
            "  damaged. Delete these files of the backup: the next `tailrace backup create` copies them again, where "
            "the source still has them",
            style="bold red",
            soft_wrap=True,
        )
    else:
        console.print("  the source was damaged when it was copied; every byte is as it was there", style="bold red")


def show_restore_plan(manifest: "Manifest", data: Path, *, begins_anew: bool, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**summary(manifest), "data": str(data), "begins_anew": begins_anew}, indent=2))
        return
    logs = output.plural(len(manifest.logs), "log")
    print(f"would restore {manifest.id} into {data}: {logs}, {output.size(manifest.size)}; nothing was done")
    if begins_anew:
        print(f"what an unfinished restore has left in {data} would be removed first")


def show_restored(restored: "Restored", manifest: "Manifest", data: Path) -> None:
    print(
        f"restored {manifest.id} into {data}: {output.plural(len(manifest.logs), 'log')}, {output.size(restored.bytes)}"
    )
    for name in restored.damaged:
        output.warn(f"{name} is not what was backed up")
    print(f"  tailrace serve --data {data}")


def as_json_object(value: Any) -> dict[str, Any]:
    """A dataclass in plain values."""
    return asdict(value)
