package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"tidegate/pkg/wechat"
	"tidegate/sender/line"
)

// checkLine looks whether WeChat's API can be reached by a line. It asks for
// nothing and sends no token.
func (d *doctor) checkLine(l line.Config) check {
	return func(ctx context.Context) []finding {
		base := l.BaseURL
		proxy, err := l.ProxyURL()
		if err != nil {
			return []finding{fail("correct wechat.lines", "wechat line %s: %v", l.Name, err)}
		}
		if proxy != nil {
			base += " through " + proxy.Host
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodHead, l.BaseURL, nil)
		if err != nil {
			return []finding{fail("correct wechat.base_urls", "wechat: a base URL cannot be used")}
		}
		// As the sender: a proxy from the environment would be an address that the
		// configuration does not name.
		client := &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true, Proxy: http.ProxyURL(proxy)},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		resp, err := client.Do(req)
		if err != nil {
			return []finding{d.hostAway(base, err)}
		}
		_ = resp.Body.Close() // of a HEAD: empty
		if theirs, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			// The header has whole seconds, and is as old as the answer.
			if skew := theirs.Sub(d.now()).Round(time.Second); skew.Abs() > clockSkew+time.Second {
				return []finding{ok("wechat %s can be reached", base), warn("let NTP (chrony, systemd-timesyncd) keep the clock", "clock: that of %s is %s from ours", base, skew)}
			}
		}
		return []finding{ok("wechat %s can be reached", base)}
	}
}

// hostAway says which step failed: name, connection or certificate. One host
// of several is enough to work.
func (d *doctor) hostAway(base string, err error) finding {
	todo := "open the way out to this host and port in firewalls and security groups"
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &dns):
		todo = "the name does not resolve: correct wechat.base_urls or the DNS settings of this machine"
	case errors.As(err, &cert):
		todo = "its certificate is not trusted: install ca-certificates, set the clock, or look who answers in its place"
	case errors.Is(err, http.ErrSchemeMismatch):
		todo = "it does not speak TLS: correct the scheme in wechat.base_urls"
	}
	if len(d.cfg.WeChat.lineConfigs()) > 1 {
		return warn(todo, "wechat %s cannot be reached: %v", base, err)
	}
	return fail(todo, "wechat %s cannot be reached: %v", base, err)
}

// checkToken asks for an account's token as the sender does. Without force,
// WeChat answers with the current one and changes nothing; it is thrown away.
func (d *doctor) checkToken(a AccountConfig) check {
	return func(ctx context.Context) []finding {
		lines, err := line.New(d.cfg.WeChat.lineConfigs(), d.cfg.WeChat.LineHealth, line.Deps{Log: zap.NewNop(), Reg: prometheus.NewRegistry()})
		if err == nil {
			err = lines.SetAccounts(d.cfg.lineOrders())
		}
		if err != nil {
			return []finding{fail("correct the wechat section", "account %s: %v", a.Name, err)}
		}
		client := wechat.NewClientBy(lines, doctorTimeout)
		defer client.CloseIdle()
		ctx = wechat.WithCall(ctx, &wechat.Call{Account: a.Name})
		if _, err := client.StableToken(ctx, a.AppID, a.Secret, false); err != nil {
			return []finding{tokenRefused(a.Name, err)}
		}
		return []finding{ok("account %s: WeChat takes its AppID and AppSecret from this address", a.Name)}
	}
}

// tokenAdvice says what to do about a refused token, by errcode.
var tokenAdvice = map[int]string{
	40001: "the AppSecret is wrong: copy it again from the account's console, or reset it there",
	40002: "this account's type cannot get tokens: check that the AppID is that of a service account",
	40013: "the AppID is wrong: correct app_id",
	40125: "the AppSecret is wrong: copy it again from the account's console, or reset it there",
	40243: "the AppSecret is frozen: unfreeze it in the account's console",
	41002: "the AppID is missing: set app_id",
	41004: "the AppSecret is missing: set secret",
	45009: "the account's quota of token calls is used up for today: look for another system that asks for tokens",
	45011: "tokens are asked for too often: look for another system that does, and try again in a minute",
	50004: "the account may not call this: look for notices in its console",
	50007: "the account is frozen: look for notices in its console",
	89503: "the account's administrator must confirm this address: he has a message from WeChat",
	89506: "the administrator refused this address: ask him, and try again in 24 hours",
	89507: "the administrator refused this address: ask him, and try again in an hour",
}

// errcodes that may pass by themselves.
var tokenPasses = map[int]bool{-1: true, 45009: true, 45011: true}

func tokenRefused(account string, err error) finding {
	var e *wechat.APIError
	if !errors.As(err, &e) || e.Code == 0 {
		return fail("see the lines about wechat above", "account %s: no token: %v", account, err)
	}
	todo, known := tokenAdvice[e.Code]
	switch {
	case e.Code == 40164:
		todo = "put this machine's address as WeChat sees it" + seenAddress(e.Msg) + " on the IP whitelist in the account's console"
	case !known && tokenPasses[e.Code]:
		todo = "WeChat is busy: try again"
	case !known:
		todo = "look the errcode up in WeChat's documents"
	}
	if tokenPasses[e.Code] {
		return warn(todo, "account %s: no token now: errcode %d", account, e.Code)
	}
	return fail(todo, "account %s: no token: errcode %d", account, e.Code)
}

var addressLike = regexp.MustCompile(`[0-9A-Fa-f:.]{3,45}`)

// seenAddress takes the one thing out of WeChat's prose that it says nowhere
// else: the address that it saw. IPv4 comes first there, and is what counts.
func seenAddress(msg string) string {
	for _, word := range addressLike.FindAllString(msg, -1) {
		if ip, err := netip.ParseAddr(word); err == nil {
			return fmt.Sprintf(" (%s)", ip.Unmap())
		}
	}
	return ""
}
