"""Clock, chance, ids and memory of the machine."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from fairlead.adapters.local.memory_usage import SystemMemory, resident_by_ps
from fairlead.adapters.local.system import SystemClock, SystemIds, draw

MIB = 1024 * 1024


async def test_the_clock_goes_on_by_what_is_slept() -> None:
    clock = SystemClock()
    before_mono = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() - before_mono >= 0.0099


def test_ids_are_version_7_and_do_not_repeat() -> None:
    ids = SystemIds()
    made_ids = [ids.uuid7() for _ in range(1000)]
    assert {(uuid.version, uuid.variant) for uuid in made_ids} == {(7, "specified in RFC 4122")}
    assert len(set(made_ids)) == 1000
    assert made_ids == sorted(made_ids), "jobs of one call run in their order"


def test_lease_ids_fit_a_bigint_and_are_no_count() -> None:
    lease_ids = [SystemIds().lease_id() for _ in range(1000)]
    assert all(0 < lease_id < 2**63 for lease_id in lease_ids)
    assert len(set(lease_ids)) == 1000
    assert max(lease_ids) > 2**60


def test_draws_lie_in_range() -> None:
    assert all(0 <= draw() < 1 for _ in range(1000))


# ---- memory ----------------------------------------------------------------------------------------


def test_more_memory_in_use_is_seen() -> None:
    gauge = SystemMemory()
    usage_before = gauge.usage()
    with mmap.mmap(-1, 64 * MIB) as mapping:  # of its own: an allocator may give what was resident before
        for page in range(0, len(mapping), mmap.PAGESIZE):
            mapping[page] = 1
        usage_after = gauge.usage()
    assert usage_after.used_bytes - usage_before.used_bytes > 48 * MIB
    assert usage_after.limit_bytes is not None
    assert 0 < usage_after.share < 1


def test_ps_tells_about_the_same() -> None:
    by_proc, by_ps = SystemMemory().usage().used_bytes, resident_by_ps(os.getpid())
    assert by_ps == pytest.approx(by_proc, rel=0.3)
    assert resident_by_ps(2**22 + 1) == 0


def machine(root: Path, cgroup: str, limits: dict[str, str]) -> Path:
    """A root folder with the files of a Linux machine."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/statm").write_text("5000 1000 200 1 0 300 0\n")
    for path, text in limits.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("cgroup", "limits", "limit_mib"),
    [
        ("0::/app\n", {"sys/fs/cgroup/app/memory.max": f"{256 * MIB}\n"}, 256),
        (
            "0::/a/b\n",
            {"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": f"{128 * MIB}\n"},
            128,
        ),
        (  # inside a container the path of the host is not there, and the limit lies at the top
            "0::/docker/abc\n",
            {"sys/fs/cgroup/memory.max": f"{64 * MIB}\n"},
            64,
        ),
        (
            "9:cpu,cpuacct:/x\n4:memory:/job\n0::/\n",
            {
                "sys/fs/cgroup/memory/job/memory.limit_in_bytes": f"{32 * MIB}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            32,
        ),
    ],
)
def test_the_smallest_control_group_is_the_limit(
    tmp_path: Path, cgroup: str, limits: dict[str, str], limit_mib: int
) -> None:
    usage = SystemMemory(root=machine(tmp_path, cgroup, limits)).usage()
    assert usage.limit_bytes == limit_mib * MIB
    assert usage.used_bytes == 1000 * os.sysconf("SC_PAGE_SIZE")


def test_processes_of_a_container_are_counted_together(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory.max": f"{100 * MIB}\n",
        "sys/fs/cgroup/memory.current": f"{95 * MIB}\n",
        "sys/fs/cgroup/memory.stat": f"anon 1\ninactive_file {10 * MIB}\nactive_file 2\n",
    }
    usage = SystemMemory(root=machine(tmp_path, "0::/docker/abc\n", files)).usage()
    assert usage.share < 0.5
    assert usage.group_share == 0.85


def test_without_control_groups_the_machine_is_the_limit_and_a_given_one_rules(tmp_path: Path) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert SystemMemory(root=tmp_path).usage().limit_bytes == physical
    assert SystemMemory(10 * MIB, root=tmp_path).usage().limit_bytes == 10 * MIB


def test_a_machine_without_proc_is_asked_by_ps(tmp_path: Path) -> None:
    assert SystemMemory(root=tmp_path).usage().used_bytes > MIB
