#!/usr/bin/env bash
# gate.sh REFERENCE CANDIDATE: may the upgraded engine take over? All questions are asked, whatever the
# first says; reports are left in REPORTS. Exit status: 0 yes, 1 no, 8 not decided (too little data),
# 5 an endpoint or tool failed. The key of both is in HEAVYLIFT_API_KEY.
set -u
reference=$1
candidate=$2
reports=${REPORTS:-gate-reports}
heavylift=${HEAVYLIFT:-heavylift}
# Measured alike, one after the other: the same prompts, pairwise comparable.
read -ra verify_args <<<"${VERIFY_ARGS:---profile acceptance}"
read -ra quality_args <<<"${QUALITY_ARGS:-}"
read -ra bench_args <<<"${BENCH_ARGS:---concurrency 8 --requests 200 --output-tokens 256 --ignore-eos}"
# Slower by less than this share is nothing to stop for; more must be certain to count.
most_slower=${MOST_SLOWER:-0.05}

mkdir -p "$reports"
outcome=0

# Heavier answers win: a failed tool over a no, a no over a perhaps.
rank() { case $1 in 0) echo 0 ;; 8) echo 1 ;; 1) echo 2 ;; *) echo 3 ;; esac; }

# note NAME STATUS: one line of the summary; the gate's outcome is the worst of them.
note() {
  local status=$2 word
  case $status in
    0) word=pass ;;
    1) word=FAIL ;;
    8) word='not decided' ;;
    *) word="ERROR ($status)" status=5 ;;
  esac
  echo "| $1 | $word |" >>"$reports/summary.md"
  if [ "$(rank "$status")" -gt "$(rank "$outcome")" ]; then outcome=$status; fi
}

printf '| gate | outcome |\n|---|---|\n' >"$reports/summary.md"

"$heavylift" verify "$candidate" "${verify_args[@]}" --junit "$reports/verify.xml" --json >"$reports/verify.json"
note verify $?

"$heavylift" quality "$reference" "$candidate" "${quality_args[@]}" --json >"$reports/quality.json"
note quality $?

measured=0
for side in reference candidate; do
  "$heavylift" bench "${!side}" "${bench_args[@]}" --samples "$reports/$side.jsonl" --json >"$reports/bench-$side.json"
  status=$?
  note "bench $side" $status
  if [ $status != 0 ]; then measured=$status; fi
done
if [ $measured = 0 ]; then
  "$heavylift" bench compare "$reports/reference.jsonl" "$reports/candidate.jsonl" --json >"$reports/compare.json"
  status=$?
  if [ $status = 1 ]; then
    python3 "$(dirname "$0")/slower.py" "$reports/compare.json" "$most_slower"
    status=$?
  fi
  note "bench compare" $status
fi

cat "$reports/summary.md"
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then cat "$reports/summary.md" >>"$GITHUB_STEP_SUMMARY"; fi
exit "$outcome"
