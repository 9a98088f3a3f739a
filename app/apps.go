package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"tidegate/pkg/api"
	"tidegate/pkg/telemetry"
)

// NewKey describes a key to be made.
type NewKey struct {
	Name      string
	Accounts  []string
	Scopes    []string
	Templates []string
	Developer string
}

// withBook opens the list of keys for one command. Only the database's part
// of the configuration has to be right.
func withBook(ctx context.Context, src Source, do func(*api.Book, Config) error) error {
	c, err := LoadConfig(src.File, src.Set)
	if err != nil {
		return usage(err)
	}
	if err := c.Database.Validate(); err != nil {
		return usage(fmt.Errorf("%w (the keys lie in the database of the configuration: give --config)", at("database", err)))
	}
	log, err := telemetry.NewLogger(c.Log)
	if err != nil {
		return usage(err)
	}
	e := newEngines(c, log)
	defer func() { _ = e.stack.Stop(context.WithoutCancel(ctx)) }()
	db, err := e.DB(ctx)
	if err != nil {
		return err
	}
	if err := api.Migrate(ctx, db); err != nil {
		return err
	}
	return do(api.NewBook(db, nil), c)
}

// AppsAdd makes a key and prints it, this once.
func AppsAdd(ctx context.Context, src Source, k NewKey, out io.Writer) error {
	return withBook(ctx, src, func(b *api.Book, c Config) error {
		a, key, err := b.AddApp(ctx, api.App{Name: k.Name, Scopes: k.Scopes, Accounts: k.Accounts, Templates: k.Templates, Developer: k.Developer})
		if err != nil {
			return err
		}
		for _, name := range k.Accounts {
			if name != api.AllAccounts && !slices.Contains(c.names(), name) {
				fmt.Fprintf(out, "note: the configuration has no account %s yet\n", name)
			}
		}
		fmt.Fprintf(out, "key of %s (%s), shown once – keep it as a secret:\n%s\n", a.Name, a.KeyID, key)
		return nil
	})
}

// AppsList prints every key without its secret.
func AppsList(ctx context.Context, src Source, out io.Writer) error {
	return withBook(ctx, src, func(b *api.Book, _ Config) error {
		apps, err := b.List(ctx)
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(t, "NAME\tKEY ID\tSCOPES\tACCOUNTS\tTEMPLATES\tDEVELOPER\tCREATED\tREVOKED")
		for _, a := range apps {
			accounts, revoked := strings.Join(a.Accounts, ","), ""
			if accounts == "" {
				accounts = "(none)"
			}
			if !a.RevokedAt.IsZero() {
				revoked = a.RevokedAt.Format(time.RFC3339)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", a.Name, a.KeyID, strings.Join(a.Scopes, ","), accounts, cmp.Or(strings.Join(a.Templates, ","), "all"), cmp.Or(a.Developer, a.Name), a.CreatedAt.Format(time.RFC3339), revoked)
		}
		return t.Flush()
	})
}

// AppsRevoke ends a key, or all keys of an app.
func AppsRevoke(ctx context.Context, src Source, key string, out io.Writer) error {
	return withBook(ctx, src, func(b *api.Book, _ Config) error {
		n, err := b.Revoke(ctx, key)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "revoked %d; no node takes it any more within 5 s\n", n)
		return nil
	})
}
