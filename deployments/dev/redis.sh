# Redis with the settings that we ship: the append-only file keeps what a claim or a lease wrote through kill -9. User
# tidegate (password "secured") comes in by the TLS port; the plain port's default user may do everything.
# shellcheck shell=bash disable=SC2154 # engines_dir, cache_dir and dev are set by lib.sh

redis_packages() {
  tls_packages
  have redis-server && have redis-cli || echo redis-server
}

redis_cli() { redis-cli -h 127.0.0.1 -p "$(port_of redis)" "$@" 2>/dev/null; }

redis_start() {
  local home=$engines_dir/redis
  mkdir -p "$home/data"
  tls_prepare redis
  sed 's/>change-me/>secured/' "$root/deployments/redis/tidegate.conf" >"$home/tidegate.conf"
  # set-proc-title no: the command line keeps naming our folder, by which pid_of knows the process.
  detach redis redis-server "$home/tidegate.conf" --bind 127.0.0.1 --port "$(port_of redis)" --dir "$home/data" \
    --tls-port "$(tls_port redis)" --tls-auth-clients no --tls-cert-file "$(tls_dir)/server.pem" \
    --tls-key-file "$(tls_dir)/server.key" --tls-ca-cert-file "$(tls_dir)/ca.pem" --save "" \
    --set-proc-title no --daemonize no
}

# While it reads its file back, Redis accepts connections but answers LOADING; only PONG counts.
redis_answers() { [[ $(timeout 2 redis-cli -h 127.0.0.1 -p "$(port_of redis)" ping 2>/dev/null) == PONG ]]; }

redis_version() { redis_cli info server | tr -d '\r' | sed -n 's/^redis_version://p'; }

redis_env() { echo "127.0.0.1:$(port_of redis)"; }

redis_work() { redis_cli info stats | tr -d '\r' | sed -n 's/^total_commands_processed://p'; }
