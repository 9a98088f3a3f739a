package proxy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tidegate/pkg/config"
	"tidegate/pkg/wechat"
)

// RepeatsConfig says what counts as a user's repeat (M9): the same action of
// the same user within a window. A repeat is answered and recorded, not worked.
type RepeatsConfig struct {
	// Window is that of the rules that have none of their own; 0 switches
	// those rules off.
	Window time.Duration `koanf:"window"`
	// Rules are asked in their order, and the first that fits decides. An
	// action that none fits is never a repeat.
	Rules []RepeatRule `koanf:"rules"`
}

// RepeatRule is one line of the table.
type RepeatRule struct {
	// Types are the events as WeChat writes them, and text for messages. Left
	// out they are those of the default. Text is judged only where a rule names
	// it: the door knows no dialogue, and in one the same word twice may be two
	// answers.
	Types []string `koanf:"types"`
	// Key narrows the rule to a menu key (of text: what was written); * stands
	// for anything. Empty fits every key.
	Key string `koanf:"key"`
	// Window is how soon the same again is a repeat; 0 is never, nil takes
	// that of the section.
	Window *time.Duration `koanf:"window"`
}

const (
	maxRepeatWindow = time.Hour
	maxRepeatRules  = 100
	maxRepeatTypes  = 100
	maxRepeatKey    = 128
)

// defaultRepeatTypes are what a user does with the account's menu: pressing
// again asks for the same again.
func defaultRepeatTypes() []string {
	return []string{
		wechat.EventClick, wechat.EventView, wechat.EventScan, wechat.EventScanCodePush, wechat.EventScanCodeWaitMsg,
		wechat.EventLocationSelect, "view_miniprogram", "pic_sysphoto", "pic_photo_or_album", "pic_weixin",
	}
}

func defaultRepeats() RepeatsConfig {
	return RepeatsConfig{Window: 10 * time.Second, Rules: []RepeatRule{{Types: defaultRepeatTypes()}}}
}

func (c RepeatsConfig) validate() error {
	if err := checkRepeatWindow("proxy.repeats.window", c.Window); err != nil {
		return err
	}
	if len(c.Rules) > maxRepeatRules {
		return fmt.Errorf("proxy.repeats.rules: %d rules, use at most %d; one rule may list several types, and * in a key covers many", len(c.Rules), maxRepeatRules)
	}
	for i, r := range c.Rules {
		if err := r.validate(fmt.Sprintf("proxy.repeats.rules[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

func (r RepeatRule) validate(at string) error {
	if len(r.Types) == 0 && r.Key == "" && r.Window == nil {
		return fmt.Errorf("%s: the rule is empty: give it types, a key or a window, or leave it out", at)
	}
	if len(r.Types) > maxRepeatTypes {
		return fmt.Errorf("%s.types: %d types, use at most %d", at, len(r.Types), maxRepeatTypes)
	}
	for _, t := range r.Types {
		if err := checkRepeatType(t); err != nil {
			return fmt.Errorf("%s.types: %w", at, err)
		}
	}
	if len(r.Key) > maxRepeatKey {
		return fmt.Errorf("%s.key: %d bytes, use at most %d; * stands for anything", at, len(r.Key), maxRepeatKey)
	}
	if r.Window != nil {
		return checkRepeatWindow(at+".window", *r.Window)
	}
	return nil
}

func checkRepeatWindow(at string, d time.Duration) error {
	switch {
	case d == 0:
		return nil
	case d < time.Second || d > maxRepeatWindow:
		return fmt.Errorf("%s %s: use 1s to %s, or 0 for off", at, d, "1h")
	}
	return nil
}

// knownRepeatTypes are what a rule can name for all that this program knows.
func knownRepeatTypes() []string {
	return append(defaultRepeatTypes(), wechat.TypeText, wechat.EventSubscribe, wechat.EventUnsubscribe, wechat.EventLocation,
		wechat.EventSubscribeMsgPopup, wechat.EventSubscribeMsgChange)
}

// Warnings tells of what may be a slip of the pen and may be right: WeChat can
// have an event that is newer than this program.
func (c RepeatsConfig) Warnings() []string {
	var out []string
	known := knownRepeatTypes()
	for i, r := range c.Rules {
		for _, t := range r.Types {
			if !slices.Contains(known, t) {
				out = append(out, fmt.Sprintf("proxy.repeats.rules[%d].types: %q is no event that this program knows; the nearest is %s", i, t, config.Nearest(t, known)))
			}
		}
	}
	return out
}

// checkRepeatType refuses what would never match, or must not: a rule that
// silently does nothing is worse than an error at the start.
func checkRepeatType(t string) error {
	known := knownRepeatTypes()
	reports := []string{wechat.EventTemplateSent, wechat.EventMassSent, wechat.EventSubscribeMsgSent, wechat.EventPublished}
	others := []string{wechat.TypeImage, wechat.TypeVoice, wechat.TypeVideo, wechat.TypeShortVideo, wechat.TypeLocation, wechat.TypeLink, wechat.TypeFile, wechat.TypeMiniProgramPage}
	same := func(k string) bool { return strings.EqualFold(k, t) }
	switch {
	case slices.Contains(known, t):
		return nil
	case t == wechat.TypeEvent:
		return fmt.Errorf("%q is every event: name the events themselves, for instance CLICK", t)
	case slices.ContainsFunc(reports, same):
		return fmt.Errorf("%q is WeChat's report about something sent, not an action of a user: leave it out", t)
	case slices.Contains(others, t):
		return fmt.Errorf("%q messages are never the same twice: use events, or text", t)
	case slices.ContainsFunc(known, same):
		return fmt.Errorf("%q: WeChat writes it %s", t, known[slices.IndexFunc(known, same)])
	case t == "" || len(t) > 64 || strings.ContainsFunc(t, func(r rune) bool { return !nameRune(r) }):
		return fmt.Errorf("%q is no event's name: use for instance CLICK, VIEW or text", t)
	}
	return nil // perhaps an event that is newer than this program: see Warnings
}

func nameRune(r rune) bool {
	return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}
