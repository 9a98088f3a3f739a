package proxy

import (
	"fmt"
	"time"

	"tidegate/pkg/alarm"
)

// The door's alarms.
const (
	alarmRefused   = "callbacks_refused"  // of an account
	alarmKafka     = "kafka_away"         // of the deployment
	alarmHeld      = "spool_held"         // of this node
	alarmFilling   = "spool_filling"      // of this node
	alarmDamaged   = "spool_damaged"      // of this node
	alarmUnchecked = "redis_unchecked"    // of the deployment
	alarmMarkFail  = "markfail_suspected" // of an account
)

// How long a condition must hold before it is told, and must be over before
// that is told: what a broker's change of leader causes is not worth a message,
// and every fault is told within 30 s and over within 60 s (G28).
const (
	kafkaAfter     = 5 * time.Second
	heldAfter      = 20 * time.Second
	uncheckedAfter = 3 * time.Second
	overAfter      = 5 * time.Second
	refusedOver    = 30 * time.Second
	silence        = 30 * time.Second // without callbacks nobody asks Redis
)

// A spool alarms when it is this full, and until it is this empty again.
const (
	fillingAt   = 0.80
	fillingOver = 0.70
)

// sample is what the door saw of itself at one moment. Counts only grow.
type sample struct {
	at                 time.Time
	unchecked, checked int64
	accounts           map[string]counts
	broken             int
	records            int64
	disk, limit        int64
	oldest             time.Time
	aside              int
}

type counts struct{ seen, failed int64 }

// verdict says of one alarm whether it fires.
type verdict struct {
	alarm  alarm.Alarm
	firing bool
}

// judge decides from a row of samples, without I/O.
type judge struct {
	last     sample
	kafka    latch
	held     latch
	spoolBig bool
	redis    latch
	doubt    int64     // callbacks taken unchecked since most were last checked
	askedAt  time.Time // when Redis was last asked
	accounts map[string]*pulse
	refused  map[string]*latch
}

func newJudge() *judge { return &judge{accounts: map[string]*pulse{}, refused: map[string]*latch{}} }

// latch holds back changes that do not last.
type latch struct {
	on    bool
	since time.Time // when the condition was first unlike on
}

// set gives the state after one more look at the condition.
func (l *latch) set(now time.Time, holds bool, after, over time.Duration) bool {
	if holds == l.on {
		l.since = time.Time{}
		return l.on
	}
	if l.since.IsZero() {
		l.since = now
	}
	need := after
	if l.on {
		need = over
	}
	if now.Sub(l.since) >= need {
		l.on, l.since = holds, time.Time{}
	}
	return l.on
}

// decide gives the state of every alarm.
func (j *judge) decide(s sample) []verdict {
	out := append(j.spool(s), j.kafkaAway(s), j.uncheckedClaims(s))
	for name, c := range s.accounts {
		if j.accounts[name] == nil {
			j.accounts[name], j.refused[name] = &pulse{}, &latch{}
		}
		before := j.last.accounts[name] // nothing, if it is new
		out = append(out, j.account(s.at, name, c.seen-before.seen, c.failed-before.failed)...)
	}
	for name := range j.accounts {
		if _, stays := s.accounts[name]; !stays {
			delete(j.accounts, name)
			delete(j.refused, name)
			out = append(out, verdict{alarm: alarm.Alarm{Name: alarmRefused, Subject: name}}, verdict{alarm: alarm.Alarm{Name: alarmMarkFail, Subject: name}})
		}
	}
	j.last = s
	return out
}

func (j *judge) account(now time.Time, name string, seen, failed int64) []verdict {
	refused := j.refused[name].set(now, failed > 0, 0, refusedOver)
	p := j.accounts[name]
	paused := p.beat(seen, failed)
	return []verdict{{alarm.Alarm{
		Name: alarmRefused, Subject: name, Severity: alarm.Critical,
		Text:   fmt.Sprintf("callbacks of account %s are answered with 503: neither Kafka nor a spool takes them; WeChat repeats each twice and may then pause the account", name),
		TextZH: fmt.Sprintf("公众号 %s 的回调被回复 503：Kafka 与本地缓冲盘均无法写入；微信会重试两次，之后可能暂停推送", name),
	}, refused}, {alarm.Alarm{
		Name: alarmMarkFail, Subject: name, Severity: alarm.Critical,
		Text:   fmt.Sprintf("account %s had up to %d callbacks a minute, some failed, and in the last minute at most %d came: WeChat may have paused it; if other doors still get them, the load balancer has taken this one out", name, p.peak, nearZero),
		TextZH: fmt.Sprintf("公众号 %s 此前每分钟最多 %d 条回调，出现失败后最近一分钟不超过 %d 条：可能已被微信暂停推送；若其他节点仍有回调，则是负载均衡摘除了本节点", name, p.peak, nearZero),
	}, paused}}
}

func (j *judge) kafkaAway(s sample) verdict {
	return verdict{alarm.Alarm{
		Name: alarmKafka, Severity: alarm.Critical,
		Text:   fmt.Sprintf("Kafka does not take records (topics concerned: %d); callbacks are acknowledged from the disks of the doors and nobody is answered until it does", s.broken),
		TextZH: fmt.Sprintf("Kafka 有 %d 个主题无法写入；回调暂存节点磁盘并照常确认，恢复前用户收不到回复", s.broken),
	}, j.kafka.set(s.at, s.broken > 0, kafkaAfter, overAfter)}
}

// uncheckedClaims fires when most callbacks are taken without a claim, second
// after second. Without callbacks nothing is known; after a while it is over then.
func (j *judge) uncheckedClaims(s sample) verdict {
	unchecked, checked := s.unchecked-j.last.unchecked, s.checked-j.last.checked
	if unchecked+checked > 0 || j.askedAt.IsZero() {
		j.askedAt = s.at
	}
	switch {
	case unchecked > checked:
		j.doubt += unchecked
	case checked > 0, s.at.Sub(j.askedAt) >= silence:
		j.doubt = 0
	}
	return verdict{alarm.Alarm{
		Name: alarmUnchecked, Severity: alarm.Warning,
		Text:   fmt.Sprintf("Redis does not answer: %d callbacks so far were taken without looking for duplicates; they are worked once all the same, at more cost", j.doubt),
		TextZH: fmt.Sprintf("Redis 无应答：已有 %d 条回调未经去重即接收；后续环节仍会去重，但成本更高", j.doubt),
	}, j.redis.set(s.at, j.doubt >= 3, uncheckedAfter, overAfter)}
}

func (j *judge) spool(s sample) []verdict {
	age := time.Duration(0)
	if !s.oldest.IsZero() {
		age = max(0, s.at.Sub(s.oldest)).Round(time.Second)
	}
	full := 0.0
	if s.limit > 0 {
		full = float64(s.disk) / float64(s.limit)
	}
	j.spoolBig = full > fillingAt || j.spoolBig && full > fillingOver
	return []verdict{{alarm.Alarm{
		Name: alarmHeld, Severity: alarm.Warning, Local: true,
		Text:   fmt.Sprintf("%d callbacks wait on this node's disk, the oldest for %s; keep the node and its disk until they are in Kafka", s.records, age),
		TextZH: fmt.Sprintf("%d 条回调滞留在本节点磁盘，最久 %s；写入 Kafka 之前请勿下线该节点或清理磁盘", s.records, age),
	}, j.held.set(s.at, s.records > 0, heldAfter, overAfter)}, {alarm.Alarm{
		Name: alarmFilling, Severity: alarm.Critical, Local: true,
		Text:   fmt.Sprintf("the spool of this node takes %.0f %% of its %d MiB; when it is full callbacks are refused", 100*full, s.limit>>20),
		TextZH: fmt.Sprintf("本节点缓冲盘已用 %.0f %%（上限 %d MiB）；写满后回调将被拒绝", 100*full, s.limit>>20),
	}, j.spoolBig}, {alarm.Alarm{
		Name: alarmDamaged, Severity: alarm.Critical, Local: true,
		Text:   fmt.Sprintf("%d files in the spool's directory hold records that could not be read or that Kafka will never take; look with 'tidegate spool inspect' and remove them afterwards", s.aside),
		TextZH: fmt.Sprintf("缓冲目录中有 %d 个搁置文件（无法读取或 Kafka 永不接收的记录）；请用 tidegate spool inspect 检查，处理后删除", s.aside),
	}, s.aside > 0}}
}
