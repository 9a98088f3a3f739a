package app

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"tidegate/pkg/config"
)

// Source says where a command's configuration comes from.
type Source struct {
	File string
	Set  map[string]string
}

// ErrUsage marks errors of usage and configuration (exit code 2).
var ErrUsage = errors.New("usage")

// ErrReported marks a failure that the command has already told about (exit
// code 1 without a further message).
var ErrReported = errors.New("reported")

type usageError struct{ err error }

func (u usageError) Error() string   { return u.err.Error() }
func (u usageError) Unwrap() []error { return []error{u.err, ErrUsage} }

func usage(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// loadFor reads the configuration and validates it for a role; an empty role
// checks what all roles share.
func loadFor(src Source, role Role) (Config, error) {
	c, err := LoadConfig(src.File, src.Set)
	if err != nil {
		return c, usage(err)
	}
	if err := c.Validate(role); err != nil {
		return c, usage(fmt.Errorf("configuration %s cannot be used:\n%w", nameOf(src), err))
	}
	return c, nil
}

func nameOf(src Source) string {
	if src.File == "" {
		return "(no --config file)"
	}
	return src.File
}

// PrintConfig writes the effective configuration without secrets.
func PrintConfig(out io.Writer, src Source) error {
	c, err := LoadConfig(src.File, src.Set)
	if err != nil {
		return usage(err)
	}
	text, err := config.Redacted(c)
	if err != nil {
		return err
	}
	_, err = io.WriteString(out, text)
	return err
}

// Version tells release, commit and Go version of this binary.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "tidegate (unknown build)"
	}
	commit := "unknown commit"
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			commit = s.Value
		}
	}
	return fmt.Sprintf("tidegate %s (%s, %s)", info.Main.Version, commit, info.GoVersion)
}
