package app

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"time"

	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat"
	"tidegate/pkg/wire"
	"tidegate/robot"
	"tidegate/sender"
	"tidegate/sender/line"
)

// Validate checks what a role needs and reports everything that is wrong at
// once, each line with its key. An empty role checks what all roles share.
func (c Config) Validate(role Role) error {
	errs := []error{
		c.Log.Validate(),
		at("ops", c.Ops.validate()),
		at("topics", c.Topics.validate()),
		at("kafka", c.Kafka.Validate()),
		c.Alarms.Validate(),
		c.Control.Validate(),
		c.Permits.Validate(),
		c.Credit.Validate(),
		c.Jobs.Validate(),
		c.validateAccounts(role),
		c.validateListeners(role),
	}
	if c.StopTimeout < time.Second || c.StopTimeout > 10*time.Minute {
		errs = append(errs, fmt.Errorf("stop_timeout %s: use 1s to 10m", c.StopTimeout))
	}
	switch role {
	case RoleProxy:
		errs = append(errs, c.Proxy.Validate(), c.Redis.Validate())
	case RoleRobot:
		errs = append(errs, c.Robot.Validate(), c.Redis.Validate())
		if c.Database.DSN != "" { // for live limits, which a robot can do without
			errs = append(errs, at("database", c.Database.Validate()))
		}
		if c.Robot.PublicAPI {
			errs = append(errs, at("api", c.API.Validate()), at("database", c.Database.Validate()))
		}
		if c.Rules == "" {
			errs = append(errs, errors.New("rules: name the file of the robot's rules; deployments/config/rules.sample.yaml is a beginning"))
		}
	case RoleSender:
		errs = append(errs, at("api", c.API.Validate()), c.Sender.Validate(), c.Redis.Validate(), at("database", c.Database.Validate()), c.WeChat.validate())
	case RoleReceipts:
		errs = append(errs, at("api", c.API.Validate()), c.Receipts.Validate(), at("database", c.Database.Validate()))
		if c.Receipts.Report.Dir != "" { // nodes agree there on who makes it
			errs = append(errs, c.Redis.Validate())
		}
	}
	return errors.Join(errs...)
}

// serves lists the roles that the configuration has enough for: the door needs
// an account's token, the robot rules, the sender an AppSecret, and receipts a
// database.
func (c Config) serves() []Role {
	var token, secret bool
	for _, a := range c.Accounts {
		token = token || a.Token != ""
		secret = secret || a.Secret != ""
	}
	// The door reads rules too. In a file that is a door's alone they make no
	// robot: the back ends that they name are in the robots' own file.
	door := token && !secret && c.Database.DSN == "" && !c.setsRobot()
	enough := map[Role]bool{RoleProxy: token, RoleRobot: c.Rules != "" && !door, RoleSender: secret, RoleReceipts: c.Database.DSN != ""}
	var roles []Role
	for _, r := range Roles() {
		if enough[r] {
			roles = append(roles, r)
		}
	}
	return roles
}

// setsRobot tells that the file says something that only a robot reads. The
// group is the door's as well, which watches how far the robots are.
func (c Config) setsRobot() bool {
	own := robot.DefaultConfig()
	own.Group = c.Robot.Group
	return !reflect.DeepEqual(own, c.Robot) ||
		slices.ContainsFunc(c.Accounts, func(a AccountConfig) bool { return a.Robot != robot.Limits{} })
}

// at puts the section in front of an error that does not begin with it.
func at(section string, err error) error {
	if err == nil || strings.HasPrefix(err.Error(), section+".") {
		return err
	}
	return fmt.Errorf("%s: %w", section, err)
}

// validate refuses an operations listener that strangers could use: it shows
// memory, and some of its endpoints change things (S37).
func (o OpsConfig) validate() error {
	if err := o.HTTPConfig.Validate(); err != nil {
		return err
	}
	if err := telemetry.ValidateOpsKeys(o.Keys); err != nil {
		return err
	}
	if len(o.Keys) == 0 && !o.AllowOpen && !onLoopback(o.Addr) {
		return fmt.Errorf("addr %q: others than this machine can reach it, and it asks for no key: add ops.keys ('tidegate ops-key NAME' makes one), "+
			"listen on 127.0.0.1, or say allow_open: true if everybody in that network may read memory and use /ops/v1/", o.Addr)
	}
	return nil
}

// onLoopback tells that only this machine can reach an address. A name other
// than localhost may lead anywhere.
func onLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

func (t TopicsConfig) validate() error {
	if err := t.Names().Validate(); err != nil {
		return err
	}
	switch {
	case t.Partitions < 1 || t.Partitions > 1000:
		return fmt.Errorf("partitions %d: use 1 to 1000; 12 is right for almost everybody", t.Partitions)
	case t.Replication < 1:
		return fmt.Errorf("replication %d: use 3, or 1 with a single broker", t.Replication)
	case t.MinISR < 1 || t.MinISR > int(t.Replication):
		return fmt.Errorf("min_insync_replicas %d: use 1 to replication (%d)", t.MinISR, t.Replication)
	case t.Retention < 24*time.Hour:
		return fmt.Errorf("retention %s: use at least 24h, and more than the longest outage you want to survive", t.Retention)
	}
	return nil
}

func (w WeChatConfig) validate() error {
	if err := w.LineHealth.Validate(); err != nil {
		return fmt.Errorf("wechat.line_health.%w", err)
	}
	if len(w.Lines) > 0 {
		if err := line.Validate(w.Lines); err != nil {
			return fmt.Errorf("wechat.lines%w", err)
		}
		return at("wechat", wechat.Options{Timeout: w.Timeout}.Validate())
	}
	if len(w.BaseURLs) == 0 {
		return errors.New("wechat.base_urls: name at least https://api.weixin.qq.com")
	}
	return at("wechat", wechat.Options{BaseURLs: w.BaseURLs, Timeout: w.Timeout}.Validate())
}

func (c Config) validateAccounts(role Role) error {
	if len(c.Accounts) == 0 {
		return errors.New("accounts: configure at least one account (name, app_id, gh_id, token, encoding_aes_key, secret)")
	}
	var errs []error
	seen := map[string]int{}
	for i, a := range c.Accounts {
		where := fmt.Sprintf("accounts[%d] (%.40s)", i, a.Name)
		if err := line.CheckOrder(c.WeChat.lineConfigs(), a.Lines); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
		for _, err := range append(a.validate(role), unique(seen, i, a)...) {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	return errors.Join(errs...)
}

func (a AccountConfig) validate(role Role) []error {
	var errs []error
	if !wire.ValidAccount(a.Name) {
		errs = append(errs, fmt.Errorf("name %q: use 1 to 40 of a-z, 0-9 and -, beginning with a letter or digit", a.Name))
	}
	if a.AppID == "" {
		errs = append(errs, errors.New("app_id is empty"))
	}
	if role == RoleProxy && wire.ValidAccount(a.Name) {
		if err := a.atTheDoor().Validate(); err != nil {
			errs = append(errs, err)
		}
	}
	if role == RoleSender && a.Secret == "" {
		errs = append(errs, errors.New("secret is empty; the sender needs the AppSecret to get tokens (file:/path and env:NAME are understood)"))
	}
	if err := a.Robot.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("robot.%w", err))
	}
	if err := a.Sender.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("sender.%w", err))
	}
	if err := sender.ValidateErrors(a.Errors); err != nil {
		errs = append(errs, err)
	}
	if err := a.QuietHours.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// unique refuses what two accounts must not share: a name would mix their
// topics, an appid their tokens and caps, an original id their callbacks.
func unique(seen map[string]int, i int, a AccountConfig) []error {
	var errs []error
	for _, f := range []struct{ field, value string }{{"name", a.Name}, {"app_id", a.AppID}, {"gh_id", a.GhID}} {
		key := f.field + "=" + f.value
		first, twice := seen[key]
		switch {
		case f.value == "":
		case twice:
			errs = append(errs, fmt.Errorf("%s %q is already that of accounts[%d]: each account has its own", f.field, f.value, first))
		default:
			seen[key] = i
		}
	}
	return errs
}

// listener is one address that a role listens on.
type listener struct{ key, addr string }

// listeners lists the addresses of a role, the operations listener first.
func (c Config) listeners(role Role) []listener {
	out := []listener{{"ops.addr", c.Ops.Addr}}
	switch role {
	case RoleProxy:
		out = append(out, listener{"proxy.http.addr", c.Proxy.HTTP.Addr})
	case RoleSender, RoleReceipts:
		out = append(out, listener{"api.addr", c.API.Addr})
	}
	return out
}

func (c Config) validateListeners(role Role) error {
	ls := c.listeners(role)
	if len(ls) == 2 && collide(ls[0].addr, ls[1].addr) {
		return fmt.Errorf("%s %q: it is also %s; give one of them another port", ls[1].key, ls[1].addr, ls[0].key)
	}
	return nil
}

// collide tells that two listeners cannot both have their address. Port 0
// takes a free one each time.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || anyAddress(hostA) || anyAddress(hostB)
}

func anyAddress(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}
