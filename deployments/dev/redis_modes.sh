# The other two shapes of Redis that Tidegate connects to, each as small as it can be: a cluster of one node that owns
# every slot (it enforces the rules of a cluster, such as one slot for all keys of a script), and one sentinel that
# watches the engine called redis.
# shellcheck shell=bash disable=SC2154 # engines_dir, cache_dir and dev are set by lib.sh

redis_cluster_packages() { redis_packages; }

redis_cluster_cli() { timeout 5 redis-cli -h 127.0.0.1 -p "$(port_of redis_cluster)" "$@" 2>/dev/null; }

redis_cluster_start() {
  local home=$engines_dir/redis_cluster
  mkdir -p "$home/data"
  # The bus has a port of its own, by default 10000 above.
  [[ -s $home/port.bus ]] || remember_port "$home/port.bus"
  detach redis_cluster redis-server --bind 127.0.0.1 --port "$(port_of redis_cluster)" --dir "$home/data" \
    --cluster-enabled yes --cluster-port "$(<"$home/port.bus")" --cluster-config-file "$home/data/nodes.conf" \
    --cluster-announce-ip 127.0.0.1 --appendonly yes --save "" --set-proc-title no --daemonize no
}

redis_cluster_answers() {
  [[ $(redis_cluster_cli ping) == PONG ]] || return 1
  # Without slots a node serves nobody; it keeps them over a restart.
  redis_cluster_cli cluster info | grep -q '^cluster_slots_assigned:16384' ||
    redis_cluster_cli cluster addslotsrange 0 16383 >/dev/null
  redis_cluster_cli cluster info | grep -q '^cluster_state:ok'
}

redis_cluster_version() { redis_cluster_cli info server | tr -d '\r' | sed -n 's/^redis_version://p'; }

redis_cluster_env() { echo "127.0.0.1:$(port_of redis_cluster)"; }

redis_cluster_work() { redis_cluster_cli info stats | tr -d '\r' | sed -n 's/^total_commands_processed://p'; }

redis_sentinel_packages() { redis_packages; }

redis_sentinel_cli() { timeout 5 redis-cli -h 127.0.0.1 -p "$(port_of redis_sentinel)" "$@" 2>/dev/null; }

redis_sentinel_start() {
  local home=$engines_dir/redis_sentinel
  mkdir -p "$home/data"
  # Written anew at each start: a sentinel stores what it saw, and redis may have moved to another port since.
  cat >"$home/data/sentinel.conf" <<EOF
bind 127.0.0.1
port $(port_of redis_sentinel)
dir $home/data
set-proc-title no
sentinel monitor tidegate 127.0.0.1 $(port_of redis) 1
sentinel down-after-milliseconds tidegate 2000
EOF
  detach redis_sentinel redis-server "$home/data/sentinel.conf" --sentinel
}

redis_sentinel_answers() { [[ $(redis_sentinel_cli sentinel get-master-addr-by-name tidegate | tail -n 1) == "$(port_of redis)" ]]; }

redis_sentinel_version() { redis_sentinel_cli info server | tr -d '\r' | sed -n 's/^redis_version://p'; }

# master@sentinel
redis_sentinel_env() { echo "tidegate@127.0.0.1:$(port_of redis_sentinel)"; }

redis_sentinel_work() { redis_sentinel_cli info stats | tr -d '\r' | sed -n 's/^total_commands_processed://p'; }
