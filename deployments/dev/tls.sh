# A second, secured way into the same engines: TLS with certificates made here, and users who may do little. Tests that
# want it read TIDEGATE_TEST_CA and TIDEGATE_TEST_KAFKA_TLS, TIDEGATE_TEST_REDIS_TLS, TIDEGATE_TEST_POSTGRES_TLS.
# shellcheck shell=bash disable=SC2154 # engines_dir, cache_dir and dev are set by lib.sh

tls_packages() { have openssl || echo openssl; }

tls_dir() { echo "$engines_dir/tls"; }

# tls_make writes the files into the current folder; server.pem comes last and means that all are there.
tls_make() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout ca.key -out ca.pem -days 3650 \
    -subj "/CN=Tidegate development engines" -addext basicConstraints=critical,CA:TRUE || return
  openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout server.key -out server.csr \
    -subj "/CN=127.0.0.1" || return
  openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 3650 -out server.part \
    -extfile <(printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\n') || return
  # Kafka reads key and certificate from one file.
  cat server.key server.part >both.pem || return
  chmod 600 ca.key server.key both.pem && chmod 644 ca.pem && mv server.part server.pem
}

# tls_files makes an authority and one certificate for 127.0.0.1, once. Engines start side by side, so one makes them and
# the others wait.
tls_files() (
  local dir
  dir=$(tls_dir)
  mkdir -p "$dir"
  exec 8>"$dir/lock"
  flock -w 60 8 || die "the certificates in $dir are being made and do not get ready"
  [[ -s $dir/server.pem ]] && return
  cd "$dir" || return
  # `set -e` would not act here: whoever calls this looks at its result.
  tls_make 2>openssl.log || die "openssl could not make certificates: $(tail -n 3 openssl.log)"
)

# tls_port NAME prints the secured port of an engine.
tls_port() { cat "$engines_dir/$1/port.tls"; }

# tls_prepare NAME: certificates and a port for it.
tls_prepare() {
  tls_files
  [[ -s $engines_dir/$1/port.tls ]] || remember_port "$engines_dir/$1/port.tls"
}
