package wechatsim

import (
	"maps"
	"slices"
	"time"
)

// Verdict is the state at monotonic time now. A cause acked less than grace ago
// is pending, not lost; with grace 0 every unanswered cause is lost.
func (j *Judge) Verdict(now int64, grace time.Duration) Verdict {
	j.mu.Lock()
	v := j.v
	v.Callbacks.Answers = maps.Clone(j.v.Callbacks.Answers)
	v.API = cloneUsage(j.v.API)
	v.Anomalies = slices.Clone(j.v.Anomalies)
	j.addLost(&v, now, grace)
	for _, o := range j.open {
		if !o.receipt && !o.acked {
			v.Callbacks.InFlight++
		}
	}
	times := slices.Clone(j.ackTimes)
	j.mu.Unlock()

	slices.Sort(times)
	v.Callbacks.AckP50Ms = percentile(times, 50)
	v.Callbacks.AckP99Ms = percentile(times, 99)
	v.Callbacks.AckMaxMs = percentile(times, 100)
	r := &v.Replies
	r.Unexpected = r.Invented + r.Misdirected + r.CrossAccount
	v.Complete = v.Journal.Unfollowed == 0
	v.OK = v.Complete && r.Lost+r.Doubled+r.OutOfOrder+r.Unexpected == 0 &&
		v.Pushes.Lost+v.Pushes.Doubled+v.Pushes.Misdirected == 0
	return v
}

func (j *Judge) addLost(v *Verdict, now int64, grace time.Duration) {
	for c := range j.waiting {
		if grace > 0 && now-c.acked < int64(grace) {
			v.Replies.Pending++
			continue
		}
		v.Replies.Lost++
		if len(v.Anomalies) < maxAnomalies {
			v.Anomalies = append(v.Anomalies, Anomaly{
				Kind: "lost", Seq: c.seq, At: c.acked, Account: c.account, OpenID: c.openid, Token: c.token,
				Detail: "acked, but no reply that the user can see came",
			})
		}
	}
	for token, x := range j.expected {
		switch {
		case x.visible > 0:
		case grace > 0 && now-x.at < int64(grace):
			v.Pushes.Pending++
		default:
			v.Pushes.Lost++
			if len(v.Anomalies) < maxAnomalies {
				v.Anomalies = append(v.Anomalies, Anomaly{
					Kind: "push_lost", Seq: x.seq, At: x.at, Account: x.account, OpenID: x.openid, Token: token,
					Detail: "announced, but the user never saw it",
				})
			}
		}
	}
}

// outstanding tells how much is still open: callbacks being delivered, causes
// and announced pushes without an effect.
func (j *Judge) outstanding() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := len(j.open) + len(j.waiting)
	for _, x := range j.expected {
		if x.visible == 0 {
			n++
		}
	}
	return n
}

func cloneUsage(in map[string]APIUsage) map[string]APIUsage {
	out := make(map[string]APIUsage, len(in))
	for path, use := range in {
		use.Errors = maps.Clone(use.Errors)
		out[path] = use
	}
	return out
}

// percentile of sorted microseconds, in milliseconds; 0 without data.
func percentile(sorted []uint32, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := (len(sorted)*p + 99) / 100
	return float64(sorted[max(i, 1)-1]) / 1000
}

func isReceipt(what string) bool {
	return what == EventTemplateFinish || what == EventSubscribeSent
}
