"""PCI, RDMA, /proc, the kernel log, Docker, and what engines print of a host."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from heavylift.errors import HeavyliftError
from heavylift.telemetry import engine_host, infiniband, pci, proc
from heavylift.telemetry.kernel_log import KernelEventKind, parse_kernel_log

Recorded = Callable[[str], str]


def test_lspci_nn(recorded: Recorded) -> None:
    """Cards are told from bridges and adapters by vendor and class."""
    devices = pci.parse_lspci_nn(recorded("lspci_nn.txt"))
    assert [device.address for device in devices if device.is_gpu] == ["0000:05:00.0", "1b:00.0"]
    assert [device.address for device in devices if device.is_bridge] == ["00:01.1"]


def test_lspci_vvv(recorded: Recorded) -> None:
    """ACS bits, link states, BAR sizes and atomics are read; what root alone sees is None."""
    bridge, amd, nvidia = pci.parse_lspci_vvv(recorded("lspci_vvv.txt"))
    assert bridge.acs == ("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd")
    assert bridge.atomics is True
    assert (amd.link_speed, amd.link_speed_max) == (16.0, 32.0)
    assert (amd.link_width, amd.link_width_max) == (8, 16)
    assert (amd.largest_bar_bytes, amd.numa_node) == (512 * 2**30, 1)
    assert (nvidia.vendor_id, nvidia.acs, nvidia.link_width) == (pci.NVIDIA, None, None)


def test_pci_sysfs() -> None:
    """A device of sysfs has its class without the programming interface, and its BARs."""
    folder = "/sys/bus/pci/devices/0000:1b:00.0"
    (device,) = pci.parse_sysfs(
        {
            f"{folder}/vendor": "0x10de",
            f"{folder}/class": "0x030200",
            f"{folder}/current_link_speed": "32.0 GT/s PCIe",
            f"{folder}/current_link_width": "16",
            f"{folder}/numa_node": "-1",
            f"{folder}/driver": "../../../bus/pci/drivers/nvidia",
        }
    )
    assert device.is_gpu
    assert (device.link_speed, device.link_width, device.driver) == (32.0, 16, "nvidia")
    assert (device.numa_node, device.largest_bar_bytes) == (-1, None)


def test_infiniband_sysfs() -> None:
    """Ports have state, rate, counters and the GIDs that are set, with their kind."""
    port = "/sys/class/infiniband/mlx5_2/ports/1"
    (device,) = infiniband.parse_sysfs(
        {
            "/sys/class/infiniband/mlx5_2/fw_ver": "28.39.2048",
            f"{port}/state": "4: ACTIVE",
            f"{port}/phys_state": "5: LinkUp",
            f"{port}/rate": "400 Gb/sec (4X NDR)",
            f"{port}/link_layer": "Ethernet",
            f"{port}/counters/link_downed": "1",
            f"{port}/hw_counters/out_of_sequence": "7",
            f"{port}/gids/0": "fe80:0000:0000:0000:0e42:a1ff:fe00:0001",
            f"{port}/gids/3": "0000:0000:0000:0000:0000:ffff:0a00:0001",
            f"{port}/gids/4": "0000:0000:0000:0000:0000:0000:0000:0000",
            f"{port}/gid_attrs/types/3": "RoCE v2",
        }
    )
    (found,) = device.ports
    assert (found.state, found.physical, found.rate_gb_per_s) == ("ACTIVE", "LinkUp", 400.0)
    assert found.counters == {"link_downed": 1, "out_of_sequence": 7}
    assert [(gid.index, gid.kind, gid.routable_v4) for gid in found.gids] == [
        (0, None, False),
        (3, "RoCE v2", True),
    ]


def test_ibv_devinfo(recorded: Recorded) -> None:
    """Adapters are listed with their ports; the link layer is the port's own."""
    first, second = infiniband.parse_devinfo(recorded("ibv_devinfo.txt"))
    assert (first.name, first.firmware, first.ports[0].state) == ("mlx5_0", "28.39.2048", "ACTIVE")
    assert (second.ports[0].state, second.ports[0].link_layer) == ("DOWN", "Ethernet")


def test_meminfo(recorded: Recorded) -> None:
    """Sizes are bytes, counts are counts."""
    found = proc.parse_meminfo(recorded("meminfo.txt"))
    assert found["MemAvailable"] == 2_000_000_000 * 1024
    assert found["HugePages_Total"] == 5


def test_limits(recorded: Recorded) -> None:
    """Soft and hard limits are told apart, unlimited is a value."""
    found = proc.parse_limits(recorded("limits.txt"))
    assert found["Max open files"] == (1024, 1_048_576)
    assert found["Max locked memory"] == (8_388_608, proc.UNLIMITED)


def test_mounts(recorded: Recorded) -> None:
    """Escaped names are read, and a path lies on the nearest mount above it."""
    mounts = proc.parse_mountinfo(recorded("mountinfo.txt"))
    found = proc.mount_of("/mnt/with space/k3", mounts)
    assert found is not None
    assert (found.fstype, found.source) == ("nfs4", "server:/models")
    assert getattr(proc.mount_of("/mnt/without", mounts), "target", None) == "/"
    assert proc.mount_of("relative", mounts) is None
    (plain,) = proc.parse_mounts("tmpfs /dev/shm tmpfs rw,size=64k 0 0")
    assert (plain.fstype, plain.options) == ("tmpfs", ("rw", "size=64k"))


def test_pressure() -> None:
    """Both lines of a pressure file are read; others are passed over."""
    found = proc.parse_pressure(
        "some avg10=1.50 avg60=12.25 avg300=3.00 total=9\nfull avg10=0 avg60=0 avg300=0 total=0\nx"
    )
    assert found["some"].avg60 == 12.25
    assert set(found) == {"some", "full"}


def test_mdstat(recorded: Recorded) -> None:
    """An array short of a member says so, with the failed one and what it is doing."""
    mirror, striped = proc.parse_mdstat(recorded("mdstat.txt"))
    assert (mirror.level, mirror.missing, mirror.failed) == ("raid1", 1, ("nvme0n1p1",))
    assert mirror.activity == "recovery"
    assert (striped.level, striped.members, striped.missing) == ("raid0", 2, 0)


def test_kernel_command_line() -> None:
    """Options with and without a value are kept."""
    assert proc.parse_cmdline("quiet iommu=pt amd_iommu=on") == {
        "quiet": "",
        "iommu": "pt",
        "amd_iommu": "on",
    }


def test_os_release() -> None:
    """Quotes are taken off, comments passed over."""
    found = proc.parse_os_release("NAME=\"Ubuntu\"\n# a comment=1\nID=ubuntu\nVERSION_ID='24.04'")
    assert found == {"NAME": "Ubuntu", "ID": "ubuntu", "VERSION_ID": "24.04"}


def test_findmnt(recorded: Recorded) -> None:
    """Nested file systems are listed after the one they are mounted on."""
    root, models = proc.parse_findmnt(recorded("findmnt.json"))
    assert (root.target, models.fstype, models.available) == ("/", "nfs4", "3T")
    with pytest.raises(HeavyliftError):
        proc.parse_findmnt("[]")


def test_device_nodes(recorded: Recorded) -> None:
    """Owner, group and mode of devices are read; files are passed over."""
    kfd, render = proc.parse_ls(recorded("ls_devices.txt"))
    assert (kfd.path, kfd.mode, kfd.group) == ("/dev/kfd", "crw-rw----", "render")
    assert (render.path, render.group) == ("renderD128", "video")


def test_status_and_groups() -> None:
    """A process's groups and capabilities are numbers; names come from /etc/group."""
    status = proc.parse_status(
        "Uid:\t1000\t1000\nGid:\t1000\t1000\nGroups:\t44 992 \n"
        "CapEff:\t0000000000800000\nSeccomp:\t2\n"
    )
    assert status.groups == (44, 992, 1000)
    assert status.capabilities == 1 << 23
    assert (status.uid, status.seccomp) == (1000, 2)
    assert proc.parse_groups("render:x:992:\nbroken\nvideo:x:44:me") == {992: "render", 44: "video"}


def test_sockets() -> None:
    """Ports that are listened on are read from their hexadecimal form."""
    text = (
        "  sl  local_address rem_address   st\n"
        "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:C350 0100007F:1F40 01 00000000:00000000\n"
    )
    assert proc.parse_listening(text) == {8000}
    with pytest.raises(HeavyliftError, match="PRE101"):
        proc.parse_listening("what is no table of sockets")
    assert proc.count_sockets(text) == 2


def test_default_route() -> None:
    """The default route is the one to everywhere."""
    text = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
        "ens1\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\n"
        "ens1\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\n"
    )
    assert proc.parse_default_interfaces(text) == ("ens1",)


@pytest.mark.parametrize(("text", "count"), [("0-1", 2), ("0-63,128-191", 128), ("3", 1), ("x", 0)])
def test_cpu_lists(text: str, count: int) -> None:
    """Ranges of CPUs are counted."""
    assert proc.parse_cpu_list(text) == count


def test_docker(recorded: Recorded) -> None:
    """Both forms of `docker info` give runtimes and cgroup driver."""
    found = proc.parse_docker_info(recorded("docker_info.json"))
    assert (found.cgroup_driver, "nvidia" in found.runtimes) == ("systemd", True)
    assert found.cdi_dirs == ("/etc/cdi",)
    text = proc.parse_docker_info(recorded("docker_info.txt"))
    assert (text.cgroup_driver, text.root_dir) == ("cgroupfs", "/data/docker")
    with pytest.raises(HeavyliftError):
        proc.parse_docker_info("Cannot connect to the Docker daemon")


def test_kernel_log(recorded: Recorded) -> None:
    """Each kind of failure is found once, with device and number; other lines are passed over."""
    events = parse_kernel_log(recorded("dmesg.txt"))
    assert [event.kind for event in events] == [
        KernelEventKind.AMD_INIT_FAILED,
        KernelEventKind.AMD_BAR,
        KernelEventKind.NO_ATOMICS,
        KernelEventKind.AMD_UNSUPPORTED,
        KernelEventKind.AMD_RING_TIMEOUT,
        KernelEventKind.AMD_VRAM_LOST,
        KernelEventKind.XID,
        KernelEventKind.FALLEN_OFF_BUS,
        KernelEventKind.OOM_KILL,
        KernelEventKind.HARDWARE_ERROR,
    ]
    by_kind = {event.kind: event for event in events}
    assert by_kind[KernelEventKind.XID].number == 79
    assert by_kind[KernelEventKind.XID].device == "0000:1b:00"
    assert by_kind[KernelEventKind.FALLEN_OFF_BUS].device == "0000:2a:00.0"
    assert by_kind[KernelEventKind.AMD_RING_TIMEOUT].device == "0000:05:00.0"


@pytest.mark.parametrize(
    "stamp",
    [
        "",
        "[  104.5] ",
        "[Mon Mar  2 10:00:00 2026] ",
        "kern  :err   : 2026-03-02T10:00:00,000000+00:00 ",
        "2026-03-02T10:00:00+0000 node1 kernel: ",
        "2026-03-02T10:00:00,000000+00:00 ",
    ],
)
def test_stamps(stamp: str) -> None:
    """An event is the same under every stamp that dmesg and the journal write."""
    line = f"{stamp}NVRM: Xid (PCI:0000:b3:00): 48, pid=1, name=x, DBE"
    (event,) = parse_kernel_log(line)
    assert (event.kind, event.number, event.device) == (KernelEventKind.XID, 48, "0000:b3:00")


def test_collect_env(recorded: Recorded) -> None:
    """The torch build of collect_env is told by vendor."""
    found = engine_host.parse_collect_env(recorded("collect_env.txt"))
    assert (found.rocm_build, found.cuda_build, found.cuda_available) == ("6.4.43482", None, False)
    with pytest.raises(HeavyliftError):
        engine_host.parse_collect_env("nothing")


def test_ollama(recorded: Recorded) -> None:
    """Ollama's start lines name the device it computes on."""
    (device,) = engine_host.parse_ollama_devices(recorded("ollama.log"))
    assert (device.library, device.description) == ("cpu", None)
    assert device.total_bytes == round(62.7 * 2**30)
