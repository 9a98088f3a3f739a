package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"tidegate/robot/engine"
)

// RulesOptions say which rules are looked at, and with which configuration
// beside them; without one, names of accounts, back ends and engines are not
// checked.
type RulesOptions struct {
	File   string
	Source Source
	Out    io.Writer
}

// load reads the file and prints all that is wrong with it.
func (o RulesOptions) load() (*engine.Rules, error) {
	known, err := o.known()
	if err != nil {
		return nil, err
	}
	rules, err := engine.Check(o.File, known)
	var problems engine.Problems
	switch {
	case errors.As(err, &problems):
		for _, p := range problems {
			fmt.Fprintln(o.Out, p.Error())
		}
		fmt.Fprintf(o.Out, "%s cannot be used: %s\n", o.File, counted(len(problems), "problem"))
		return nil, ErrReported
	case err != nil:
		return nil, usage(err)
	}
	return rules, nil
}

// known are the names of the configuration. Secrets are not read: whoever
// writes rules need not see them.
func (o RulesOptions) known() (engine.Known, error) {
	if o.Source.File == "" {
		return engine.Known{}, nil
	}
	c, err := loadNames(o.Source)
	if err != nil {
		return engine.Known{}, usage(err)
	}
	return knownTo(c, RoleRobot), nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// RulesCheck tells whether roles could use a rules file, and everything that is
// wrong with it, with line and column.
func RulesCheck(o RulesOptions) error {
	rules, err := o.load()
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s is good: %s, version %s\n", o.File, counted(rules.Len(), "rule"), rules.Version())
	for _, l := range []struct {
		what  string
		names []string
		need  string
	}{
		{"back ends", rules.Backends(), "robot.backends"}, {"bots", rules.Bots(), "robot.backends, type: wechat"}, {"engines", rules.Engines(), "robot.engines"},
	} {
		if len(l.names) > 0 {
			fmt.Fprintf(o.Out, "  %s: %s (%s)\n", l.what, strings.Join(l.names, ", "), l.need)
		}
	}
	if rules.Converses() {
		fmt.Fprintln(o.Out, "  dialogues: robots need redis and robot.dialogue.key")
	}
	return nil
}
