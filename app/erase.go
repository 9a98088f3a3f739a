package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"tidegate/pkg/telemetry"
	"tidegate/pkg/wire"
	"tidegate/robot"
)

// EraseOptions say whose data `tidegate erase` erases, and whom it asks.
type EraseOptions struct {
	Source          Source // where ops.addr stands if Ops is empty
	Ops             string // operations listener of a robot
	Key             string // of that listener, or file:PATH of it; empty where it is open
	Account, OpenID string
	Yes             bool
	JSON            bool
	Out             io.Writer
}

// Erase has a robot erase what robots keep of a follower, and prints what is gone
// and what is not. Without Yes it asks nobody.
func Erase(ctx context.Context, o EraseOptions) error {
	switch {
	case !wire.ValidAccount(o.Account):
		return usage(fmt.Errorf("%s is no account's name", forTerminal(o.Account)))
	case !wire.ValidOpenID(o.OpenID):
		return usage(errors.New("OPENID: this is no openid: letters, digits, - and _ without spaces"))
	}
	addr, err := QueuesOptions{Ops: o.Ops, Source: o.Source}.listener()
	if err != nil {
		return usage(err)
	}
	c, err := newOpsClient(addr, o.Key)
	if err != nil {
		return err
	}
	if !o.Yes {
		_, err := fmt.Fprintf(o.Out, "nothing was erased: with --yes the robot at %s erases what robots keep of this follower of %s\n", c.base, o.Account)
		return err
	}
	var e robot.Erasure
	path := "/ops/v1/users/" + url.PathEscape(o.Account) + "/" + url.PathEscape(o.OpenID) + "/data"
	text, err := c.send(ctx, opsRequest{method: http.MethodDelete, path: path, scope: telemetry.ScopePersonal}, &e)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := o.Out.Write(text)
		return err
	}
	return printErasure(o.Out, e)
}

func printErasure(w io.Writer, e robot.Erasure) error {
	if len(e.Erased) == 0 {
		fmt.Fprintln(w, "robots keep nothing of followers in this configuration")
	}
	for _, what := range e.Erased {
		fmt.Fprintf(w, "robots: erased: %s\n", printable(what, 200))
	}
	for _, what := range e.Kept {
		fmt.Fprintf(w, "not reached: %s\n", printable(what, 500))
	}
	return nil
}
