# Shared by the engine scripts. Sourced by `engines`, never run.
#
# Every engine lives in $engines_dir/NAME: port (remembered), pid, log, data. An engine file (kafka.sh, redis.sh,
# redis_modes.sh, postgres.sh) gives these functions, and nothing else is called from outside:
#   NAME_packages         prints the Debian packages that are missing, one a line
#   NAME_start            starts the process on the remembered port and writes its pid; does not wait
#   NAME_answers          true once a client is served
#   NAME_version          prints the version that the running process itself reports
#   NAME_env              prints the value of TIDEGATE_TEST_NAME
#   NAME_work             prints a number that grows with what clients ask of the running process
# shellcheck shell=bash disable=SC2034 # what is set here is used by the files that are sourced next

dev=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$dev/../.." && pwd)
engines_dir=$(mkdir -p "${TIDEGATE_ENGINES_DIR:-$root/.engines}" && cd "${TIDEGATE_ENGINES_DIR:-$root/.engines}" && pwd)
cache_dir=${TIDEGATE_CACHE_DIR:-$HOME/.cache/tidegate}

say() { printf '%s\n' "$*" >&2; }

die() {
  say "${0##*/}: $*"
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# listening PORT: does anything on 127.0.0.1 accept a connection there?
listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port prints a port that nothing listens on. It stays below 32768, where Linux begins to hand out ports to
# outgoing connections, so that a client of ours cannot take an engine's port while that engine is down.
free_port() {
  local port
  for _ in {1..200}; do
    port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
    if ! listening "$port"; then
      echo "$port"
      return
    fi
  done
  die "no free port between 20000 and 31999 on 127.0.0.1"
}

# remember_port FILE [WANTED]: keeps the port in FILE for the life of the data directory, since clients and
# fault tests expect an engine to come back where it was. A remembered port that somebody else took is replaced.
remember_port() {
  local file=$1 wanted=${2:-}
  if [[ -n $wanted ]]; then
    [[ $wanted =~ ^[0-9]+$ && $wanted -ge 1 && $wanted -le 65535 ]] || die "port $wanted is not a number from 1 to 65535"
    listening "$wanted" && die "port $wanted is in use: choose another, or stop what listens there"
    echo "$wanted" >"$file"
  elif [[ ! -s $file ]] || listening "$(<"$file")"; then
    free_port >"$file"
  fi
}

port_of() { cat "$engines_dir/$1/port" 2>/dev/null || die "$1 was never started here: deployments/dev/engines up"; }

# pid_of NAME prints the pid of the engine if the process that has this pid now is really ours: its command line
# must name the engine's own folder. A recycled pid is therefore never signalled.
pid_of() {
  local pid
  pid=$(cat "$engines_dir/$1/pid" 2>/dev/null) && [[ -n $pid ]] || return 1
  grep -qaF -- "$engines_dir/$1/" "/proc/$pid/cmdline" 2>/dev/null && echo "$pid"
}

# family PID prints the process and its children: PostgreSQL serves each client in a process of its own.
family() {
  local child
  echo "$1"
  # shellcheck disable=SC2013 # one line of words
  for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do echo "$child"; done
}

# signal SIGNAL PID...: a process that ended in the meantime is no error.
signal() {
  local sig=$1
  shift
  kill "-$sig" "$@" 2>/dev/null || true
}

# alive PID: a zombie, whose parent has not asked for it yet, counts as ended.
alive() {
  local state
  # "pid (command) state …", and a command may itself hold brackets.
  state=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  [[ ${state##*) } != Z* ]]
}

# gone PID SECONDS waits until the process has ended.
gone() {
  local end=$((SECONDS + $2))
  while alive "$1"; do
    ((SECONDS < end)) || return 1
    sleep 0.05
  done
}

# answers_within NAME SECONDS waits for the engine, and gives up at once when its process has ended.
answers_within() {
  local name=$1 end=$((SECONDS + $2))
  until "${name}_answers"; do
    if ! pid_of "$name" >/dev/null || ((SECONDS >= end)); then
      say "engines: $name does not answer; the end of $engines_dir/$name/log:"
      tail -n 20 "$engines_dir/$name/log" >&2 || true
      return 1
    fi
    sleep 0.1
  done
}

# detach NAME COMMAND...: starts a process of its own session, so that Ctrl-C in the terminal does not reach it.
detach() {
  local name=$1 log=$engines_dir/$1/log
  shift
  [[ -e $log ]] && mv -f "$log" "$log.old"
  setsid "$@" >"$log" 2>&1 </dev/null 9>&- &
  echo $! >"$engines_dir/$name/pid"
  # Until the new process has taken its command line, pid_of would not know it.
  until pid_of "$name" >/dev/null || ! alive $!; do sleep 0.01; done
}
