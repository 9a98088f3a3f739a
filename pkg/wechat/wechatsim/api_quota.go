package wechatsim

import (
	"context"
	"net"
	"strings"
	"time"
)

type quotaBody struct {
	Errcode       int        `json:"errcode"`
	Errmsg        string     `json:"errmsg"`
	Quota         dailyQuota `json:"quota"`
	RateLimit     rateLimit  `json:"rate_limit"`
	ComponentRate rateLimit  `json:"component_rate_limit"`
}

type dailyQuota struct {
	DailyLimit int `json:"daily_limit"`
	Used       int `json:"used"`
	Remain     int `json:"remain"`
}

type rateLimit struct {
	CallCount     int `json:"call_count"`
	RefreshSecond int `json:"refresh_second"`
}

// unlimited stands for "no limit" where the answer's shape wants a number.
const unlimited = 1_000_000_000

func orUnlimited(n int) int {
	if n == 0 {
		return unlimited
	}
	return n
}

func quotaGet(c *call) (any, *apiError) {
	var q struct {
		CgiPath string `json:"cgi_path"`
	}
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	if strings.HasPrefix(q.CgiPath, "/sns/") {
		return nil, refusal(errSnsPath)
	}
	if _, known := c.sim.api[q.CgiPath]; !known {
		return nil, refusal(errCgiPath)
	}
	a := c.acct
	a.mu.Lock()
	defer a.mu.Unlock()
	used := a.quota.of(q.CgiPath, c.now).used
	limit := orUnlimited(a.limits.Daily[q.CgiPath])
	rate := rateLimit{orUnlimited(a.limits.PerMinute[q.CgiPath]), 60}
	return quotaBody{0, "ok", dailyQuota{limit, used, max(limit-used, 0)}, rate, rate}, nil
}

func clearQuota(c *call) (any, *apiError) {
	var q struct {
		AppID string `json:"appid"`
	}
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	if q.AppID != c.acct.cfg.AppID {
		return nil, refusal(errInvalidAppID)
	}
	return c.clear()
}

// clearQuotaV2 needs no token, for when none can be had.
func clearQuotaV2(c *call) (any, *apiError) {
	var q struct {
		AppID  string `json:"appid"`
		Secret string `json:"appsecret"`
	}
	if err := c.decode(&q); err != nil {
		return nil, err
	}
	if err := c.login(q.AppID, q.Secret); err != nil {
		return nil, err
	}
	return c.clear()
}

func (c *call) clear() (any, *apiError) {
	c.acct.mu.Lock()
	defer c.acct.mu.Unlock()
	if code := c.acct.quota.clear(c.now); code != 0 {
		return nil, refusal(code)
	}
	c.entry.Applied = true
	return ok, nil
}

type ipListBody struct {
	IPList []string `json:"ip_list"`
}

func apiDomainIP(*call) (any, *apiError) {
	return ipListBody{[]string{"203.0.113.10", "203.0.113.11"}}, nil
}

func callbackIP(*call) (any, *apiError) {
	return ipListBody{[]string{"198.51.100.0/26", "127.0.0.1"}}, nil
}

type callbackCheckBody struct {
	DNS  []checkedDNS  `json:"dns"`
	Ping []checkedPing `json:"ping"`
}

type checkedDNS struct {
	IP           string `json:"ip"`
	RealOperator string `json:"real_operator"`
}

type checkedPing struct {
	IP           string `json:"ip"`
	FromOperator string `json:"from_operator"`
	PackageLoss  string `json:"package_loss"`
	Time         string `json:"time"`
}

// callbackCheck resolves the callback host and opens a connection to it; the
// connection stands in for WeChat's ping.
func callbackCheck(c *call) (any, *apiError) {
	target, _ := c.acct.target()
	host, port := hostPort(target)
	if host == "" {
		return nil, refusal(errNoCallbackURL)
	}
	ctx, cancel := context.WithTimeout(c.sim.life, c.sim.cfg.Timeout)
	defer cancel()
	answer := callbackCheckBody{DNS: []checkedDNS{}, Ping: []checkedPing{}}
	addrs, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return answer, nil
	}
	for _, ip := range addrs {
		answer.DNS = append(answer.DNS, checkedDNS{ip, "DEFAULT"})
		loss, begun := "0%", time.Now()
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(ip, port))
		if err != nil {
			loss = "100%"
		} else {
			_ = conn.Close()
		}
		answer.Ping = append(answer.Ping, checkedPing{ip, "DEFAULT", loss, time.Since(begun).String()})
	}
	return answer, nil
}
