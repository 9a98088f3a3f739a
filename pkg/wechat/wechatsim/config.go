package wechatsim

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"time"
)

// Modes of callback encryption, as an account's owner chooses them.
const (
	ModePlain      = "plain"
	ModeCompatible = "compatible"
	ModeSafe       = "safe"
)

// Config describes one simulated WeChat. Start from DefaultConfig; numbers and
// durations left at zero take its values.
type Config struct {
	// Addr is the listen address of the API and of the control surface, which
	// has no access control of its own: keep it on a loopback address.
	Addr     string    `koanf:"addr"`
	Accounts []Account `koanf:"accounts"`

	// Deliveries is the total number of tries per callback. The documents say
	// "three retries", the field sees three tries: 3 or 4 are faithful.
	Deliveries int `koanf:"deliveries"`
	// Timeout bounds one delivery, and spaces the tries when no answer comes.
	Timeout time.Duration `koanf:"timeout"`
	// RetryOnBad repeats at once after a non-200 or illegal answer. WeChat
	// documents repeats only for time-outs.
	RetryOnBad bool `koanf:"retry_on_bad"`
	// MaxInFlight bounds deliveries under way; what an open-loop load offers
	// beyond it is counted as skipped, not queued.
	MaxInFlight int `koanf:"max_in_flight"`

	MarkFail MarkFail      `koanf:"mark_fail"`
	Receipts Receipts      `koanf:"receipts"`
	Open     OpenPoints    `koanf:"open_points"`
	Limits   Limits        `koanf:"limits"`
	Journal  JournalConfig `koanf:"journal"`

	// Seed makes follower names and fault dice repeatable. 0 picks one.
	Seed int64 `koanf:"seed"`
}

// Account is one service account and the server that its callbacks go to.
type Account struct {
	AppID  string `koanf:"app_id"`
	Secret string `koanf:"secret" secret:"true"`
	GhID   string `koanf:"gh_id"`
	// Token and EncodingAESKey are those of the message push settings.
	Token          string `koanf:"token" secret:"true"`
	EncodingAESKey string `koanf:"encoding_aes_key" secret:"true"`
	Mode           string `koanf:"mode"`
	// CallbackURL may be empty: then nothing is pushed and the API still works.
	CallbackURL string `koanf:"callback_url"`
	// Followers is how many followers the account starts with.
	Followers int `koanf:"followers"`
	// Templates lists what template/send and bizsend accept; empty accepts any.
	Templates []Template `koanf:"templates"`
	// DeniedAPIs are paths that answer 48001 for this account.
	DeniedAPIs []string `koanf:"denied_apis"`
	// IPWhitelist, if not empty, answers 40164 to token calls from elsewhere.
	IPWhitelist []string `koanf:"ip_whitelist"`
}

// Template is one private template of an account.
type Template struct {
	ID    string `koanf:"id"`
	Title string `koanf:"title"`
	// Content names the fields as {{thing1.DATA}}; each named one is required.
	Content string `koanf:"content"`
	// Kind is "template" (default) or "subscribe"; the wrong API answers 40037.
	Kind string `koanf:"kind"`
}

// MarkFail is WeChat's automatic pause of a server that keeps failing.
type MarkFail struct {
	// Failures in a row start the pause; 0 switches it off.
	Failures int           `koanf:"failures"`
	Pause    time.Duration `koanf:"pause"`
	// SendLater delivers what the pause held back when it ends. WeChat does not
	// say; the default drops it.
	SendLater bool `koanf:"send_later"`
}

// Receipts says when the result events of template and subscription sends come.
type Receipts struct {
	Off   bool          `koanf:"disabled"`
	Delay time.Duration `koanf:"delay"`
}

// What a repeated client_msg_id may be answered with.
const (
	RepeatSameMsgID = "same_msgid"
	RepeatNewMsgID  = "new_msgid"
	RepeatError     = "error"
)

// OpenPoints are the questions that WeChat's documents leave open.
type OpenPoints struct {
	// RepeatedClientMsgID: same_msgid (default), new_msgid or error.
	RepeatedClientMsgID string `koanf:"repeated_client_msg_id"`
	// RepeatedErrcode is the code of the choice "error"; default 44007.
	RepeatedErrcode int `koanf:"repeated_errcode"`
	// SplitCDATA escapes "]]>" in user text; false passes it through raw.
	SplitCDATA bool `koanf:"split_cdata"`
	// EscapeErrcode refuses \uXXXX in request bodies: 0 (accept), 40033, 47002.
	EscapeErrcode int `koanf:"escape_errcode"`
	// BizSendMsgID puts a msgid into bizsend's answer.
	BizSendMsgID bool `koanf:"bizsend_msgid"`
	// SeparateWindows keeps the allowances of different user actions apart; the
	// default raises one allowance to the larger count and expiry.
	SeparateWindows bool `koanf:"separate_windows"`
}

// JournalConfig bounds what is remembered.
type JournalConfig struct {
	// Entries kept in memory for reading; older ones are dropped and counted.
	Entries int `koanf:"entries"`
	// File, if set, receives every entry as NDJSON. An existing file is read at
	// the start, so that a verdict spans restarts.
	File string `koanf:"file"`
	// FileBytes stops writing the file at this size, which the verdict reports.
	FileBytes int64 `koanf:"file_bytes"`
	// Stimuli bounds how many callbacks and pushes the judge can follow; beyond
	// it new load is refused.
	Stimuli int `koanf:"stimuli"`
}

// DefaultConfig is a faithful WeChat without accounts.
func DefaultConfig() Config {
	return Config{
		Addr:        "127.0.0.1:0",
		Deliveries:  3,
		Timeout:     5 * time.Second,
		RetryOnBad:  true,
		MaxInFlight: 4096,
		MarkFail:    MarkFail{Pause: time.Minute},
		Receipts:    Receipts{Delay: 100 * time.Millisecond},
		Open:        OpenPoints{RepeatedClientMsgID: RepeatSameMsgID, RepeatedErrcode: 44007},
		Limits:      DefaultLimits(),
		Journal:     JournalConfig{Entries: 200_000, FileBytes: 1 << 30, Stimuli: 2_000_000},
	}
}

// withDefaults fills numbers and durations that were left at zero.
func (c Config) withDefaults() Config {
	d := DefaultConfig()
	fill(&c.Addr, d.Addr)
	fill(&c.Deliveries, d.Deliveries)
	fill(&c.Timeout, d.Timeout)
	fill(&c.MaxInFlight, d.MaxInFlight)
	fill(&c.MarkFail.Pause, d.MarkFail.Pause)
	fill(&c.Receipts.Delay, d.Receipts.Delay)
	fill(&c.Open.RepeatedClientMsgID, d.Open.RepeatedClientMsgID)
	fill(&c.Open.RepeatedErrcode, d.Open.RepeatedErrcode)
	fill(&c.Journal.Entries, d.Journal.Entries)
	fill(&c.Journal.FileBytes, d.Journal.FileBytes)
	fill(&c.Journal.Stimuli, d.Journal.Stimuli)
	c.Limits = c.Limits.withDefaults(d.Limits)
	return c
}

func fill[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Validate says what is wrong and what to do about it. Zero numbers are right:
// New fills them.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Deliveries < 0 || c.Deliveries > 10 {
		bad("deliveries %d: must be 1 to 10 (WeChat makes 3 or 4)", c.Deliveries)
	}
	if c.Timeout < 0 || c.MarkFail.Pause < 0 || c.Receipts.Delay < 0 {
		bad("timeout, mark_fail.pause and receipts.delay must not be negative")
	}
	if c.MarkFail.Failures < 0 || c.MaxInFlight < 0 || c.Journal.Entries < 0 || c.Journal.Stimuli < 0 || c.Journal.FileBytes < 0 {
		bad("counts must not be negative: set 0 for the default")
	}
	switch c.Open.RepeatedClientMsgID {
	case "", RepeatSameMsgID, RepeatNewMsgID, RepeatError:
	default:
		bad("open_points.repeated_client_msg_id %q: use same_msgid, new_msgid or error", c.Open.RepeatedClientMsgID)
	}
	if e := c.Open.EscapeErrcode; e != 0 && e != 40033 && e != 47002 {
		bad("open_points.escape_errcode %d: use 0, 40033 or 47002", e)
	}
	if len(c.Accounts) == 0 {
		bad("accounts: at least one account is needed")
	}
	errs = append(errs, c.Limits.validate(), validateAccounts(c.Accounts))
	return errors.Join(errs...)
}

func validateAccounts(accounts []Account) error {
	var errs []error
	seen := map[string]bool{}
	for i, a := range accounts {
		if err := a.validate(); err != nil {
			errs = append(errs, fmt.Errorf("accounts[%d]: %w", i, err))
		}
		for _, name := range []string{a.AppID, a.GhID} {
			if name != "" && seen[name] {
				errs = append(errs, fmt.Errorf("accounts[%d]: %q is used twice", i, name))
			}
			seen[name] = true
		}
	}
	return errors.Join(errs...)
}

func (a Account) validate() error {
	if a.AppID == "" || a.Secret == "" || a.GhID == "" || a.Token == "" {
		return errors.New("app_id, secret, gh_id and token must be set")
	}
	switch a.Mode {
	case ModePlain:
	case ModeCompatible, ModeSafe:
		if err := checkAESKey(a.EncodingAESKey); err != nil {
			return err
		}
	default:
		return fmt.Errorf("mode %q: use plain, compatible or safe", a.Mode)
	}
	if a.Followers < 0 || a.Followers > maxFollowers {
		return fmt.Errorf("followers %d: must be 0 to %d", a.Followers, maxFollowers)
	}
	return checkCallbackURL(a.CallbackURL)
}

func checkAESKey(key string) error {
	if len(key) != 43 {
		return fmt.Errorf("encoding_aes_key has %d characters: WeChat makes it 43", len(key))
	}
	if _, err := base64.StdEncoding.DecodeString(key + "="); err != nil {
		return errors.New("encoding_aes_key is not base64: use letters and digits only")
	}
	return nil
}

func checkCallbackURL(raw string) error {
	if raw == "" {
		return nil
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("callback_url must start with http:// or https:// and name a host")
	}
	return nil
}
