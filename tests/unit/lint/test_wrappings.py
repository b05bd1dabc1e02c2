"""One command in the dresses that people paste it in: the findings and the mended text stay."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from textwrap import indent

import pytest

from heavylift.linting import Linting
from heavylift.records.finding import Severity

RACK = "8x H200"
ENV = "VLLM_ENGINE_READY_TIMEOUT=3600"
COMMAND = (
    "vllm serve moonshotai/Kimi-K3 --tensor-parallel-size 8 --trust-remote-code "
    "--host 0.0.0.0 --max-model-len 262144 --tool-call-parser kimi_k2 --enable-auto-tool-choice "
    "--reasoning-parser kimi_k3 --speculative-config "
    """'{"method":"dspark","model":"Inferact/Kimi-K3-DSpark","rejection_sample_method":"synthetic"}'"""
)
WORDS = shlex.split(COMMAND)
POD = """apiVersion: v1
kind: Pod
spec:
  hostIPC: true
  containers:
  - name: a
    image: mine:1.0
    env:
    - name: VLLM_ENGINE_READY_TIMEOUT
      value: "3600"
"""


def lines(joint: str) -> str:
    """The command with a flag a line."""
    return " --".join(COMMAND.split(" --")).replace(" --", f"{joint}--")


def compose(command: str) -> str:
    """A compose file with an image of one's own."""
    return (
        f"services:\n  s:\n    image: mine:1.0\n    ipc: host\n"
        f"    environment: [{ENV}]\n    {command}"
    )


LISTED = "\n  ".join(map(shlex.quote, WORDS[1:]))
CONTINUED = lines(" \\\n  ")
IN_PLACE: dict[str, str] = {
    "one line": f"{ENV} {COMMAND}",
    "continued": f"{ENV} {CONTINUED}",
    "spaces after backslashes": f"{ENV} " + lines(" \\  \n  "),
    "line breaks lost": f"{ENV} " + lines(" \\ "),
    "backslashes lost": f"{ENV} " + lines("\n  "),
    "blank lines between": f"{ENV} " + lines(" \\\n\n  "),
    "a comment at the end": f"{ENV} {CONTINUED}  # eight cards",
    "comments between": f"{ENV} " + CONTINUED.replace("  --host", "  # open\n  --host"),
    "exported": f"export {ENV}\n{COMMAND}",
    "in the background": f"nohup env {ENV} {COMMAND} > serve.log 2>&1 &",
    "a batch script": f"#!/bin/bash\n#SBATCH --nodes=1\nset -e\nexport {ENV}\n"
    f"srun --ntasks=1 {CONTINUED}\n",
    "a here document": f"cat > start.sh <<'EOF'\n{ENV} {CONTINUED}\nEOF\nchmod +x start.sh",
    "inside a container": f"docker exec -it llm env {ENV} {COMMAND}",
    "several commands": f"pip install -U vllm\n{ENV} {COMMAND} &\n"
    "sleep 5\ncurl localhost:8000/health",
    "an array": f'ARGS=(\n  {LISTED}\n)\n{ENV} vllm "${{ARGS[@]}}"',
    "behind other programs": f"{ENV} CUDA_VISIBLE_DEVICES=0 numactl -i all uv run {COMMAND}",
    "piped": f"{ENV} {COMMAND} 2>&1 | tee serve.log",
    "Windows line ends": f"{ENV} {CONTINUED}".replace("\n", "\r\n"),
    "root's prompt": f"# {ENV} {COMMAND}",
    "a user's prompt": f"(vllm) user@host:~$ {ENV} {COMMAND}",
    "typographic": f"{ENV} {COMMAND}".replace("'{", "‘{").replace("}'", "}’").replace('"', "”"),
    "long dashes": f"{ENV} {COMMAND}".replace(" --", " —"),
    "entities": f"{ENV} {COMMAND}".replace('"', "&quot;").replace("'", "&#39;"),
}
APART: dict[str, str] = {
    "a shell in a shell": f"bash -c {shlex.quote(f'{ENV} {COMMAND}')}",
    "over ssh": f"ssh node1 {shlex.quote(f'{ENV} {COMMAND}')}",
    "a list in Python": f"import subprocess\nsubprocess.run({json.dumps(['env', ENV, *WORDS])})",
    "a text in Python": f'import os\nos.system("""{ENV} {COMMAND}""")',
    "an image file": f"FROM x\nENV {ENV}\nENTRYPOINT []\nCMD {json.dumps(WORDS)}",
    "an image file in parts": f"FROM x\nENV {ENV.replace('=', ' ')}\n"
    f"ENTRYPOINT {json.dumps(WORDS[:2])}\nCMD {json.dumps(WORDS[2:])}",
    "a process manager": f'[program:llm]\nenvironment=A="1",{ENV}\n'
    f"command={COMMAND}\nautostart=true",
    "a unit": f"[Service]\nEnvironment={ENV}\nExecStart=/usr/bin/env {CONTINUED}\n",
    "kubectl run": f"kubectl run llm --image=mine --env={ENV} --command -- {COMMAND}",
    "compose, a list": compose("command:\n" + "".join(f"      - {json.dumps(w)}\n" for w in WORDS)),
    "compose, folded": compose("command: >\n" + indent(lines("\n"), "      ") + "\n"),
    "compose, a shell": compose(f'command: ["bash", "-c", {json.dumps(COMMAND)}]\n'),
    "a pod's arguments": f"{POD}    command: {json.dumps(WORDS[:2])}\n"
    f"    args: {json.dumps(WORDS[2:])}\n",
    "a pod's shell": f'{POD}    command: ["/bin/sh", "-c"]\n    args:\n    - |\n'
    + indent(CONTINUED, "      ")
    + "\n",
}


@pytest.mark.parametrize("dress", [*IN_PLACE, *APART])
def test_findings_stay(dress: str, linting: Linting) -> None:
    """Whatever a command is wrapped in, the same is found."""
    plain = {each.code for each in linting.lint(f"{ENV} {COMMAND}", rack=RACK).findings}
    report = linting.lint({**IN_PLACE, **APART}[dress], rack=RACK)
    made = {each.code for each in report.findings if each.rule != "broken_by_copying"}
    assert made == plain


@pytest.mark.parametrize("dress", [*IN_PLACE, *APART])
def test_mended_text_is_sound(dress: str, linting: Linting) -> None:
    """Nothing that has an edit is found in the mended text again, and nothing need be forgiven."""
    report = linting.lint({**IN_PLACE, **APART}[dress], rack=RACK)
    again = linting.lint(report.mended, rack=RACK)
    assert [each.code for each in again.findings if each.mend] == []
    assert [each.code for each in again.findings if each.rule == "broken_by_copying"] == []
    assert again.mended == report.mended


@pytest.mark.parametrize("dress", IN_PLACE)
def test_layout_is_kept(dress: str, linting: Linting) -> None:
    """Each line that is no part of the changes stands in the mended text as it stood."""
    text = IN_PLACE[dress].replace("\r", "")
    report = linting.lint(text, rack=RACK)
    for line in text.splitlines():
        bare = line.strip().rstrip("\\ ").strip()
        touched = ("kimi_k2", "synthetic", "TIMEOUT=", "—", "&#39;", "&quot;")
        if bare and not any(each in bare for each in touched):
            assert bare in report.mended
    assert "VLLM_ENGINE_READY_TIMEOUT_S=3600" in report.mended


def test_one_line_stays_one_line(linting: Linting) -> None:
    """What was written on one line is mended on one line."""
    assert "\n" not in linting.lint(IN_PLACE["one line"], rack=RACK).mended


def test_new_flags_take_the_lines_of_the_others(linting: Linting) -> None:
    """A flag that is added stands as the flag before it does."""
    text = "vllm serve Qwen/Qwen3-32B \\\n    --tensor-parallel-size 2 \\\n    --max-model-len 8192"
    mended = linting.lint(text).mended
    assert mended.startswith(text)
    assert "\\\n    --tool-call-parser hermes" in mended


def test_a_container_is_mended_in_place(linting: Linting) -> None:
    """Image, container flags, variables and paths change where they stand."""
    text = (
        "docker run -d --name k3 --device/dev/kfd --device /dev/dri -p 8000:8000 \\\n"
        "  -e VLLM_ENGINE_READY_TIMEOUT=3600 -v /srv/Kimi-K3:/models \\\n"
        "  vllm/vllm-openai:v0.32.0 --model /models/Kimi-K3 \\\n"
        "  --tensor-parallel-size 8"
    )
    mended = linting.lint(text, rack="8x MI355X").mended.splitlines()
    assert (
        mended[0] == "docker run -d --name k3 --device /dev/kfd --device /dev/dri -p 8000:8000 \\"
    )
    assert "-e VLLM_ENGINE_READY_TIMEOUT_S=3600 -v /srv/Kimi-K3:/models" in mended[1]
    assert "vllm/vllm-openai-rocm:v0.32.0 --model /models" in "\n".join(mended[1:4])


def test_secrets_of_other_lines_are_not_repeated(linting: Linting) -> None:
    """A line that is kept is kept without its secret."""
    text = f"hf auth login --token hf_abcdefghijkl\nHF_TOKEN=hf_abcdefghijkm\n{COMMAND}"
    mended = linting.lint(text, rack=RACK).mended
    assert "hf_abcdef" not in mended
    assert mended.count("\n") == text.count("\n")


def test_the_program_is_named_once(linting: Linting) -> None:
    """Words that an image's entry point already has are taken out in place."""
    text = "docker run vllm/vllm-openai:v0.32.0 \\\n  vllm serve Qwen/Qwen3-32B \\\n  -tp 2"
    assert "vllm serve" not in linting.lint(text).mended


def test_newer_words_do_not_replace_an_entry_point(linting: Linting) -> None:
    """Behind an entry point of one's own, the module that it runs stays."""
    text = (
        "docker run --gpus all --ipc=host --entrypoint python3 lmsysorg/sglang:v0.5.23 "
        "-m sglang.launch_server --model-path Qwen/Qwen3-32B"
    )
    assert "-m sglang.launch_server" in linting.lint(text).mended


TRANSFORMS: dict[str, Callable[[str], str]] = {
    "PowerShell": lambda text: f'$env:A = "1"\n{text}'.replace(" \\\n", " `\n"),
    "cmd.exe": lambda text: f"set A=1\n{text}".replace(" \\\n", " ^\n"),
}


@pytest.mark.parametrize("shell", TRANSFORMS)
def test_other_shells(shell: str, linting: Linting) -> None:
    """The shells of Windows continue lines in their own ways, and name programs with `.exe`."""
    text = TRANSFORMS[shell](
        "C:\\llama\\llama-server.exe -m C:\\models\\Qwen3-32B-Q8_0.gguf \\\n"
        "  -c 32768 \\\n  -sm layer --jinja"
    )
    report = linting.lint(text)
    assert report.engines == ("llama.cpp",)
    assert "slow_split_mode_layer" in {each.rule for each in report.findings}


def test_words_that_worked_end_no_worse(linting: Linting) -> None:
    """A text without a command has no finding that fails."""
    for text in ("FROM x\nCMD [1]", "[program:x]\ncommand=sleep 1", '"""', "[]", "FROM x"):
        assert all(each.severity is not Severity.FAIL for each in linting.lint(text).findings)


def test_a_flag_that_swallowed_its_value_is_mended(linting: Linting) -> None:
    """A quote in the middle of a flag makes one word of two: no edit stumbles over it."""
    report = linting.lint("vllm serve acme/chat --max-num-seqs 8 --max-num'-seqs 16\"")
    assert report.engines == ("vLLM",)


def test_an_image_of_ones_own_with_words_before_its_flags(linting: Linting) -> None:
    """What an unknown image is given is read as flags; its other words have places too."""
    text = "docker run --ipc=host mine/own:1 word --model moonshotai/Kimi-K3 -tp 8 --port 1 x"
    assert linting.lint(text).mended


def test_new_flags_stand_before_the_sentence_that_goes_on(linting: Linting) -> None:
    """An article's sentence ends on the line of the command: what is added is still its own."""
    told = "即可完成部署。"
    report = linting.lint(f"启动服务 vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 {told}")
    command, _, behind = report.mended.partition(told)
    assert "--reasoning-parser qwen3" in command
    assert behind == ""


def test_a_model_behind_its_flags_stays_the_models_name(linting: Linting) -> None:
    """One word beside the flags is the model wherever it stands; new flags come behind it."""
    report = linting.lint("vllm serve --tensor-parallel-size 2 Qwen/Qwen3-32B")
    assert report.mended.startswith("vllm serve --tensor-parallel-size 2 Qwen/Qwen3-32B --")


def test_a_file_of_settings_is_mended_to_a_command_that_starts(linting: Linting) -> None:
    """A file for `--config` names no program: the command it stands for does."""
    report = linting.lint(
        "model: Qwen/Qwen3-32B\ntensor-parallel-size: 2\ntool-call-parser: hermes\n"
        "gpu_memory_utilisation: 0.9\n"
    )
    words = shlex.split(report.mended.replace("\\\n", ""))
    assert words[:2] == ["vllm", "serve"]
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.9"


def test_what_starts_no_engine_is_not_written_as_a_command(linting: Linting) -> None:
    """A line of another program has no finding, and nothing to run in its place."""
    report = linting.lint("helm upgrade --install k3 vllm/vllm-stack --set tag=v1")
    assert (report.engines, report.findings, report.mended) == ((), (), "")


@pytest.mark.parametrize("shell", ["ssh gpu01", "bash -lc", "tmux new -d -s k3"])
def test_a_container_started_through_another_program_is_read(linting: Linting, shell: str) -> None:
    """`docker run` inside one quoted word is the command that counts."""
    inner = "docker run --gpus all vllm/vllm-openai:v0.32.0 --model Qwen/Qwen3-32B -tp 2"
    report = linting.lint(f"{shell} '{inner}'")
    assert report.engines == ("vLLM",)
    assert "no_ipc_host_or_shm" in {each.rule for each in report.findings}
    assert "--ipc=host" in report.mended


def test_arguments_in_json_on_one_line_are_read(linting: Linting) -> None:
    """A service's settings as JSON name the engine and list its words, as YAML does."""
    settings = {"engine": "vllm", "args": ["--model", "Qwen/Qwen3-32B", "--swap-space", "16"]}
    for written in (json.dumps(settings), json.dumps(settings, indent=2)):
        report = linting.lint(written, version="0.32.0")
        assert report.models == ("Qwen3",)
        assert "removed_flag" in {each.rule for each in report.findings}


def test_an_exported_variable_goes_with_its_export(linting: Linting) -> None:
    """`export` alone would print every variable; when it went is said where it was read."""
    text = "export VLLM_USE_V1=1; vllm serve Qwen/Qwen3-8B --max-model-len 40960"
    report = linting.lint(text)
    assert report.mended.startswith("vllm serve Qwen/Qwen3-8B")
    (gone,) = [each for each in report.findings if each.rule == "env_renamed"]
    assert gone.text == "env_gone"


def test_a_quoted_block_of_markdown_is_read(linting: Linting) -> None:
    """A fence inside a quotation is a fence."""
    report = linting.lint("> ```bash\n> vllm serve Qwen/Qwen3-8B --max-model-len 40960\n> ```\n")
    assert report.engines == ("vLLM",)
    assert report.is_clean


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_variables_of_a_managed_program_stand_anywhere_in_its_section(
    linting: Linting, order: tuple[int, int]
) -> None:
    """A process manager's settings have no order."""
    settings = ("command=vllm serve moonshotai/Kimi-K3 -tp 8", f'environment={ENV},A="1"')
    report = linting.lint("[program:a]\n" + "\n".join(settings[at] for at in order) + "\n")
    assert "unknown_env" in {each.rule for each in report.findings}


def test_a_module_that_another_program_runs_keeps_its_name(linting: Linting) -> None:
    """`torchrun -m MODULE` takes a module: the engine's newer words are no module."""
    text = "torchrun --nproc_per_node 8 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 8"
    report = linting.lint(text)
    assert "-m sglang.launch_server" in report.mended


def test_the_version_that_a_text_installs_is_the_one_it_starts(linting: Linting) -> None:
    """A flag that went after it is none to warn of; two versions say nothing."""
    command = "vllm serve Qwen/Qwen3-8B --calculate-kv-scales --max-model-len 40960"
    flag = "--calculate-kv-scales"

    def said(text: str) -> set[Severity]:
        return {each.severity for each in linting.lint(text).findings if each.subject == flag}

    assert said(f"pip install vllm==0.27.1\n{command}") == set()
    assert said(f"pip install -U 'vllm[runai]==0.32.0'\n{command}") == {Severity.FAIL}
    assert said(f"pip install vllm==0.27.1\npip install vllm==0.32.0\n{command}") == said(command)
