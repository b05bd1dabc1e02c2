"""Orders to schedulers: words, and what the recipe's own files must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.e2e.deployments import write_recipe

from heavylift.errors import HeavyliftError
from heavylift.operate import clusters, recipes


def test_a_batch_script_is_submitted_under_our_name(tmp_path: Path) -> None:
    """Whatever its own directives say: what was submitted can be found and taken back."""
    (tmp_path / "job.sbatch").touch()
    order = clusters.slurm(tmp_path, "chat", 8000)
    assert order.start[-1] == "job.sbatch"
    assert "--job-name=heavylift-chat" in order.start
    assert order.stop == ("scancel", "--me", "--name=heavylift-chat")
    (tmp_path / "other.sbatch").touch()
    with pytest.raises(HeavyliftError, match="REC049"):
        clusters.slurm(tmp_path, "chat", 8000)


def test_manifests_are_applied_followed_and_deleted(tmp_path: Path) -> None:
    """All of them, and the log of what they label; the address has to be said."""
    folder = write_recipe(tmp_path / "r", "healthy")
    with pytest.raises(HeavyliftError, match="REC049"):
        clusters.submit(folder, "kubernetes", "chat")
    (folder / "a.yaml").write_text("metadata: {labels: {app.kubernetes.io/name: served}}\n")
    (folder / "b.yaml").write_text("kind: Service\n---\nkind: Service\n")
    order = clusters.kubernetes(folder, "chat", 8000)
    assert order.start == ("kubectl", "apply", "--filename=a.yaml", "--filename=b.yaml")
    assert order.follow is not None
    assert order.follow[-1] == "--selector=app.kubernetes.io/name=served"
    with pytest.raises(HeavyliftError, match="REC050"):
        clusters.submit(folder, "kubernetes", "chat")
    clusters.submit(folder, "kubernetes", "chat", url="http://chat.example")
    (rank,) = recipes.read(folder).spec.ranks
    assert rank.argv[2].endswith("submitted.py")


def test_a_submission_lives_as_long_as_its_job_and_takes_it_back(tmp_path: Path) -> None:
    """With small programs in place of a scheduler's: log passed on, address told, stop called."""
    job = tmp_path / "job"
    (tmp_path / "old.log").write_text("of yesterday\n")
    programs = {
        "start": f"open({str(job)!r}, 'w').write('x'); open('new.log', 'w').write('loading\\n')",
        "running": f"import os; print('R' if os.path.exists({str(job)!r}) else '')",
        "host": "print('node7')",
        "stop": f"import os; os.path.exists({str(job)!r}) and os.remove({str(job)!r})",
    }
    order = {name: [sys.executable, "-c", program] for name, program in programs.items()}
    path = tmp_path / "order.json"
    path.write_text(json.dumps({**order, "folder": str(tmp_path), "logs": "*.log", "port": 8000}))
    argv = [sys.executable, str(clusters.SUBMITTED), str(path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as submitted:
        assert submitted.stdout is not None
        seen: list[str] = []
        while not any("node7" in line for line in seen):
            seen.append(submitted.stdout.readline())
        submitted.terminate()
        submitted.wait(timeout=60)
    assert "loading\n" in seen
    assert "of yesterday\n" not in seen
    assert "heavylift-address: http://node7:8000\n" in seen
    assert not job.exists()


def test_what_its_process_left_behind_is_taken_back_by_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop words of the release, once more; nothing where nothing was submitted."""
    clusters.take_back(tmp_path)
    (tmp_path / "job.sbatch").touch()
    write_recipe(tmp_path, "healthy")
    clusters.submit(tmp_path, "slurm", "chat")
    fake = tmp_path / "bin" / "scancel"
    fake.parent.mkdir()
    fake.write_text(
        textwrap.dedent(f"""\
        #!{sys.executable}
        import sys
        open({str(tmp_path / "called")!r}, "w").write(" ".join(sys.argv[1:]))
        """)
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    clusters.take_back(tmp_path)
    assert (tmp_path / "called").read_text() == "--me --name=heavylift-chat"
