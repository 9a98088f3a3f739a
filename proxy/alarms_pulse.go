package proxy

// The pulse of an account tells that WeChat may have paused it (MarkFail). WeChat
// does not say so: the sign is that callbacks fail and then stop coming
// (reliability.md 2b).
const (
	pulseBeats = 300 // beats, one a second, that are remembered
	quietBeats = 60
	busyBeats  = 60
	busyCount  = 60 // callbacks in busyBeats: one a second
	nearZero   = 2  // callbacks in quietBeats
	backBeats  = 10
	backCount  = 5 // callbacks in backBeats end the suspicion …
	slowCount  = 6 // … and so do these in quietBeats, at an account that has become quiet
)

// pulse remembers how callbacks came. The newest beat is the last.
type pulse struct {
	seen, failed [pulseBeats]int64
	suspicious   bool
	peak         int64 // callbacks in the busiest minute before the silence
}

// beat adds one second and tells whether the account seems to be paused.
func (p *pulse) beat(seen, failed int64) bool {
	copy(p.seen[:], p.seen[1:])
	copy(p.failed[:], p.failed[1:])
	p.seen[pulseBeats-1], p.failed[pulseBeats-1] = seen, failed
	switch {
	case p.suspicious:
		p.suspicious = sum(p.seen[pulseBeats-backBeats:]) < backCount && sum(p.seen[pulseBeats-quietBeats:]) < slowCount
	case sum(p.seen[pulseBeats-quietBeats:]) <= nearZero && sum(p.failed[:]) > 0:
		p.peak = busiest(p.seen[:pulseBeats-quietBeats])
		p.suspicious = p.peak >= busyCount
	}
	return p.suspicious
}

func sum(beats []int64) int64 {
	var n int64
	for _, b := range beats {
		n += b
	}
	return n
}

// busiest is the largest count of busyBeats in a row.
func busiest(beats []int64) int64 {
	n := sum(beats[:busyBeats])
	most := n
	for i := busyBeats; i < len(beats); i++ {
		n += beats[i] - beats[i-busyBeats]
		most = max(most, n)
	}
	return most
}
