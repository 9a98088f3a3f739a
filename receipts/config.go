package receipts

import (
	"time"

	"tidegate/pkg/fault"
	"tidegate/pkg/schedule"
	"tidegate/receipts/webhook"
)

// Config is the room's section of the configuration. Zero values stand for the
// defaults.
type Config struct {
	// Group is the consumer group of receipts and repeats; the one that learns
	// what is queued has "-queued" appended.
	Group string `koanf:"group"`
	// Workers is how many partitions are written at once.
	Workers int `koanf:"workers"`
	// KeepCallbacks writes a row for every callback as well, so that one query
	// shows the whole trace. Users' repeats always have one.
	KeepCallbacks bool `koanf:"keep_callbacks"`
	// NoReceiptAfter settles pushes on which WeChat never reported.
	NoReceiptAfter time.Duration `koanf:"no_receipt_after"`
	// ParkFor is how long an event waits for its message before it counts as
	// foreign.
	ParkFor time.Duration `koanf:"park_for"`
	// Retention is how long rows of pushes, replies and foreign events are kept;
	// CallbackRetention the same for callbacks.
	Retention         time.Duration `koanf:"retention"`
	CallbackRetention time.Duration `koanf:"callback_retention"`
	// HousekeepingEvery is the pause between rounds of the above.
	HousekeepingEvery time.Duration `koanf:"housekeeping_every"`
	// Webhooks tell apps what becomes of their messages.
	Webhooks webhook.Config `koanf:"webhooks"`
	// RepeatAlarm tells a person about users who repeat too often.
	RepeatAlarm RepeatAlarm `koanf:"repeat_alarm"`
	// Bands tells a person about shares of failures that are not usual.
	Bands  BandConfig   `koanf:"bands"`
	Report ReportConfig `koanf:"report"`
	Resend ResendConfig `koanf:"resend"`
}

// ReportConfig is the daily report of failures.
type ReportConfig struct {
	// Dir takes the files, on the node that makes the report; empty means no
	// files.
	Dir string `koanf:"dir"`
	// Schedule is when, in cron's five fields; it covers the day before.
	Schedule string `koanf:"schedule"`
	// Location is the time zone of schedule and day.
	Location string `koanf:"location"`
	// CatchUp is how late a report is still made after nobody could make it.
	CatchUp time.Duration `koanf:"catch_up"`
	// Attempts bounds how often one report is tried; RetryWait is the pause
	// behind the first time, which doubles up to an hour.
	Attempts  int           `koanf:"attempts"`
	RetryWait time.Duration `koanf:"retry_wait"`
	// Webhook is sent the report as well, or instead of files.
	Webhook ReportHook `koanf:"webhook"`
}

// ResendConfig bounds re-sends.
type ResendConfig struct {
	// Max is the largest selection.
	Max int `koanf:"max"`
	// ConfirmWithin is how long a counted selection may be confirmed.
	ConfirmWithin time.Duration `koanf:"confirm_within"`
	// Timeout is how long a request waits for the end of its re-send, which goes on
	// behind it.
	Timeout time.Duration `koanf:"timeout"`
	// Rate is how many are sent a second where a request does not say; MaxRate is
	// the most that it may say.
	Rate    int `koanf:"rate"`
	MaxRate int `koanf:"max_rate"`
}

// DefaultConfig keeps everything for 90 days, and callbacks for 30.
func DefaultConfig() Config {
	return Config{
		Group: "tidegate-receipts", Workers: 8, KeepCallbacks: true,
		NoReceiptAfter: 24 * time.Hour, ParkFor: 24 * time.Hour,
		Retention: 90 * 24 * time.Hour, CallbackRetention: 30 * 24 * time.Hour, HousekeepingEvery: 10 * time.Second, Webhooks: webhook.DefaultConfig(),
		RepeatAlarm: defaultRepeatAlarm(), Bands: defaultBands(),
		Report: ReportConfig{Schedule: "30 6 * * *", Location: "Asia/Shanghai", CatchUp: 72 * time.Hour, Attempts: 5, RetryWait: time.Minute},
		Resend: ResendConfig{Max: 10_000, ConfirmWithin: 10 * time.Minute, Timeout: 20 * time.Second, Rate: 200, MaxRate: 5000},
	}
}

// Validate reports the first setting that cannot work, by its key.
func (c Config) Validate() error {
	bad := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "check receipts settings", "receipts."+field+": "+format, args...).WithField("receipts." + field)
	}
	switch {
	case c.Group == "" || len(c.Group) > 100:
		return bad("group", "give the consumer group a name of up to 100 characters")
	case c.Workers < 1 || c.Workers > 256:
		return bad("workers", "%d: use 1 to 256", c.Workers)
	case c.NoReceiptAfter < time.Minute:
		return bad("no_receipt_after", "%s: use at least 1m; WeChat's reports may take minutes", c.NoReceiptAfter)
	case c.ParkFor < time.Minute:
		return bad("park_for", "%s: use at least 1m", c.ParkFor)
	case c.Retention < 24*time.Hour || c.Retention < c.ParkFor || c.Retention < c.NoReceiptAfter:
		return bad("retention", "%s: use at least 24h, and not less than park_for and no_receipt_after", c.Retention)
	case c.CallbackRetention < time.Hour:
		return bad("callback_retention", "%s: use at least 1h, or keep_callbacks: false", c.CallbackRetention)
	case c.HousekeepingEvery < 100*time.Millisecond || c.HousekeepingEvery > time.Hour:
		return bad("housekeeping_every", "%s: use 100ms to 1h", c.HousekeepingEvery)
	case c.Resend.Max < 1 || c.Resend.Max > 1_000_000:
		return bad("resend.max", "%d: use 1 to 1000000", c.Resend.Max)
	case c.Resend.ConfirmWithin < time.Minute || c.Resend.ConfirmWithin > 24*time.Hour:
		return bad("resend.confirm_within", "%s: use 1m to 24h", c.Resend.ConfirmWithin)
	case c.Resend.Rate < 1 || c.Resend.Rate > c.Resend.MaxRate:
		return bad("resend.rate", "%d: use 1 to resend.max_rate", c.Resend.Rate)
	case c.Resend.MaxRate > 100_000:
		return bad("resend.max_rate", "%d: use at most 100000", c.Resend.MaxRate)
	case c.Resend.Timeout < time.Second || c.Resend.Timeout > 10*time.Minute:
		return bad("resend.timeout", "%s: use 1s to 10m, and less than the listener's write_timeout", c.Resend.Timeout)
	}
	if field, why := c.RepeatAlarm.check(); field != "" {
		return bad("repeat_alarm."+field, "%s", why)
	}
	if field, why := c.Bands.check(); field != "" {
		return bad("bands."+field, "%s", why)
	}
	if err := c.Webhooks.Validate(); err != nil {
		return err
	}
	if _, err := schedule.ParseSpec(c.Report.Schedule, c.Report.Location); err != nil {
		return bad("report."+fault.FieldOf(err), "%w", err)
	}
	if field, why := c.Report.Webhook.check(); field != "" {
		return bad("report.webhook."+field, "%s", why)
	}
	switch r := c.Report; {
	case r.CatchUp < 0 || r.CatchUp > 14*24*time.Hour:
		return bad("report.catch_up", "%s: use 0s to 336h", r.CatchUp)
	case r.Attempts < 1 || r.Attempts > 20:
		return bad("report.attempts", "%d: use 1 to 20", r.Attempts)
	case r.RetryWait < 0 || r.RetryWait > time.Hour:
		return bad("report.retry_wait", "%s: use 0s to 1h", r.RetryWait)
	}
	return nil
}
