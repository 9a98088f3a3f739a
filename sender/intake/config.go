package intake

import (
	"fmt"
	"time"

	"tidegate/pkg/ratelimit"
)

// Config bounds the push API.
type Config struct {
	// MaxBody is the largest request in bytes.
	MaxBody int64 `koanf:"max_body"`
	// MaxBatchBody is the largest request with a batch of pushes.
	MaxBatchBody int64 `koanf:"max_batch_body"`
	// MaxInFlight bounds requests worked at once; more get 503.
	MaxInFlight int `koanf:"max_in_flight"`
	// PublishTimeout bounds waiting for the queue.
	PublishTimeout time.Duration `koanf:"publish_timeout"`
	// CallbackAllow names hosts and ranges that a callback_url may lead to although
	// they are not public.
	CallbackAllow []string `koanf:"callback_allow"`
	// Templates says whether pushes are held against their templates: check, must or
	// off.
	Templates string `koanf:"templates"`
	// Limits are those of developers, apps and users.
	Limits ratelimit.SLAConfig `koanf:"limits"`
}

// DefaultConfig fits the write timeout of run.DefaultHTTPConfig.
func DefaultConfig() Config {
	return Config{MaxBody: 64 << 10, MaxBatchBody: 4 << 20, MaxInFlight: 1024, PublishTimeout: 3 * time.Second, Templates: TemplatesCheck, Limits: ratelimit.DefaultSLA()}
}

// Validate names the first setting that cannot work.
func (c Config) Validate() error {
	switch {
	case c.MaxBody < 1024 || c.MaxBody > 256<<10:
		return fmt.Errorf("intake.max_body %d: use 1024 to %d bytes", c.MaxBody, 256<<10)
	case c.MaxBatchBody < c.MaxBody || c.MaxBatchBody > 64<<20:
		return fmt.Errorf("intake.max_batch_body %d: use max_body to %d bytes", c.MaxBatchBody, 64<<20)
	case c.MaxInFlight < 1:
		return fmt.Errorf("intake.max_in_flight %d: use 1 or more", c.MaxInFlight)
	case c.PublishTimeout < 10*time.Millisecond || c.PublishTimeout > time.Minute:
		return fmt.Errorf("intake.publish_timeout %s: use 10ms to 1m", c.PublishTimeout)
	case c.Templates != TemplatesCheck && c.Templates != TemplatesMust && c.Templates != TemplatesOff:
		return fmt.Errorf("intake.templates %.20q: use %s, %s or %s", c.Templates, TemplatesCheck, TemplatesMust, TemplatesOff)
	}
	if err := c.Limits.Validate(); err != nil {
		return fmt.Errorf("intake.limits.%w", err)
	}
	return nil
}
