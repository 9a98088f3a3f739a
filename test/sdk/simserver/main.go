// Command simserver runs the WeChat simulator for the SDK check: one account
// per mode of callback encryption. Its first line of output is a JSON object
// with the address and the accounts. It ends when its standard input does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"go.uber.org/zap"

	"tidegate/pkg/wechat/wechatsim"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "simserver:", err)
		os.Exit(1)
	}
}

type announced struct {
	URL      string                       `json:"url"`
	Accounts map[string]wechatsim.Account `json:"accounts"`
}

func serve() error {
	cfg := wechatsim.DefaultConfig()
	cfg.Limits.UserPage = 4
	out := announced{Accounts: map[string]wechatsim.Account{}}
	for i, mode := range []string{wechatsim.ModePlain, wechatsim.ModeCompatible, wechatsim.ModeSafe} {
		a := wechatsim.Account{
			AppID: fmt.Sprintf("wx5dc%013d", i), Secret: strings.Repeat(fmt.Sprint(i), 32),
			GhID: fmt.Sprintf("gh_5dc%09d", i), Token: "sdkcheck" + mode,
			EncodingAESKey: strings.Repeat("k", 40) + fmt.Sprintf("%02d", i) + "A", Mode: mode, Followers: 9,
			Templates: []wechatsim.Template{
				{ID: "TEMPLATE", Title: "发货通知", Content: "{{thing1.DATA}} {{amount2.DATA}}"},
				{ID: "SUBSCRIPTION", Kind: "subscribe", Content: "{{thing1.DATA}}"},
			},
		}
		cfg.Accounts = append(cfg.Accounts, a)
		out.Accounts[mode] = a
	}
	sim, err := wechatsim.New(cfg, zap.NewNop())
	if err != nil {
		return err
	}
	if err := sim.Start(); err != nil {
		return err
	}
	out.URL = sim.URL()
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent closes it, or dies
	}()
	return sim.Run(ctx)
}
