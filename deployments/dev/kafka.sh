# Apache Kafka: one node that is broker and controller (KRaft), from the jars that pom.xml names.
# shellcheck shell=bash disable=SC2154 # engines_dir, cache_dir and dev are set by lib.sh

kafka_packages() {
  tls_packages
  have java || echo openjdk-17-jre-headless
  [[ -d $(kafka_jars) ]] || have mvn || echo maven
}

kafka_release() { sed -n 's:.*<kafka.version>\(.*\)</kafka.version>.*:\1:p' "$dev/kafka/pom.xml"; }

kafka_jars() { echo "$cache_dir/kafka-$(kafka_release)"; }

# kafka_fetch copies the jars once; the folder appears only when it is complete.
kafka_fetch() {
  local jars part
  jars=$(kafka_jars)
  [[ -d $jars ]] && return
  part=$jars.part.$$
  mkdir -p "$cache_dir"
  say "engines: fetching Apache Kafka $(kafka_release) into $jars"
  local try
  for try in 1 2 3; do
    rm -rf "$part"
    if mvn -q -B -Dstyle.color=never -f "$dev/kafka/pom.xml" dependency:copy-dependencies "-DoutputDirectory=$part" >&2 </dev/null; then
      mv -T "$part" "$jars" 2>/dev/null || rm -rf "$part"
      return
    fi
    sleep "$try"
  done
  rm -rf "$part"
  die "Maven could not copy the Kafka jars; its messages are above"
}

# Settings whose default does not suit one node that tests start, kill and fill with short-lived topics.
# Who comes in by the plain port is ANONYMOUS and may do everything; who comes in by the secured one has a name and may do
# what an ACL says. Broker session and heartbeat: after kill -9 the old registration must lapse before the new process serves, 12 s by
# default, about 4 s so. Eight partitions of __consumer_offsets instead of 50: the first group is ready at once.
kafka_properties() {
  local home=$engines_dir/kafka port secured controller
  port=$(port_of kafka)
  controller=$(<"$home/port.controller")
  secured=$(tls_port kafka)
  cat <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=PLAINTEXT://127.0.0.1:$port,SASL_SSL://127.0.0.1:$secured,CONTROLLER://127.0.0.1:$controller
advertised.listeners=PLAINTEXT://127.0.0.1:$port,SASL_SSL://127.0.0.1:$secured
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$home/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=8
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=200
log.index.size.max.bytes=1048576
log.segment.delete.delay.ms=1000
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location=$(tls_dir)/both.pem
ssl.truststore.type=PEM
ssl.truststore.location=$(tls_dir)/ca.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
EOF
}

kafka_java() { java "-Dlog4j2.configurationFile=$dev/kafka/log4j2.properties" -cp "$(kafka_jars)/*" "$@"; }

kafka_start() {
  local home=$engines_dir/kafka id
  kafka_fetch
  mkdir -p "$home/data"
  tls_prepare kafka
  [[ -s $home/port.controller ]] || remember_port "$home/port.controller"
  kafka_properties >"$home/server.properties"
  if [[ ! -e $home/data/meta.properties ]]; then
    id=$(kafka_java kafka.tools.StorageTool random-uuid 2>/dev/null | tail -n 1)
    kafka_java kafka.tools.StorageTool format -t "$id" -c "$home/server.properties" >"$home/format.log" 2>&1 ||
      die "Kafka could not format its storage: $(tail -n 3 "$home/format.log")"
  fi
  # The first compiler alone starts fast and runs slow: right for tests, wrong for measuring. There the machine runs
  # as Kafka's own start script has it; the collector for one core stops the broker for tens of milliseconds.
  local jvm=(-Xms256m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1)
  [[ ${TIDEGATE_ENGINES_KAFKA_JIT:-} != full ]] || jvm=(-Xms1g -Xmx1g -XX:+UseG1GC -XX:MaxGCPauseMillis=20
    -XX:InitiatingHeapOccupancyPercent=35)
  detach kafka java "${jvm[@]}" -Djava.awt.headless=true \
    "-Dlog4j2.configurationFile=$dev/kafka/log4j2.properties" -cp "$(kafka_jars)/*" kafka.Kafka "$home/server.properties"
}

# The port opens before the broker serves; "Kafka Server started" is its own word that it does. Then it must answer a
# request: ApiVersions (key 18, version 0, correlation 1, no client id), which a paused broker does not.
kafka_answers() {
  grep -q 'Kafka Server started' "$engines_dir/kafka/log" 2>/dev/null || return 1
  local port reply
  port=$(port_of kafka)
  # shellcheck disable=SC2016 # the inner shell expands it
  reply=$(timeout 2 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1" &&
    printf "\0\0\0\12\0\22\0\0\0\0\0\1\377\377" >&3 && head -c 10 <&3 | od -An -tx1 | tr -d " \n"' _ "$port" 2>/dev/null)
  # Four bytes of length, then our correlation number and error code 0.
  [[ $reply == ????????000000010000 ]]
}

# The Kafka protocol tells clients no release number (only ranges of request versions), so this is the line that the
# running process wrote about itself when it started; the log begins anew with every start.
kafka_version() { sed -n 's/.*Kafka version: \([^ ]*\).*/\1/p' "$engines_dir/kafka/log" | tail -n 1; }

kafka_env() { echo "127.0.0.1:$(port_of kafka)"; }

# Partitions made for topics; the broker tells clients no count of requests.
kafka_work() { grep -c 'Created log for partition' "$engines_dir/kafka/log" || true; }
