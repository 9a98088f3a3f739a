# PostgreSQL. It refuses to run as root, so root hands it to the user that Debian's package made for it.
# shellcheck shell=bash disable=SC2154 # engines_dir, cache_dir and dev are set by lib.sh

postgres_packages() {
  tls_packages
  [[ -n $(postgres_bin) ]] || echo postgresql
}

# postgres_bin prints the folder of the newest installed server; Debian keeps it out of PATH.
postgres_bin() {
  local found
  found=$(find /usr/lib/postgresql -path '*/bin/initdb' 2>/dev/null | sort -V | tail -n 1)
  if [[ -z $found ]] && have initdb; then found=$(command -v initdb); fi
  [[ -z $found ]] || dirname "$found"
}

# postgres_clear waits until the process of the last run has left the process table: after kill -9 it may stand there
# dead until its parent asks for it, and PostgreSQL takes it for a server that still runs.
postgres_clear() {
  local file=$engines_dir/postgres/data/postmaster.pid pid end=$((SECONDS + 5))
  pid=$(head -n 1 "$file" 2>/dev/null) || return 0
  while kill -0 "$pid" 2>/dev/null && ((SECONDS < end)); do sleep 0.05; done
  alive "$pid" || rm -f "$file"
}

# postgres_secured lets user tidegate in by TLS and password only. PostgreSQL wants the key to be its own.
postgres_secured() {
  local home=$engines_dir/postgres hba=$engines_dir/postgres/data/pg_hba.conf
  cp "$(tls_dir)/server.pem" "$(tls_dir)/server.key" "$home/data/"
  chmod 600 "$home/data/server.key"
  [[ $(id -u) -ne 0 ]] || chown postgres: "$home/data/server.pem" "$home/data/server.key"
  grep -q '^hostssl all tidegate' "$hba" ||
    sed -i '1i hostssl all tidegate 127.0.0.1/32 scram-sha-256\nhost all tidegate all reject' "$hba"
}

postgres_start() {
  local home=$engines_dir/postgres bin as=()
  tls_files
  port_of postgres >"$home/port.tls" # it speaks both on one port
  bin=$(postgres_bin)
  mkdir -p "$home/data" "$home/socket"
  chmod 700 "$home/data"
  if [[ $(id -u) -eq 0 ]]; then
    as=(setpriv --reuid postgres --regid postgres --init-groups)
    chown postgres: "$home/data" "$home/socket"
    "${as[@]}" test -x "$home/data" ||
      die "user postgres cannot enter $home: set TIDEGATE_ENGINES_DIR to a folder that every user may enter, such as one in /var/tmp"
  fi
  cd "$home" || die "cannot enter $home"
  if [[ ! -s $home/data/PG_VERSION ]]; then
    "${as[@]}" "$bin/initdb" -D "$home/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 >"$home/initdb.log" 2>&1 ||
      die "initdb failed: $(tail -n 3 "$home/initdb.log")"
  fi
  postgres_secured
  postgres_clear
  # max_connections: the race tests of several packages run at once, each with a pool of its own.
  detach postgres "${as[@]}" "$bin/postgres" -D "$home/data" -p "$(port_of postgres)" \
    -c listen_addresses=127.0.0.1 -c "unix_socket_directories=$home/socket" -c max_connections=300 \
    -c ssl=on -c ssl_cert_file=server.pem -c ssl_key_file=server.key
}

postgres_sql() {
  "$(postgres_bin)/psql" -X -A -t -q -h 127.0.0.1 -p "$(port_of postgres)" -U postgres -d postgres -c "$1" 2>/dev/null
}

postgres_answers() { [[ $(PGCONNECT_TIMEOUT=2 postgres_sql 'select 1') == 1 ]]; }

# select version() begins with "PostgreSQL 15.14 (Debian …) on x86_64 …".
postgres_version() { postgres_sql 'select version()' | cut -d' ' -f2; }

postgres_env() { echo "postgres://postgres@127.0.0.1:$(port_of postgres)/postgres?sslmode=disable"; }

postgres_work() { postgres_sql 'select sum(xact_commit + xact_rollback) from pg_stat_database'; }
