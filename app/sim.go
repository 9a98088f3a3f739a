package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"

	"tidegate/pkg/config"
	"tidegate/pkg/telemetry"
	"tidegate/pkg/wechat/wechatsim"
)

// SimOptions are the flags of `tidegate sim`.
type SimOptions struct {
	File        string
	Addr        string
	CallbackURL string
	Mode        string
	Out         io.Writer
}

// Sim runs the simulator on its own until ctx ends.
func Sim(ctx context.Context, o SimOptions) error {
	cfg := wechatsim.DefaultConfig()
	cfg.Addr = o.Addr
	if o.File == "" {
		cfg.Accounts = []wechatsim.Account{freshAccount(o.Mode, o.CallbackURL)}
	} else if err := config.Load(&cfg, config.Source{File: o.File, EnvPrefix: "TIDEGATE_SIM_", Environ: os.Environ()}); err != nil {
		return usage(err)
	}
	if err := cfg.Validate(); err != nil {
		return usage(fmt.Errorf("simulator: %w", err))
	}
	log, err := telemetry.NewLogger(telemetry.LogConfig{Level: "warn", Format: "console"})
	if err != nil {
		return err
	}
	sim, err := wechatsim.New(cfg, log.Named("sim"))
	if err != nil {
		return err
	}
	if err := sim.Start(); err != nil {
		return err
	}
	announceSim(o.Out, sim.URL(), cfg)
	if err := sim.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// freshAccount makes an account with secrets of its own.
func freshAccount(mode, callback string) wechatsim.Account {
	return wechatsim.Account{
		AppID: "wx" + randomText("0123456789abcdef", 16), Secret: randomText("0123456789abcdef", 32),
		GhID: "gh_" + randomText("0123456789abcdef", 12), Token: randomText(alphanumeric, 24),
		EncodingAESKey: randomAESKey(), Mode: mode, CallbackURL: callback, Followers: 100,
	}
}

const alphanumeric = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

func randomText(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		k, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil {
			panic(err) // the system's random source never fails on supported systems
		}
		b[i] = alphabet[k.Int64()]
	}
	return string(b)
}

// randomAESKey is 43 characters as WeChat's console makes them: the last one
// carries no unused bits, so that strict decoders take it as well.
func randomAESKey() string { return randomText(alphanumeric, 42) + "A" }

func announceSim(out io.Writer, url string, cfg wechatsim.Config) {
	fmt.Fprintf(out, "simulated WeChat on %s (API and control surface; no access control, keep it on loopback)\n", url)
	for _, a := range cfg.Accounts {
		fmt.Fprintf(out, "\naccount %s\n  app_id            %s\n  secret            %s\n  token             %s\n  encoding_aes_key  %s\n  mode              %s\n  callback_url      %s\n",
			a.GhID, a.AppID, a.Secret, a.Token, a.EncodingAESKey, a.Mode, a.CallbackURL)
	}
	if len(cfg.Accounts) > 0 {
		fmt.Fprintf(out, "\ntry:\n  curl -s '%s/cgi-bin/token?grant_type=client_credential&appid=%s&secret=%s'\n  curl -s -d '{\"count\":1}' %s/sim/v1/followers\n  curl -s %s/sim/v1/verdict\n",
			url, cfg.Accounts[0].AppID, cfg.Accounts[0].Secret, url, url)
	}
}
