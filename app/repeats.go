package app

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"tidegate/receipts"
)

// RepeatsOptions say what `tidegate repeats` shows.
type RepeatsOptions struct {
	Ops     string // operations listener of a receipts role
	Key     string // of that listener, or file:PATH of it; empty where it is open
	Since   time.Duration
	Account string
	Limit   int
	JSON    bool
	Out     io.Writer
}

// Repeats shows which users did the same again too soon, and what.
func Repeats(ctx context.Context, o RepeatsOptions) error {
	c, err := newOpsClient(o.Ops, o.Key)
	if err != nil {
		return err
	}
	q := url.Values{"since": {o.Since.String()}, "limit": {strconv.Itoa(o.Limit)}}
	if o.Account != "" {
		q.Set("account", o.Account)
	}
	var v receipts.RepeatsView
	text, err := c.get(ctx, "/ops/v1/repeats", q, &v)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printRepeats(o.Out, v)
}

func printRepeats(out io.Writer, v receipts.RepeatsView) error {
	fmt.Fprintf(out, "%d repeats by %d users from %s to %s\n", v.Repeats, v.Users, v.From, v.To)
	if v.Cut {
		fmt.Fprintln(out, "there are more: only the newest are counted")
	}
	if v.Repeats == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nUSER\tACCOUNT\tREPEATS\tFIRST\tLAST")
	for _, u := range v.TopUsers {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", u.User, u.Account, u.Repeats, u.FirstAt, u.LastAt)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nACTION\tACCOUNT\tREPEATS\tUSERS\tLAST")
	for _, a := range v.TopActions {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\n", forTerminal(a.Action), a.Account, a.Repeats, a.Users, a.LastAt)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(t, "\nAT\tUSER\tACCOUNT\tACTION\tREASON\tID")
	for _, r := range v.Recent {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", r.At, r.User, r.Account, forTerminal(r.Action), forTerminal(r.Reason), r.ID)
	}
	return t.Flush()
}

// forTerminal keeps text that came from outside from steering the terminal or
// breaking the table.
func forTerminal(s string) string { return printable(s, 60) }

// printable replaces what is no visible letter, and shortens to so many.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
