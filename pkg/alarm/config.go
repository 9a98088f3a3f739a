package alarm

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"tidegate/pkg/outhttp"
)

// The languages of messages.
const (
	English = "en"
	Chinese = "zh"
)

// Config is the alarms section of the configuration. Without webhooks alarms
// are log lines and a metric.
type Config struct {
	Webhooks []WebhookConfig `koanf:"webhooks"`
	// RepeatEvery is how often an alarm that still fires is told again.
	RepeatEvery time.Duration `koanf:"repeat_every"`
	// Runbook is the address of the runbook; #name is added.
	Runbook string `koanf:"runbook"`
}

// WebhookConfig is one receiver.
type WebhookConfig struct {
	// Name is ours: it appears in logs and metrics.
	Name string `koanf:"name"`
	// URL is the receiver's address. That of a group robot is its key.
	URL string `koanf:"url" secret:"true"`
	// Template is generic, wecom, dingtalk, feishu or the path of a file.
	Template string `koanf:"template"`
	// Robot says whose rules hold for signatures, answers and pace: one of the
	// built-in names. Only a template in a file needs it.
	Robot string `koanf:"robot"`
	// Secret signs messages, if the receiver asks for it; PrevSecret signs them
	// too while the generic receiver changes over.
	Secret     string `koanf:"secret" secret:"true"`
	PrevSecret string `koanf:"prev_secret" secret:"true"`
	// Headers are added to each request.
	Headers map[string]string `koanf:"headers" secret:"true"`
	// MinSeverity is warning (everything) or critical.
	MinSeverity string `koanf:"min_severity"`
	// Language is en or zh.
	Language string `koanf:"language"`
	// Allow names ranges, addresses and hosts that may be called although they
	// are not public.
	Allow []string `koanf:"allow"`
	// CAFile holds PEM certificates that sign the receiver's; empty trusts the
	// system's.
	CAFile string `koanf:"ca_file"`
	// Timeout bounds one try.
	Timeout time.Duration `koanf:"timeout"`
}

// DefaultConfig has no receivers.
func DefaultConfig() Config {
	return Config{RepeatEvery: 4 * time.Hour, Runbook: "deployments/prometheus/RUNBOOK.md"}
}

// maxWebhooks bounds receivers: each has a queue and a goroutine.
const maxWebhooks = 16

var webhookName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// Validate checks the section; each template is rendered once.
func (c Config) Validate() error {
	if c.RepeatEvery < time.Minute || c.RepeatEvery > 7*24*time.Hour {
		return fmt.Errorf("alarms.repeat_every %s: use 1m to 168h", c.RepeatEvery)
	}
	if len(c.Webhooks) > maxWebhooks {
		return fmt.Errorf("alarms.webhooks: %d of them; at most %d are served", len(c.Webhooks), maxWebhooks)
	}
	ws, err := c.receivers()
	for _, w := range ws {
		w.client.Close()
	}
	return err
}

// receivers makes what the section describes, without starting anything, and
// reports everything that is wrong.
func (c Config) receivers() ([]*webhook, error) {
	var all []*webhook
	var errs []error
	seen := map[string]bool{}
	for i, wc := range c.Webhooks {
		w, err := newWebhook(wc.withDefaults(), c.Runbook)
		if err == nil && seen[wc.Name] {
			err = errors.New("name: another webhook has it already")
		}
		seen[wc.Name] = true
		if err != nil {
			errs = append(errs, fmt.Errorf("alarms.webhooks[%d] (%.40s): %w", i, wc.Name, err))
			continue
		}
		all = append(all, w)
	}
	return all, errors.Join(errs...)
}

func (w WebhookConfig) withDefaults() WebhookConfig {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&w.Template, generic)
	def(&w.MinSeverity, string(Warning))
	def(&w.Language, English)
	if isRobot(w.Template) {
		def(&w.Robot, w.Template)
	}
	def(&w.Robot, generic)
	if w.Timeout == 0 {
		w.Timeout = outhttp.DefaultTimeout
	}
	return w
}

func (w WebhookConfig) validate() error {
	switch {
	case !webhookName.MatchString(w.Name):
		return fmt.Errorf("name %.60q: use 1 to 40 of a-z, 0-9 and -", w.Name)
	case w.MinSeverity != string(Warning) && w.MinSeverity != string(Critical):
		return fmt.Errorf("min_severity %.40q: use %s or %s", w.MinSeverity, Warning, Critical)
	case w.Language != English && w.Language != Chinese:
		return fmt.Errorf("language %.40q: use %s or %s", w.Language, English, Chinese)
	case !isRobot(w.Robot):
		return fmt.Errorf("robot %.40q: use generic, wecom, dingtalk or feishu", w.Robot)
	case isRobot(w.Template) && w.Robot != w.Template:
		return fmt.Errorf("robot %s: template %s is another robot's; leave robot out", w.Robot, w.Template)
	case w.Timeout < 100*time.Millisecond || w.Timeout > time.Minute:
		return fmt.Errorf("timeout %s: use 100ms to 1m", w.Timeout)
	case w.Secret != "" && w.Robot == wecom:
		return errors.New("secret: this robot knows none; its key is in the url")
	case w.PrevSecret != "" && (w.Robot != generic || w.Secret == ""):
		return errors.New("prev_secret: only a generic receiver takes two signatures, and only beside secret")
	}
	for name, value := range w.Headers {
		if err := outhttp.CheckHeader(name, value); err != nil {
			return err
		}
	}
	return nil
}
