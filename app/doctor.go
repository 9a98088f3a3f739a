package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"
)

// doctorTimeout bounds each question to something outside this process.
const doctorTimeout = 3 * time.Second

// doctorAtOnce bounds how many questions are asked at the same time.
const doctorAtOnce = 16

// grade says how bad a finding is.
type grade string

// The grades. Only gradeFail decides about the exit code.
const (
	gradeOK   grade = "ok"
	gradeWarn grade = "warn"
	gradeFail grade = "FAIL"
)

// finding is one line of the doctor: what was found, and what to do about it.
type finding struct {
	grade grade
	what  string
	todo  string
}

func ok(format string, a ...any) finding {
	return finding{grade: gradeOK, what: fmt.Sprintf(format, a...)}
}

func warn(todo, format string, a ...any) finding {
	return finding{gradeWarn, fmt.Sprintf(format, a...), todo}
}

func fail(todo, format string, a ...any) finding {
	return finding{gradeFail, fmt.Sprintf(format, a...), todo}
}

// String gives one line, whatever an error's text holds.
func (f finding) String() string {
	text := f.what
	if f.todo != "" {
		text += " – " + f.todo
	}
	return fmt.Sprintf("%-4s  %s", f.grade, strings.Join(strings.Fields(text), " "))
}

// check asks one question; it returns within its context's time.
type check func(ctx context.Context) []finding

// doctor is one examination. It changes nothing, apart from one Redis key of
// its own that lives for seconds.
type doctor struct {
	src   Source
	cfg   Config
	roles []Role
	now   func() time.Time
}

// Doctor checks what a role needs and writes one line per finding, with what
// to do about it, and a line of counts. An empty role checks everything that
// is configured.
//
// It returns nil if nothing fails, ErrReported if something does, and an error
// of usage, with every problem of the configuration at once, if the
// configuration cannot be used; then nothing else is checked.
func Doctor(ctx context.Context, src Source, role Role, out io.Writer) error {
	c, err := LoadConfig(src.File, src.Set)
	if err != nil {
		return usage(err)
	}
	roles := []Role{role}
	if role == "" {
		roles = c.serves()
	}
	if err := validateAll(c, roles); err != nil {
		return usage(fmt.Errorf("configuration %s cannot be used:\n%w", nameOf(src), err))
	}
	d := &doctor{src: src, cfg: c, roles: roles, now: time.Now}
	return d.report(ctx, out)
}

// validateAll validates for every role, telling what they share once.
func validateAll(c Config, roles []Role) error {
	err := c.Validate("")
	for _, r := range roles {
		err = errors.Join(err, c.Validate(r))
	}
	if err == nil && len(roles) == 0 {
		err = errors.New("it has not enough for any role: the door needs a token of an account, the robot rules, the sender a secret of an account, receipts a database")
	}
	if err == nil {
		return nil
	}
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return errors.New(strings.Join(lines, "\n"))
}

// report asks all questions at once and writes the answers in their order.
func (d *doctor) report(ctx context.Context, out io.Writer) error {
	counts := map[grade]int{}
	for findings := range askAll(ctx, d.checks()) {
		for _, f := range findings {
			counts[f.grade]++
			if _, err := fmt.Fprintln(out, f); err != nil {
				return err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the examination was cut short: %w", err)
	}
	fmt.Fprintf(out, "%d ok, %d warn, %d FAIL\n", counts[gradeOK], counts[gradeWarn], counts[gradeFail])
	if counts[gradeFail] > 0 {
		return ErrReported
	}
	return nil
}

// checks lists what to ask, in the order in which answers are shown.
func (d *doctor) checks() []check {
	checks := []check{d.checkConfig, d.checkRules, d.checkListeners, d.checkKafka}
	if d.needs(RoleProxy) && d.cfg.Proxy.Spool.Dir != "" {
		checks = append(checks, d.checkSpool)
	}
	if d.needs(RoleProxy, RoleRobot, RoleSender) || d.hasJobs() {
		checks = append(checks, d.checkRedis)
	}
	if d.needs(RoleSender, RoleReceipts) || d.needs(RoleRobot) && d.cfg.Database.DSN != "" {
		checks = append(checks, d.checkDatabase)
	}
	if d.needs(RoleSender) {
		for _, l := range d.cfg.WeChat.lineConfigs() {
			checks = append(checks, d.checkLine(l))
		}
		for _, a := range d.cfg.Accounts {
			checks = append(checks, d.checkToken(a))
		}
	}
	return checks
}

func (d *doctor) needs(roles ...Role) bool {
	return slices.ContainsFunc(d.roles, func(r Role) bool { return slices.Contains(roles, r) })
}

// askAll runs the checks, a bounded number at a time, and yields their
// findings in order. It returns when all have ended.
func askAll(ctx context.Context, checks []check) iter.Seq[[]finding] {
	return func(yield func([]finding) bool) {
		answers := make([]chan []finding, len(checks))
		places := make(chan struct{}, doctorAtOnce)
		var all sync.WaitGroup
		defer all.Wait()
		for i, c := range checks {
			answers[i] = make(chan []finding, 1)
			all.Go(func() {
				places <- struct{}{}
				defer func() { <-places }()
				bounded, cancel := context.WithTimeout(ctx, doctorTimeout)
				defer cancel()
				answers[i] <- c(bounded)
			})
		}
		for _, a := range answers {
			if !yield(<-a) {
				return
			}
		}
	}
}
