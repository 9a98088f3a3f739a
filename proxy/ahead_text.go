package proxy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"tidegate/pkg/wechat"
	"tidegate/proxy/queues"
)

// AheadConfig is the section proxy.ahead: "about N ahead of you".
type AheadConfig struct {
	Enabled bool `koanf:"enabled"`
	// Threshold is the expected wait from which on a follower is told.
	Threshold time.Duration `koanf:"threshold"`
	// Interval is how soon the same follower is told again.
	Interval time.Duration `koanf:"interval"`
	// Language is zh or en.
	Language string `koanf:"language"`
	// TextZh and TextEn hold {people} and {wait}.
	TextZh string `koanf:"text_zh"`
	TextEn string `koanf:"text_en"`
}

func defaultAhead() AheadConfig {
	return AheadConfig{
		Threshold: 10 * time.Second, Interval: time.Minute, Language: "zh",
		TextZh: "前面约有 {people} 人，预计等待 {wait}。",
		TextEn: "About {people} ahead of you, expected wait: {wait}.",
	}
}

func (c AheadConfig) validate(q queues.Config) error {
	switch {
	case !c.Enabled:
		return nil
	case q.Poll == 0:
		return fmt.Errorf("proxy.ahead.enabled: it needs the watch over the queues; set proxy.queues.poll, for example 2s")
	case c.Threshold < time.Second || c.Threshold > time.Hour:
		return fmt.Errorf("proxy.ahead.threshold %s: use 1s to 1h", c.Threshold)
	case c.Interval < time.Second || c.Interval > 24*time.Hour:
		return fmt.Errorf("proxy.ahead.interval %s: use 1s to 24h", c.Interval)
	case c.Language != "zh" && c.Language != "en":
		return fmt.Errorf("proxy.ahead.language %q: use zh or en", c.Language)
	}
	key := "proxy.ahead.text_" + c.Language
	text := c.template()
	rest := strings.NewReplacer("{people}", "", "{wait}", "").Replace(text)
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%s is empty: write a text with {people} and {wait}", key)
	case strings.ContainsAny(rest, "{}"):
		return fmt.Errorf("%s: {people} and {wait} are all that is filled in; remove other braces", key)
	case len(c.text(queues.Place{Ahead: 1 << 50, Wait: 1 << 60})) > wechat.MaxText:
		return fmt.Errorf("%s: with its numbers it is longer than the %d bytes that WeChat takes; shorten it", key, wechat.MaxText)
	}
	return nil
}

func (c AheadConfig) template() string {
	if c.Language == "en" {
		return c.TextEn
	}
	return c.TextZh
}

func (c AheadConfig) text(p queues.Place) string {
	wait := waitZh(p.Wait)
	if c.Language == "en" {
		wait = waitEn(p.Wait)
	}
	return strings.NewReplacer("{people}", strconv.FormatInt(people(p.Ahead), 10), "{wait}", wait).Replace(c.template())
}

// people rounds to what can be meant: two digits, and at least one person.
func people(n int64) int64 {
	step := int64(1)
	for n/step >= 100 {
		step *= 10
	}
	return max(1, (n+step/2)/step*step)
}

// roughly rounds a wait up, since an answer that comes sooner than said annoys
// nobody: to ten seconds within a minute, to half a minute within five, then to
// minutes.
func roughly(d time.Duration) time.Duration {
	step := time.Minute
	switch {
	case d <= time.Minute:
		step = 10 * time.Second
	case d <= 5*time.Minute:
		step = 30 * time.Second
	}
	if over := d % step; over > 0 {
		d += step - over
	}
	return max(step, d)
}

func waitZh(d time.Duration) string {
	if d > time.Hour {
		return "1 小时以上"
	}
	d = roughly(d)
	m, s := int(d/time.Minute), int(d%time.Minute/time.Second)
	switch {
	case m == 0:
		return fmt.Sprintf("%d 秒", s)
	case s == 0:
		return fmt.Sprintf("%d 分钟", m)
	}
	return fmt.Sprintf("%d 分 %d 秒", m, s)
}

func waitEn(d time.Duration) string {
	if d > time.Hour {
		return "more than an hour"
	}
	d = roughly(d)
	m, s := int(d/time.Minute), int(d%time.Minute/time.Second)
	minutes := "minutes"
	if m == 1 {
		minutes = "minute"
	}
	switch {
	case m == 0:
		return fmt.Sprintf("%d seconds", s)
	case s == 0:
		return fmt.Sprintf("%d %s", m, minutes)
	}
	return fmt.Sprintf("%d %s %d seconds", m, minutes, s)
}
