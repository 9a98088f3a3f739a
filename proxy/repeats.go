package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
)

// repeatTable is RepeatsConfig made ready for the road: one look-up by type,
// and nothing is put together for an action that is no repeat.
type repeatTable map[string][]repeatRule

type repeatRule struct {
	key    pattern
	window time.Duration // 0 is never
	name   string        // where it stands in the configuration
	reason string        // what the record says
}

// compile makes the table of a section that was validated.
func (c RepeatsConfig) compile() repeatTable {
	t := repeatTable{}
	for i, r := range c.Rules {
		window := c.Window
		if r.Window != nil {
			window = *r.Window
		}
		types := r.Types
		if len(types) == 0 {
			types = defaultRepeatTypes()
		}
		rule := repeatRule{key: newPattern(r.Key), window: window, name: fmt.Sprintf("proxy.repeats.rules[%d]", i)}
		rule.reason = "same action within " + window.String() + ", by " + rule.name
		if r.Key != "" {
			rule.reason += " with key " + r.Key
		}
		for _, name := range types {
			t[name] = append(t[name], rule)
		}
	}
	return t
}

// rule finds the rule that decides about a callback; nil if it is never a
// repeat.
func (t repeatTable) rule(c *wire.Callback) *repeatRule {
	name, key := c.Event, c.EventKey
	if c.MsgType == wechat.TypeText {
		name, key = wechat.TypeText, c.Content
	}
	rules := t[name]
	for i := range rules {
		if !rules[i].key.fits(key) {
			continue
		}
		if rules[i].window == 0 {
			return nil
		}
		return &rules[i]
	}
	return nil
}

// pattern is a key in which * stands for anything. Nothing else is special,
// since keys may be addresses of pages. Empty fits everything.
type pattern struct {
	any    bool
	pieces []string // what stands between the stars
}

func newPattern(s string) pattern { return pattern{any: s == "", pieces: strings.Split(s, "*")} }

func (p pattern) fits(s string) bool {
	if p.any {
		return true
	}
	s, ok := strings.CutPrefix(s, p.pieces[0])
	last := len(p.pieces) - 1
	if !ok || last == 0 {
		return ok && s == ""
	}
	for _, piece := range p.pieces[1:last] {
		i := strings.Index(s, piece)
		if i < 0 {
			return false
		}
		s = s[i+len(piece):]
	}
	return strings.HasSuffix(s, p.pieces[last])
}

// action is what M9 compares: the same kind of request by the same user. What
// was scanned or chosen belongs to it, or a second code would be taken for the
// first one again. What a user wrote or sent appears as a digest only, since
// actions are shown to people.
func action(c *wire.Callback) string {
	if c.MsgType == wechat.TypeText {
		return wechat.TypeText + ":#" + short(c.Content)
	}
	a := c.Event + ":" + c.EventKey
	switch c.Event {
	case wechat.EventScanCodePush, wechat.EventScanCodeWaitMsg:
		a += "#" + short(c.Fields["ScanCodeInfo.ScanResult"])
	case wechat.EventLocationSelect:
		a += "#" + short(c.Fields["SendLocationInfo.Location_X"]+","+c.Fields["SendLocationInfo.Location_Y"])
	}
	return a
}

// short is enough of a digest to tell one user's actions within a window apart.
func short(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}

// isRepeat gives the rule by which this is a repeat, or nil, and what takes
// the mark back. Redis being away means no repeat: a repeat costs less than a
// refusal. WeChat's own deliveries of one callback never are repeats of it: the
// mark holds the identity.
func (p *Proxy) isRepeat(ctx context.Context, c *wire.Callback) (*repeatRule, func(context.Context)) {
	nothing := func(context.Context) {}
	if c.Unchecked || c.Quarantined != "" {
		return nil, nothing
	}
	rule := p.repeats.rule(c)
	if rule == nil {
		return nil, nothing
	}
	repeat, forget, err := p.d.Claims.Repeat(ctx, c.Account, c.OpenID, action(c), c.IdentityHash, rule.window)
	if err != nil {
		p.m.taken.WithLabelValues(c.Account, "repeat_unchecked").Inc()
		return nil, nothing
	}
	if forget == nil {
		forget = nothing
	}
	if !repeat {
		rule = nil
	}
	return rule, forget
}

func (p *Proxy) publishRepeat(ctx context.Context, c *wire.Callback, r *repeatRule) error {
	return p.publish(ctx, p.d.Topics.Repeats(), &wire.Repeat{
		ID: c.ID, IdentityHash: c.IdentityHash, Account: c.Account, OpenID: c.OpenID, Action: action(c),
		Reason: r.reason, Rule: r.name, WindowMS: r.window.Milliseconds(), At: c.ReceivedAt, TraceParent: c.TraceParent,
	})
}
