# Suites: commands that run in a process group of their own, write to a log of their own and end in one printed line.
# Sourced by .ci/run and deployments/dev/prove, never run. The caller sets $logs, a folder.
# shellcheck shell=bash disable=SC2154

declare -A suite_pid
passed=0
failed=0

# launch NAME COMMAND...: starts a suite. Its own group lets the end of the script end everything it started.
launch() {
  local name=$1
  shift
  set -m
  (
    # A subshell sees the caller's table of processes and traps; neither is its to act on.
    trap - EXIT INT TERM
    start=$EPOCHREALTIME
    code=0
    "$@" || code=$?
    echo "$(((${EPOCHREALTIME/./} - ${start/./}) / 100000))" >"$logs/$name.time"
    exit "$code"
  ) >"$logs/$name.log" 2>&1 </dev/null &
  suite_pid[$name]=$!
  set +m
}

# settle NAME TEXT: waits for a launched suite and prints its line. Lines that the suite marked with "CI: " follow:
# counts that a reader of the log should see. On failure the telling part of the log follows.
settle() {
  local name=$1 text=$2 code=0 tenths packages
  wait "${suite_pid[$name]}" || code=$?
  unset "suite_pid[$name]"
  tenths=$(cat "$logs/$name.time" 2>/dev/null || echo 0)
  packages=$(grep -c $'^ok  \t' "$logs/$name.log")
  ((packages == 0)) || text="$packages packages; $text"
  if ((code == 0)); then
    passed=$((passed + 1))
    printf 'ok    %-22s %5d.%d s  %s\n' "$name" $((tenths / 10)) $((tenths % 10)) "$text"
  else
    failed=$((failed + 1))
    printf 'FAIL  %-22s %5d.%d s  %s (exit code %d)\n' "$name" $((tenths / 10)) $((tenths % 10)) "$text" "$code"
  fi
  sed -n 's/^.*\bCI: /        /p' "$logs/$name.log"
  ((code == 0)) || show_failure "$logs/$name.log"
  return "$code"
}

# suite NAME TEXT COMMAND...: launch and settle. A failed suite is counted and the next one still runs.
suite() {
  local name=$1 text=$2
  shift 2
  launch "$name" "$@"
  settle "$name" "$text" || true
}

# show_failure LOG: what go test prints about failures can stand far above the end, so both are shown.
show_failure() {
  grep -nE -A 12 '^ *--- FAIL|^panic:|^fatal error:|WARNING: DATA RACE|^FAIL.*\[build failed\]' "$1" | head -n 120 | sed 's/^/      | /'
  echo "      | … the end of the log:"
  tail -n 40 "$1" | sed 's/^/      | /'
}

# end_suites ends what is still running, each with its group.
end_suites() {
  local pid
  for pid in "${suite_pid[@]}"; do kill -TERM -- "-$pid" 2>/dev/null; done
  for pid in "${suite_pid[@]}"; do
    for _ in {1..50}; do
      kill -0 -- "-$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null
  done
  return 0
}
